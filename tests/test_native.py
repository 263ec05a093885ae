"""The native kernel against the JAX scan that it stands in for."""

import logging
import threading
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from mann import kernel as build
from mann.cell import State
from mann.errors import MannError
from mann.memory import PAPER_MEMORY, LRUAConfig, NTMConfig
from mann.models import Model, ModelConfig, build_model
from mann.native import Native
from mann.tasks import Classification
from tests.networks import network
from tests.oracles import lstm

needs_kernel = pytest.mark.skipif(
    not build.load(), reason="no C++ compiler: there is no native kernel to test"
)

ODD = {"hidden": 17, "slots": 13, "width": 7, "heads": 3}
CONFIGS = {
    "default": network(**ODD),
    "paper": network(**ODD, lrua=PAPER_MEMORY),
    "read first": network(
        **ODD, lrua=LRUAConfig(order="read_first", erased="all", least_used="per_head", written="key")
    ),
    "no reads, cell query": network(
        hidden=5,
        slots=33,
        width=5,
        heads=6,
        reads_to_controller=False,
        query="cell",
        lrua=LRUAConfig(erased="none"),
    ),
    "feed-forward": network(**ODD, controller="feedforward"),
    "feed-forward, no reads": network(**ODD, controller="feedforward", reads_to_controller=False),
    "NTM": network(**ODD, memory="ntm", ntm=NTMConfig(initial_strength=3.0)),
    "NTM, no reads, cell query": network(
        hidden=5, slots=33, width=5, heads=6, memory="ntm", reads_to_controller=False, query="cell"
    ),
    "NTM, two slots": network(hidden=3, slots=2, width=1, heads=1, memory="ntm"),
    "LSTM": network(**ODD, memory="none"),
}


def scan(model: Model, projected: Array, state: State) -> tuple[Array, State]:
    """What `Model.unroll` does between the input projection and the output layer."""

    def one(projected: Array, state: State) -> tuple[Array, State]:
        def advance(state: State, projected: Array) -> tuple[State, Array]:
            hidden, state = model.cell(projected, state)
            return state, hidden

        last, hidden = jax.lax.scan(advance, state, projected)
        return hidden, last

    return jax.vmap(one)(projected, state)


def run_native(model: Model, projected: Array, state: State) -> tuple[Array, State]:
    """The same in the kernel."""
    return Native()(model.cell, projected, state)


def problem(config: ModelConfig, batch: int, time: int, wiped: bool = False) -> tuple[Model, Array, State]:
    """A model, inputs, and states: wiped ones, or the arbitrary ones that persistent memory leads to."""
    random = np.random.default_rng(0)
    model = build_model(config, Classification(classes=5), key=jax.random.key(1))
    gates = model.controller.inputs.bias.size
    projected = jnp.asarray(random.normal(size=(batch, time, gates)), jnp.float32)

    def start(values: Array) -> Array:
        noise = 0 if wiped else random.uniform(0, 0.3, size=(batch, *values.shape))
        return jnp.asarray(np.asarray(values)[None] + noise + np.zeros((batch, *values.shape)), jnp.float32)

    return model, projected, jax.tree.map(start, model.initial_state())


@eqx.filter_jit
def results_and_gradients(unroll: Any, arguments: Any, weights: Any) -> Any:
    """Everything that `unroll` returns, and the gradients of a random projection of it."""

    def loss(arguments: Any) -> tuple[Array, Any]:
        results = unroll(*arguments)
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), results, weights)
        return jnp.sum(jnp.stack(jax.tree.leaves(products))), results

    (_, results), gradients = eqx.filter_value_and_grad(loss, has_aux=True)(arguments)
    return results, gradients


def random_like(shapes: Any) -> Any:
    random = np.random.default_rng(2)
    return jax.tree.map(lambda s: jnp.asarray(random.normal(size=s.shape), jnp.float32), shapes)


