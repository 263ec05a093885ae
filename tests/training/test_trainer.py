import gc
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from mann import kernel
from mann.data import NoData
from mann.episodes import time_offset
from mann.errors import MannError
from mann.files import is_array
from mann.layers import matrix_blocks
from mann.models import build_model
from mann.tasks import Classification, Regression
from mann.training.config import CurriculumConfig
from mann.training.curriculum import stage_at
from mann.training.optimisers import AdamW, Muon, RMSProp
from mann.training.trainer import Trainer
from mann.training.validation import CHAINS, FILLING, FILLING_STREAM, make_tally
from tests.networks import network
from tests.training.tiny import TINY, change


@pytest.fixture(scope="module")
def pictures(shared_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        yield TINY.task.load(TINY.data)


def mesh(count):
    return Mesh(np.array(jax.devices()[:count]), ("batch",))


def make(config, pictures, devices=1):
    return Trainer(config, pictures.train, pictures.held_out, mesh(devices))


@pytest.fixture(scope="module")
def one_device(pictures):
    return make(TINY, pictures, devices=1)


@pytest.fixture(scope="module")
def two_devices(pictures):
    return make(TINY, pictures, devices=2)


def advance_singly(trainer, updates):
    """One update per call, so that all tests share one compiled program."""
    state, losses = trainer.initial_state(), []
    for _ in range(updates):
        state, loss = trainer.advance(state, 1)
        losses.extend(loss)
    return state, losses


def weights(state):
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(state.model)])


def test_one_update_is_the_gradient_of_the_mean_loss_over_the_whole_batch(pictures, two_devices):
    """Plain gradient descent, written out episode by episode."""
    trainer = two_devices
    state = trainer.initial_state()
    model = eqx.combine(jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, state.model)), trainer.static)
    batch_key = jax.random.fold_in(jax.random.key(TINY.seed), 0)
    gradients, losses = [], []

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(model, key, drawings):
        episode = TINY.task.draw(key, drawings)
        outputs = model.unroll(episode.inputs, time_offset(episode.targets)).outputs
        return jnp.mean(TINY.task.output.nll(outputs, episode.targets))

    for i in range(TINY.batch):
        value, gradient = loss(model, jax.random.fold_in(batch_key, i), pictures.train)
        losses.append(value)
        gradients.append(gradient)
    mean = jax.tree.map(lambda *leaves: sum(leaves) / TINY.batch, *gradients)
    arrays = eqx.filter(model, eqx.is_array)
    rule = TINY.optimiser.build(TINY.updates, matrix_blocks(arrays))
    with jax.numpy_dtype_promotion("standard"):  # optax is not strict
        changes, _ = rule.update(eqx.filter(mean, eqx.is_array), rule.init(arrays), arrays)
    expected = eqx.apply_updates(arrays, changes)
    state, got = trainer.advance(state, 1)
    assert got[0] == pytest.approx(float(np.mean(losses)), rel=1e-5)
    for ours, theirs in zip(jax.tree.leaves(state.model), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_result_does_not_depend_on_the_number_of_devices(one_device, two_devices):
    results = []
    for trainer in (one_device, two_devices):
        state, losses = advance_singly(trainer, 6)
        results.append((weights(state), losses))
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-4)
    np.testing.assert_allclose(results[0][0], results[1][0], atol=2e-4)


def test_result_does_not_depend_on_updates_in_one_call(one_device):
    together, _ = one_device.advance(one_device.initial_state(), 4)
    single, _ = advance_singly(one_device, 4)
    np.testing.assert_allclose(weights(together), weights(single), atol=1e-6)
    assert int(together.update) == int(single.update) == 4


def test_other_seed_other_result(pictures):
    states = [make(change(seed=seed), pictures).initial_state() for seed in (0, 1)]
    assert not np.allclose(weights(states[0]), weights(states[1]))


def test_averaged_weights_follow_the_trained_ones(one_device):
    trainer = one_device
    state = trainer.initial_state()
    average = weights(state)
    for update in range(5):
        state, _ = trainer.advance(state, 1)
        decay = min(TINY.averaging, (1 + update) / (10 + update))
        average = decay * average + (1 - decay) * weights(state)
    got = np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(state.average)])
    np.testing.assert_allclose(got, average, atol=1e-6)


