"""The network as an online learner: show it a thing once, with a label of your own, and it knows it the next time.

>>> learner = OneShotLearner.from_pretrained()
>>> learner.learn_one(picture, "ankh")
>>> learner.predict_one(another_picture)
'ankh'
"""

import threading
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Float32
from PIL import Image

from mann.data.folder import normalise_image
from mann.data.render import downscale
from mann.episodes import Classification
from mann.errors import MannError
from mann.memory import MemoryTrace
from mann.models import Model, State
from mann.outputs import Strings, output_of
from mann.training.checkpoint import from_arrays, load_arrays, save_arrays, to_arrays
from mann.training.config import to_dict
from mann.weights import Trained, load_trained, pretrained_names

DEFAULT_MODEL = "omniglot-15-strings"  # its string labels leave room for as many things as one likes
ROUNDS = 30  # of `explain_letters`: more do not change any probability by a per cent

Picture = str | Path | Image.Image | np.ndarray | jax.Array
Label = Hashable


def default_model() -> str:
    """The shipped model for labels of one's own; the one-hot model in a package that was built without it."""
    return DEFAULT_MODEL if DEFAULT_MODEL in pretrained_names() else "omniglot-5"


class Look(NamedTuple):
    """What the network makes of a picture, without learning from it."""

    probabilities: dict[Label, float]  # of every label known so far; of something new under None
    memory: MemoryTrace | None  # where it read, and would have written; None for a network without a memory


class _Network(NamedTuple):
    """A trained model with its compiled step: what learners can share."""

    trained: Trained
    output: Strings
    step: Callable[[Any, Any, State], tuple[jax.Array, State]]
    start: State

    @property
    def codes(self) -> int:
        """How many labels the network can tell apart."""
        return self.output.alphabet**self.output.letters


class _Mind(NamedTuple):
    """Everything that a learner knows. It is replaced as a whole, so that a reader never sees half a change."""

    state: State
    pending: Float32[np.ndarray, "label"]  # y_{t−1}, which goes in with the next input; zeros at the start
    labels: dict[Label, int]  # the code of each
    encoded: Float32[np.ndarray, "labels label"]  # the same codes as the network sees them


