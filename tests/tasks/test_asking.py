"""Asking for labels: the protocol against plain loops, and what a request is worth against counting."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mann
from mann.tasks.asking import UNDECIDED, AskingEpisode

TASK = mann.Asking(classes=3, length=8)
MODEL = mann.ModelConfig(
    controller=mann.LSTMConfig(hidden=8), memory=mann.LRUAConfig(slots=4, width=4, heads=1)
)


@pytest.fixture(scope="module")
def drawings():
    return mann.prepare(mann.Glyphs(classes=12).load())


@pytest.fixture(scope="module")
def network(drawings):
    """Whose worth of a request is about that of its price, so that it asks at some steps and not at others."""
    model = mann.build_model(MODEL, TASK, drawings.format, key=jax.random.key(3))
    larger = model.readout.weight.at[-2:].multiply(8.0)
    return eqx.tree_at(lambda m: m.readout.weight, model, larger)


@pytest.fixture(scope="module")
def pairs(drawings):
    return TASK.draw_training(jax.random.split(jax.random.key(0), 40), drawings)


def by_hand(task, model, episodes, i):
    """One step at a time: the label goes in at the next one only if it was asked for."""
    state, told, asked, outputs = model.initial_state(), np.zeros(3, np.float32), [], []
    price = float(episodes.price[i])
    step = eqx.filter_jit(model.step)
    for t in range(task.steps):
        label = np.append(told, np.log10(price)).astype(np.float32)
        output, state = step(episodes.inputs[i, t], jnp.asarray(label), state)
        forced = int(episodes.forced[i, t])
        asks = output[3] > price * (1 + output[4]) if forced == UNDECIDED else forced == 1
        told = np.asarray(episodes.targets[i, t]) * bool(asks)
        asked.append(bool(asks))
        outputs.append(np.asarray(output))
    return np.array(asked), np.array(outputs)


def test_a_label_is_told_where_it_was_asked_for_and_nowhere_else(network, pairs):
    done, _ = jax.jit(TASK.unroll)(network, pairs)
    assert 0.1 < np.mean(done.asked[np.asarray(pairs.forced) == UNDECIDED]) < 0.9
    for i in range(0, 40, 4):
        asked, outputs = by_hand(TASK, network, pairs, i)
        np.testing.assert_array_equal(done.asked[i], asked)
        np.testing.assert_allclose(done.outputs[i], outputs, atol=2e-5)


def test_decisions_have_no_gradient(network, pairs):
    """It is that of an episode in which the same decisions were forced."""
    done, _ = TASK.unroll(network, pairs)
    forced = pairs._replace(forced=done.asked.astype(jnp.int32))

    @eqx.filter_grad
    def gradient(model, episodes):
        outputs, _ = TASK.unroll(model, episodes)
        return jnp.sum(TASK.output.nll(outputs.outputs, episodes.targets))

    ours, theirs = gradient(network, pairs), gradient(network, forced)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_pairs_are_the_same_up_to_one_step(pairs):
    first = jax.tree.map(lambda leaf: np.asarray(leaf)[::2], pairs)
    second = jax.tree.map(lambda leaf: np.asarray(leaf)[1::2], pairs)
    for field in ("inputs", "targets", "price", "instances"):
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field))
    practice = np.all(first.forced != UNDECIDED, axis=1)
    assert 4 < practice.sum() < 16  # of 20, at even odds
    apart = first.forced[~practice] != second.forced[~practice]
    assert np.all(apart.sum(axis=1) == 1)
    assert np.all(first.forced[~practice][apart] == 1)
    assert np.all(second.forced[~practice][apart] == 0)
    after = np.cumsum(apart, axis=1).astype(bool) & ~apart
    assert np.all(first.forced[~practice][after] == UNDECIDED)
    assert np.all((first.price >= 0.02) & (first.price <= 10))
    assert len(set(first.price.tolist())) == 20


def test_the_worth_of_a_request_is_the_difference_between_the_two(network, pairs):
    done, _ = jax.jit(TASK.unroll)(network, pairs)
    errors = np.asarray(TASK.worth_error(done, pairs))
    outputs, asked, forced = (np.asarray(part) for part in (done.outputs, done.asked, pairs.forced))
    targets = np.asarray(pairs.targets)
    for i in range(0, 40, 2):
        if np.all(forced[i] != UNDECIDED):
            assert errors[i] == errors[i + 1] == 0
            continue
        earned, requests = [], []
        for j in (i, i + 1):
            right = outputs[j, :, :3].argmax(-1) == targets[j].argmax(-1)
            earned.append(sum(1 if ok else -1 for ok, ask in zip(right, asked[j], strict=True) if not ask))
            requests.append(int(asked[j].sum()))
        (t,) = np.flatnonzero(forced[i] != forced[i + 1])
        for j in (i, i + 1):
            error = (outputs[j, t, 3] - (earned[0] - earned[1])) ** 2
            error += (1 + outputs[j, t, 4] - (requests[0] - requests[1])) ** 2
            assert errors[j] == pytest.approx(0.5 * error, rel=1e-3)
    losses = np.asarray(TASK.loss(done, pairs))
    answers = np.asarray(TASK.output.nll(done.outputs, pairs.targets)).mean(axis=1)
    np.testing.assert_allclose(losses, answers + 0.03 * errors, rtol=1e-5)


class Ideal(eqx.Module):
    """Knows every class after one label, from x, which names the class; its own state says which were told."""

    def initial_state(self):
        return jnp.zeros((4, 3)), jnp.zeros(4)  # labels by class; the class of the last picture

    def step(self, x, label, state):
        labels, last = state
        labels = labels + last[:, None] * label[None, :3]
        known = x @ labels
        worth = jnp.where(jnp.max(known) > 0, -5.0, 5.0)
        return jnp.concatenate([10 * known, worth[None], jnp.zeros(1)]), (labels, x)

    def unroll_batch(self, inputs, labels, state=None):
        def episode(inputs, labels):
            def one(state, now):
                output, state = self.step(*now, state)
                return state, output

            state, outputs = jax.lax.scan(one, self.initial_state(), (inputs, labels))
            return outputs, state, None

        return jax.vmap(episode)(inputs, labels)


def test_what_is_counted_is_what_an_ideal_learner_earns():
    task = mann.Asking(classes=3, length=30)
    classes = np.random.default_rng(0).permuted(np.tile(np.arange(30) % 3, (50, 1)), axis=1)
    instances = np.stack([[np.sum(row[: t + 1] == row[t]) for t in range(30)] for row in classes])
    whole = AskingEpisode(
        inputs=jax.nn.one_hot(classes, 4),
        targets=jax.nn.one_hot(classes, 3),
        classes=jnp.asarray(classes),
        instances=jnp.asarray(instances),
        mask=jnp.ones((50, 30), bool),
        price=jnp.full(50, 0.05),
        threshold=jnp.full(50, 0.5),
        forced=jnp.full((50, 30), UNDECIDED),
    )
    done, _ = task.unroll(Ideal(), whole)
    for one, other in zip(done, task.play(Ideal(), whole), strict=True):
        np.testing.assert_array_equal(one, other)
    result = task.summarise(task.tally(done, whole), None)
    assert result.requests.value == pytest.approx(3 / 30)
    assert result.precision.value == 1
    assert result.reward.value == pytest.approx(27 - 3 * 0.05)
    content = result.to_json()
    assert content["instances"][0] == {
        "instance": 1, "accuracy": 0.0, "low": 0.0, "high": pytest.approx(0.03, abs=0.03), "count": 150,
        "requests": 1.0, "precision": None, "reward": pytest.approx(-0.05),
    }  # fmt: skip
    assert content["instances"][1]["reward"] == 1
    assert [row[2] for row in result.table([]).rows[:2]] == ["100.0", "0.0"]
    assert (task.least_requests, mann.Asking(labels="strings").least_requests) == (2, 3)
    # Above what a label can earn, asking no longer pays even him.
    dear = whole._replace(price=jnp.full(50, 6.0))
    assert not np.any(task.unroll(Ideal(), dear)[0].asked)


def test_the_rule_asks_first_and_then_where_its_largest_probability_is_low(drawings):
    task = dataclasses.replace(TASK, asks="unsure", threshold=0.4)
    model = mann.build_model(MODEL, task, drawings.format, key=jax.random.key(5))
    louder = eqx.tree_at(lambda m: m.readout.weight, model, 3 * model.readout.weight)
    episodes = task.draw_batch(jax.random.split(jax.random.key(1), 8), drawings)
    done, _ = jax.jit(task.unroll)(louder, episodes)
    scores = np.asarray(done.outputs, np.float64)
    largest = (np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)).max(-1)
    expected = largest < 0.4
    expected[:, 0] = True
    np.testing.assert_array_equal(done.asked, expected)
    assert 0.2 < expected.mean() < 0.9
    # It trains with labels at random steps.
    forced = np.asarray(task.draw_training(jax.random.split(jax.random.key(2), 200), drawings).forced)
    assert set(np.unique(forced)) == {0, 1}
    assert np.std(forced.mean(axis=1)) > 0.2  # at many rates


def test_tests_are_turned_but_not_moved(drawings):
    key = jax.random.key(4)
    plain, moved = (dataclasses.replace(TASK, moved=moved).draw(key, drawings) for moved in (False, True))
    still = mann.Classification(classes=3, length=8, augment=False).draw(key, drawings)
    np.testing.assert_array_equal(plain.classes, moved.classes)
    assert not np.array_equal(plain.inputs, moved.inputs)
    for ours, upright in zip(np.asarray(plain.inputs), np.asarray(still.inputs), strict=True):
        turns = [np.rot90(upright.reshape(20, 20), k).ravel() for k in range(4)]
        assert min(np.abs(ours - turn).max() for turn in turns) < 1e-5


def test_what_cannot_be_meant_is_refused():
    for changes, words in (
        ({"price": 0.0}, "price of a request"),
        ({"prices": (1.0, 0.1)}, "lowest price"),
        ({"threshold": 1.5}, "threshold"),
        ({"pool": mann.tasks.pool.PoolConfig(episodes=2)}, "share no pool"),
    ):
        with pytest.raises(mann.MannError, match=words):
            mann.Asking(**changes)
    with pytest.raises(mann.MannError, match="ask_one"):
        _ = mann.Asking().names
