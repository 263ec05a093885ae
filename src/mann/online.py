"""The network as an online learner: show it a thing once, with a label of your own, and it knows it the next time.

Examples:
    >>> import mann
    >>> learner = mann.OneShotLearner.from_pretrained()
    >>> ankhs, bells = mann.Glyphs(classes=3).load().images[1:]
    >>> learner.learn_one(ankhs[0], "ankh")
    >>> learner.learn_one(bells[0], "bell")
    >>> learner.predict_one(ankhs[1])
    'ankh'
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32, UInt8
from PIL import Image

from mann.cell import State
from mann.data import DataConfig, Omniglot
from mann.data.render import downscale
from mann.errors import MannError, check_seed
from mann.files import from_arrays, load_arrays, save_arrays, to_arrays
from mann.labels import LabelCode
from mann.memory import MemoryTrace
from mann.models import Model
from mann.outputs import Letters
from mann.trained import Trained, load_trained, pretrained_names
from mann.training.config import to_dict

DEFAULT_MODEL = "omniglot-15-strings"  # its string labels leave room for as many things as one likes
ROUNDS = 30  # of `explain_letters`: more do not change any probability by a per cent

Label = Hashable


class Prepared(NamedTuple):
    """A picture as the network sees it, from `prepare_picture`."""

    pixels: Float32[np.ndarray, "pixels"]
    picture: UInt8[np.ndarray, "side side *channels"]  # before it was scaled down, for people to look at


Picture = str | Path | Image.Image | np.ndarray | jax.Array | Prepared


def prepare_picture(
    image: Picture,
    name: str = "the image",
    data: DataConfig = Omniglot(),  # noqa: B008 (frozen)
) -> Prepared:
    """Bring a picture to what a network sees that was trained on a data set, once for several calls.

    Args:
        image: a file, a PIL image, an array, or what this function returned.
        name: what errors call a picture that is no file.
        data: the data set that the network was trained on.
    """
    if isinstance(image, Prepared):
        return image
    array = np.asarray(image) if isinstance(image, jax.Array) else image
    picture = data.picture(array, name)
    return Prepared(downscale(picture, data.side), picture)


def default_model() -> str:
    """The shipped model for labels of one's own; the one-hot model in a package that was built without it."""
    return DEFAULT_MODEL if DEFAULT_MODEL in pretrained_names() else "omniglot-5"


class Look(NamedTuple):
    """What the network makes of a picture before it is told the label."""

    probabilities: dict[Label, float]
    """Of every label known so far, and of something new under None. They sum to 1."""
    memory: MemoryTrace | None
    """Where it read and wrote, on its device; None for a network without a memory."""
    threshold: float | None = None
    """Probability from which on this is something new; None: if no label is more probable."""

    @property
    def best(self) -> Label | None:
        """The most probable label; None if this is something new."""
        return _answer(self.probabilities, self.threshold)


def _answer(probabilities: dict[Label, float], threshold: float | None) -> Label | None:
    known = {label: chance for label, chance in probabilities.items() if label is not None}
    if threshold is None or not known:
        return max(probabilities, key=probabilities.__getitem__)
    return None if probabilities[None] >= threshold else max(known, key=known.__getitem__)


class _Network(NamedTuple):
    """A trained model with its compiled step: what learners can share."""

    trained: Trained
    names: Letters
    step: Callable[[Any, Any, State], tuple[jax.Array, State]]
    steps: Callable[[Any, Any, State], jax.Array]  # of many pictures, each from the same state
    unroll: Callable[[Any, Any, State], State]  # many pictures with their labels, one after the other
    start: State

    @property
    def code(self) -> LabelCode:
        return self.names.code


class _Knowledge(NamedTuple):
    """Everything that a learner knows. It is replaced as a whole, so that a reader never sees half a change."""

    state: State
    pending: Float32[np.ndarray, "label"]  # y_{t−1}, which goes in with the next input; zeros at the start
    labels: dict[Label, int]  # the code of each
    encoded: Float32[np.ndarray, "labels label"]  # the same codes as the network sees them


