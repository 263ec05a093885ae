"""The native step on arrays of the host against `Model.step`, and where there is none."""

import logging
import threading
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann import kernel
from mann.cell import State
from mann.controllers import LSTMConfig, NoControllerConfig
from mann.layers import with_precision
from mann.memory import LeastSquaresConfig
from mann.models import Model, ModelConfig, build_model
from mann.native.host import HostStep
from mann.online import FunctionLearner
from mann.online.network import compile_network
from mann.tasks import Regression
from mann.trained import load_trained

SHIPPED = ("functions-1d", "functions-2d", "functions-3d", "gp-1d-best", "gp-2d-best", "gp-3d-best")
needs_kernel = pytest.mark.skipif(
    kernel.host_function("leastsquares", "mann_leastsquares_step") is None,
    reason="no C++ compiler: there is no native kernel to test",
)


def network(dimensions: int = 2, controller: Any = None, **fields: int) -> Model:
    """As after training: nothing at its start. 10 slots are no whole number of the rows taken at once."""
    config = ModelConfig(
        controller=controller or NoControllerConfig(),
        memory=LeastSquaresConfig(**{"frequencies": 5, "heads": 3, "hidden": 3} | fields),
        reads_to_controller=False,
    )
    model = build_model(config, Regression(dimensions=dimensions), key=jax.random.key(0))
    rng = np.random.default_rng(1)
    arrays, static = eqx.partition(model, eqx.is_array)
    changed = jax.tree.map(
        lambda leaf: leaf + jnp.asarray(0.3 * rng.normal(size=leaf.shape), leaf.dtype), arrays
    )
    return eqx.combine(changed, static)


def native(model: Model) -> HostStep:
    found = model.host_step()
    assert found is not None
    return found


def stream(model: Model, steps: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (steps, model.input_size)).astype(np.float32)
    noisy = np.sin(2 * x[:-1, :1]) + 0.1 * rng.normal(size=(steps - 1, 1))
    return x, np.concatenate([np.zeros((1, 1)), noisy]).astype(np.float32)


def follow(step: Any, x: np.ndarray, previous: np.ndarray, state: State) -> list[tuple[np.ndarray, State]]:
    """Outputs and state of every step."""
    found = []
    for now, value in zip(x, previous, strict=True):
        outputs, state = step(now, value, state)
        found.append((np.asarray(outputs), state))
    return found


def assert_same_steps(model: Model, x: np.ndarray, previous: np.ndarray, tolerance: float = 1e-4) -> None:
    start = model.initial_state()
    ours = follow(native(model), x, previous, start)
    theirs = follow(eqx.filter_jit(model.step), x, previous, start)
    for (outputs, state), (expected, expected_state) in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(outputs[:-1], expected, rtol=tolerance, atol=tolerance)
        assert outputs[-1] == -1  # this memory cannot say what is familiar
        assert jax.tree.structure(state) == jax.tree.structure(expected_state)
        for leaf, other in zip(jax.tree.leaves(state), jax.tree.leaves(expected_state), strict=True):
            assert (leaf.shape, leaf.dtype) == (other.shape, other.dtype)
            # Sums over all samples are as exact as they are large.
            np.testing.assert_allclose(leaf, other, rtol=10 * tolerance, atol=10 * tolerance)


@needs_kernel
@pytest.mark.parametrize("name", SHIPPED)
def test_whole_episodes_are_those_of_the_compiled_step(name: str) -> None:
    model = load_trained(name).model
    assert_same_steps(model, *stream(model, 50))


@needs_kernel
@pytest.mark.parametrize(
    "fields", [{}, {"heads": 1}, {"dimensions": 3, "frequencies": 9}, {"frequencies": 1}]
)
def test_sizes_that_fill_no_vector(fields: dict[str, int]) -> None:
    model = network(**fields)
    assert_same_steps(model, *stream(model, 30))


@needs_kernel
def test_far_away_repeated_and_large_samples_stay_finite_and_the_same() -> None:
    model = load_trained("functions-1d").model
    x, previous = stream(model, 12)
    x[3:7, 0], x[8, 0] = (1e4, -1e4, 3.7e3, 3.7e3), 0.0
    assert_same_steps(model, x, previous)
    previous[5], previous[9] = 1e6, -1e6
    for outputs, state in follow(native(model), x, previous, model.initial_state()):
        assert all(np.isfinite(leaf).all() for leaf in (outputs, *jax.tree.leaves(state)))
    for far in (3e38, -3e38):
        outputs, state = native(model)(np.full(1, far, np.float32), previous[0], model.initial_state())
        assert all(np.isfinite(leaf).all() for leaf in (outputs, *jax.tree.leaves(state)))


