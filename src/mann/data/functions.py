"""Functions for the regression tasks: of a Gaussian process that is known, or of one that is drawn with them."""

import dataclasses
import math
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mann.errors import MannError

SMALLEST_NOISE = 1e-2  # relative to the function: less is not safe in float32
Kernel = Literal["squared-exponential", "matern", "periodic", "sawtooth"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)


@runtime_checkable
class Process(Protocol):
    """What functions are drawn from."""

    @property
    def variance(self) -> float | Float[Array, ""]:
        """Of the function at any point."""

    @property
    def noise(self) -> float | Float[Array, ""]:
        """Standard deviation of the observation noise."""

    def covariance(
        self, a: Float[Array, "n dimensions"], b: Float[Array, "m dimensions"]
    ) -> Float[Array, "n m"]:
        """Covariance of the noiseless function at `a` and `b`."""


@dataclasses.dataclass(frozen=True)
class GaussianProcess:
    """Fixed hyperparameters: squared-exponential kernel and independent noise on every sample.

    Raises:
        MannError: unless all are positive, and the noise large enough for float32.
    """

    length_scale: float = 0.5
    """How far apart two points are alike."""
    variance: float = 1.0
    """Of the function at any point."""
    noise: float = 0.1
    """Standard deviation of the observation noise. It also keeps the Cholesky factor safe in float32."""

    def __post_init__(self) -> None:
        for field in ("length_scale", "variance", "noise"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise MannError(
                    f"The {field.replace('_', ' ')} of the process must be positive, not {value}."
                )
        if self.noise < SMALLEST_NOISE * math.sqrt(self.variance):
            raise MannError(
                f"A noise of {self.noise} is too small for float32: use at least a hundredth of the standard "
                "deviation of the function."
            )

    def covariance(
        self, a: Float[Array, "n dimensions"], b: Float[Array, "m dimensions"]
    ) -> Float[Array, "n m"]:
        """Covariance of the noiseless function at `a` and `b`."""
        squares = jnp.sum((a[:, None] - b[None]) ** 2, axis=-1)
        return self.variance * jnp.exp(-squares / (2 * self.length_scale**2))


class Drawn(NamedTuple):
    """The process of one function, its hyperparameters drawn from an `UnknownProcess`."""

    kernel: Int[Array, ""]  # its place in KERNELS
    length_scale: Float[Array, ""]
    variance: Float[Array, ""]
    noise: Float[Array, ""]  # standard deviation, absolute
    period: Float[Array, ""]
    direction: Float[Array, "dimensions"]  # of length 1: along which a sawtooth runs
    phase: Float[Array, ""]  # of a sawtooth, in periods

    def covariance(
        self, a: Float[Array, "n dimensions"], b: Float[Array, "m dimensions"]
    ) -> Float[Array, "n m"]:
        """Covariance of the noiseless function at `a` and `b`.

        The periodic kernel is the squared-exponential one of a point on a circle for every dimension, and so like
        it nearby. That of a sawtooth is over all phases.
        """
        apart = a[:, None] - b[None]
        squares = jnp.sum(apart**2, axis=-1)
        around = jnp.sum(jnp.sin(jnp.pi * apart / self.period) ** 2, axis=-1) * (self.period / jnp.pi) ** 2
        steps = jnp.sqrt(5.0 * squares + 1e-12) / self.length_scale
        turns = (apart @ self.direction / self.period) % 1.0
        choices = jnp.stack(
            [
                jnp.exp(-squares / (2 * self.length_scale**2)),
                (1 + steps + steps**2 / 3) * jnp.exp(-steps),
                jnp.exp(-around / (2 * self.length_scale**2)),
                1 - 6 * turns * (1 - turns),
            ]
        )
        return self.variance * choices[self.kernel]

    def sawtooth(self, x: Float[Array, "n dimensions"]) -> Float[Array, "n"]:
        """A sawtooth of this period, direction, phase and variance, without noise."""
        turns = (x @ self.direction / self.period + self.phase) % 1.0
        return jnp.sqrt(3 * self.variance) * (2 * turns - 1)


@dataclasses.dataclass(frozen=True)
class UnknownProcess:
    """Functions that are not known in advance: kernel and hyperparameters are drawn anew for every one.

    Numbers are even on a logarithmic scale between their bounds, kernels equally likely.

    Raises:
        MannError: for bounds that are not positive or not in order, and noise too small for float32.
    """

    kernels: tuple[Kernel, ...] = KERNELS
    """Which: Gaussian processes with a squared-exponential, Matérn 5/2 or periodic kernel, and sawtooths."""
    length_scale: tuple[float, float] = (0.25, 2.0)
    """How far apart two points are alike."""
    variance: tuple[float, float] = (0.25, 4.0)
    """Of the function at any point."""
    noise: tuple[float, float] = (0.05, 0.5)
    """Standard deviation of the observation noise, relative to that of the function."""
    period: tuple[float, float] = (1.0, 4.0)
    """Of periodic functions and sawtooths."""

    def __post_init__(self) -> None:
        if not self.kernels:
            raise MannError("Functions of no kernel cannot be drawn: name at least one.")
        for field in ("length_scale", "variance", "noise", "period"):
            low, high = getattr(self, field)
            if not 0 < low <= high < math.inf:
                raise MannError(
                    f"The bounds of the {field.replace('_', ' ')} must be positive and in order, not {low} and "
                    f"{high}."
                )
        if self.noise[0] < SMALLEST_NOISE:
            raise MannError(
                f"A relative noise of {self.noise[0]} is too small for float32: use at least {SMALLEST_NOISE}."
            )

    def draw(self, key: PRNGKeyArray, dimensions: int) -> Drawn:
        """The process of one function."""
        keys = jax.random.split(key, 7)

        def between(key: PRNGKeyArray, bounds: tuple[float, float]) -> Float[Array, ""]:
            low, high = map(math.log, bounds)
            return jnp.exp(jax.random.uniform(key, minval=low, maxval=high))

        which = jnp.asarray([KERNELS.index(kernel) for kernel in self.kernels])
        variance = between(keys[2], self.variance)
        direction = jax.random.normal(keys[5], (dimensions,))
        return Drawn(
            which[jax.random.randint(keys[0], (), 0, len(which))],
            between(keys[1], self.length_scale),
            variance,
            between(keys[3], self.noise) * jnp.sqrt(variance),
            between(keys[4], self.period),
            direction / jnp.linalg.norm(direction),
            jax.random.uniform(keys[6]),
        )


class FunctionDraw(NamedTuple):
    """Noisy values of one function, with what the exact GP would have said of each before seeing it."""

    values: Float[Array, "n"]
    log_density: Float[Array, "n"]  # log p(y_t | x_t, D_{1:t−1}) under the true process, in nats


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular L with L Lᵀ = matrix, column by column.

    `jnp.linalg.cholesky` calls LAPACK, and two CPU devices of one process that do so at the same time wait for
    each other forever (seen with jax 0.10.2, 2 cores, 50×50).
    """
    index = jnp.arange(len(matrix))

    def column(j: Int[Array, ""], factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
        rest = matrix[j] - factor @ factor[j]  # what the columns before j leave of the j-th
        return factor.at[:, j].set(jnp.where(index >= j, rest / jnp.sqrt(rest[j]), 0.0))

    return jax.lax.fori_loop(0, len(matrix), column, jnp.zeros_like(matrix))


def draw_function(key: PRNGKeyArray, x: Float[Array, "n dimensions"], process: Process) -> FunctionDraw:
    """Draw y ~ N(0, K + noise²) at the points x.

    With y = L z the exact sequential density at step t is −z_t²/2 − log L_tt − log(2π)/2: the Cholesky factor
    that draws the function is also its oracle.
    """
    covariance = process.covariance(x, x) + process.noise**2 * jnp.eye(len(x))
    factor = cholesky(covariance)
    z = jax.random.normal(key, (len(x),))
    log_density = -0.5 * z**2 - jnp.log(jnp.diagonal(factor)) - 0.5 * math.log(2 * math.pi)
    return FunctionDraw(factor @ z, log_density)


def draw_unknown(key: PRNGKeyArray, x: Float[Array, "n dimensions"], drawn: Drawn) -> Float[Array, "n"]:
    """Noisy values at the points x of one function: of the process, or a sawtooth."""
    noise_key, key = jax.random.split(key)
    teeth = drawn.sawtooth(x) + drawn.noise * jax.random.normal(noise_key, (len(x),))
    return jnp.where(drawn.kernel == KERNELS.index("sawtooth"), teeth, draw_function(key, x, drawn).values)


def draw_smooth(key: PRNGKeyArray, x: Float[Array, "n dimensions"], process: Process) -> Float[Array, "n"]:
    """Draw the function itself at the points x, without noise.

    Without noise the covariance of many close points is singular in float32, and has no Cholesky factor: its
    square root is taken by eigenvectors instead, which costs more and is right to about 0.003 deviations.
    """
    values, vectors = jnp.linalg.eigh(process.covariance(x, x))
    roots = jnp.sqrt(jnp.maximum(values, 0.0))
    return vectors @ (roots * jax.random.normal(key, (len(x),)))