class OneShotLearner:
    """Learns from single examples by writing them into the memory of a trained network; no weight changes.

    The calls follow river: `predict_one(x)`, then `learn_one(x, y)`. A picture is a path, a PIL image or an
    array of any size, mode and polarity; a label is anything hashable but None. Safe to use from several threads.

    Args:
        trained: what `load_trained` returned.
        labels: labels that are known in advance, before any example of them, as the digits 1 to 5 in the paper's
            human experiment.
        seed: fixes which random codes the labels get.
        novelty: whether it may answer that something is new: yes, no, or from which probability on.

    Raises:
        MannError: if the model was not trained to name things, or for more labels than it can tell apart.

    Examples:
        >>> import mann
        >>> learner = mann.OneShotLearner.from_pretrained(seed=0)
        >>> ankhs, bells = mann.Glyphs(classes=3).load().images[1:]
        >>> learner.learn_one(ankhs[0], "ankh")
        >>> learner.predict_one(bells[0]) is None  # something new
        True
        >>> learner.learn_one(bells[0], "bell")
        >>> learner.predict_one(bells[1])
        'bell'
        >>> learner
        OneShotLearner('omniglot-15-strings', 2 of 3125 labels in use)
    """

    def __init__(
        self,
        trained: Trained,
        *,
        labels: Iterable[Label] = (),
        seed: int | None = None,
        novelty: bool | float = True,
    ) -> None:
        self._begin(_make_network(trained), labels, seed, novelty)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = "",
        *,
        labels: Iterable[Label] = (),
        seed: int | None = None,
        novelty: bool | float = True,
    ) -> "OneShotLearner":
        """A learner with the weights that a name stands for.

        Args:
            name: shipped weights, a run folder, or a file of weights (`load_trained`); empty for the shipped
                model with string labels, which leave room for thousands of things.
            labels: known in advance, as in the constructor.
            seed: of the labels' codes, as in the constructor.
            novelty: as in the constructor.
        """
        return cls(load_trained(name or default_model()), labels=labels, seed=seed, novelty=novelty)

    def sibling(
        self, *, labels: Iterable[Label] = (), seed: int | None = None, novelty: bool | float | None = None
    ) -> "OneShotLearner":
        """A new learner that knows nothing yet; it shares the weights and the compiled code, and no more.

        Args:
            labels: known in advance, as in the constructor.
            seed: of the labels' codes, as in the constructor.
            novelty: as in the constructor; left out, as this learner has it.
        """
        other = object.__new__(OneShotLearner)
        other._begin(self._network, labels, seed, self._novelty if novelty is None else novelty)
        return other

    def _begin(
        self, network: _Network, labels: Iterable[Label], seed: int | None, novelty: bool | float
    ) -> None:
        self._network, self._announced, self._novelty = network, tuple(labels), novelty
        if not isinstance(novelty, bool) and not 0 <= novelty <= 1:
            raise MannError(f"The threshold of novelty lies between 0 and 1, not {novelty}.")
        if seed is not None:
            check_seed(seed)
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self._knowledge = self._start()

    def __repr__(self) -> str:
        return (
            f"OneShotLearner({self.model!r}, {len(self._knowledge.labels)} of {self.capacity} labels in use)"
        )

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._network.trained.name

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels known so far, in the order in which they came."""
        return tuple(self._knowledge.labels)

    @property
    def capacity(self) -> int:
        """How many labels there can be."""
        return self._network.code.capacity

    def prepare(self, image: Picture, name: str = "the image") -> Prepared:
        """What this learner's network sees of a picture: worth doing once where a picture is used several times.

        Args:
            image: a path, a PIL image or an array.
            name: what errors call a picture that is no file.

        Returns:
            What every other method takes in place of a picture.
        """
        return prepare_picture(image, name, self._network.trained.config.data)

    @property
    def memory(self) -> MemoryTrace | None:
        """The memory after the last example: its contents, read and write weights, and usage."""
        trace = self._trace(self._knowledge.state)
        return None if trace is None else jax.tree.map(np.asarray, trace)

    @property
    def similarity(self) -> Float32[np.ndarray, "heads slots"] | None:
        """How alike key and slot were at the last example, by head (eq 2); None if the network cannot say."""
        model, state = self._network.trained.model, self._knowledge.state
        output = model.controller.last_output(state.controller)
        if output is None:
            return None
        query = output.hidden if model.query == "hidden" else output.cell
        similarity = model.memory.similarity(query, state.memory)
        return None if similarity is None else np.asarray(similarity)

    def predict_one(self, image: Picture) -> Label | None:
        """The most probable label; None if it is more probable that this is something new.

        Leaves no trace in the memory.

        Args:
            image: a path, a PIL image or an array.

        Raises:
            MannError: for what cannot be read as a picture.
        """
        return self.choose(self.predict_proba_one(image))

    def choose(self, probabilities: dict[Label, float]) -> Label | None:
        """The answer that this learner gives for some probabilities: a label, or None for something new."""
        return _answer(probabilities, self._threshold)

    def predict_many(self, images: Sequence[Picture]) -> list[Label | None]:
        """`predict_one` of each picture, in one compiled call."""
        return [self.choose(chances) for chances in self.predict_proba_many(images)]

    def predict_proba_many(self, images: Sequence[Picture]) -> list[dict[Label, float]]:
        """`predict_proba_one` of each picture, in one compiled call."""
        if not images:
            return []
        knowledge = self._knowledge
        outputs = self._network.steps(self._pixels(images), knowledge.pending, knowledge.state)
        return [self._probabilities(row, knowledge) for row in np.asarray(outputs)]

    def learn_many(self, images: Sequence[Picture], labels: Sequence[Label]) -> None:
        """`learn_one` of each picture with its label, in order, in one compiled call."""
        if len(images) != len(labels):
            raise MannError(f"{len(images)} pictures need as many labels, not {len(labels)}.")
        if not images:
            return
        pixels = self._pixels(images)
        for label in labels:
            _check_label(label)
        with self._lock:
            knowledge = self._knowledge
            for label in labels:  # one at a time, for the same codes as from single calls
                knowledge = self._name(knowledge, label)
            encoded = self._network.code.encode_on_host([knowledge.labels[label] for label in labels])
            late = np.concatenate([knowledge.pending[None], encoded[:-1]])
            state = self._network.unroll(pixels, late, knowledge.state)
            self._knowledge = knowledge._replace(state=state, pending=encoded[-1])

    def _pixels(self, images: Sequence[Picture]) -> Float32[np.ndarray, "n pixels"]:
        return np.stack([self.prepare(image).pixels for image in images])

    @property
    def _threshold(self) -> float | None:
        """From which probability on something is new: as asked for, else half where the network states it."""
        if not isinstance(self._novelty, bool):
            return float(self._novelty)
        states = self._network.names.size > self._network.code.size
        return 0.5 if states and self._novelty else None

    def predict_proba_one(self, image: Picture) -> dict[Label, float]:
        """The probability of every label known so far, and that of something new under None. Sums to 1."""
        return self._peek(image)[0]

    def look(self, image: Picture) -> Look:
        """`predict_proba_one`, with the memory at that step."""
        probabilities, state = self._peek(image)
        return Look(probabilities, self._trace(state), self._threshold)

    def learn_one(self, image: Picture, label: Label) -> None:
        """Show one example. Its label goes in with the next picture, exactly as in training.

        Args:
            image: a path, a PIL image or an array.
            label: anything hashable but None. A new one gets a random code of its own.

        Raises:
            MannError: for what cannot be read as a picture, or when no code is left for a new label.
        """
        self._learn(image, label)

    def look_and_learn(self, image: Picture, label: Label) -> Look:
        """`look`, then `learn_one`, for one run of the network."""
        before, outputs, state = self._learn(image, label)
        return Look(self._probabilities(np.asarray(outputs), before), self._trace(state), self._threshold)

    def _learn(self, image: Picture, label: Label) -> tuple[_Knowledge, jax.Array, State]:
        """What the learner knew before the example, and the network's outputs and state at it."""
        pixels = self.prepare(image).pixels
        _check_label(label)
        with self._lock:
            before = self._knowledge
            knowledge = self._name(before, label)
            outputs, state = self._network.step(pixels, knowledge.pending, knowledge.state)
            pending = self._network.code.encode_on_host([knowledge.labels[label]])[0]
            self._knowledge = knowledge._replace(state=state, pending=pending)
        return before, outputs, state

    def reset(self) -> None:
        """Forget every example and every label but those announced in advance."""
        with self._lock:
            self._knowledge = self._start()

    def save(self, path: str | Path) -> None:
        """Write weights, memory and labels to one file (safetensors with JSON and a digest).

        Args:
            path: of the file, which is replaced as a whole.

        Raises:
            MannError: if a label is not text, a number, or a tuple of them.
        """
        knowledge, trained = self._knowledge, self._network.trained
        arrays = {f"model.{name}": value for name, value in to_arrays(trained.model).items()}
        arrays |= {f"state.{name}": value for name, value in to_arrays(knowledge.state).items()}
        arrays["pending"] = knowledge.pending
        learner = {
            "model": trained.name,
            "labels": [[_to_json(label), code] for label, code in knowledge.labels.items()],
            "announced": [_to_json(label) for label in self._announced],
        }
        save_arrays(
            Path(path), arrays, trained.description | {"config": to_dict(trained.config), "learner": learner}
        )

    @classmethod
    def load(cls, path: str | Path) -> "OneShotLearner":
        """Read what `save` wrote: it goes on where that learner was.

        Raises:
            MannError: if the file is damaged, or holds no learner.
        """
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
        pending = from_arrays({"pending": learner._knowledge.pending}, arrays, str(path))["pending"]
        learner._knowledge = _Knowledge(
            from_arrays(network.start, states, str(path)),
            np.asarray(pending),
            labels,
            network.code.encode_on_host(list(labels.values())),
        )
        return learner

    def _peek(self, image: Picture) -> tuple[dict[Label, float], State]:
        """One step whose state is not kept."""
        knowledge = self._knowledge
        outputs, state = self._network.step(self.prepare(image).pixels, knowledge.pending, knowledge.state)
        return self._probabilities(np.asarray(outputs), knowledge), state

    def _start(self) -> _Knowledge:
        code = self._network.code
        knowledge = _Knowledge(
            self._network.start, np.zeros(code.size, np.float32), {}, code.encode_on_host([])
        )
        for label in self._announced:
            _check_label(label)
        return self._name(knowledge, *self._announced)

    def _name(self, knowledge: _Knowledge, *labels: Label) -> _Knowledge:
        """Give labels random codes that no other has, unless they have one already."""
        new = [label for label in dict.fromkeys(labels) if label not in knowledge.labels]
        if not new:
            return knowledge
        if len(knowledge.labels) + len(new) > self.capacity:
            strings = self._network.code.letters > 1
            raise MannError(
                f"The model {self.model} can tell {self.capacity} labels apart, so there is none left for "
                f"{new[-1]!r}: {'reset the learner' if strings else 'use a model with string labels'}."
            )
        unused = np.setdiff1d(np.arange(self.capacity), list(knowledge.labels.values()), assume_unique=True)
        codes = self._random.choice(unused, len(new), replace=False).tolist()
        encoded = np.concatenate([knowledge.encoded, self._network.code.encode_on_host(codes)])
        return knowledge._replace(
            labels={**knowledge.labels, **dict(zip(new, codes, strict=True))}, encoded=encoded
        )

    def _probabilities(
        self, outputs: Float32[np.ndarray, "size"], knowledge: _Knowledge
    ) -> dict[Label, float]:
        names, code = self._network.names, self._network.code
        logits = outputs[: code.size].reshape(code.letters, code.alphabet).astype(np.float64)
        letters = np.exp(logits - logits.max(axis=1, keepdims=True))
        letters /= letters.sum(axis=1, keepdims=True)
        *known, new = explain_letters(letters, knowledge.encoded, self.capacity)
        stated = names.new(jnp.asarray(outputs))
        if known and (stated is not None or not self._novelty) and len(known) < self.capacity:
            new = 0.0 if stated is None or not self._novelty else float(stated)
            total = sum(known) or 1.0
            known = [(1 - new) * chance / total for chance in known]
        return {**dict(zip(knowledge.labels, known, strict=True)), None: new}

    def _trace(self, state: State) -> MemoryTrace | None:
        memory = self._network.trained.model.memory
        return memory.trace(state.memory) if memory.slots else None