def test_persistent_memory_is_carried_from_update_to_update(pictures, two_devices):
    trainer = make(change(persistent=True), pictures, devices=2)
    state = trainer.initial_state()
    before = np.asarray(state.carried.memory.memory)
    assert before.shape == (TINY.batch, 6, 4)
    state, first = trainer.advance(state, 1)
    after = np.asarray(state.carried.memory.memory)
    assert np.abs(after).max() > 0.01 > np.abs(before).max()
    # The same update from a wiped memory has another loss: the memory was really used.
    carried, second = trainer.advance(state, 1)
    _, fresh = advance_singly(two_devices, 2)
    assert first[0] == pytest.approx(fresh[0], rel=1e-5)
    assert second[0] != pytest.approx(fresh[1], rel=1e-4)
    assert trainer.validate(carried).counts.seen.sum() > 0


def test_persistent_memories_are_wiped_one_after_the_other(pictures):
    """After as many episodes as told, and neighbours in the batch at different updates."""
    trainer = make(change(persistent=True, wiped_after=3), pictures, devices=2)
    state = trainer.initial_state()
    for update in range(5):
        before = jax.tree.map(np.asarray, state)
        noisy = before._replace(carried=jax.tree.map(lambda leaf: leaf + 1, before.carried))
        state, changed = (trainer.advance(trainer.place(one), 1)[0] for one in (before, noisy))
        memories = (np.asarray(one.carried.memory.memory) for one in (state, changed))
        same = [np.array_equal(a, b) for a, b in zip(*memories, strict=True)]  # what was wiped left no trace
        assert same == [(update + index) % 3 == 0 for index in range(TINY.batch)]


def test_with_persistent_memory_episodes_are_tallied_in_a_memory_full_of_others(pictures):
    model = build_model(TINY.model, TINY.task, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)
    keys = jax.random.split(jax.random.key(1), 2 * CHAINS)
    tally = make_tally(TINY.task, True, static, mesh(1))(arrays, pictures.held_out, keys)

    @jax.jit
    def single(key, state):
        episode = TINY.task.draw(key, pictures.held_out)
        before = model.next_episode(state)
        outputs, state, _ = model.unroll(episode.inputs, time_offset(episode.targets), before)
        output = TINY.task.output
        return state, output.correct(outputs, episode.targets), output.nll(outputs, episode.targets)

    for chain in (0, CHAINS - 1):
        state = model.initial_state()
        filling = jax.random.split(jax.random.fold_in(keys[chain], FILLING_STREAM), FILLING)
        for i, key in enumerate([*filling, keys[chain], keys[CHAINS + chain]]):
            state, right, nll = single(key, state)
            if i >= FILLING:
                link = chain + CHAINS * (i - FILLING)
                assert int(tally.counts.correct[link].sum()) == int(right.sum())
                np.testing.assert_allclose(tally.nll[link], nll, rtol=1e-4)


def test_what_counts_is_compiled_once_for_all_models_of_a_kind(monkeypatch):
    def tally(reference=False, **sizes):
        model = eqx.filter_eval_shape(build_model, network(**sizes), TINY.task, key=jax.random.key(0))
        _, static = eqx.partition(model, is_array)
        return make_tally(TINY.task, False, static, mesh(1), reference=reference)

    assert tally(slots=6) is tally(slots=6)
    assert tally(slots=6) is not tally(slots=7)
    assert tally(slots=6) is not tally(slots=6, reference=True)
    with_kernel = tally(slots=6)
    monkeypatch.setenv("MANN_NATIVE", "0")
    assert (tally(slots=6) is with_kernel) is not kernel.load()


def test_curriculum_grows_without_compiling_at_every_step(pictures):
    config = change(
        task=Classification(classes=6, labels="strings"),
        curriculum=CurriculumConfig(every=2, start=2),
        updates=24,
    )
    stages = [stage_at(config, update) for update in range(0, 24, 2)]
    assert [s.size[0] for s in stages] == [2, 3, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6]
    assert all(s.size[1] == 10 * s.size[0] for s in stages)
    assert {s.task.length for s in stages} == {50, 60}
    trainer = make(config, pictures)
    state = trainer.initial_state()
    for _ in range(12):
        state, losses = trainer.advance(state, 2)
        assert np.isfinite(losses).all()
    assert trainer._advance._cache_size() == 2