class OneShotLearner:
    """Learns from single examples by writing them into the memory of a trained network; no weight changes.

    The calls follow river: `predict_one(x)`, then `learn_one(x, y)`. A picture is a path, a PIL image or an
    array of any size, mode and polarity; a label is anything hashable but None. `labels` may name labels in
    advance, before any example of them, as the digits 1 to 5 in the paper's human experiment. `seed` fixes
    which random codes the labels get. Safe to use from several threads.
    """

    def __init__(self, trained: Trained, *, labels: Iterable[Label] = (), seed: int | None = None) -> None:
        self._begin(_make_network(trained), labels, seed)

    @classmethod
    def from_pretrained(
        cls, name: str | Path = "", *, labels: Iterable[Label] = (), seed: int | None = None
    ) -> "OneShotLearner":
        """With shipped weights, a run folder, or a file of weights; no name means `default_model()`."""
        return cls(load_trained(name or default_model()), labels=labels, seed=seed)

    def sibling(self, *, labels: Iterable[Label] = (), seed: int | None = None) -> "OneShotLearner":
        """A new learner that knows nothing yet; it shares the weights and the compiled code, and no more."""
        other = object.__new__(OneShotLearner)
        other._begin(self._network, labels, seed)
        return other

    def _begin(self, network: _Network, labels: Iterable[Label], seed: int | None) -> None:
        self._network, self._announced = network, tuple(labels)
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self._mind = self._blank()

    def __repr__(self) -> str:
        return f"OneShotLearner({self.model!r}, {len(self._mind.labels)} of {self.capacity} labels in use)"

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._network.trained.name

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels known so far, in the order in which they came."""
        return tuple(self._mind.labels)

    @property
    def capacity(self) -> int:
        """How many labels there can be."""
        return self._network.codes

    @property
    def memory(self) -> MemoryTrace | None:
        """The memory after the last example: its contents, read and write weights, and usage."""
        return self._trace(self._mind.state)

    def predict_one(self, image: Picture) -> Label | None:
        """The most probable label; None if it is more probable that this is something new."""
        probabilities = self.predict_proba_one(image)
        return max(probabilities, key=probabilities.__getitem__)

    def predict_proba_one(self, image: Picture) -> dict[Label, float]:
        """The probability of every label known so far, and that of something new under None. Sums to 1."""
        return self._step_aside(image)[0]

    def look(self, image: Picture) -> Look:
        """`predict_proba_one`, with the memory at that step."""
        probabilities, state = self._step_aside(image)
        return Look(probabilities, self._trace(state))

    def learn_one(self, image: Picture, label: Label) -> None:
        """Show one example. Its label goes in with the next picture, exactly as in training."""
        pixels = _pixels(image)
        _check_label(label)
        with self._lock:
            mind = self._name(self._mind, label)
            _, state = self._network.step(pixels, mind.pending, mind.state)
            pending = _encode([mind.labels[label]], self._network.output)[0]
            self._mind = mind._replace(state=state, pending=pending)

    def reset(self) -> None:
        """Forget every example and every label but those announced in advance."""
        with self._lock:
            self._mind = self._blank()

    def save(self, path: str | Path) -> None:
        """Write weights, memory and labels to one file (safetensors with JSON and a digest).

        Labels must be text, numbers, or tuples of them.
        """
        mind, trained = self._mind, self._network.trained
        arrays = {f"model.{name}": value for name, value in to_arrays(trained.model).items()}
        arrays |= {f"state.{name}": value for name, value in to_arrays(mind.state).items()}
        arrays["pending"] = mind.pending
        learner = {
            "model": trained.name,
            "labels": [[_to_json(label), code] for label, code in mind.labels.items()],
            "announced": [_to_json(label) for label in self._announced],
        }
        save_arrays(
            Path(path), arrays, trained.description | {"config": to_dict(trained.config), "learner": learner}
        )

    @classmethod
    def load(cls, path: str | Path) -> "OneShotLearner":
        """Read what `save` wrote: it goes on where that learner was."""
        file = Path(path).resolve()
        arrays, description = load_arrays(file)
        if "learner" not in description:
            raise MannError(f"{path} holds no learner: give a file that OneShotLearner.save wrote.")
        try:
            saved = description.pop("learner")
            labels = {_from_json(label): int(code) for label, code in saved["labels"]}
            announced, name = [_from_json(label) for label in saved["announced"]], str(saved["model"])
        except (KeyError, TypeError, ValueError):
            raise MannError(f"{path} holds a learner of another version of mann: teach it anew.") from None
        learner = cls(load_trained(file)._replace(name=name, description=description), labels=announced)
        network = learner._network
        states = {key.removeprefix("state."): array for key, array in arrays.items()}
        kept = from_arrays({"pending": learner._mind.pending}, arrays, str(path))
        learner._mind = _Mind(
            from_arrays(network.start, states, str(path)),
            np.asarray(kept["pending"]),
            labels,
            _encode(list(labels.values()), network.output),
        )
        return learner

    def _step_aside(self, image: Picture) -> tuple[dict[Label, float], State]:
        """One step whose state is not kept."""
        mind = self._mind
        outputs, state = self._network.step(_pixels(image), mind.pending, mind.state)
        return self._probabilities(np.asarray(outputs), mind), state

    def _blank(self) -> _Mind:
        output = self._network.output
        mind = _Mind(self._network.start, np.zeros(output.size, np.float32), {}, _encode([], output))
        for label in self._announced:
            _check_label(label)
        return self._name(mind, *self._announced)

    def _name(self, mind: _Mind, *labels: Label) -> _Mind:
        """Give labels random codes that no other has, unless they have one already."""
        added = [label for label in dict.fromkeys(labels) if label not in mind.labels]
        if not added:
            return mind
        if len(mind.labels) + len(added) > self.capacity:
            strings = self._network.output.letters > 1
            raise MannError(
                f"The model {self.model} can tell {self.capacity} labels apart, so there is none left for "
                f"{added[-1]!r}: {'reset the learner' if strings else 'use a model with string labels'}."
            )
        unused = np.setdiff1d(np.arange(self.capacity), list(mind.labels.values()), assume_unique=True)
        codes = self._random.choice(unused, len(added), replace=False).tolist()
        encoded = np.concatenate([mind.encoded, _encode(codes, self._network.output)])
        return mind._replace(labels={**mind.labels, **dict(zip(added, codes, strict=True))}, encoded=encoded)

    def _probabilities(self, outputs: Float32[np.ndarray, "size"], mind: _Mind) -> dict[Label, float]:
        output = self._network.output
        logits = outputs.reshape(output.letters, output.alphabet).astype(np.float64)
        letters = np.exp(logits - logits.max(axis=1, keepdims=True))
        letters /= letters.sum(axis=1, keepdims=True)
        *known, new = explain_letters(letters, mind.encoded, self.capacity)
        return {**dict(zip(mind.labels, known, strict=True)), None: new}

    def _trace(self, state: State) -> MemoryTrace | None:
        memory = self._network.trained.model.memory
        return None if memory is None else jax.tree.map(np.asarray, memory.trace(state.memory))


def explain_letters(
    letters: Float[np.ndarray, "letters alphabet"], encoded: Float[np.ndarray, "labels label"], codes: int
) -> list[float]:
    """Probabilities of the labels in use and, last, of something new, from the distribution of each letter.

    The network states every letter of the label by itself. If it holds label k for likely with probability π_k,
    and something new with π_0, each letter has the distribution Σ_k π_k [letter of k] + π_0 [letter of a code
    not in use], so that a letter's probability is that of the label: the product over five letters would count
    the same doubt five times. The π that explain the letters best (least Kullback-Leibler divergence, summed
    over letters) are found by expectation maximisation. With one letter, this is the plain probability of each
    label, and the sum over those not in use. Where every code is in use nothing is new, and all that is to know
    is the product.
    """
    if len(encoded) == codes:
        products = np.exp(encoded @ np.log(letters.ravel() + 1e-30))
        return [*(products / products.sum()).tolist(), 0.0]
    count, alphabet = letters.shape
    # Every symbol is at a given place of codes / alphabet codes: less those in use, what is left for new ones.
    unused = (codes // alphabet - encoded.sum(axis=0)) / (codes - len(encoded))
    components = np.concatenate([encoded, unused[None]]).astype(np.float64)
    weights = np.full(len(components), 1 / len(components))
    for _ in range(ROUNDS):
        explained = np.maximum(weights @ components, 1e-30)
        better = weights * (components @ (letters.ravel() / explained)) / count
        change, weights = np.abs(better - weights).max(), better
        if change < 1e-4:
            break
    return (weights / weights.sum()).tolist()


def _make_network(trained: Trained) -> _Network:
    if not isinstance(trained.config.task, Classification):
        raise MannError(
            f"The model {trained.name} predicts functions: choose one that was trained on pictures."
        )
    output = output_of(trained.config.task)
    assert isinstance(output, Strings)
    arrays, static = eqx.partition(trained.model, eqx.is_array)

    @jax.jit
    def step(model: Model, x: jax.Array, label: jax.Array, state: State) -> tuple[jax.Array, State]:
        return eqx.combine(model, static).step(x, label, state)

    return _Network(trained, output, partial(step, arrays), trained.model.initial_state())


def _pixels(image: Picture) -> Float32[np.ndarray, "400"]:
    """As in training: 105×105 levels of ink, then 20×20."""
    return downscale(normalise_image(np.asarray(image) if isinstance(image, jax.Array) else image))


def _encode(codes: list[int], output: Strings) -> Float32[np.ndarray, "labels label"]:
    """Codes as letters, each a one-hot: the same as in `mann.episodes`, on the host."""
    powers = output.alphabet ** np.arange(output.letters - 1, -1, -1)
    letters = np.array(codes, int).reshape(-1, 1) // powers % output.alphabet
    return np.eye(output.alphabet, dtype=np.float32)[letters].reshape(len(codes), output.size)


def _check_label(label: Any) -> None:
    if label is None:
        raise MannError("None stands for something new: give the example a label of its own.")
    try:
        hash(label)
    except TypeError:
        raise MannError(f"A label must be hashable, such as text or a number; {label!r} is not.") from None
    if label != label:
        raise MannError("NaN is no label: it is not equal to itself.")


def _to_json(label: Any) -> Any:
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple):
        return {"tuple": [_to_json(part) for part in label]}
    if isinstance(label, str | int | float):
        return label
    raise MannError(f"The label {label!r} cannot be saved: use text, numbers, or tuples of them.")


def _from_json(label: Any) -> Any:
    return tuple(_from_json(part) for part in label["tuple"]) if isinstance(label, dict) else label