def assert_close(actual: Any, expected: Any, bound: float) -> None:
    """Every array within `bound` of the largest entry of the expected one."""
    leaves = jax.tree_util.tree_leaves_with_path(expected)
    assert len(leaves) == len(jax.tree.leaves(actual))
    for (path, e), a in zip(leaves, jax.tree.leaves(actual), strict=True):
        error = np.max(np.abs(np.asarray(a) - np.asarray(e)), initial=0)
        largest = np.max(np.abs(np.asarray(e)), initial=0)
        assert error <= bound * largest + 1e-9, f"{jax.tree_util.keystr(path)}: {error:.3g} of {largest:.3g}"


def assert_same(arguments: Any, bound: float = 1e-4) -> None:
    weights = random_like(eqx.filter_eval_shape(run_native, *arguments))
    expected = results_and_gradients(scan, arguments, weights)
    actual = results_and_gradients(run_native, arguments, weights)
    assert_close(actual[0], expected[0], 1e-5)
    assert_close(actual[1], expected[1], bound)


@needs_kernel
@pytest.mark.parametrize("name", CONFIGS)
def test_results_and_gradients_are_those_of_the_scan(name: str) -> None:
    assert_same(problem(CONFIGS[name], batch=9, time=9))


@needs_kernel
@pytest.mark.parametrize("controller", ["lstm", "feedforward"])
@pytest.mark.parametrize("memory", ["lrua", "ntm", "none"])
def test_random_networks_give_the_outputs_and_gradients_of_unroll(controller: str, memory: str) -> None:
    """The whole network, from pictures to outputs, against `Model.unroll`, of random sizes and readings."""
    random = np.random.default_rng([len(controller), len(memory)])

    def choose(*options: Any) -> Any:
        return options[random.integers(len(options))]

    config = network(
        controller=controller,
        memory=memory,
        hidden=int(random.integers(1, 40)),
        slots=int(random.integers(5, 70)),
        width=int(random.integers(1, 30)),
        heads=int(random.integers(1, 6)),
        query=choose("hidden", "cell") if controller == "lstm" else "hidden",
        lrua=LRUAConfig(
            key_strength=choose("learned", "none"),
            written=choose("separate", "key"),
            order=choose("write_first", "read_first"),
            least_used=choose("shared", "per_head"),
            erased=choose("one", "all", "none"),
            decay=float(random.uniform(0.5, 1)),
        ),
        ntm=NTMConfig(initial_strength=float(random.uniform(0, 4))),
    )
    batch, time = int(random.integers(1, 12)), int(random.integers(1, 40))
    model, _, state = problem(config, batch, time)
    inputs = jnp.asarray(random.uniform(size=(batch, time, 400)), jnp.float32)
    labels = jnp.asarray(random.uniform(size=(batch, time, 5)), jnp.float32)
    arguments = (model, inputs, labels, state)
    expected, actual = (
        results_and_gradients(unroll, arguments, random_like(eqx.filter_eval_shape(unroll, *arguments)))
        for unroll in (unroll_each, Model.unroll_batch)
    )
    assert_close(actual[0], expected[0], 1e-5)
    assert_close(actual[1], expected[1], 1e-4)


def unroll_each(model: Model, *arguments: Any) -> Any:
    return jax.vmap(model.unroll)(*arguments)


@needs_kernel
@pytest.mark.parametrize("name", ["default", "NTM"])
def test_one_step_of_one_episode(name: str) -> None:
    assert_same(problem(CONFIGS[name], batch=1, time=1))


