"""`FunctionLearner`: the network as a regressor that learns one sample at a time and says how sure it is."""

import math
import threading
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float32, Float64

from mann.cell import State
from mann.errors import MannError
from mann.files import from_arrays, load_arrays, save_arrays, to_arrays
from mann.online.network import Network, compile_network
from mann.outputs import Gaussian
from mann.tasks import FunctionTask
from mann.trained import Trained, from_content, load_trained
from mann.training.config import to_dict

KEPT = 1024  # samples at most that are shown again when the scale of things turns out to be another
SPREAD = 4 / math.sqrt(12)  # standard deviation that x is brought to: that of even numbers between −2 and 2
FARTHEST = 3.0  # a sample beyond this, in the network's units, is reason to take the scale anew
LARGEST = 1e100  # of any number: more cannot be squared
NUMBERS, SMALLEST = Gaussian().size, Gaussian().smallest  # of the outputs: what follows is how familiar x is
VERSION = 1
DEFAULT_MODEL = "functions-1d"

Point = Any  # a number, or one per dimension: what is wrong with it is said in a sentence
Many = Any  # a list or an array of points, or of values
Range = Any  # lowest and highest


class Estimate(NamedTuple):
    """A normal distribution for the next value at x, noise included."""

    mean: float
    scale: float
    """Its standard deviation."""


class Estimates(NamedTuple):
    """The same for many x."""

    mean: Float64[np.ndarray, "n"]
    scale: Float64[np.ndarray, "n"]


class Scaling(NamedTuple):
    """From the units of the samples to those of the network, and back."""

    centre: Float64[np.ndarray, "dimensions"]
    spread: Float64[np.ndarray, "dimensions"]
    middle: float
    size: float

    def points(self, x: Float64[np.ndarray, "*n dimensions"]) -> np.ndarray:
        return _clip((x - self.centre) / self.spread, 1e4)  # float32 cannot tell more apart

    def values(self, y: Float64[np.ndarray, "n"]) -> np.ndarray:
        return _clip((y - self.middle) / self.size, 1e6)[:, None]


class Learned(NamedTuple):
    """It is replaced as a whole, so that a reader never sees half a change."""

    scaling: Scaling | None  # None before the first sample
    state: State
    pending: np.ndarray  # y_{t−1}, which goes in with the next x
    x: Float64[np.ndarray, "kept dimensions"]
    y: Float64[np.ndarray, "kept"]
    samples: int


class Asked(NamedTuple):
    """The last question, with the state that it left behind: `learn_one` of the same x takes it over."""

    point: Float32[np.ndarray, "dimensions"]
    pending: np.ndarray
    state: State  # that the question came to
    after: State


