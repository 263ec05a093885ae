"""The paper's other task: functions of a Gaussian process, a new one in every episode; and functions not known."""

import dataclasses
import math
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mann.data import DataConfig
from mann.data.functions import Drawn, GaussianProcess, UnknownProcess, draw_function, draw_unknown
from mann.data.gp import Prediction, sequential_predictions
from mann.data.images import PictureFormat
from mann.data.seen import Fingerprints
from mann.episodes import Episode, SharedPictures
from mann.errors import MannError, check_range
from mann.outputs import Gaussian, gaussian_nll
from mann.paper import PaperRow
from mann.statistics import BANDS, mean_by_episode
from mann.tasks.alphabets import Alphabets
from mann.tasks.base import ResultTable, Task, Unseen

LATE = 20  # the mean gap to the exact process is taken over the steps from this one on
MOST = 10**8  # samples in an episode; whether they fit into memory is asked elsewhere


class Points(NamedTuple):
    """What was predicted for every sample of every episode."""

    nll: Float[Array | np.ndarray, "episodes time"]  # in nats
    squared_error: Float[Array | np.ndarray, "episodes time"]
    deviations: Float[Array | np.ndarray, "episodes time"]  # the error in predicted scales


@dataclasses.dataclass(frozen=True)
class FunctionTask(Task, abstract=True):
    """Values of a function, a new one in every episode, each x seen once.

    Raises:
        MannError: for other than 1 to 3 dimensions, no samples, or an empty range.
    """

    dimensions: int = 1
    """Dimensions of x: 1, 2 or 3."""
    length: int = 50
    """Samples in an episode (T)."""
    low: float = -2.0
    high: float = 2.0
    """x is uniform in [low, high] in every dimension."""

    def __post_init__(self) -> None:
        if self.dimensions not in (1, 2, 3):
            raise MannError(f"Regression is defined for 1, 2 or 3 dimensions, not {self.dimensions}.")
        check_range("The length of an episode", self.length, 1, MOST)
        if not -math.inf < self.low < self.high < math.inf:
            raise MannError(f"The input range is empty: {self.low} is not below {self.high}.")

    @property
    def steps(self) -> int:
        return self.length

    @property
    def label_size(self) -> int:
        return 1

    @property
    def output(self) -> Gaussian:
        return Gaussian()

    def input_shape(self, pictures: PictureFormat) -> tuple[int, ...]:
        return (self.dimensions,)

    def load_unseen(
        self, data: DataConfig, trained_on: DataConfig, seen: Fingerprints | None, model: str
    ) -> Unseen:
        return Unseen(None, "functions", None)

    def draw_points(self, key: PRNGKeyArray) -> Float[Array, "time dimensions"]:
        """x of every step."""
        return jax.random.uniform(key, (self.length, self.dimensions), minval=self.low, maxval=self.high)

    def tally(self, outputs: Float[Array, "batch time 2"], episodes: Any) -> Points:
        return _points(episodes.targets[..., 0], *self.output.mean_and_scale(outputs))

    def record(self, tally: Points) -> dict[str, Any]:
        return {"held_out_loss": float(np.mean(np.asarray(tally.nll, np.float64)))}

    def summarise(self, tally: Points, reference: Points) -> "LikelihoodByStep":
        return likelihood_by_step(self, tally, reference)

    def describe(self, episodes: int) -> str:
        return f"{episodes} functions, {self.steps} samples of each"

    def resized(
        self, classes: int = 0, length: int = 0, alphabets: Alphabets | Literal[""] = ""
    ) -> "FunctionTask":
        if classes or alphabets not in ("", "across"):
            raise MannError("A regression model has no classes: leave their number and alphabets out.")
        return dataclasses.replace(self, length=length or self.length)

    @property
    def extra_floats(self) -> int:
        """A covariance matrix and its Cholesky factor."""
        return 2 * self.steps**2


@dataclasses.dataclass(frozen=True)
class Regression(FunctionTask, kind="regression"):
    """Values of a function drawn from a Gaussian process, a new one in every episode.

    Raises:
        MannError: for other than 1 to 3 dimensions, no samples, or an empty range.

    Examples:
        >>> import jax
        >>> episode = Regression(dimensions=2, length=7).draw(jax.random.key(0))
        >>> episode.inputs.shape, episode.targets.shape
        ((7, 2), (7, 1))
    """

    process: GaussianProcess = GaussianProcess()
    loss_over: Literal["samples", "process"] = "samples"
    """−log p(y_t) of the sample drawn, or its mean over all y_t that the exact process holds possible."""

    def draw(self, key: PRNGKeyArray, source: None = None, size: Int[Array, "2"] | None = None) -> Episode:
        """Draw one episode; every x is seen once, so all steps are first instances of one class."""
        x_key, y_key = jax.random.split(key)
        x = self.draw_points(x_key)
        y = draw_function(y_key, x, self.process).values
        steps = jnp.zeros(self.length, jnp.int32)
        return Episode(x, y[:, None], steps, steps + 1, jnp.ones(self.length, bool))

    def loss(self, outputs: Float[Array, "batch time 2"], episodes: Episode) -> Float[Array, "batch"]:
        if self.loss_over == "samples":
            return super().loss(outputs, episodes)
        exact = self._exact(episodes)
        mean, scale = self.output.mean_and_scale(outputs)
        at_mean = gaussian_nll(exact.mean, mean, scale)
        return jnp.mean(at_mean + 0.5 * (exact.scale / scale) ** 2, axis=-1)

    def reference(self, episodes: Episode) -> Points:
        """What the exact process says of the same samples in the same order."""
        return _points(episodes.targets[..., 0], *self._exact(episodes))

    def _exact(self, episodes: Episode) -> Prediction:
        assert not isinstance(episodes.inputs, SharedPictures)
        predict = jax.vmap(partial(sequential_predictions, process=self.process))
        return predict(episodes.inputs, episodes.targets[..., 0])


