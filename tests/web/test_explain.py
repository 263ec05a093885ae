"""What the page says about the memory, against the network's own gates and keys."""

import jax
import numpy as np
import pytest
from scipy.special import softmax

from mann.online import OneShotLearner
from mann.online.sight import see_one
from mann.web.explain import Writings, write_gates
from tests.sketches import sketch


@pytest.fixture(scope="module")
def followed(learner):
    """Five examples: for each, the explanation, the trace, and what the network computed from its query."""
    mine = learner.sibling(seed=0)
    memory = mine._network.trained.model.memory
    writings, steps, previous = Writings(), [], None
    for step, name in enumerate(("ring", "cross", "zigzag", "ring", "cross"), start=1):
        look = mine.look_and_learn(sketch(name, step), name)
        query = mine._knowledge.state.controller.hidden
        gates = np.asarray(jax.nn.sigmoid(memory.gates(query)))
        strength = np.asarray(1 + jax.nn.softplus(memory.strengths(query)))
        explained = writings.explain(step, see_one(look.memory), mine.similarity)
        writings.add(step, name, look.memory)
        steps.append((explained, look.memory, previous, gates, strength[:, None] * mine.similarity))
        previous = np.asarray(look.memory.read_weights)
    return steps


def test_gates_are_those_of_the_network(followed):
    for explained, trace, previous, gates, _ in followed:
        np.testing.assert_allclose(write_gates(np.asarray(trace.write_weights), previous), gates, atol=2e-4)
        assert [head["gate"] for head in explained["heads"]] == pytest.approx(gates.tolist(), abs=2e-4)


def test_similarities_lead_to_the_read_weights(followed):
    """softmax(β K) is what was read (eq 3)."""
    for explained, trace, _, _, scores in followed:
        np.testing.assert_allclose(softmax(scores, axis=1), trace.read_weights, atol=1e-5)
        slots = [head["slot"] - 1 for head in explained["heads"]]
        assert slots == np.asarray(trace.read_weights).argmax(axis=1).tolist()
        assert all(-1 <= head["similarity"] <= 1 for head in explained["heads"])


def test_a_slot_goes_under_the_name_that_came_in_when_it_was_written(followed):
    names = (None, "ring", "cross", "zigzag", "ring")
    read = [step[0] for step in followed if step[0]["slot"] is not None]
    assert read
    for explained in read:
        if explained["step"] is not None:
            assert explained["name"] == names[explained["step"] - 1]
            writes = np.asarray(followed[explained["step"] - 1][1].write_weights).sum(axis=0)
            assert writes[explained["slot"] - 1] > 0.5


def test_right_answers_mostly_come_from_a_slot_with_that_name(material):
    """Over replayed test episodes: what the page gives as a reason is the reason."""
    from mann.data.pictures import draw_pictures

    network = OneShotLearner.from_pretrained("omniglot-5")
    told = right = 0
    for episode in range(3):
        one, writings = network.sibling(labels=range(1, 6), seed=episode), Writings()
        stream = draw_pictures(material.bitmaps, 5, 30, np.random.default_rng(episode))
        seen: set[int] = set()
        for step, (picture, which) in enumerate(stream, start=1):
            look = one.look_and_learn(picture, which + 1)
            explained = writings.explain(step, see_one(look.memory))
            writings.add(step, str(which + 1), look.memory)
            if look.best == which + 1 and which in seen and explained["name"] is not None:
                told += 1
                right += explained["name"] == str(look.best)
            seen.add(which)
    assert told > 30
    assert right / told > 0.7
