"""Products in the tiles of AMX, emulated: their layout and packing must be right on processors that have none."""

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann import kernel
from mann.layers import product, with_precision
from mann.native import orthogonal
from mann.native.convolutions import encode
from mann.training.muon import COEFFICIENTS, STEPS
from tests.test_convolutions import make
from tests.test_native import CONFIGS, assert_close, problem, random_like, run_native
from tests.test_native import results_and_gradients as both
from tests.test_precision import cosine, needs_kernel, rounded
from tests.training.test_muon import orthogonal as by_singular_values

pytestmark = needs_kernel


def compile_library(source: Path, library: Path, *flags: str) -> ctypes.CDLL:
    options = [flag for flag in kernel.FLAGS if flag != "-O3"]
    command = [kernel._compiler(), *options, *flags, "-isystem", jax.ffi.include_dir(), str(source)]
    subprocess.run([*command, "-o", str(library)], check=True, capture_output=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: Any) -> ctypes.CDLL:
    """The kernel with emulated tiles, whose functions are registered beside those of the real one."""
    library = tmp_path_factory.mktemp("tiles") / "kernel.so"
    loaded = compile_library(kernel.KERNEL, library, "-O1", "-DMANN_EMULATED_TILES")
    for target in kernel.TARGETS:
        capsule = jax.ffi.pycapsule(getattr(loaded, target))
        jax.ffi.register_ffi_target(f"emulated_{target}", capsule, platform="cpu")
    return loaded


@pytest.fixture
def in_tiles(emulated: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    call = kernel.call
    monkeypatch.setattr(kernel, "call", lambda name, *rest, **more: call(f"emulated_{name}", *rest, **more))


def test_the_tiles_pass_their_own_check(emulated: ctypes.CDLL) -> None:
    assert emulated.mann_has_tiles() == 1


UNITS = """
struct Refused : mann::Unit { static bool allowed() { return false; } };
struct Wrong : mann::Unit {
  template <int C> static void multiply() { mann::Unit::multiply<C>(), mann::Unit::multiply<C>(); }
};
extern "C" int works(int unit) {
  return unit == 0 ? mann::tiles_work<>() : unit == 1 ? mann::tiles_work<Refused>() : mann::tiles_work<Wrong>();
}
"""


def test_tiles_that_are_refused_or_compute_something_else_are_not_used(tmp_path: Path) -> None:
    source = tmp_path / "units.cpp"
    source.write_text(f'#include "{kernel.FOLDER / "tiles.h"}"\n' + UNITS)
    works = compile_library(source, tmp_path / "units.so", "-O1", "-DMANN_EMULATED_TILES").works
    assert [works(unit) for unit in range(3)] == [1, 0, 0]


@pytest.mark.parametrize(("shape", "outputs"), [((3, 5), 2), ((7, 20, 33), 50), ((70, 64), 65)])
def test_products_are_those_of_rounded_factors(shape: tuple[int, ...], outputs: int, in_tiles: None) -> None:
    """With either factor transposed, for the gradients; whole tiles and parts of them."""
    random = np.random.default_rng(0)
    shapes = shape, (shape[-1], outputs), (*shape[:-1], outputs)
    x, w, d = (random.normal(size=s).astype(np.float32) for s in shapes)
    y, pull = jax.vjp(lambda x, w: product(x, w, "bfloat16"), jnp.asarray(x), jnp.asarray(w))
    rows = rounded(x).reshape(-1, shape[-1]), rounded(d).reshape(-1, outputs)
    expected = rounded(x) @ rounded(w), rounded(d) @ rounded(w).T, rows[0].T @ rows[1]
    assert_close((y, *pull(jnp.asarray(d))), expected, 1e-5)


@pytest.mark.parametrize("shape", [(40, 21), (21, 40), (48, 48), (9, 70)])
def test_newton_schulz_is_that_of_the_singular_values(shape: tuple[int, int], in_tiles: None) -> None:
    """As near as without tiles: `assert_roughly` in tests/training/test_muon.py says why not nearer."""
    matrix = np.random.default_rng(0).normal(size=shape)
    got = orthogonal.orthogonalise(
        [jnp.asarray(matrix, jnp.float32)],
        [1],
        [0],
        jnp.int32(0),
        matrix.size,
        steps=STEPS,
        coefficients=COEFFICIENTS,
        bfloat16=True,
    )
    expected = by_singular_values(matrix).ravel()
    assert np.linalg.norm(got - expected) < 0.1 * np.linalg.norm(expected)


@pytest.mark.parametrize("stack", [(9, 3, (48, 16), (1, 2)), (8, 1, (32, 32), (2, 1))], ids=str)
def test_convolutions_are_the_plain_products_of_rounded_factors(stack: Any, in_tiles: None) -> None:
    """Of 16 pictures at a time, and of the three that are left; maps of whole tiles and of half ones."""
    encoder, x = make(*stack)
    x = jnp.concatenate([x, x[::-1] * 0.7])[:19]
    encoder = with_precision(encoder, "bfloat16")
    weight = jnp.asarray(np.random.default_rng(1).normal(size=(len(x), 5)), jnp.float32)

    def gradients(way: Any) -> Any:
        loss = jax.value_and_grad(lambda e, x: jnp.sum(way(e, x) * weight), argnums=(0, 1))
        return jax.tree.leaves(jax.jit(loss)(encoder, x))

    for ours, theirs in zip(gradients(encode), gradients(lambda e, x: e(x)), strict=True):
        assert np.linalg.norm(ours - theirs) < 0.01 * np.linalg.norm(theirs)


def test_a_recurrence_is_that_without_tiles(emulated: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are those of `test_kernel_in_bfloat16_is_near_to_the_scan_and_to_float32`."""
    exact = problem(CONFIGS["default"], batch=9, time=5)
    arguments = with_precision(exact[0], "bfloat16"), *exact[1:]
    weights = random_like(eqx.filter_eval_shape(run_native, *arguments))
    expected, slopes = both(run_native, arguments, weights)
    call = kernel.call
    monkeypatch.setattr(kernel, "call", lambda name, *rest, **more: call(f"emulated_{name}", *rest, **more))
    jax.clear_caches()
    results, gradients = both(run_native, arguments, weights)
    assert_close(results[0], expected[0], 0.02)
    for ours, theirs in zip(jax.tree.leaves(gradients), jax.tree.leaves(slopes), strict=True):
        assert cosine(ours, theirs) > 0.999