def test_masked_steps_of_a_curriculum_carry_no_loss(pictures):
    """A stage's loss equals that of the same episodes cut to their length."""
    config = change(
        task=Classification(classes=5, labels="strings"), curriculum=CurriculumConfig(every=2, start=3)
    )
    trainer = make(config, pictures)
    state = trainer.initial_state()
    model = eqx.combine(jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, state.model)), trainer.static)
    key = jax.random.fold_in(jax.random.key(config.seed), 0)
    losses = []
    for i in range(config.batch):
        episode = jax.jit(config.task.draw)(jax.random.fold_in(key, i), pictures.train, jnp.array([3, 30]))
        assert int(episode.classes.max()) <= 2
        outputs = eqx.filter_jit(model.unroll)(episode.inputs[:30], time_offset(episode.targets[:30])).outputs
        losses.append(np.mean(config.task.output.nll(outputs, episode.targets[:30])))
    _, got = trainer.advance(state, 1)
    assert got[0] == pytest.approx(float(np.mean(losses)), rel=1e-5)


def test_regression_trains_without_pictures():
    config = change(task=Regression(length=6), data=NoData())
    trainer = Trainer(config, None, None, mesh(2))
    state, losses = trainer.advance(trainer.initial_state(), 2)
    assert np.isfinite(losses).all()
    assert trainer.validate(state).nll.shape == (8, 6)


@pytest.mark.parametrize("kind", [Muon, AdamW, RMSProp])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
@jax.numpy_dtype_promotion("standard")
def test_optimisers_go_downhill(kind, schedule):
    """A matrix, which Muon takes, and a vector, which it leaves to Adam, each towards a point of its own."""
    rng = np.random.default_rng(0)
    goal = {"matrix": jnp.asarray(rng.normal(size=(9, 8)), jnp.float32), "vector": jnp.array([3.0, -2.0])}
    x = jax.tree.map(jnp.zeros_like, goal)
    rule = kind(schedule=schedule, learning_rate=0.05, warmup=5).build(100, matrix_blocks(x))
    state = rule.init(x)
    for _ in range(100):
        slope = jax.tree.map(lambda x, goal: 2 * (x - goal), x, goal)
        change, state = rule.update(slope, state, x)
        x = jax.tree.map(jnp.add, x, change)
    for name in goal:
        assert float(jnp.sum((x[name] - goal[name]) ** 2)) < 0.5 * float(jnp.sum(goal[name] ** 2)), name


@jax.numpy_dtype_promotion("standard")
def test_rmsprop_is_the_one_of_graves():
    """n ← ρn + (1−ρ)g², m ← ρm + (1−ρ)g, Δ ← 0.9Δ − lr g / √(n − m² + 1e-4), in numpy."""
    rule = RMSProp(learning_rate=1e-2, warmup=0, schedule="constant", clip=0.0).build(10)
    x, state = jnp.array([1.0, -0.5]), None
    state = rule.init(x)
    n, m, velocity = np.zeros(2), np.zeros(2), np.zeros(2)
    rng = np.random.default_rng(0)
    for _ in range(6):
        g = rng.normal(size=2)
        change, state = rule.update(jnp.asarray(g, jnp.float32), state, x)
        n, m = 0.95 * n + 0.05 * g**2, 0.95 * m + 0.05 * g
        velocity = 0.9 * velocity - 1e-2 * g / np.sqrt(n - m**2 + 1e-4)
        np.testing.assert_allclose(change, velocity, rtol=1e-4)


def test_warm_up_longer_than_the_run_is_refused():
    with pytest.raises(MannError, match="warm-up of 500"):
        Muon(warmup=500).build(400)


def test_too_few_classes_for_the_task_are_refused(monkeypatch, shared_cache):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    with pytest.raises(MannError, match="cannot be drawn from a data set"):
        Classification(classes=31).load(TINY.data)


def test_held_out_episodes_do_not_depend_on_the_number_of_devices(pictures):
    """Seven episodes on one device and on two, with a memory that is wiped and with one that persists."""
    for persistent in (False, True):
        config = change(persistent=persistent, evaluate_episodes=7)
        tallies = []
        for devices in (1, 2):
            trainer = make(config, pictures, devices)
            tallies.append(trainer.validate(trainer.initial_state()))
        assert tallies[0].nll.shape == (7, config.task.steps)
        np.testing.assert_allclose(tallies[0].nll, tallies[1].nll, rtol=1e-5)
        np.testing.assert_array_equal(tallies[0].counts.correct, tallies[1].counts.correct)


def test_a_trainer_and_its_data_are_not_kept_alive(pictures):
    trainer = make(TINY, pictures)
    trainer.validate(trainer.advance(trainer.initial_state(), 1)[0])
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None
