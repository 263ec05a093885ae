"""Products in bfloat16: against NumPy with rounded factors, and whole networks against float32."""

import ctypes
import dataclasses
import json
import re
import signal
import subprocess
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh

import mann
from mann import kernel, runtime
from mann.benchmark.parts import random_drawings
from mann.layers import Layer, Linear, product, with_precision
from mann.models import ModelConfig, build_model
from mann.tasks import Classification
from mann.training.config import from_dict, to_dict
from mann.training.distributed import make_mesh
from mann.training.run import Run
from mann.training.trainer import Trainer
from tests.networks import network
from tests.oracles import lstm
from tests.test_native import CONFIGS, Call, assert_close, problem, random_like, run_native, scan
from tests.test_native import results_and_gradients as both
from tests.training.tiny import TINY

needs_kernel = pytest.mark.skipif(
    not kernel.load(), reason="no C++ compiler: there is no native kernel to test"
)


@pytest.fixture(params=["1", "0"], ids=["native", "XLA"])
def either_way(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANN_NATIVE", request.param)


def rounded(values: Any) -> np.ndarray:
    """To bfloat16 and back, in double precision."""
    return np.asarray(values).astype(ml_dtypes.bfloat16).astype(np.float64)


# Single products


@pytest.mark.parametrize(
    ("shape", "outputs"), [((3, 5), 2), ((7, 20, 33), 50), ((5, 2100), 16), ((130, 64), 65), ((6,), 4)]
)
def test_product_and_its_gradients_are_those_of_rounded_factors(
    shape: tuple[int, ...], outputs: int, either_way: None
) -> None:
    """Only the order of the sums differs: 1e-5 of the largest entry, for up to 2100 terms."""
    random = np.random.default_rng(0)
    x, w, d = (random.normal(size=s) for s in (shape, (shape[-1], outputs), (*shape[:-1], outputs)))
    x, w, d = (a.astype(np.float32) for a in (x, w, d))
    y, pull = jax.vjp(lambda x, w: product(x, w, "bfloat16"), jnp.asarray(x), jnp.asarray(w))
    expected = rounded(x) @ rounded(w)
    rows = rounded(x).reshape(-1, shape[-1]), rounded(d).reshape(-1, outputs)
    gradients = rounded(d) @ rounded(w).T, rows[0].T @ rows[1]
    assert_close((y, *pull(jnp.asarray(d))), (expected, *gradients), 1e-5)
    assert np.abs(expected - x.astype(np.float64) @ w).max() > 1e-4  # it was rounded


def test_not_a_number_stays_one(either_way: None) -> None:
    """A run must be able to see that its loss is no longer finite."""
    x = jnp.ones((4, 6)).at[1, 2].set(jnp.nan).at[2, 3].set(jnp.inf)
    y = np.asarray(product(x, jnp.ones((6, 3)), "bfloat16"))
    assert np.all(np.isnan(y[1]))
    assert np.all(np.isinf(y[2]))
    assert np.all(y[[0, 3]] == 6)


@needs_kernel
def test_a_product_of_devices_and_of_a_batch() -> None:
    """Inside `shard_map` with one factor shared, and inside `vmap`."""
    random = np.random.default_rng(0)
    x, w = (jnp.asarray(random.normal(size=s), jnp.float32) for s in ((4, 3, 10), (10, 6)))
    mesh = Mesh(np.array(jax.devices()[:2]), ("device",))
    each, whole = jax.P("device"), jax.P()

    def gradient(w: Any, x: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(product(x, w, "bfloat16") ** 2))(w)

    spread = jax.shard_map(gradient, mesh=mesh, in_specs=(whole, each), out_specs=whole)
    expected = rounded(x).reshape(12, 10).T @ rounded(2 * (rounded(x).reshape(12, 10) @ rounded(w)))
    # What is rounded before the last product may differ by one unit in the last place of 8 bits.
    assert_close(jax.jit(spread)(w, x), expected, 1e-2)
    assert_close(jax.vmap(lambda x: product(x, w, "bfloat16"))(x), rounded(x) @ rounded(w), 1e-5)


@needs_kernel
@pytest.mark.parametrize("name", ["rows", "depth", "columns"])
def test_sizes_that_are_not_those_of_the_buffers_are_refused(name: str) -> None:
    flags = {"left_transposed": 0, "right_transposed": 0}
    sizes = {key: np.int64(size) for key, size in ({"rows": 2, "depth": 3, "columns": 4} | flags).items()}
    arrays = jnp.ones((2, 3)), jnp.ones((3, 4))
    [right] = kernel.call("mann_product", [((2, 4), jnp.float32)], *arrays, **sizes)
    assert np.all(right == 3)
    for size in (5, -1, 2**40):
        with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: mann: "):
            jax.block_until_ready(
                kernel.call(
                    "mann_product", [((2, 4), jnp.float32)], *arrays, **sizes | {name: np.int64(size)}
                )
            )


@needs_kernel
def test_words_of_two_numbers_on_processors_without_an_instruction_for_them(tmp_path: Any) -> None:
    """The plain arithmetic that takes the place of AVX512-BF16."""
    source, library = tmp_path / "product.cpp", tmp_path / "product.so"
    source.write_text(f'#include "{kernel.FOLDER / "weights.h"}"\n' + PRODUCT)
    command = [kernel._compiler(), *kernel.FLAGS, "-DMANN_PORTABLE", str(source), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True)
    random = np.random.default_rng(0)
    for rows, depth, columns in ((1, 1, 1), (9, 37, 50), (8, 64, 48)):
        a, b = (random.normal(size=s).astype(np.float32) for s in ((rows, depth), (depth, columns)))
        c = np.zeros((rows, columns), np.float32)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, c)]
        ctypes.CDLL(str(library)).product(*(ctypes.c_int64(n) for n in (rows, depth, columns)), *pointers)
        np.testing.assert_allclose(c, rounded(a) @ rounded(b), atol=2e-5)


