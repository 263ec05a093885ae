"""The waves that the heads of a least-squares memory start with: those of kernels that people would try first."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

GOLDEN = (math.sqrt(5) - 1) / 2
WEAKEST = 1e-6  # of the strongest: a wave of no strength could never be learned


class Waves(NamedTuple):
    """Of some heads."""

    frequencies: Float[Array, "heads frequencies features"]
    strengths: Float[Array, "heads frequencies"]  # shares of the variance, up to a factor for each head


def join(*parts: Waves) -> Waves:
    """Those of all heads, none without any strength."""
    frequencies, strengths = (jnp.concatenate(both).astype(jnp.float32) for both in zip(*parts, strict=True))
    return Waves(frequencies, jnp.maximum(strengths, WEAKEST * jnp.max(strengths, axis=1, keepdims=True)))


def smooth_waves(scales: Float[Array, "heads"], count: int, features: int, *, key: PRNGKeyArray) -> Waves:
    """Drawn from the spectrum of a squared-exponential kernel, equally strong."""
    drawn = jax.random.normal(key, (len(scales), count, features))
    return Waves(drawn / scales[:, None, None], jnp.ones((len(scales), count)))


def rough_waves(scales: Float[Array, "heads"], count: int, features: int, *, key: PRNGKeyArray) -> Waves:
    """Drawn from that of a Matérn 5/2 kernel, Student's distribution with 5 degrees of freedom."""
    smooth, strengths = smooth_waves(scales, count, features, key=key)
    squares = jax.random.chisquare(jax.random.fold_in(key, 1), 5, (len(scales), count, 1))
    return Waves(smooth / jnp.sqrt(squares / 5), strengths)


def even_waves(
    scales: Float[Array, "heads"], count: int, span: float, spectrum: Callable[[Array], Array]
) -> Waves:
    """Evenly spaced from 0 on, each as strong as the spectrum of the kernel is dense there: one variable only.

    Together they are the kernel and its repetitions at every multiple of `span`.
    """
    waves = 2 * math.pi / span * jnp.arange(count, dtype=jnp.float32)
    strengths = spectrum(scales[:, None] * waves[None]) * jnp.where(jnp.arange(count) > 0, 1.0, 0.5)[None]
    return Waves(jnp.tile(waves[None, :, None], (len(scales), 1, 1)), strengths)


def smooth_spectrum(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Of the squared-exponential kernel with length scale 1, 1 at its top."""
    return jnp.exp(-0.5 * x**2)


def rough_spectrum(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Of the Matérn 5/2 kernel with length scale 1, 1 at its top."""
    return (1 + x**2 / 5) ** -3


def periodic_waves(
    periods: Float[Array, "heads"], scales: Float[Array, "heads"], count: int, features: int
) -> Waves:
    """The Fourier series of periodic kernels (`mann.data.functions.Drawn`), along one dimension after the other."""
    harmonic = np.arange(count) // features
    angle = 2 * math.pi / (4 * count) * jnp.arange(4 * count, dtype=jnp.float32)
    sharpness = (periods / (2 * math.pi * scales)) ** 2
    series = jnp.fft.rfft(jnp.exp(sharpness[:, None] * (jnp.cos(angle) - 1)[None]), axis=1).real[:, harmonic]
    strengths = jnp.maximum(series, 0.0) * jnp.where(harmonic > 0, 2.0, 1.0)[None]
    return Waves(_along_axes(periods, harmonic, features), strengths)


def sawtooth_waves(periods: Float[Array, "heads"], count: int, features: int) -> Waves:
    """The Fourier series of the covariance of sawtooths, along one dimension after the other."""
    harmonic = 1 + np.arange(count) // features
    strengths = jnp.tile(jnp.asarray(harmonic, jnp.float32)[None] ** -2, (len(periods), 1))
    return Waves(_along_axes(periods, harmonic, features), strengths)


def _along_axes(
    periods: Float[Array, "heads"], harmonic: np.ndarray, features: int
) -> Float[Array, "heads frequencies features"]:
    axes = jax.nn.one_hot(jnp.arange(len(harmonic)) % features, features)
    turns = axes * jnp.asarray(harmonic, jnp.float32)[:, None]
    return 2 * math.pi * turns[None] / periods[:, None, None]


def spread(low: float, high: float, count: int) -> Float[Array, "count"]:
    """Evenly on a logarithmic scale."""
    return low * (high / low) ** ((jnp.arange(count, dtype=jnp.float32) + 0.5) / max(count, 1))


def scatter(low: float, high: float, count: int) -> Float[Array, "count"]:
    """The same, but neighbours far apart: for a second number beside one that is spread."""
    return low * (high / low) ** ((GOLDEN * jnp.arange(1, count + 1, dtype=jnp.float32)) % 1.0)
