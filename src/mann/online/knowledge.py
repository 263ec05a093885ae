"""Everything that a learner knows, and what more examples make of it, as pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int

from mann.cell import State
from mann.errors import MannError
from mann.online.answers import Label
from mann.online.examples import Example
from mann.online.network import Network


class Knowledge(NamedTuple):
    """It is replaced as a whole, so that a reader never sees half a change."""

    state: State
    pending: Float32[np.ndarray, "label"]  # y_{t−1}, which goes in with the next input; zeros at the start
    labels: dict[Label, int]  # the code of each
    encoded: Float32[np.ndarray, "labels label"]  # the same codes as the network sees them
    announced: tuple[Label, ...]  # known before any example
    examples: tuple[Example, ...] | None  # None if they are not kept
    shows: dict[Label, int]  # how many examples of each label there were; none of those only announced
    random: Mapping[str, Any]  # the state of the generator that the next code is drawn by

    @property
    def counts(self) -> Int[np.ndarray, "labels"]:
        """How many examples of each label there were, at least one."""
        return np.array([self.shows.get(label, 1) for label in self.labels], int)


def begin(network: Network, seed: int, announced: Iterable[Label], keeps: bool) -> Knowledge:
    """Knows some labels by name, and no example.

    Args:
        network: shared by learners.
        seed: of the random codes.
        announced: the labels.
        keeps: whether examples will be kept.
    """
    code = network.code
    nothing = Knowledge(
        network.start,
        np.zeros(code.size, np.float32),
        {},
        code.encode_on_host([]),
        tuple(announced),
        () if keeps else None,
        {},
        np.random.PCG64(seed).state,
    )
    for label in nothing.announced:
        check_label(label)
    return name(network, nothing, *nothing.announced)


def teach(network: Network, knowledge: Knowledge, examples: Sequence[Example]) -> Knowledge:
    """After more examples, one after the other, in compiled calls."""
    if not examples:
        return knowledge
    for example in examples:  # one at a time, for the same codes as from single calls
        knowledge = name(network, knowledge, example.label)
    encoded = network.code.encode_on_host([knowledge.labels[example.label] for example in examples])
    late = np.concatenate([knowledge.pending[None], encoded[:-1]])
    pixels = np.stack([example.pixels for example in examples])
    state = network.unroll(pixels, late, knowledge.state)
    return add_examples(knowledge, examples)._replace(state=state, pending=encoded[-1])


def add_examples(knowledge: Knowledge, examples: Sequence[Example]) -> Knowledge:
    """With some more examples counted, and kept if any are."""
    shows = dict(knowledge.shows)
    for example in examples:
        shows[example.label] = shows.get(example.label, 0) + 1
    return knowledge._replace(
        examples=None if knowledge.examples is None else (*knowledge.examples, *examples), shows=shows
    )


def name(network: Network, knowledge: Knowledge, *labels: Label) -> Knowledge:
    """Give labels random codes that no other has, unless they have one already."""
    new = [label for label in dict.fromkeys(labels) if label not in knowledge.labels]
    if not new:
        return knowledge
    code = network.code
    if len(knowledge.labels) + len(new) > code.capacity:
        remedy = "reset the learner" if code.letters > 1 else "use a model with string labels"
        raise MannError(
            f"The model {network.trained.name} can tell {code.capacity} labels apart, so there is none left "
            f"for {new[-1]!r}: {remedy}."
        )
    generator = np.random.Generator(np.random.PCG64(0))
    generator.bit_generator.state = knowledge.random
    unused = np.ones(code.capacity, bool)
    unused[list(knowledge.labels.values())] = False
    codes = generator.choice(np.flatnonzero(unused), len(new), replace=False).tolist()
    return knowledge._replace(
        labels={**knowledge.labels, **dict(zip(new, codes, strict=True))},
        encoded=np.concatenate([knowledge.encoded, code.encode_on_host(codes)]),
        random=generator.bit_generator.state,
    )


def check_label(label: Any) -> None:
    """Refuse what cannot be a label."""
    if label is None:
        raise MannError("None stands for something new: give the example a label of its own.")
    try:
        hash(label)
    except TypeError:
        raise MannError(f"A label must be hashable, such as text or a number; {label!r} is not.") from None
    if label != label:
        raise MannError("NaN is no label: it is not equal to itself.")
