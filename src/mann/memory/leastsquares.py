"""Least squares: what is written is what could not be foretold, and a read blends all that was ever written.

Every head has keys of its own, φ(x): waves cos ω·x and sin ω·x, whose frequencies and strengths are learned. It
holds an estimate w with φ(x)·w for the value at x, and how uncertain it is in every direction, the covariance P. At
step t the value y_{t−1} has arrived, and the pair (φ(x_{t−1}), y_{t−1}) is written by the delta rule: the error
e = y − φ·w changes the estimate by P φ e / s², where s² = φ·P φ + noise² is the variance of the error, and takes
P φ φᵀ P / s² off the covariance. This is recursive least squares: after any number of samples the estimate is the
one that explains all of them best, and a sample that lies between others counts for less than one that stands
alone, which a softmax over slots cannot do. The size of the memory does not depend on how many there were.

Heads are hypotheses about the function: smooth or rough, noisy or not. How well each one foretold the samples so
far (its evidence) decides how much it is listened to; a small network mends what this blend gets wrong.

What it knows in advance: that values are sums of waves plus noise, and that where x is zero means nothing
(translation). How long the waves are, how strong, how noisy the values and how large, it learns.
"""

import dataclasses
import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from mann.errors import MannError, check_range
from mann.layers import Linear
from mann.memory.base import MOST, HostKernel, Memory, MemoryConfig, MemoryTrace, pass_on
from mann.memory.innovations import innovations
from mann.memory.waves import (
    Waves,
    even_waves,
    join,
    periodic_waves,
    rough_spectrum,
    rough_waves,
    sawtooth_waves,
    scatter,
    smooth_spectrum,
    smooth_waves,
    spread,
)
from mann.outputs import Gaussian

LEAST_NOISE = 1e-2  # relative to the function; keeps float32 safe


@dataclasses.dataclass(frozen=True)
class LeastSquaresConfig(MemoryConfig, kind="least-squares"):
    """Estimates of a function by recursive least squares on waves of learned frequencies, one per head."""

    takes_query: ClassVar[bool] = False
    frequencies: int = 32
    """Frequencies per head; two features of each, so that the memory has twice as many slots."""
    heads: int = 4
    """Heads (R): hypotheses about the function, each with frequencies of its own."""
    shortest: float = 0.3
    longest: float = 1.5
    """Length scales at which the heads start, evenly spread in between; they are learned from there."""
    span: float = 0.0
    """In 1-D, frequencies may start evenly spaced, so that nothing repeats over such a range; 0: at random."""
    rough: int = 0
    """So many of the heads start with a Matérn 5/2 kernel, instead of a squared-exponential one."""
    periodic: int = 0
    """So many start with the harmonics of a period each, as smooth as the length scales have it."""
    sawtooth: int = 0
    """So many start with the harmonics of a sawtooth."""
    shortest_period: float = 1.0
    longest_period: float = 4.0
    """Periods at which the last two start, evenly spread in between."""
    noise: float = 0.1
    """Noise at which the heads start, relative to the function; from head to head half, once and twice of it."""
    hidden: int = 32
    """Units of the network that mends the blend."""

    def __post_init__(self) -> None:
        for field in ("frequencies", "heads", "hidden"):
            check_range(f"The memory's {field}", getattr(self, field), 1, MOST)
        for field in ("rough", "periodic", "sawtooth"):
            check_range(f"The memory's {field} heads", getattr(self, field), 0, self.heads)
        check_range(
            "The memory's rough, periodic and sawtooth heads together",
            self.heads - self.smooth,
            0,
            self.heads,
        )
        if not 0 <= self.span < math.inf:
            raise MannError(f"The memory's span must be positive, or 0 for none, not {self.span}.")
        for name, low, high in (
            ("length scales", self.shortest, self.longest),
            ("periods", self.shortest_period, self.longest_period),
        ):
            if not 0 < low <= high < math.inf:
                raise MannError(f"The memory's {name} must be positive and in order, not {low} to {high}.")
        if not LEAST_NOISE <= self.noise < math.inf:
            raise MannError(f"The memory's noise must be at least {LEAST_NOISE}, not {self.noise}.")

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "LeastSquares":
        features, labels = inputs
        if labels != 1:
            raise MannError(
                "The least-squares memory holds values of functions, one number each: use it for regression."
            )
        if self.span and features != 1:
            raise MannError(
                f"Evenly spaced frequencies are for functions of one variable, not {features}: set the memory's "
                "span to 0."
            )
        return LeastSquares(self, features, key=key)

    def smallest(self) -> "LeastSquaresConfig":
        return dataclasses.replace(
            self,
            frequencies=4,
            heads=min(self.heads, 2),
            rough=0,
            periodic=0,
            sawtooth=min(self.sawtooth, 1),
            hidden=4,
        )

    @property
    def smooth(self) -> int:
        """Heads that start with a squared-exponential kernel."""
        return self.heads - self.rough - self.periodic - self.sawtooth