def explain_letters(
    letters: Float[np.ndarray, "letters alphabet"], encoded: Float[np.ndarray, "labels label"], codes: int
) -> list[float]:
    """Probabilities of the labels in use and, last, of something new, from the distribution of each letter.

    The network states every letter of the label by itself. If its probability of label k is π_k, and that of
    something new π_0, each letter has the distribution Σ_k π_k [letter of k] + π_0 [letter of a code not in
    use], so that a letter's probability is that of the label: the product over five letters would count the
    same doubt five times. The π that explain the letters best (least Kullback-Leibler divergence, summed over
    letters) are found by expectation maximisation. With one letter, this is the plain probability of each
    label, and the sum over those not in use. Where every code is in use nothing is new, and all that is to
    know is the product.
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
        mixture = np.maximum(weights @ components, 1e-30)
        better = weights * (components @ (letters.ravel() / mixture)) / count
        change, weights = np.abs(better - weights).max(), better
        if change < 1e-4:
            break
    return (weights / weights.sum()).tolist()


def _make_network(trained: Trained) -> _Network:
    names = trained.config.task.names
    arrays, static = eqx.partition(trained.model, eqx.is_array)

    @jax.jit
    def step(model: Model, x: jax.Array, label: jax.Array, state: State) -> tuple[jax.Array, State]:
        return eqx.combine(model, static).step(x, label, state)

    @jax.jit
    def steps(model: Model, x: jax.Array, label: jax.Array, state: State) -> jax.Array:
        return jax.vmap(eqx.combine(model, static).step, in_axes=(0, None, None))(x, label, state)[0]

    @jax.jit
    def unroll(model: Model, x: jax.Array, labels: jax.Array, state: State) -> State:
        return eqx.combine(model, static).unroll(x, labels, state).state

    return _Network(
        trained,
        names,
        partial(step, arrays),
        partial(steps, arrays),
        partial(unroll, arrays),
        trained.model.initial_state(),
    )


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