class UnknownEpisode(NamedTuple):
    """An episode with the process that it was drawn from, which the network is not told."""

    inputs: Float[Array, "*batch time dimensions"]
    targets: Float[Array, "*batch time 1"]
    mask: Bool[Array, "*batch time"]
    process: Drawn


@dataclasses.dataclass(frozen=True)
class UnknownFunctions(FunctionTask, kind="functions"):
    """Values of a function that is not known in advance: every episode has another kernel and hyperparameters.

    Beside it stands the Gaussian process with the true ones. Of a sawtooth, which is no Gaussian process, it is the
    one with the same covariance: the best linear prediction.

    Raises:
        MannError: for other than 1 to 3 dimensions, no samples, or an empty range.

    Examples:
        >>> import jax
        >>> task = UnknownFunctions(length=7, unknown=UnknownProcess(kernels=("matern", "sawtooth")))
        >>> task.draw(jax.random.key(0)).targets.shape
        (7, 1)
    """

    unknown: UnknownProcess = UnknownProcess()

    def draw(
        self, key: PRNGKeyArray, source: None = None, size: Int[Array, "2"] | None = None
    ) -> UnknownEpisode:
        x_key, y_key, process_key = jax.random.split(key, 3)
        x, process = self.draw_points(x_key), self.unknown.draw(process_key, self.dimensions)
        y = draw_unknown(y_key, x, process)
        return UnknownEpisode(x, y[:, None], jnp.ones(self.length, bool), process)

    def reference(self, episodes: UnknownEpisode) -> Points:
        """What the process with the true hyperparameters says of the same samples in the same order."""
        y = episodes.targets[..., 0]
        return _points(y, *jax.vmap(sequential_predictions)(episodes.inputs, y, episodes.process))


def _points(y: Float[Array, "*n"], mean: Float[Array, "*n"], scale: Float[Array, "*n"]) -> Points:
    return Points(gaussian_nll(y, mean, scale), (y - mean) ** 2, (y - mean) / scale)


@dataclasses.dataclass(frozen=True)
class LikelihoodByStep:
    """Regression by step, for the model and for the exact process on the same samples (`model` and `gp`).

    `half_width` is half of the 95 % interval of the mean over episodes; that of the `gap` (model − gp) is from
    the difference of each episode, and so narrower than the two would suggest.
    """

    dimensions: int
    nll: dict[str, list[float]]  # nats per point
    half_width: dict[str, list[float]]  # model, gp, gap
    squared_error: dict[str, list[float]]
    coverage: dict[str, dict[str, list[float]]]  # "50" and "95": the share of samples inside that band
    late_gap: dict[str, float | int] | None  # mean gap from step 20 on; None for shorter episodes

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def table(self, paper: list[PaperRow]) -> ResultTable:
        columns = ["step", "nll", "GP's nll", "gap", "error²", "GP's error²", "in 50 %", "in 95 %"]
        steps = len(self.nll["model"])
        rows = []
        for step in sorted({1, 2, 5, *range(10, steps + 1, 10), steps}):
            if step > steps:
                continue
            i = step - 1
            nll, error = (
                {name: values[i] for name, values in both.items()} for both in (self.nll, self.squared_error)
            )
            rows.append(
                [
                    str(step),
                    f"{nll['model']:.3f}",
                    f"{nll['gp']:.3f}",
                    f"{nll['model'] - nll['gp']:.3f} ±{self.half_width['gap'][i]:.3f}",
                    f"{error['model']:.3f}",
                    f"{error['gp']:.3f}",
                    *(f"{100 * self.coverage[band]['model'][i]:.0f} %" for band in ("50", "95")),
                ]
            )
        notes = []
        if late := self.late_gap:
            notes.append(
                f"Mean gap from step {late['first_step']} on: {late['value']:.3f} ±{late['half_width']:.3f} nats "
                "per point"
            )
        notes.append(
            "nll: negative log-likelihood in nats per point, lower is better; GP: the exact process. ±: half of "
            "the 95 % interval.\nLast columns: how many samples lie inside the model's 50 % and 95 % band."
        )
        return ResultTable(columns, rows, notes)


def likelihood_by_step(task: FunctionTask, model: Points, gp: Points) -> LikelihoodByStep:
    """Means over episodes of what a model and the exact process said of the same samples."""
    both = {"model": model, "gp": gp}
    nll = {name: np.asarray(points.nll) for name, points in both.items()}
    gap = nll["model"] - nll["gp"]
    late = None
    if gap.shape[1] >= LATE:
        value, half = mean_by_episode(gap[:, LATE - 1 :].mean(axis=1, keepdims=True))
        late = {"first_step": LATE, "value": float(value[0]), "half_width": float(half[0])}
    return LikelihoodByStep(
        task.dimensions,
        {name: values.mean(axis=0).tolist() for name, values in nll.items()},
        {name: mean_by_episode(values)[1].tolist() for name, values in (nll | {"gap": gap}).items()},
        {name: points.squared_error.mean(axis=0).tolist() for name, points in both.items()},
        {
            str(band): {
                name: (np.abs(points.deviations) < width).mean(axis=0).tolist()
                for name, points in both.items()
            }
            for band, width in BANDS.items()
        },
        late,
    )