class LeastSquaresState(NamedTuple):
    estimate: Float[Array, "heads slots"]  # w
    covariance: Float[Array, "heads slots slots"]  # P
    squares: Float[Array, "heads"]  # Σ (e / s)² over all samples
    logarithms: Float[Array, "heads"]  # Σ log s
    samples: Float[Array, ""]  # written so far
    pending: Float[Array, "heads slots"]  # φ(x_t), which waits for its value; zeros at the start
    reach: Float[Array, "heads slots"]  # P φ(x_t): how far it and each feature are uncertain together
    gain: Float[Array, "heads slots"]  # of the last write, kept for the trace


class Foretold(NamedTuple):
    """What the heads say of a sample before its value arrives, if the function had variance 1."""

    mean: Float[Array, "heads"]
    scale: Float[Array, "heads"]  # s: noise included
    squares: Float[Array, "heads"]  # as in the state, over the samples before
    logarithms: Float[Array, "heads"]
    samples: Float[Array, ""]


class LeastSquares(Memory):
    """A slot is a feature of the function; `heads` estimates of it side by side."""

    frequencies: Float[Array, "heads frequencies features"]  # ω
    strengths: Float[Array, "heads frequencies"]  # their softmax: the share of each in the variance
    noise: Float[Array, "heads"]  # log of the standard deviation, relative to the function
    shape: Float[Array, "heads"]  # log a and
    rate: Float[Array, "heads"]  # log b: before any sample the variance of the function is about b / a
    preference: Float[Array, "heads"]  # log of how likely each head is before any sample
    trust: Float[Array, ""]  # log of how much evidence counts
    hidden: Linear
    mend: Linear
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)

    def __init__(self, config: LeastSquaresConfig, features: int, *, key: PRNGKeyArray) -> None:
        frequency_key, hidden_key, mend_key = jax.random.split(key, 3)
        heads, count = config.heads, config.frequencies
        waves = _starting_waves(config, features, key=frequency_key)
        self.frequencies, self.strengths = waves.frequencies, jnp.log(waves.strengths)
        cycle = jnp.asarray([1.0, 2.0, 0.5])[jnp.arange(heads) % 3]
        self.noise = jnp.log(config.noise * cycle)
        self.shape = jnp.full(heads, math.log(2.0), jnp.float32)
        self.rate = jnp.full(heads, math.log(2.0), jnp.float32)
        self.preference = _even_odds(config)
        self.trust = jnp.zeros(())
        self.hidden = Linear(3 * heads + 4, config.hidden, key=hidden_key)
        silent = Linear(config.hidden, 2, key=mend_key)  # nothing to mend at the start
        self.mend = eqx.tree_at(lambda layer: layer.weight, silent, jnp.zeros((config.hidden, 2)))
        self.slots, self.width, self.heads = 2 * count, 1, heads

    @property
    def read_size(self) -> int:
        """Mean and scale of the value at x_t, as the numbers that `Gaussian` reads them from."""
        return 2

    def first_readout(self, readout: Linear, hidden: int) -> Linear:
        """What is read is the answer."""
        return pass_on(readout, hidden)

    @property
    def direct_size(self) -> int:
        return self.heads * self.slots + 1

    def project(
        self, features: Float[Array, "*time features"], previous_label: Float[Array, "*time 1"]
    ) -> Float[Array, "*time direct"]:
        return jnp.concatenate([self.embed(features), previous_label], axis=-1)

    def embed(self, features: Float[Array, "*time features"]) -> Float[Array, "*time keys"]:
        """φ(x) of every head, each of length 1: the product of two keys is how alike values are expected to be."""
        angles = jnp.einsum("...d,hfd->...hf", features, self.frequencies)
        amplitudes = jnp.broadcast_to(self._amplitudes, angles.shape)
        waves = jnp.concatenate([amplitudes * jnp.cos(angles), amplitudes * jnp.sin(angles)], axis=-1)
        return waves.reshape(*features.shape[:-1], self.heads * self.slots)

    @property
    def _amplitudes(self) -> Float[Array, "heads frequencies"]:
        return jnp.exp(0.5 * jax.nn.log_softmax(self.strengths, axis=-1))

    def initial_state(self) -> LeastSquaresState:
        nothing = jnp.zeros((self.heads, self.slots))
        covariance = jnp.tile(jnp.eye(self.slots)[None], (self.heads, 1, 1))
        zeros = jnp.zeros(self.heads)
        return LeastSquaresState(nothing, covariance, zeros, zeros, jnp.zeros(()), nothing, nothing, nothing)

    def __call__(
        self, query: Float[Array, "query"], state: LeastSquaresState
    ) -> tuple[Float[Array, "reads"], LeastSquaresState]:
        direct = query[query.shape[0] - self.direct_size :]
        now, value = direct[:-1].reshape(self.heads, self.slots), direct[-1]
        state = self._write(value, state)
        reach = jnp.einsum("hst,ht->hs", state.covariance, now)
        spread = jnp.sum(now * reach, axis=1)
        said = Foretold(
            jnp.sum(now * state.estimate, axis=1),
            jnp.sqrt(jnp.maximum(spread, 0.0) + self._variance),
            state.squares,
            state.logarithms,
            state.samples,
        )
        return self.blend(said), state._replace(pending=now, reach=reach)

    def _write(self, value: Float[Array, ""], state: LeastSquaresState) -> LeastSquaresState:
        """The waiting key with its value, by the delta rule. At the start none waits: all of its features are zero,
        and so is what it changes."""
        key, reach = state.pending, state.reach
        variance = jnp.maximum(jnp.sum(key * reach, axis=1), 0.0) + self._variance
        error = value - jnp.sum(key * state.estimate, axis=1)
        gain = reach / variance[:, None]
        waits = _is_key(key)
        return state._replace(
            estimate=state.estimate + gain * error[:, None],
            covariance=state.covariance - gain[:, :, None] * reach[:, None],
            squares=state.squares + waits * error**2 / variance,
            logarithms=state.logarithms + waits * 0.5 * jnp.log(variance),
            samples=state.samples + waits,
            gain=gain,
        )

    @property
    def _variance(self) -> Float[Array, "heads"]:
        """Of the noise."""
        return jnp.exp(2 * self.noise) + LEAST_NOISE**2

    def blend(self, said: Foretold) -> Float[Array, "reads"]:
        """One distribution from those of all heads, each believed as far as it has been right.

        The variance of the function is not known: with an inverse gamma distribution for it before any sample,
        its mean after them and the evidence of a head are known in closed form.
        """
        shape, rate = jnp.exp(self.shape), jnp.exp(self.rate)
        shape_now, rate_now = shape + said.samples / 2, rate + said.squares / 2
        evidence = (
            shape * self.rate
            - shape_now * jnp.log(rate_now)
            + gammaln(shape_now)
            - gammaln(shape)
            - said.logarithms
        )
        weights = jax.nn.softmax(jnp.exp(self.trust) * evidence + self.preference)
        variances = rate_now / shape_now * said.scale**2
        mean = jnp.sum(weights * said.mean)
        apart = said.mean - mean
        within = jnp.sum(weights * variances)
        variance = within + jnp.sum(weights * apart**2)
        scale = jnp.sqrt(variance)
        doubt = -jnp.sum(weights * jnp.log(weights + 1e-9))
        seen = [weights, weights * apart / scale, weights * jnp.log(variances / variance)]
        seen += [jnp.stack([jnp.log(scale), doubt, jnp.log1p(said.samples), within / variance])]
        shift, stretch = self.mend(jnp.tanh(self.hidden(jnp.concatenate(seen))))
        mean, scale = mean + scale * shift, scale * jnp.exp(stretch)
        return Gaussian().from_mean_and_scale(mean, scale)

    @property
    def stands_alone(self) -> bool:
        return True

    def unroll(
        self, direct: Float[Array, "time direct"], state: LeastSquaresState
    ) -> tuple[Float[Array, "time reads"], LeastSquaresState]:
        """A whole episode at once: with K = Φ P Φᵀ + noise² = L Lᵀ over all of its keys, step t is foretold with
        the scale L_tt and misses by L_tt z_t, where L z are the values (as `mann.data.gp` has it).

        The last key has no value yet; any will do, since no step comes after it.
        """
        time = len(direct)
        now = direct[:, :-1].reshape(time, self.heads, self.slots).swapaxes(0, 1)
        keys = jnp.concatenate([state.pending[:, None], now], axis=1)  # one more than steps
        waits = _is_key(state.pending)  # else the first key is none, and gets no value
        present = jnp.ones(time + 1).at[0].set(waits)
        estimates = jnp.einsum("hts,hs->ht", keys, state.estimate)
        values = (present * jnp.concatenate([direct[:, -1], jnp.zeros(1)]))[None] - estimates
        reach = keys @ state.covariance
        matrix = reach @ keys.swapaxes(1, 2) + self._variance[:, None, None] * jnp.eye(time + 1)[None]
        scale, errors, inverse = innovations(matrix, values)  # errors: z

        squares = state.squares[:, None] + jnp.cumsum(present[None] * errors**2, axis=1)
        logarithms = state.logarithms[:, None] + jnp.cumsum(present[None] * jnp.log(scale), axis=1)
        samples = state.samples + waits + jnp.arange(time + 1, dtype=keys.dtype)
        said = Foretold(
            (estimates + values - scale * errors)[:, 1:],
            scale[:, 1:],
            squares[:, :-1],
            logarithms[:, :-1],
            samples[:-1],
        )
        over_time = Foretold(1, 1, 1, 1, 0)  # type: ignore[arg-type]  # where the axis of time is
        reads = jax.vmap(self.blend, in_axes=(over_time,))(said)

        gains = inverse[:, :-1, :-1] @ reach[:, :-1]  # L⁻¹ Φ P, without the last key
        covariance = state.covariance - gains.swapaxes(1, 2) @ gains
        last = LeastSquaresState(
            state.estimate + jnp.einsum("hts,ht->hs", gains, errors[:, :-1]),
            covariance,
            squares[:, -2],
            logarithms[:, -2],
            samples[-2],
            keys[:, -1],
            jnp.einsum("hst,ht->hs", covariance, keys[:, -1]),
            jnp.where(present[-2] > 0, gains[:, -1] / scale[:, -2, None], state.gain),
        )
        return reads, last

    def host_kernel(self) -> HostKernel:
        heads, count, features = self.frequencies.shape
        shape = jnp.exp(self.shape)
        weights = (
            self.frequencies.transpose(2, 0, 1),
            self._amplitudes,
            self._variance,
            shape,
            jnp.exp(self.rate),
            shape * self.rate - gammaln(shape),
            self.preference,
            jnp.stack([jnp.exp(self.trust), jnp.float32(Gaussian().smallest)]),
            *(self.hidden.weight, self.hidden.bias, self.mend.weight, self.mend.bias),
        )
        sizes = (heads, count, features, len(self.hidden.bias))
        return HostKernel("leastsquares", sizes, tuple(np.asarray(weight) for weight in weights))

    def trace(self, state: LeastSquaresState) -> MemoryTrace:
        """Slots are features: a head reads by its key, and writes by its gain."""
        return MemoryTrace(state.pending, state.gain, None, state.estimate.T)