class FunctionLearner:
    """Learns a function from single samples, by writing them into the memory of a trained network.

    The calls follow river: `predict_one(x)`, then `learn_one(x, y)`. No weight changes. x and y may have any scale:
    they are standardised by what was seen so far. After 1, 2, 3, 4, 6, 8, 12, 16, … samples, or when one lies far
    outside, the scale is taken anew, and the last 1024 samples are shown to the network again. Where the ranges are
    known, say so: they are used from the first sample on. Safe to use from several threads.

    Args:
        trained: what `load_trained` returned, for regression.
        x_range: lowest and highest x, each a number or one per dimension.
        y_range: lowest and highest y.

    Raises:
        MannError: for a model that was not trained on functions, and for a range that is none.

    Examples:
        >>> import math, mann
        >>> learner = mann.FunctionLearner.from_pretrained()
        >>> for day in range(0, 60, 2):
        ...     learner.learn_one(day, 200 + 30 * math.sin(day / 6))
        >>> mean, scale = learner.predict_one(31)
        >>> abs(mean - (200 + 30 * math.sin(31 / 6))) < 5, scale < 10
        (True, True)
        >>> learner
        FunctionLearner('functions-1d', 30 samples)
    """

    def __init__(self, trained: Trained, *, x_range: Range = None, y_range: Range = None) -> None:
        if not isinstance(trained.config.task, FunctionTask):
            raise MannError(
                f"The model {trained.name} was not trained on functions: choose functions-1d, say."
            )
        self._network = compile_network(trained)
        self._dimensions: int = trained.model.input_size  # slow to look up in a module at every call
        self._wanted = "a number" if self.dimensions == 1 else f"{self.dimensions} numbers"
        self._x_range = None if x_range is None else self._check_range("x", x_range, self.dimensions)
        self._y_range = None if y_range is None else self._check_range("y", y_range, 1)
        self._lock = threading.Lock()
        self._learned = self._nothing()
        self._asked: Asked | None = None

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = DEFAULT_MODEL,
        *,
        x_range: Range = None,
        y_range: Range = None,
    ) -> "FunctionLearner":
        """A learner with the weights that a name stands for.

        Args:
            name: shipped weights, a run folder, or a file of weights (`load_trained`), for functions.
            x_range: as in the constructor.
            y_range: as in the constructor.
        """
        return cls(load_trained(name), x_range=x_range, y_range=y_range)

    def __repr__(self) -> str:
        return f"FunctionLearner({self.model!r}, {self.samples} samples)"

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._network.trained.name

    @property
    def dimensions(self) -> int:
        """Numbers in x."""
        return self._dimensions

    @property
    def samples(self) -> int:
        """How many it has learned."""
        return self._learned.samples

    def predict_one(self, x: Point) -> Estimate:
        """Mean and standard deviation of the next value at x. Leaves no trace in the memory.

        Before the first sample nothing is known of the scale, unless ranges were given: the mean is 0 and the
        standard deviation infinite.

        Args:
            x: a number, or one per dimension.

        Raises:
            MannError: for what is no such x.
        """
        point, known = self._point(x), self._learned
        scaling = known.scaling or self._scaling(known)
        if scaling is None:
            return Estimate(0.0, math.inf)
        scaled = scaling.points(point)
        outputs, after = self._network.step(scaled, known.pending, known.state)
        self._asked = Asked(scaled, known.pending, known.state, after)
        mean, stretched = np.asarray(outputs)[:NUMBERS].tolist()
        mean, scale = _in_units(mean, stretched, scaling)
        return Estimate(float(mean), float(scale))

    def predict_many(self, x: Many) -> Estimates:
        """`predict_one` of each x, in few compiled calls."""
        points, known = [self._point(one) for one in _each("x", x)], self._learned
        scaling = known.scaling or self._scaling(known)
        if not points or scaling is None:
            return Estimates(np.zeros(len(points)), np.full(len(points), math.inf))
        inputs = scaling.points(np.stack(points))
        outputs = self._network.steps(inputs, known.pending, known.state)
        mean, stretched = outputs[:, :NUMBERS].astype(np.float64).T
        return Estimates(*_in_units(mean, stretched, scaling))

    def learn_one(self, x: Point, y: Any) -> None:
        """Learn one sample.

        Args:
            x: a number, or one per dimension.
            y: the value there.

        Raises:
            MannError: for what is no such x or y; then nothing has changed.
        """
        point, value = self._point(x)[None], _numbers("y", y, 1, "a number")
        with self._lock:
            self._learned = self._learn(self._learned, point, value)

    def learn_many(self, x: Many, y: Many) -> None:
        """`learn_one` of each sample, in order, in few compiled calls; if one cannot be learned, none is."""
        listed, told = _each("x", x), _each("y", y)
        if len(listed) != len(told):
            raise MannError(f"{len(listed)} points need as many values, not {len(told)}.")
        if not listed:
            return
        points = np.concatenate([self._point(one)[None] for one in listed])
        values = np.concatenate([_numbers("y", one, 1, "a number") for one in told])
        with self._lock:
            self._learned = self._learn(self._learned, points, values)

    def reset(self) -> None:
        """Forget every sample."""
        with self._lock:
            self._learned = self._nothing()

    # --- scale and state --------------------------------------------------------------------------------------

    def _nothing(self) -> Learned:
        return Learned(
            None,
            self._network.start,
            np.zeros(1, np.float32),
            np.zeros((0, self.dimensions)),
            np.zeros(0),
            0,
        )

    def _learn(self, known: Learned, x: np.ndarray, y: np.ndarray) -> Learned:
        samples = known.samples + len(x)
        kept = Learned(
            known.scaling,
            known.state,
            known.pending,
            np.concatenate([known.x, x])[-KEPT:],
            np.concatenate([known.y, y])[-KEPT:],
            samples,
        )
        scaling, settled = known.scaling, _turns(samples) == _turns(known.samples)
        # Where both ranges were given, nothing is ever taken anew.
        given = self._x_range is not None and self._y_range is not None
        settled |= given and scaling is not None
        far = scaling is not None and not given and float(np.abs(scaling.points(x)).max()) > FARTHEST
        if scaling is None or far or not settled:
            anew = self._scaling(kept)
            assert anew is not None  # there are samples now
            if scaling is None or not _alike(scaling, anew):
                return self._show(kept._replace(scaling=anew), kept.x, kept.y, fresh=True)
        return self._show(kept, x, y, fresh=False)

    def _show(self, known: Learned, x: np.ndarray, y: np.ndarray, fresh: bool) -> Learned:
        """Let the network see samples in the scaling, after a wiped memory or after what it has seen."""
        assert known.scaling is not None
        points, values = known.scaling.points(x), known.scaling.values(y)
        first = np.zeros(1, np.float32) if fresh else known.pending
        state = self._network.start if fresh else known.state
        if len(points) == 1:
            state = self._after(points[0], first, state)
        else:
            state = self._network.unroll(points, np.concatenate([first[None], values[:-1]]), state)
        return known._replace(state=state, pending=values[-1])

    def _after(self, point: Float32[np.ndarray, "dimensions"], pending: np.ndarray, state: State) -> State:
        """The state after one step, which the question just asked may have taken already."""
        asked = self._asked
        known = asked is not None and asked.state is state and asked.pending is pending
        if asked is not None and known and asked.point.tolist() == point.tolist():
            return asked.after
        return self._network.step(point, pending, state)[1]

    def _scaling(self, known: Learned) -> Scaling | None:
        """By the ranges that were given, else by the samples; None if there is neither."""
        if not len(known.y) and (self._x_range is None or self._y_range is None):
            return None
        if self._x_range is not None:
            low, high = self._x_range
            centre, spread = (low + high) / 2, (high - low) / 4
        else:
            centre = known.x.mean(axis=0)
            spread = _positive(known.x.std(axis=0) / SPREAD, np.ones(self.dimensions))
        if self._y_range is not None:
            middle, size = np.mean(self._y_range), (self._y_range[1] - self._y_range[0]) / 4
        else:
            middle = np.asarray(known.y.mean())
            size = _positive(np.asarray(known.y.std()), np.asarray(abs(float(middle)) or 1.0))
        return Scaling(centre, spread, float(np.ravel(middle)[0]), float(np.ravel(size)[0]))

    # --- what comes in ----------------------------------------------------------------------------------------

    def _point(self, x: Any) -> Float64[np.ndarray, "dimensions"]:
        return _numbers("x", x, self.dimensions, self._wanted)

    def _check_range(self, name: str, bounds: Any, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
        try:
            low, high = bounds
        except (TypeError, ValueError):
            raise MannError(
                f"The range of {name} is two numbers, lowest and highest, not {bounds!r}."
            ) from None
        ends = []
        for end in (low, high):
            one = np.ndim(end) == 0
            numbers = _numbers(f"The range of {name}", end, 1 if one else dimensions, "finite numbers")
            ends.append(np.broadcast_to(numbers, (dimensions,)))
        if not np.all(ends[0] < ends[1]):
            raise MannError(f"The range of {name} is empty: {low!r} is not below {high!r}.")
        return ends[0], ends[1]

    # --- files ------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write weights, memory and the kept samples to one file (safetensors with JSON and a digest).

        Args:
            path: of the file, which is replaced as a whole.
        """
        known, trained = self._learned, self._network.trained
        arrays = {f"model.{name}": value for name, value in to_arrays(trained.model).items()}
        arrays |= {f"state.{name}": value for name, value in to_arrays(known.state).items()}
        arrays |= {"pending": known.pending, "samples.x": known.x, "samples.y": known.y}
        for name, bounds in (("x_range", self._x_range), ("y_range", self._y_range)):
            if bounds is not None:
                arrays[name] = np.stack(bounds)
        if known.scaling is not None:
            centre, spread, middle, size = known.scaling
            arrays["scaling"] = np.array([[*centre, middle], [*spread, size]])
        about = {"version": VERSION, "model": trained.name, "samples": known.samples}
        content = trained.description | {"config": to_dict(trained.config), "function_learner": about}
        save_arrays(Path(path), arrays, content)

    @classmethod
    def load(cls, path: str | Path) -> "FunctionLearner":
        """Read what `save` wrote: it goes on where that learner was.

        Args:
            path: of the file.

        Raises:
            MannError: if the file is damaged, or holds no such learner.
        """
        arrays, description = load_arrays(Path(path).resolve())
        about = description.pop("function_learner", None)
        if not isinstance(about, dict):
            raise MannError(f"{path} holds no learner of functions: give what FunctionLearner.save wrote.")
        if about.get("version") != VERSION:
            raise MannError(f"{path} was written by a later version of mann: update mann to read it.")
        trained = from_content(str(about.get("model")), arrays, description, str(path))
        ranges = {name: tuple(arrays[name]) for name in ("x_range", "y_range") if name in arrays}
        learner = cls(trained, **ranges)
        learner._learned = _read(arrays, about.get("samples"), learner._network, str(path))
        return learner


def _read(arrays: dict[str, np.ndarray], samples: Any, network: Network, source: str) -> Learned:
    """What was learned, from the arrays of a file."""
    size = network.trained.model.input_size
    prefix = "state."
    states = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    try:
        state = from_arrays(jax.eval_shape(network.trained.model.initial_state), states, source)
    except MannError:  # the digest was right: nobody damaged it
        raise MannError(
            f"{source} was written by an earlier version of mann, whose memory had another form: teach it anew."
        ) from None
    pending, x, y = (arrays.get(name, np.zeros(0)) for name in ("pending", "samples.x", "samples.y"))
    known = type(samples) is int and samples >= len(y)
    shaped = pending.shape == (1,) and y.shape == (len(y),) and x.shape == (len(y), size) and len(y) <= KEPT
    scaling = None
    if "scaling" in arrays and shaped and arrays["scaling"].shape == (2, size + 1):
        (*centre, middle), (*spread, scale) = arrays["scaling"].tolist()
        scaling = Scaling(np.array(centre), np.array(spread), middle, scale)
    numbers = [pending, x, y, *jax.tree.leaves(state), *(scaling or ())]
    sound = shaped and known and (scaling is None) == (len(y) == 0)
    if not sound or not all(np.isfinite(array).all() for array in numbers):
        raise MannError(f"{source} holds a learner that makes no sense: teach it anew.")
    if scaling is not None and not (np.all(scaling.spread > 0) and scaling.size > 0):
        raise MannError(f"{source} holds a learner that makes no sense: teach it anew.")
    return Learned(scaling, network.place(state), pending.astype(np.float32), x, y, int(samples))


def _in_units(mean: Any, stretched: Any, scaling: Scaling) -> tuple[Any, Any]:
    """Mean and scale from what the network says, numbers or arrays: as `Gaussian.mean_and_scale` reads them, on the
    host, since every call to the device takes its time."""
    scale = np.logaddexp(0.0, stretched) + SMALLEST
    return scaling.middle + scaling.size * mean, scaling.size * scale


def _clip(numbers: np.ndarray, most: float) -> np.ndarray:
    """As float32, no larger than this; `np.clip` takes several times as long for a single number."""
    return np.minimum(np.maximum(numbers, -most), most).astype(np.float32)


def _turns(samples: int) -> int:
    """How often the scale has been taken anew after so many samples: at 1, 2, 3, 4, 6, 8, 12, 16, …"""
    if samples < 2:
        return samples
    doubled = samples.bit_length() - 1
    return 2 * doubled + (samples >= 3 * 2 ** (doubled - 1))


def _alike(a: Scaling, b: Scaling) -> bool:
    """Whether it is not worth showing all samples again."""
    ratios = np.array([*(a.spread / b.spread), a.size / b.size])
    moved = np.array([*((a.centre - b.centre) / b.spread), (a.middle - b.middle) / b.size])
    return bool(np.all(np.abs(np.log(ratios)) < 0.1) and np.all(np.abs(moved) < 0.2))


def _positive(numbers: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    return np.where(numbers > 0, numbers, otherwise)


def _each(name: str, many: Any) -> list[Any]:
    try:
        return list(many)
    except TypeError:
        raise MannError(f"Many {name} are a list, not {_short(many)}.") from None


def _numbers(name: str, value: Any, count: int, wanted: str) -> Float64[np.ndarray, "count"]:
    """One or several finite numbers as an array, or a sentence that says what is wrong with them."""
    if isinstance(value, float) and count == 1 and -LARGEST <= value <= LARGEST:  # the quickest way
        return np.array([value])
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise MannError(f"{name} must be {wanted}, not {_short(value)}.")
    if array.size != count or array.ndim > 1:
        raise MannError(f"{name} must be {wanted}, not an array of the shape {array.shape}.")
    numbers = array.astype(np.float64).reshape(count)
    if all(-LARGEST <= number <= LARGEST for number in numbers.tolist()):  # for so few, quicker than NumPy
        return numbers
    if not np.all(np.isfinite(numbers)):
        raise MannError(f"{name} must be finite, not {_short(value)}.")
    raise MannError(f"{name} is larger than {LARGEST:g} ({_short(value)}): choose another unit.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