@needs_kernel
def test_gradients_of_an_ntm_equal_finite_differences() -> None:
    """Along one random direction of all weights, inputs and states."""
    arguments = problem(network(hidden=6, slots=9, width=5, heads=2, memory="ntm"), batch=3, time=5)
    weights = random_like(eqx.filter_eval_shape(run_native, *arguments))
    _, gradients = results_and_gradients(run_native, arguments, weights)
    arrays, static = eqx.partition(arguments, eqx.is_array)
    direction = random_like(arrays)

    @jax.jit
    def along(step: float) -> Array:
        moved = eqx.combine(jax.tree.map(lambda a, d: a + step * d, arrays, direction), static)
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), run_native(*moved), weights)
        return jnp.sum(jnp.stack(jax.tree.leaves(products)))

    products = jax.tree.map(lambda a, b: jnp.sum(a * b), eqx.filter(gradients, eqx.is_array), direction)
    slope = sum(float(leaf) for leaf in jax.tree.leaves(products))
    assert (float(along(1e-3)) - float(along(-1e-3))) / 2e-3 == pytest.approx(slope, rel=5e-3)


@needs_kernel
def test_gradients_of_a_long_episode() -> None:
    """The memory is rebuilt backwards over 1000 steps: rounding errors must not add up.

    Against a scan in float64, the kernel was off by 1.2e-4 here, that in float32 by 1.5e-5.
    """
    config = network(hidden=24, slots=40, width=10, heads=2)
    assert_same(problem(config, batch=2, time=1000, wiped=True), bound=3e-4)


@needs_kernel
def test_ties_in_usage_go_to_the_lowest_slot() -> None:
    """At the start all slots but one are tied; `erased` shows in the memory which of them was chosen."""
    arguments = problem(network(**{**ODD, "slots": 37}, lrua=PAPER_MEMORY), batch=2, time=4, wiped=True)
    _, expected = eqx.filter_jit(scan)(*arguments)
    _, actual = eqx.filter_jit(run_native)(*arguments)
    assert_close(actual, expected, 1e-5)


@needs_kernel
def test_without_gradients_the_results_are_the_same() -> None:
    """Without a backward pass, nothing is recorded: that is another way through the kernel."""
    arguments = problem(CONFIGS["default"], batch=20, time=9)
    weights = random_like(eqx.filter_eval_shape(run_native, *arguments))
    recorded, _ = results_and_gradients(run_native, arguments, weights)
    assert_close(eqx.filter_jit(run_native)(*arguments), recorded, 0)


@needs_kernel
def test_empty_episode() -> None:
    model, projected, state = problem(CONFIGS["default"], batch=2, time=0)
    hidden, last = run_native(model, projected, state)
    assert hidden.shape == (2, 0, 17 + 3 * 7)
    assert_close(last, state, 0)


@needs_kernel
def test_a_state_of_another_size_is_refused() -> None:
    model, projected, state = problem(CONFIGS["default"], batch=2, time=1)
    with pytest.raises(MannError, match="each of the 3 episodes"):
        run_native(model, jnp.concatenate([projected, projected[:1]]), state)


@needs_kernel
def test_zero_rows_and_zero_keys_have_finite_gradients() -> None:
    model, projected, state = problem(CONFIGS["paper"], batch=2, time=5)
    model = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, model)
    state = state._replace(memory=jax.tree.map(jnp.zeros_like, state.memory))
    weights = random_like(eqx.filter_eval_shape(run_native, model, projected, state))
    outcome = results_and_gradients(run_native, (model, projected, state), weights)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(outcome))


def loss(model: Model, projected: Array, state: State) -> Array:
    return jnp.sum(run_native(model, projected, state)[0] ** 2)


@needs_kernel
def test_two_devices_and_a_loop() -> None:
    """Inside jit, shard_map and scan at once: the gradient is the sum over the devices."""
    model, projected, state = problem(CONFIGS["default"], batch=6, time=4)
    arrays, static = eqx.partition(model, eqx.is_array)
    mesh = Mesh(np.array(jax.devices()[:2]), ("device",))
    each, whole = PartitionSpec("device"), PartitionSpec()

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=(whole, each, each), out_specs=whole)
    def update(arrays: Any, projected: Array, state: State) -> Any:
        def step(arrays: Any, _: None) -> tuple[Any, None]:
            model = eqx.combine(arrays, static)
            gradients = eqx.filter_grad(loss)(model, projected, state)
            return jax.tree.map(lambda a, g: a - 1e-4 * g, arrays, eqx.filter(gradients, eqx.is_array)), None

        return jax.lax.scan(step, arrays, length=2)[0]

    expected = model
    for _ in range(2):
        gradients = eqx.filter_jit(eqx.filter_grad(loss))(expected, projected, state)
        expected = eqx.apply_updates(expected, jax.tree.map(lambda g: -1e-4 * g, gradients))
    assert_close(update(arrays, projected, state), eqx.filter(expected, eqx.is_array), 1e-6)