def _is_key(key: Float[Array, "heads slots"]) -> Float[Array, ""]:
    """1, or 0 for the zeros of the start. One head tells, since a key has length 1 in all of them; to look at every
    number takes a learner's step longer, and the compiler seconds."""
    return (jnp.max(jnp.abs(key[0])) > 0).astype(key.dtype)


def _starting_waves(config: LeastSquaresConfig, features: int, *, key: PRNGKeyArray) -> Waves:
    """Of the smooth heads, the rough, the periodic and the sawtooths, in this order."""
    count, bounds = config.frequencies, (config.shortest, config.longest)
    periods = (config.shortest_period, config.longest_period)
    smooth, rough = spread(*bounds, config.smooth), spread(*bounds, config.rough)
    if config.span:
        parts = [
            even_waves(smooth, count, config.span, smooth_spectrum),
            even_waves(rough, count, config.span, rough_spectrum),
        ]
    else:
        parts = [
            smooth_waves(smooth, count, features, key=key),
            rough_waves(rough, count, features, key=jax.random.fold_in(key, 1)),
        ]
    around = spread(*periods, config.periodic)
    parts.append(periodic_waves(around, scatter(*bounds, config.periodic), count, features))
    parts.append(sawtooth_waves(spread(*periods, config.sawtooth), count, features))
    return join(*parts)


def _even_odds(config: LeastSquaresConfig) -> Float[Array, "heads"]:
    """The preference with which all kinds are equally likely, however many heads one has; 0 for a single kind."""
    counts = [heads for heads in (config.smooth, config.rough, config.periodic, config.sawtooth) if heads]
    odds = [math.log(config.heads / (len(counts) * heads)) for heads in counts]
    return jnp.concatenate([jnp.full(heads, odd) for heads, odd in zip(counts, odds, strict=True)])
