"""`OneShotLearner`: the calls, one at a time or many, safe from several threads."""

import dataclasses
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float32
from PIL import Image

from mann.cell import State
from mann.data.images import PictureFormat
from mann.errors import MannError, check_seed
from mann.files import dump_arrays, load_arrays, parse_arrays, save_arrays
from mann.memory import MemoryTrace
from mann.online import knowledge, saved
from mann.online.answers import (
    Label,
    Look,
    check_cost,
    check_novelty,
    choose_answer,
    label_probabilities,
    worth_asking,
)
from mann.online.examples import (
    Example,
    Keep,
    Picture,
    Prepared,
    check_keep,
    prepare_picture,
    prepare_pictures,
)
from mann.online.knowledge import Knowledge, check_label
from mann.online.network import Network, compile_network
from mann.trained import Trained, load_trained, pretrained_names, with_slots

DEFAULT_MODEL = "omniglot-many"  # five things or hundreds, and an honest "this is new"
COST = 0.5  # of a request for a label, in wrong answers: it asks where it is rather wrong than right


def default_model() -> str:
    """The shipped model for labels of one's own; the one-hot model in a package that was built without it."""
    return DEFAULT_MODEL if DEFAULT_MODEL in pretrained_names() else "omniglot-5"


class OneShotLearner:
    """Learns from single examples by writing them into the memory of a trained network; no weight changes.

    The calls follow river: `predict_one(x)`, then `learn_one(x, y)`. A picture is a path, a PIL image or an
    array of any size, mode and polarity; a label is anything hashable but None. Safe to use from several threads.

    What was taught can be taken back: after `forget`, `rename`, `relabel` and `unlearn_one` the learner is what it
    would have been had it been taught so from the start. For this it keeps what the network saw of every example.

    Args:
        trained: what `load_trained` returned.
        labels: labels that are known in advance, before any example of them, as the digits 1 to 5 in the paper's
            human experiment.
        seed: fixes which random codes the labels get.
        novelty: whether it may answer that something is new: yes, no, or from which probability on.
        keep: what is kept of every example: `pixels` (6.4 kB for 40×40 of them), `pictures` (for a drawing 11 kB
            more, to look at), or `nothing`, for streams without end.

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
        OneShotLearner('omniglot-many', 2 of 3125 labels in use)
        >>> learner.forget("bell")
        >>> learner.labels
        ('ankh',)
    """

    def __init__(
        self,
        trained: Trained,
        *,
        labels: Iterable[Label] = (),
        seed: int | None = None,
        novelty: bool | float = True,
        keep: Keep = "pixels",
    ) -> None:
        self._begin(compile_network(trained), labels, seed, novelty, keep)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path = "",
        *,
        labels: Iterable[Label] = (),
        seed: int | None = None,
        novelty: bool | float = True,
        keep: Keep = "pixels",
        slots: int = 0,
    ) -> "OneShotLearner":
        """A learner with the weights that a name stands for.

        Args:
            name: shipped weights, a run folder, or a file of weights (`load_trained`); empty for the shipped
                model for few things or many.
            labels: known in advance, as in the constructor.
            seed: of the labels' codes, as in the constructor.
            novelty: as in the constructor.
            keep: of every example, as in the constructor.
            slots: of the memory, which may have more than in training: what is shown after they are used up
                takes the place of what was shown or used the longest ago. 0 for as many as the weights come with.
        """
        trained = load_trained(name or default_model())
        trained = with_slots(trained, slots) if slots else trained
        return cls(trained, labels=labels, seed=seed, novelty=novelty, keep=keep)

    def sibling(
        self,
        *,
        labels: Iterable[Label] = (),
        seed: int | None = None,
        novelty: bool | float | None = None,
        keep: Keep | None = None,
    ) -> "OneShotLearner":
        """A new learner that knows nothing yet; it shares the weights and the compiled code, and no more.

        Args:
            labels: known in advance, as in the constructor.
            seed: of the labels' codes, as in the constructor.
            novelty: as in the constructor; left out, as this learner has it.
            keep: as in the constructor; left out, as this learner has it.
        """
        other = object.__new__(OneShotLearner)
        other._begin(
            self._network, labels, seed, self._novelty if novelty is None else novelty, keep or self._keep
        )
        return other

    def _begin(
        self,
        network: Network,
        labels: Iterable[Label],
        seed: int | None,
        novelty: bool | float,
        keep: Keep,
    ) -> None:
        check_novelty(novelty)
        if seed is not None:
            check_seed(seed)
        check_keep(keep)
        self._network, self._novelty, self._keep = network, novelty, keep
        self._seed = secrets.randbelow(2**31) if seed is None else seed
        self._lock = threading.Lock()
        self._knowledge = self._start(labels)

    def _start(self, labels: Iterable[Label]) -> Knowledge:
        return knowledge.begin(self._network, self._seed, labels, self._keep != "nothing")

    def __repr__(self) -> str:
        return (
            f"OneShotLearner({self.model!r}, {len(self._knowledge.labels)} of {self.capacity} labels in use)"
        )

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._network.trained.name

    @property
    def seed(self) -> int:
        """What fixes the random codes of the labels: a sibling with it, taught the same, is the same."""
        return self._seed

    @property
    def novelty(self) -> bool | float:
        """Whether it may answer that something is new: yes, no, or from which probability on. May be set."""
        return self._novelty

    @novelty.setter
    def novelty(self, novelty: bool | float) -> None:
        check_novelty(novelty)
        self._novelty = novelty

    @property
    def threshold(self) -> float | None:
        """From which probability on something is new: as asked for, else the model's where it states one.

        None: if that is more probable than any label.
        """
        if not isinstance(self._novelty, bool):
            return float(self._novelty)
        return self._network.novelty.threshold if self._network.states_novelty and self._novelty else None

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels known so far, in the order in which they came."""
        return tuple(self._knowledge.labels)

    @property
    def codes(self) -> dict[Label, int]:
        """The random code of every label, by which the network knows it."""
        return dict(self._knowledge.labels)

    @property
    def examples(self) -> tuple[Example, ...]:
        """What it was shown, in order, but for what was taken back.

        Raises:
            MannError: if nothing is kept of the examples.
        """
        return self._kept(self._knowledge)

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

    def _prepare_many(self, images: Iterable[Picture]) -> list[Prepared]:
        if isinstance(images, str | Path | Image.Image | Prepared):
            raise MannError("Give a list of pictures here; for a single one there is a method of its own.")
        return prepare_pictures(list(images), self._network.trained.config.data)

    def _pixels(self, images: Iterable[Picture]) -> Float32[np.ndarray, "n pixels"]:
        seen = [picture.pixels for picture in self._prepare_many(images)]
        return np.array(seen, np.float32).reshape(len(seen), self.format.size)

    @property
    def format(self) -> PictureFormat:
        """The pictures that its network sees."""
        return self._network.trained.config.data.format

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

    def ask_one(self, image: Picture, cost: float = COST) -> bool:
        """Whether it is worth asking somebody for the label of this picture, to `learn_one` it.

        The gain is the probability that its best label would be wrong, that of something new included; it is worth
        asking if that exceeds the cost. Leaves no trace in the memory.

        Args:
            image: a path, a PIL image or an array.
            cost: of a request, where a wrong answer costs 1: at 0 it asks about everything, at 1 about nothing but
                while it knows no label.

        Raises:
            MannError: for a cost that is not between 0 and 1, or what cannot be read as a picture.

        Examples:
            >>> import mann
            >>> learner = mann.OneShotLearner.from_pretrained(seed=0)
            >>> ankhs, bells = mann.Glyphs(classes=3).load().images[1:]
            >>> learner.ask_one(ankhs[0])
            True
            >>> learner.learn_one(ankhs[0], "ankh")
            >>> learner.ask_one(ankhs[1]), learner.ask_one(bells[0])
            (False, True)
        """
        check_cost(cost)
        return worth_asking(self.predict_proba_one(image), cost)

    def choose(self, probabilities: dict[Label, float]) -> Label | None:
        """The answer that this learner gives for some probabilities: a label, or None for something new."""
        return choose_answer(probabilities, self.threshold)

    def predict_many(self, images: Iterable[Picture]) -> list[Label | None]:
        """`predict_one` of each picture, in few compiled calls."""
        return [self.choose(chances) for chances in self.predict_proba_many(images)]

    def predict_proba_many(self, images: Iterable[Picture]) -> list[dict[Label, float]]:
        """`predict_proba_one` of each picture, in few compiled calls."""
        pictures = self._prepare_many(images)
        return self.predict_with_outputs(pictures)[0] if pictures else []

    def predict_with_outputs(
        self, images: Iterable[Picture]
    ) -> tuple[list[dict[Label, float]], Float32[np.ndarray, "n outputs"]]:
        """`predict_proba_many`, with the network's outputs and, last, how familiar each picture is."""
        known = self._knowledge
        outputs = self._network.steps(self._pixels(images), known.pending, known.state)
        return self._probabilities(outputs, known), outputs

    def learn_many(self, images: Iterable[Picture], labels: Iterable[Label]) -> None:
        """`learn_one` of each picture with its label, in order, in few compiled calls."""
        pictures, names = self._prepare_many(images), list(labels)
        if len(pictures) != len(names):
            raise MannError(f"{len(pictures)} pictures need as many labels, not {len(names)}.")
        examples = [self._example(picture, name) for picture, name in zip(pictures, names, strict=True)]
        with self._lock:
            self._knowledge = knowledge.teach(self._network, self._knowledge, examples)

    def embed(self, images: Iterable[Picture]) -> Float32[np.ndarray, "n embedding"]:
        """Where the network places pictures, whatever was taught: what is alike to it lies close, by cosine."""
        return self._network.embed(self._pixels(images))

    def predict_proba_one(self, image: Picture) -> dict[Label, float]:
        """The probability of every label known so far, and that of something new under None. Sums to 1."""
        return self._peek(image)[0]

    def look(self, image: Picture) -> Look:
        """`predict_proba_one`, with the memory at that step."""
        probabilities, state = self._peek(image)
        return Look(probabilities, self._trace(state), self.threshold)

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
        return Look(
            self._probabilities(np.asarray(outputs)[None], before)[0], self._trace(state), self.threshold
        )

    def _learn(self, image: Picture, label: Label) -> tuple[Knowledge, jax.Array | np.ndarray, State]:
        """What the learner knew before the example, and the network's outputs and state at it."""
        example = self._example(image, label)
        with self._lock:
            before = self._knowledge
            known = knowledge.name(self._network, before, label)
            outputs, state = self._network.step(example.pixels, known.pending, known.state)
            pending = self._network.code.encode_on_host([known.labels[label]])[0]
            self._knowledge = knowledge.add_examples(known, [example])._replace(state=state, pending=pending)
        return before, outputs, state

    def _example(self, image: Picture, label: Label) -> Example:
        prepared = self.prepare(image)
        check_label(label)
        pixels = np.array(prepared.pixels)  # of its own: it may be shown again years later
        pixels.flags.writeable = False
        return Example(label, pixels, prepared.picture if self._keep == "pictures" else None)

    def reset(self) -> None:
        """Forget every example and every label but those announced in advance, as if it were new."""
        with self._lock:
            self._knowledge = self._start(self._knowledge.announced)

    def forget(self, label: Label) -> None:
        """Take back every example of a label, and the label itself: it was never taught.

        Args:
            label: one of `labels`.

        Raises:
            MannError: for a label that is not known, or if nothing is kept of the examples.
        """
        with self._lock:
            known = self._knowledge
            self._check_known(label, known)
            self._replay(
                [other for other in known.announced if other != label],
                [example for example in self._kept(known) if example.label != label],
            )

    def rename(self, old: Label, new: Label) -> None:
        """Call a thing by another name: it was taught under this one.

        This needs nothing of the examples: a code does not depend on the name.

        Args:
            old: one of `labels`.
            new: any label that is not in use.

        Raises:
            MannError: for an old label that is not known, or a new one that is.
        """
        check_label(new)
        with self._lock:
            known = self._knowledge
            self._check_known(old, known)
            if new in known.labels and new != old:
                raise MannError(
                    f"{new!r} is known already: `relabel` the examples of {old!r} to add them to it."
                )
            examples = known.examples
            self._knowledge = known._replace(
                labels={new if label == old else label: code for label, code in known.labels.items()},
                shows={new if label == old else label: count for label, count in known.shows.items()},
                announced=tuple(new if label == old else label for label in known.announced),
                examples=None
                if examples is None
                else tuple(
                    dataclasses.replace(one, label=new) if one.label == old else one for one in examples
                ),
            )

    def relabel(self, example: Example | int, label: Label) -> None:
        """Mend a wrong example: it was shown with another label.

        Args:
            example: one of `examples`, or its place among them; −1 is the last.
            label: the right one, known or new.

        Raises:
            MannError: if there is no such example, or nothing is kept of them.
        """
        check_label(label)
        with self._lock:
            known = self._knowledge
            examples, place = self._find(example, known)
            examples[place] = dataclasses.replace(examples[place], label=label)
            self._replay(known.announced, examples)

    def unlearn_one(self, example: Example | int = -1) -> None:
        """Take back one example: it was never shown. By default the last one.

        A label that has no other example is forgotten with it, unless it was announced in advance.

        Args:
            example: one of `examples`, or its place among them.

        Raises:
            MannError: if there is no such example, or nothing is kept of them.
        """
        with self._lock:
            known = self._knowledge
            examples, place = self._find(example, known)
            del examples[place]
            self._replay(known.announced, examples)

    def merge(self, other: "OneShotLearner") -> None:
        """Learn what another learner was shown, in the same order, after what this one was shown.

        Equal labels are the same thing; labels that were announced there and never shown do not come along.
        The other may have other weights, but must see pictures of the same format.

        Args:
            other: a learner that keeps its examples; it does not change.

        Raises:
            MannError: if nothing is kept of the other's examples, or its pictures have another format.
        """
        if self.format != other.format:
            raise MannError(
                f"{other.model} sees pictures of the shape {other.format.shape}, {self.model} of "
                f"{self.format.shape}: merge learners of the same format."
            )
        examples = other.examples
        if self._keep != "pictures":
            examples = tuple(dataclasses.replace(example, picture=None) for example in examples)
        with self._lock:
            self._knowledge = knowledge.teach(self._network, self._knowledge, examples)

    def _kept(self, known: Knowledge) -> tuple[Example, ...]:
        if known.examples is None:
            raise MannError(
                "This learner kept nothing of its examples: make one with keep='pixels' to list them, "
                "take them back or merge them."
            )
        return known.examples

    def _find(self, example: Example | int, known: Knowledge) -> tuple[list[Example], int]:
        """All examples, and the place of this one."""
        examples = self._kept(known)
        if isinstance(example, Example):
            places = [place for place, one in enumerate(examples) if one is example]
        else:
            places = [example] if -len(examples) <= example < len(examples) else []
        if not examples:
            raise MannError("There is no example to take back or change: nothing was taught yet.")
        if not places:
            raise MannError(f"There is no such example among the {len(examples)} in `examples`.")
        return list(examples), places[0]

    def _check_known(self, label: Label, known: Knowledge) -> None:
        check_label(label)
        if label not in known.labels:
            raise MannError(f"{label!r} is no label of this learner: `labels` lists those that it knows.")

    def _replay(self, announced: Iterable[Label], examples: Sequence[Example]) -> None:
        self._knowledge = knowledge.teach(self._network, self._start(announced), examples)

    def save(self, path: str | Path) -> None:
        """Write weights, memory, labels and the kept examples to one file (safetensors with JSON and a digest).

        Args:
            path: of the file, which is replaced as a whole.

        Raises:
            MannError: if a label is not text, a number, or a tuple of them.
        """
        save_arrays(Path(path), *saved.pack(self._content))

    @classmethod
    def load(cls, path: str | Path) -> "OneShotLearner":
        """Read what `save` wrote: it goes on where that learner was.

        Args:
            path: of the file; those of earlier versions are read as well.

        Raises:
            MannError: if the file is damaged, or holds no learner.
        """
        return cls._from_content(saved.unpack(*load_arrays(Path(path).resolve()), str(path)))

    def to_json(self) -> str:
        """The content of `save` as JSON text, for a server or a database: about 4/3 of the size of the file.

        Raises:
            MannError: if a label is not text, a number, or a tuple of them.
        """
        return dump_arrays(*saved.pack(self._content))

    @classmethod
    def from_json(cls, text: str | bytes) -> "OneShotLearner":
        """Read what `to_json` gave: it goes on where that learner was.

        Args:
            text: the JSON, at most 1 GiB of it.

        Raises:
            MannError: if the text is damaged, or holds no learner.
        """
        return cls._from_content(saved.unpack(*parse_arrays(text), "The JSON"))

    def __copy__(self) -> "OneShotLearner":
        """One that knows the same and goes its own way; it shares the weights and all that neither will change."""
        return self._from_content(self._content)

    def __reduce__(self) -> tuple[Callable[[str], "OneShotLearner"], tuple[str]]:
        """For `copy.deepcopy`, and for processes of other libraries: by way of JSON."""
        return type(self).from_json, (self.to_json(),)

    @property
    def _content(self) -> saved.Content:
        return saved.Content(self._network, self._knowledge, self._seed, self._novelty, self._keep)

    @classmethod
    def _from_content(cls, content: saved.Content) -> "OneShotLearner":
        learner = object.__new__(cls)
        learner._begin(content.network, (), content.seed, content.novelty, content.keep)
        learner._knowledge = content.knowledge
        return learner

    def _peek(self, image: Picture) -> tuple[dict[Label, float], State]:
        """One step whose state is not kept."""
        known = self._knowledge
        outputs, state = self._network.step(self.prepare(image).pixels, known.pending, known.state)
        return self._probabilities(np.asarray(outputs)[None], known)[0], state

    def _probabilities(
        self, outputs: Float32[np.ndarray, "n size"], known: Knowledge
    ) -> list[dict[Label, float]]:
        novelty = None if self._novelty is False else self._network.novelty
        chances = label_probabilities(
            self._network.names, outputs[:, :-1], known.encoded, novelty, outputs[:, -1], known.counts
        )
        names = (*known.labels, None)
        return [dict(zip(names, row, strict=True)) for row in chances.tolist()]

    def _trace(self, state: State) -> MemoryTrace | None:
        memory = self._network.trained.model.memory
        return memory.trace(state.memory) if memory.slots else None