@needs_kernel
def test_calls_from_two_threads_do_not_disturb_each_other() -> None:
    model, projected, state = problem(CONFIGS["default"], batch=20, time=9)
    gradient = eqx.filter_jit(eqx.filter_grad(loss))
    inputs = [projected, -projected]
    expected = [gradient(model, p, state) for p in inputs]
    actual: dict[tuple[int, int], Any] = {}

    def work(which: int) -> None:
        for repeat in range(20):
            actual[which, repeat] = jax.block_until_ready(gradient(model, inputs[which], state))

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(actual) == 40
    for (which, _), gradients in actual.items():
        assert_close(gradients, expected[which], 1e-6)


@needs_kernel
def test_supports(monkeypatch: pytest.MonkeyPatch) -> None:
    def supported(config: ModelConfig) -> bool:
        task, key = Classification(classes=5), jax.random.key(0)
        return Native().supports(eqx.filter_eval_shape(build_model, config, task, key=key).cell)

    assert all(supported(config) for config in CONFIGS.values())
    assert not supported(network(**ODD, controller="feedforward", memory="none"))  # there is no recurrence
    monkeypatch.setenv("MANN_NATIVE", "0")
    assert not supported(CONFIGS["default"])
    with pytest.raises(MannError, match="native"):
        eqx.filter_eval_shape(run_native, *problem(CONFIGS["default"], batch=1, time=1))


@needs_kernel
def test_with_mann_native_0_the_network_is_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, state = problem(CONFIGS["NTM"], batch=2, time=3)
    inputs, labels = jnp.ones((2, 3, 400)), jnp.ones((2, 3, 5))

    def program() -> tuple[str, Any]:
        compiled = eqx.filter_jit(lambda *arguments: model.unroll_batch(*arguments)).lower(
            inputs, labels, state
        )
        return compiled.as_text(), compiled.compile()(inputs, labels, state)

    native_program, actual = program()
    monkeypatch.setenv("MANN_NATIVE", "0")
    scan_program, expected = program()
    assert "mann_lstm_ntm_forward" in native_program
    assert "mann_" not in scan_program
    assert_close(actual, expected, 1e-5)


def test_without_a_compiler_there_is_one_message_and_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MANN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with caplog.at_level(logging.INFO):
        assert not build.load.__wrapped__()
        (tmp_path / "c++").write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho broken >&2\nexit 1\n')
        (tmp_path / "c++").chmod(0o755)
        assert not build.load.__wrapped__()
    missing, broken = [record.getMessage() for record in caplog.records]
    assert "no C++ compiler" in missing
    assert "about twice as slow" in missing
    assert "apt-get install g++" in missing
    assert "broken" in broken
    assert "\n" not in broken