PRODUCT = """
extern "C" void product(int64_t rows, int64_t depth, int64_t columns, const float* a, const float* b, float* c) {
  const mann::Weights weights(depth, columns, b, columns, 1, true);
  mann::Buffer scratch(rows * weights.deep()), wide(rows * weights.columns());
  weights.apply(rows, a, depth, wide, weights.columns(), scratch);
  for (int64_t i = 0; i < rows; ++i) std::copy_n(wide + i * weights.columns(), columns, c + i * columns);
}
"""


# Networks


def in_bfloat16(config: ModelConfig) -> ModelConfig:
    return dataclasses.replace(config, precision="bfloat16")


@needs_kernel
def test_an_lstm_in_the_kernel_is_one_with_rounded_factors() -> None:
    """Against the loops of the oracle, whose h and weights are rounded before they meet."""
    call = Call()
    call.attributes["bfloat16"] = np.int64(1)
    projected, recurrent, _, _, hidden, cell, *_ = (np.asarray(a, np.float64) for a in call.arrays)
    outputs, *_ = call.run()
    nothing = np.zeros((0, 4 * call.hidden))
    for b in range(call.batch):
        h, c = hidden[b], cell[b].tolist()
        for t in range(call.time):
            h, c = lstm.step(
                (nothing, projected[b, t]), rounded(recurrent), None, [], None, rounded(h).tolist(), c
            )
            np.testing.assert_allclose(outputs[b, t], h, atol=1e-5)


@needs_kernel
@pytest.mark.parametrize("name", ["default", "feed-forward", "NTM", "LSTM"])
def test_kernel_in_bfloat16_is_near_to_the_scan_and_to_float32(name: str) -> None:
    """The scan rounds the same factors, but a sum in another order may round to the next number of 8 bits.

    From one step to the next such a difference of 2^-8 can grow, so that the bounds are those of bfloat16 itself:
    2 % of the largest entry for results, and gradients that point the same way. Without ties in usage, that is:
    where slots are about equally used, another one may be the least used.
    """
    exact = problem(CONFIGS[name], batch=9, time=9)
    arguments = with_precision(exact[0], "bfloat16"), *exact[1:]
    weights = random_like(eqx.filter_eval_shape(run_native, *arguments))
    results, gradients = both(run_native, arguments, weights)
    for unroll, others in ((scan, arguments), (run_native, exact)):
        expected, slopes = both(unroll, others, weights)
        assert_close(results[0], expected[0], 0.02)
        for ours, theirs in zip(jax.tree.leaves(gradients), jax.tree.leaves(slopes), strict=True):
            assert np.all(np.isfinite(ours))
            assert cosine(ours, theirs) > 0.999
    single = both(run_native, exact, weights)[0]
    assert np.abs(results[0] - single[0]).max() > 1e-5  # it was rounded


def cosine(a: Any, b: Any) -> float:
    a, b = np.ravel(a).astype(np.float64), np.ravel(b).astype(np.float64)
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norms) if norms else 1.0


