"""Many learners asked at once: one run of the network for pictures that arrive together."""

import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, UInt32

from mann.memory import MemoryTrace
from mann.online.answers import (
    ROUNDS,
    SETTLED,
    Label,
    choose_answer,
    label_probabilities,
    new_probability,
    unused_letters,
)
from mann.online.knowledge import Knowledge
from mann.online.learner import OneShotLearner
from mann.online.network import LENGTHS, SLOTS, Glances, Network, pack_state
from mann.online.sight import Sight, see

BATCHES = (4, 32)  # for which it is compiled: a smaller number is filled up, a larger one divided


class Glance(NamedTuple):
    """What a learner makes of a picture, with what there is to see of its memory."""

    probabilities: dict[Label, float]
    """Of every label known so far, and of something new under None. They sum to 1."""
    threshold: float | None
    """Probability from which on this is something new; None: if no label is more probable."""
    memory: Sight | None
    """Where it read and wrote, of the slots that matter: further ones were neither read nor written. None for a
    network without a memory."""

    @property
    def best(self) -> Label | None:
        """The most probable label; None if this is something new."""
        return choose_answer(self.probabilities, self.threshold)


class _Crop(NamedTuple):
    """What a step needs of one learner, on the host."""

    state: UInt32[np.ndarray, "words"]  # of so many slots, packed
    components: Float32[np.ndarray, "slots label"]  # something new, the labels, and zeros
    pending: Float32[np.ndarray, "label"]


class _Ready:
    """A learner made ready to be asked, for as long as it knows no more."""

    def __init__(self, knowledge: Knowledge, needed: int) -> None:
        self.knowledge, self.needed = knowledge, needed
        self.crops: dict[int, _Crop] = {}  # by slots
        self._counts = knowledge.counts.tolist()

    def often(self, place: int) -> int:
        """How many examples there were of the label at this place."""
        return self._counts[place] if place < len(self._counts) else 1