def test_an_altered_kernel_in_the_cache_is_built_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Loaded as it is, it can end the process with a segmentation fault. The compiler here copies its source."""
    compiler, cache = tmp_path / "c++", tmp_path / "cache"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\necho >> {tmp_path}/calls\n')
    with compiler.open("a") as script:
        script.write('while [ "$1" != -o ]; do source=$1; shift; done\ncp "$source" "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("MANN_CACHE", str(cache))
    content = build.KERNEL.read_bytes()
    library = build.build()
    assert library.read_bytes() == content
    assert build.build() == library
    assert (tmp_path / "calls").read_text() == "\n"
    for altered in (b"", content[: len(content) // 2], content[:5000] + b"\0" + content[5001:]):
        library.write_bytes(altered)
        assert build.build().read_bytes() == content
        assert list((cache / "native").iterdir()) == [library]
    assert (tmp_path / "calls").read_text() == "\n" * 4


# The boundary between Python and C++


class Call:
    """A forward call of the LSTM without a memory, written out by hand from kernel.cpp."""

    batch, time, hidden = 2, 3, 4

    def __init__(self) -> None:
        B, T, H = self.batch, self.time, self.hidden
        random = np.random.default_rng(0)
        inputs = [(B, T, 4 * H), (H, 4 * H), (H, 0), (0,), (B, H), (B, H), (B, 0, 0), (B, 0, 0), (B, 0)]
        self.arrays = [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in inputs]
        recorded = [(B, T, 4 * H), (B, T, H), (B, T, 0), (B, T, 0, 0), (B, T, 0, 0), (B, 0, 0, 0)]
        shapes = [(B, T, H), (B, 0, 0), (B, 0, 0), (B, 0), *recorded]
        self.results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        self.results.append(jax.ShapeDtypeStruct((B, T, 0), jnp.int32))
        sizes = {"batch": B, "time": T, "hidden": H, "fed": H, "steps": T, "interval": 1}
        nothing = ("slots", "width", "heads", "weighted", "fed_from", "cell_query", "targets", "checkpoints")
        nothing += ("bfloat16",)
        self.attributes: dict[str, Any] = {
            name: np.int64(size) for name, size in (sizes | dict.fromkeys(nothing, 0)).items()
        }

    def run(self) -> list[Array]:
        call = jax.ffi.ffi_call("mann_lstm_none_forward", self.results)
        return list(jax.block_until_ready(call(*self.arrays, **self.attributes)))

    def refused(self, message: str) -> None:
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"INVALID_ARGUMENT: mann: {message}"):
            self.run()


ATTRIBUTES = list(Call().attributes)


@needs_kernel
def test_call_by_hand_is_an_lstm() -> None:
    """Against the loops of the oracle, so that the refusals below are of a call that is right but for one thing."""
    call = Call()
    projected, recurrent, _, _, hidden, cell, *_ = (np.asarray(a, np.float64) for a in call.arrays)
    outputs, *_ = call.run()
    nothing = np.zeros((0, 4 * call.hidden))
    for b in range(call.batch):
        h, c = hidden[b].tolist(), cell[b].tolist()
        for t in range(call.time):
            h, c = lstm.step((nothing, projected[b, t]), recurrent, None, [], None, h, c)
            np.testing.assert_allclose(outputs[b, t], h, atol=1e-5)


@needs_kernel
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_missing_attribute_is_refused_by_name(name: str) -> None:
    call = Call()
    del call.attributes[name]
    call.refused(f"the attribute {name} is missing or of another type")


@needs_kernel
@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("value", [np.int32(17), np.float32(0.5)])  # JAX takes 2 and 2.0 for the same call
def test_attribute_of_another_type_is_refused_by_name(name: str, value: Any) -> None:
    call = Call()
    call.attributes[name] = value
    call.refused(f"the attribute {name} is missing or of another type")


@needs_kernel
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_negative_attribute_is_refused_by_name(name: str) -> None:
    call = Call()
    call.attributes[name] = np.int64(-1)
    call.refused(f"{name} is negative")


@needs_kernel
def test_unknown_attribute_is_refused() -> None:
    call = Call()
    call.attributes["decay"] = np.float32(0.99)  # of a memory that this network does not have
    call.refused("there are attributes that it does not know")


@needs_kernel
@pytest.mark.parametrize("name", ["batch", "time", "hidden", "fed", "steps", "targets"])
@pytest.mark.parametrize("size", [1, 7, 2**40])  # none of them is the right one
def test_attribute_of_another_size_than_the_buffers_is_refused(name: str, size: int) -> None:
    call = Call()
    call.attributes[name] = np.int64(size)
    call.refused("(a buffer is missing or of another size|the sizes contradict one another)")


@needs_kernel
@pytest.mark.parametrize(
    ("name", "size"), [("interval", 0), ("fed_from", 2**40), ("checkpoints", 1), ("targets", 1)]
)
def test_sizes_that_contradict_one_another_are_refused(name: str, size: int) -> None:
    """No buffer shows these, and each would lead out of one."""
    call = Call()
    call.attributes[name] = np.int64(size)
    call.refused("the sizes contradict one another")


@needs_kernel
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.int32])
def test_buffer_of_another_type_is_refused(dtype: Any) -> None:
    call = Call()
    call.arrays[0] = call.arrays[0].astype(dtype)
    call.refused("a buffer is missing or of another size than the attributes say, or of another type")


@needs_kernel
@pytest.mark.parametrize("number", range(9))
def test_input_of_another_size_is_refused(number: int) -> None:
    call = Call()
    shape = call.arrays[number].shape
    call.arrays[number] = jnp.zeros(tuple(size + 1 for size in shape))
    call.refused("a buffer is missing or of another size")


@needs_kernel
@pytest.mark.parametrize("number", range(11))
def test_result_of_another_size_is_refused(number: int) -> None:
    call = Call()
    result = call.results[number]
    call.results[number] = jax.ShapeDtypeStruct(tuple(size + 1 for size in result.shape), result.dtype)
    call.refused("a buffer is missing or of another size")


@needs_kernel
def test_another_number_of_buffers_is_refused() -> None:
    for arrays, results in ((-1, 11), (9, -1)):
        call = Call()
        call.arrays, call.results = call.arrays[:arrays], call.results[:results]
        call.refused("a buffer is missing")
    call = Call()
    call.arrays.append(call.arrays[0])
    call.refused("a buffer is missing")
    call = Call()
    call.results.append(call.results[0])
    call.refused("a buffer is missing")


def orthogonalise_by_hand(**changes: Any) -> Array:
    """A call for two blocks of 3×2 on device 0, of three."""
    attributes = {name: np.int64(value) for name, value in (("steps", 3), ("bfloat16", 0), ("room", 12))}
    attributes |= {name: np.float32(value) for name, value in (("a", 3.4), ("b", -4.8), ("c", 2.0))}
    lists = (("rows", [3]), ("columns", [2]), ("blocks", [3]), ("owners", [0, 1, 0]))
    attributes |= {name: np.array(value, np.int64) for name, value in lists}
    room = changes.pop("result", 12)
    matrix, device = changes.pop("matrix", jnp.ones((3, 6))), changes.pop("device", jnp.int32(0))
    call = jax.ffi.ffi_call("mann_orthogonalise", jax.ShapeDtypeStruct((room,), jnp.float32))
    return jax.block_until_ready(call(device, matrix, **attributes | changes))


@needs_kernel
def test_iterations_by_hand() -> None:
    """Of rank one, so that the only singular value is 1: it follows the polynomial."""
    value = 1.0
    for _ in range(3):
        value = 3.4 * value - 4.8 * value**3 + 2.0 * value**5
    np.testing.assert_allclose(orthogonalise_by_hand(), np.full(12, value / np.sqrt(6)), atol=1e-5)


@needs_kernel
@pytest.mark.parametrize(
    "changes",
    [
        {"room": np.int64(11), "result": 11},
        {"room": np.int64(13)},
        {"rows": np.array([3, 1])},
        {"rows": np.array([-3])},
        {"columns": np.array([3])},
        {"owners": np.array([0, 1])},
        {"steps": np.int64(-1)},
        {"a": np.int64(3)},
        {"matrix": jnp.ones((3, 5))},
        {"device": jnp.float32(0)},
    ],
    ids=str,
)
def test_iterations_of_another_size_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: mann: "):
        orthogonalise_by_hand(**changes)
