"""Which slots of a memory the page is told of."""

import base64

import numpy as np
import pytest

from mann.memory import MemoryTrace
from mann.online.sight import see_one
from mann.web.encoding import MOST_SLOTS, encode_step, encode_weights, shown_slots

HEADS, WIDTH = 2, 3


def trace(slots, usage=True):
    """Some slots are read or written now; usage falls from the last slot to the first."""
    rng = np.random.default_rng(0)
    reads, writes = np.zeros((HEADS, slots)), np.zeros((HEADS, slots))
    reads[:, 1], writes[0, 4], writes[1, 4] = 0.9, 0.5, 0.4
    memory = rng.uniform(size=(slots, WIDTH)) * np.linspace(0, 1, slots)[:, None]
    return MemoryTrace(reads, writes, np.linspace(0, 2, slots) if usage else None, memory)


def levels(text):
    return np.frombuffer(base64.b64decode(text), np.uint8) / 255


def test_all_slots_of_a_small_memory_are_shown():
    encoded = encode_weights(see_one(trace(MOST_SLOTS)))
    assert (encoded["slots"], encoded["shown"]) == (MOST_SLOTS, None)
    np.testing.assert_allclose(levels(encoded["usage"]), np.linspace(0, 1, MOST_SLOTS), atol=0.003)
    without = trace(MOST_SLOTS, usage=False)
    held = without.memory.max(axis=1)
    np.testing.assert_allclose(
        levels(encode_weights(see_one(without))["usage"]), held / held.max(), atol=0.003
    )


@pytest.mark.parametrize("usage", [True, False])
def test_of_a_large_memory_those_touched_now_and_the_most_used_are_shown(usage):
    large = trace(50_000, usage)
    slots = shown_slots(see_one(large))
    assert len(slots) == MOST_SLOTS
    assert slots[:2].tolist() == [1, 4]
    if usage:
        assert slots[2:].tolist() == list(range(50_000 - MOST_SLOTS + 2, 50_000))
    else:
        magnitudes = large.memory.max(axis=1)
        assert magnitudes[slots[2:]].min() >= np.sort(magnitudes)[-MOST_SLOTS]


def test_a_step_has_the_weights_and_contents_of_the_slots_that_are_shown():
    large = trace(50_000)
    step = encode_step(1, "a", None, np.zeros(400), large)
    shown = np.array(step["shown"])
    np.testing.assert_allclose(levels(step["read"]), large.read_weights.mean(0)[shown], atol=0.003)
    reads = levels(step["head_reads"]).reshape(HEADS, MOST_SLOTS)
    np.testing.assert_allclose(reads, large.read_weights[:, shown], atol=0.003)
    contents = levels(step["contents"]["values"]).reshape(-1, WIDTH)
    expected = large.memory[shown] / large.memory[shown].max()
    np.testing.assert_allclose(contents, expected[: step["contents"]["slots"]], atol=0.003)
    assert len(str(step)) < 10_000