class Together:
    """Asks learners that share a network. Not for several threads at once.

    Args:
        parent: one of them.
    """

    def __init__(self, parent: OneShotLearner) -> None:
        network = self._network = parent._network
        self._memory = network.trained.model.memory
        self._ready: weakref.WeakKeyDictionary[OneShotLearner, _Ready] = weakref.WeakKeyDictionary()

    def compile(self) -> Iterator[None]:
        """Compile before the first request, one size after the other, the most important first."""
        learner = OneShotLearner(self._network.trained)
        pixels = np.zeros(self._network.trained.model.input_size, np.float32)
        least = self._needed(learner._knowledge)
        sizes = [*(self._network.fit(max(least, slots)) for slots in (0, *SLOTS)), self._network]
        for network in {network.slots: network for network in sizes}.values():
            for batch in BATCHES:
                self._run([self._prepare(learner)] * batch, [pixels] * batch, network, batch)
                yield
        for length in reversed(LENGTHS):  # of examples that are shown again when one is taken back
            pictures, labels = (
                np.zeros((length, size), np.float32) for size in (len(pixels), self._network.code.size)
            )
            self._network.unroll(pictures, labels, self._network.start)
            yield

    def look(
        self, learners: Sequence[OneShotLearner], pixels: Sequence[Float32[np.ndarray, "pixels"]]
    ) -> list[Glance]:
        """What each learner makes of its picture: as `OneShotLearner.look`, up to rounding."""
        glances: list[Glance] = []
        for start in range(0, len(learners), BATCHES[-1]):
            part = slice(start, start + BATCHES[-1])
            glances += self._look(learners[part], pixels[part])
        return glances

    def _look(
        self, learners: Sequence[OneShotLearner], pixels: Sequence[Float32[np.ndarray, "pixels"]]
    ) -> list[Glance]:
        ready = [self._prepare(learner) for learner in learners]
        needed = max(one.needed for one in ready)
        network = self._network.fit(needed)
        batch = next(size for size in BATCHES if size >= len(learners))
        seen, chances = self._run(ready, pixels, network, batch)
        count = len(learners)
        sights: list[Sight | None] = [None] * count
        if self._memory.slots:
            usage = None if seen.usage is None else seen.usage[:count]
            weights = seen.read_weights[:count], seen.write_weights[:count]
            sights[:] = see(MemoryTrace(*weights, usage, seen.held[:count, :, None]))
        named = self._name(learners, ready, seen.outputs, chances)
        thresholds = [learner.threshold for learner in learners]
        return list(map(Glance, named, thresholds, sights))

    def _needed(self, knowledge: Knowledge) -> int:
        return max(self._memory.needed(knowledge.state.memory), 1 + len(knowledge.labels))

    def _prepare(self, learner: OneShotLearner) -> _Ready:
        ready, knowledge = self._ready.get(learner), learner._knowledge
        if ready is None or ready.knowledge is not knowledge:
            ready = self._ready[learner] = _Ready(knowledge, self._needed(knowledge))
        return ready

    def _crop(self, ready: _Ready, slots: int) -> _Crop:
        crop = ready.crops.get(slots)
        if crop is None:
            knowledge = ready.knowledge
            state = self._network.crop(knowledge.state, slots)
            code, known = self._network.code, len(knowledge.labels)
            components = np.zeros((max(slots, 1), code.size), np.float32)
            if known < code.capacity and known < len(components):
                components[0] = unused_letters(knowledge.encoded, code.alphabet, code.capacity)
                components[1 : known + 1] = knowledge.encoded
            crop = ready.crops[slots] = _Crop(pack_state(state), components, knowledge.pending)
        return crop

    def _run(
        self, ready: Sequence[_Ready], pixels: Sequence[np.ndarray], network: Network, batch: int
    ) -> tuple[Glances, np.ndarray]:
        """One run for a batch, on the host: what is seen, and the chances of labels."""
        crops = [self._crop(one, network.slots) for one in ready]
        filled = [*crops, *[crops[0]] * (batch - len(crops))]
        states = np.stack([crop.state for crop in filled])
        pictures = np.stack([*pixels, *[pixels[0]] * (batch - len(crops))])
        pending = np.stack([crop.pending for crop in filled])
        seen = network.compiled.glance(network.arrays, pictures, pending, states)
        counts = np.array(
            [len(one.knowledge.labels) for one in ready] + [0] * (batch - len(ready)), np.float32
        )
        components = np.stack([crop.components for crop in filled])
        letters = self._network.code.letters
        chances = _explain(seen.outputs, components, counts, letters)
        return jax.tree.map(np.asarray, (seen, chances))

    def _name(
        self,
        learners: Sequence[OneShotLearner],
        ready: Sequence[_Ready],
        outputs: Float32[np.ndarray, "batch outputs"],
        chances: Float32[np.ndarray, "batch slots"],
    ) -> list[dict[Label, float]]:
        """The probabilities by label, and of something new under None; that is the first of the chances."""
        network, size = self._network, len(ready)
        rows = chances[:size].astype(np.float64)
        things = np.array([len(one.knowledge.labels) for one in ready])
        allowed = np.array([learner.novelty is not False for learner in learners])
        new = np.zeros(size)
        if network.states_novelty:
            best = rows[:, 1:].argmax(axis=1).tolist() if rows.shape[1] > 1 else [0] * size
            often = [one.often(place) for one, place in zip(ready, best, strict=True)]
            stated, familiarity = outputs[:size, -2], outputs[:size, -1]
            likely = new_probability(
                stated, network.novelty, familiarity, np.maximum(things, 1), np.array(often)
            )
            new = np.where(allowed, likely, 0.0)
        judged = (things > 0) & (network.states_novelty | ~allowed)  # apart from what the letters leave over
        total = rows[:, 1:].sum(axis=1)
        rows *= np.where(judged & (total > 0), (1 - new) / np.where(total > 0, total, 1), 1)[:, None]
        rows[judged, 0] = new[judged]
        named = []
        for place, (learner, one, row) in enumerate(zip(learners, ready, rows.tolist(), strict=True)):
            labels = one.knowledge.labels
            if len(labels) == network.code.capacity or len(labels) >= len(row):  # nothing is new, or no room
                named.append(self._name_many(learner, one, outputs[place]))
            else:
                named.append({**dict(zip(labels, row[1:], strict=False)), None: row[0]})
        return named

    def _name_many(
        self, learner: OneShotLearner, ready: _Ready, outputs: Float32[np.ndarray, "outputs"]
    ) -> dict[Label, float]:
        """The same for one learner, with as many labels as there are codes or slots."""
        network, knowledge = self._network, ready.knowledge
        novelty = None if learner.novelty is False else network.novelty
        (row,) = label_probabilities(
            network.names, outputs[None, :-1], knowledge.encoded, novelty, outputs[-1:], knowledge.counts
        ).tolist()
        return dict(zip((*knowledge.labels, None), row, strict=True))


@partial(jax.jit, static_argnames="letters")
def _explain(
    outputs: Float[Array, "n outputs"],
    components: Float[Array, "n slots label"],
    known: Float[Array, "n"],
    letters: int,
) -> Float[Array, "n slots"]:
    """`explain_letters` for learners with labels of their own; the first place is that of something new."""
    size = components.shape[-1]
    logits = outputs[:, :size].reshape(len(outputs), letters, size // letters)
    told = jax.nn.softmax(logits, axis=-1).reshape(len(outputs), size)
    places = jnp.arange(components.shape[1], dtype=jnp.float32)[None]
    start = jnp.where(places <= known[:, None], 1.0 / (known[:, None] + 1.0), 0.0)

    def more(carry: Any) -> Any:
        number, _, moving = carry
        return (number < ROUNDS) & jnp.any(moving)

    def improve(carry: Any) -> Any:
        number, before, moving = carry
        mixture = jnp.maximum(jnp.einsum("nk,nkl->nl", before, components), 1e-30)
        better = before * jnp.einsum("nl,nkl->nk", told / mixture, components) / letters
        settled = jnp.max(jnp.abs(better - before), axis=1) < SETTLED
        return number + 1, jnp.where(moving[:, None], better, before), moving & ~settled

    first = (0, start, jnp.ones(len(outputs), bool))
    _, weights, _ = jax.lax.while_loop(more, improve, first)
    return weights / weights.sum(axis=1, keepdims=True)