def test_every_layer_of_a_model_has_its_precision() -> None:
    def build(config: ModelConfig) -> Any:
        return build_model(config, Classification(classes=5), key=jax.random.key(0))

    config = network(encoder="conv", hidden=8, slots=6, width=4, heads=2)
    plain, fast = build(config), build(in_bfloat16(config))
    for model, precision in ((plain, "float32"), (fast, "bfloat16")):
        is_layer = lambda node: isinstance(node, Layer) and node is not model  # noqa: B023, E731
        layers = [node for node in jax.tree.leaves(model, is_leaf=is_layer) if isinstance(node, Layer)]
        assert len(layers) == 4
        inner = [layer for part in layers for layer in vars(part).values() if isinstance(layer, Linear)]
        assert len(inner) >= 5
        assert {layer.precision for layer in (model, *layers, *inner)} == {precision}
    pictures, labels = jnp.full((2, 3, 400), 0.3), jnp.zeros((2, 3, 5))
    outputs = [model.unroll_batch(pictures, labels).outputs for model in (plain, fast)]
    assert 0 < np.abs(outputs[0] - outputs[1]).max() < 0.05


# The field


def test_auto_is_bfloat16_where_the_processor_is_fast_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(precision="auto")
    monkeypatch.setattr(kernel, "available", lambda: True)
    for flags, expected in (
        ({"avx512f", "avx512_bf16"}, "bfloat16"),
        ({"avx2"}, "float32"),
        (set(), "float32"),
    ):
        runtime.has_fast_bfloat16.cache_clear()
        monkeypatch.setattr(runtime, "_processor_flags", lambda flags=flags: flags)
        assert config.resolved_precision == expected
        assert ModelConfig(precision="bfloat16").resolved_precision == "bfloat16"
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "available", lambda: False)  # then it would be slower
            assert config.resolved_precision == "float32"
    runtime.has_fast_bfloat16.cache_clear()


def test_configurations_without_the_field_are_float32() -> None:
    content = to_dict(TINY)
    del content["model"]["precision"]
    assert from_dict(content).model.precision == "float32"
    assert from_dict(content) == TINY


class Stop(mann.Observer):
    """Asks to stop at update 2, as Ctrl-C does."""

    def evaluated(self, record: dict[str, Any]) -> None:
        if record["update"] == 2:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("shared_trainers")
def test_a_resumed_run_in_bfloat16_ends_with_the_same_bits(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, shared_cache: Any
) -> None:
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    config = dataclasses.replace(TINY, model=in_bfloat16(TINY.model), updates=4, evaluate_every=2, dispatch=2)
    mann.train(config, tmp_path / "whole", observers=[])
    assert not mann.train(config, tmp_path / "halves", observers=[Stop()]).finished
    assert mann.resume(tmp_path / "halves", observers=[]).finished
    for name in ("metrics.jsonl", "checkpoints/update-00000004.safetensors"):
        whole, halves = ((tmp_path / run / name).read_bytes() for run in ("whole", "halves"))
        assert whole == halves
    sessions = json.loads((tmp_path / "halves" / "env.json").read_text())["sessions"]
    assert [session["precision"] for session in sessions] == ["bfloat16", "bfloat16"]


def test_resuming_in_another_precision_is_said(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(TINY, model=dataclasses.replace(TINY.model, precision="auto"))
    warnings: list[str] = []
    monkeypatch.setattr(kernel, "available", lambda: True)
    for flags in ({"avx512_bf16"}, {"avx512_bf16"}, {"avx2"}):
        runtime.has_fast_bfloat16.cache_clear()
        monkeypatch.setattr(runtime, "_processor_flags", lambda flags=flags: flags)
        with Run(tmp_path / "run") as run:
            if not Run.exists(tmp_path / "run"):
                run.create(config, 1)
                continue
            run.resume(warnings.append)
            run.start_session(config, 1, warnings.append)
    runtime.has_fast_bfloat16.cache_clear()
    assert len(warnings) == 1
    assert "was computed in bfloat16" in warnings[0]
    assert "auto means float32" in warnings[0]


# Without the kernel, as on an accelerator


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_without_the_kernel_updates_are_one_program_that_never_asks_the_host(
    precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(TINY, model=dataclasses.replace(TINY.model, precision=precision))
    mesh = make_mesh(config.batch)

    def program(native: str) -> str:
        monkeypatch.setenv("MANN_NATIVE", native)
        trainer = Trainer(config, random_drawings(6, 4), None, mesh)
        state = jax.eval_shape(trainer.initial_state)
        return trainer._advance.lower(state, trainer.train, None, 2, config.task).as_text()

    alone = program("0")
    called = set(re.findall(r"custom_call @([\w.]+)", alone))
    assert called <= {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}  # notes for the partitioner
    assert not re.search(r"callback|infeed|outfeed|stablehlo\.(send|recv)", alone)
    assert ("bf16" in alone) == (precision == "bfloat16")
    if kernel.load():
        assert {"mann_lstm_lrua_forward", "mann_orthogonalise"} <= set(
            re.findall(r"custom_call @([\w.]+)", program("1"))
        )