@needs_kernel
def test_thousands_of_samples_come_to_the_same_estimate() -> None:
    """Rounding goes different ways, and does not pile up."""
    model = network(heads=2)
    x, previous = stream(model, 4000)
    ours, _ = follow(native(model), x, previous, model.initial_state())[-1]
    theirs = jax.jit(lambda x, y: model.unroll(x, y).outputs[-1])(x, previous)
    np.testing.assert_allclose(ours[:-1], theirs, atol=3e-3)


@needs_kernel
def test_a_step_leaves_its_state_alone_and_is_the_same_in_threads() -> None:
    model = load_trained("functions-1d").model
    x, previous = stream(model, 9)
    step = native(model)
    _, state = follow(step, x, previous, model.initial_state())[-1]
    before = jax.tree.map(np.copy, state)
    expected = [step(now, previous[3], state) for now in x]
    found: dict[int, list[Any]] = {}

    def ask(thread: int) -> None:
        found[thread] = [step(now, previous[3], state) for _ in range(5) for now in x]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jax.tree.map(np.testing.assert_array_equal, state, before)
    for answers in found.values():
        jax.tree.map(np.testing.assert_array_equal, answers, expected * 5)


@needs_kernel
def test_arrays_of_any_kind_are_taken_but_none_that_is_too_short() -> None:
    model = network()
    step, start = native(model), model.initial_state()
    x, label = np.array([0.3, -0.7], np.float32), np.array([0.5], np.float32)
    _, state = expected = step(x, label, start)
    fixed = x.copy()
    fixed.flags.writeable = False
    for other in (fixed, np.repeat(x, 2)[::2]):
        jax.tree.map(np.testing.assert_array_equal, step(other, label, start), expected)
    with pytest.raises(ValueError, match="too small"):
        step(x[:1], label, start)
    short = state.memory._replace(reach=np.zeros((1, 10), np.float32))
    with pytest.raises(ValueError, match="too small"):
        step(x, label, state._replace(memory=short))


@needs_kernel
def test_only_a_memory_alone_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert network().host_step() is not None
    assert network(controller=LSTMConfig(hidden=4)).host_step() is None
    assert with_precision(network(), "bfloat16").host_step() is None
    assert load_trained("gp-1d").model.host_step() is None  # the paper's memory
    assert load_trained("omniglot-5-conv").model.host_step() is None
    with kernel.avoided():
        assert network().host_step() is None
    monkeypatch.setenv("MANN_NATIVE", "0")
    assert network().host_step() is None


def test_without_a_compiler_there_is_one_message_and_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MANN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    kernel._load_host.cache_clear()
    try:
        with caplog.at_level(logging.INFO):
            assert network().host_step() is None
            assert network().host_step() is None
    finally:
        kernel._load_host.cache_clear()
    assert [record.getMessage().count("no C++ compiler") for record in caplog.records] == [1]


@needs_kernel
def test_learners_with_and_without_it_read_each_others_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    trained = load_trained("gp-1d-best")
    x = np.linspace(0, 60, 21)
    y = 200 + 30 * np.sin(x / 6)

    def taught(learner: FunctionLearner, part: slice) -> FunctionLearner:
        for point, value in zip(x[part], y[part], strict=True):
            learner.learn_one(point, value)
        return learner

    answers = []
    for ways in (("1", "1"), ("1", "0"), ("0", "1"), ("0", "0")):
        monkeypatch.setenv("MANN_NATIVE", ways[0])
        learner = taught(FunctionLearner(trained), slice(0, 13))
        learner.save(tmp_path / "function")
        monkeypatch.setenv("MANN_NATIVE", ways[1])
        again = taught(FunctionLearner.load(tmp_path / "function"), slice(13, None))
        assert (again._network.host is not None) == (ways[1] == "1")
        many = again.predict_many([7.0, 31.0])
        assert again.predict_one(31.0) == pytest.approx((many.mean[1], many.scale[1]), rel=1e-4)
        answers.append([*many.mean, *many.scale])
    for other in answers[1:]:
        np.testing.assert_allclose(other, answers[0], rtol=1e-3)


@needs_kernel
def test_states_are_of_numpy_from_the_start() -> None:
    """A JAX array would be copied at every step."""
    compiled = compile_network(load_trained("gp-1d-best"))
    x, previous = stream(compiled.trained.model, 5)
    unrolled = compiled.unroll(x, previous, compiled.start)
    for state in (compiled.start, unrolled, compiled.place(compiled.trained.model.initial_state())):
        assert {type(leaf) for leaf in jax.tree.leaves(state)} == {np.ndarray}
    expected = compiled.compiled.unroll(compiled.arrays, x, previous, compiled.start)
    for ours, theirs in zip(jax.tree.leaves(unrolled), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
