"""What was tried for speed besides what is in use: forms of the large products, and builds of the kernel.

    python benchmarks/tried.py products     # forms of the input projection and of its weight gradient, in XLA
    python benchmarks/tried.py builds       # the kernel with other compiler flags, against the one in use
    python benchmarks/tried.py precision    # float32 and bfloat16, in XLA and in the kernel

All run on one core, for the 8 episodes of 50 steps that one of two devices has at the headline setting. Everything
is measured in turn, round after round. Numbers from here stand in docs/performance.md.
"""

# ruff: noqa: E402
import ctypes
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX counts the cores

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from mann import kernel as build
from mann import native
from mann.encoders import ConvStackConfig
from mann.layers import matrix_blocks, outer_product, product, with_precision
from mann.models import ModelConfig, build_model, tile_state
from mann.native import Native
from mann.native.convolutions import encode
from mann.recurrences import choose_recurrence
from mann.tasks import Classification
from mann.training.muon import muon

EPISODES, STEPS, GATES, PIXELS, LABELS, RECURRENT = 8, 50, 800, 400, 5, 360
ROUNDS = 150
BUILDS = {
    "in use": [],
    "vectors of 512 bits": ["-mprefer-vector-width=512"],
    "unrolled loops": ["-funroll-loops"],
    "no SLP vectoriser": ["-fno-tree-slp-vectorize"],
    "prefetch 4 rows ahead": ["-DMANN_AHEAD=4"],
    "prefetch 64 rows ahead": ["-DMANN_AHEAD=64"],
    "no prefetch": ["-DMANN_AHEAD=0"],
}


def measure(works: dict[str, Callable[[], Any]]) -> dict[str, np.ndarray]:
    """Seconds of every work in every round."""
    for work in works.values():
        jax.block_until_ready(work())
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            began = time.perf_counter()
            jax.block_until_ready(work())
            times[name].append(time.perf_counter() - began)
    return {name: np.array(values) for name, values in times.items()}


def products() -> None:
    rng = np.random.default_rng(0)
    works: dict[str, Callable[[], Any]] = {}
    sizes: dict[str, int] = {}

    def add(name: str, product: Any, columns: int, *shapes: tuple[int, ...]) -> None:
        compiled = jax.jit(product)
        factors = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]
        works[name] = lambda: compiled(*factors)
        sizes[name] = 2 * rows * columns * GATES

    rows, both = EPISODES * STEPS, PIXELS + LABELS
    steps = (EPISODES, STEPS)
    add("projection: x W", lambda x, w: x @ w, both, (rows, both), (both, GATES))
    add("projection: 405 columns padded to 416", lambda x, w: x @ w, 416, (rows, 416), (416, GATES))
    add(
        "projection: pictures and labels apart",
        lambda x, y, w: x @ w[:PIXELS] + y @ w[PIXELS:],
        both,
        (*steps, PIXELS),
        (*steps, LABELS),
        (both, GATES),
    )
    add("weight gradient: xᵀ d", lambda x, d: x.T @ d, both, (rows, both), (rows, GATES))
    add("weight gradient: (dᵀ x)ᵀ", lambda x, d: (d.T @ x).T, both, (rows, both), (rows, GATES))
    add(
        "weight gradient: contracting (batch, time)",
        lambda x, d: jnp.einsum("bti,btj->ij", x, d),
        both,
        (*steps, both),
        (*steps, GATES),
    )
    add(
        "weight gradient: with that of h and r, joined",
        lambda x, h, d: jnp.concatenate([x, h], 1).T @ d,
        both + RECURRENT,
        (rows, both),
        (rows, RECURRENT),
        (rows, GATES),
    )
    add("product of 512×512", lambda a, b: a @ b, 0, (512, 512), (512, 512))
    sizes["product of 512×512"] = 2 * 512**3
    for name, seconds in measure(works).items():
        print(f"{name:<48} {sizes[name] / np.median(seconds) / 1e9:5.0f} GFLOP/s")


def builds() -> None:
    task = Classification(classes=LABELS, length=STEPS)
    model = build_model(ModelConfig(), task, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)
    projected = jax.random.normal(jax.random.key(1), (EPISODES, STEPS, GATES))
    state = tile_state(model.initial_state(), EPISODES)
    assert build.load(), "there is no C++ compiler"
    works: dict[str, Callable[[], Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, flags) in enumerate(BUILDS.items()):
            library = Path(folder) / f"{number}.so"
            command = ["c++", *build.FLAGS, "-march=native", *flags, "-isystem", jax.ffi.include_dir()]
            subprocess.run([*command, str(build.KERNEL), "-o", str(library)], check=True)
            loaded = ctypes.CDLL(str(library))
            for target in build.TARGETS:
                capsule = jax.ffi.pycapsule(getattr(loaded, target))
                jax.ffi.register_ffi_target(f"build{number}_{target}", capsule, platform="cpu")
            native.PREFIX = f"build{number}_mann"

            def loss(arrays: Any, projected: Any) -> Any:
                return jnp.mean(Native()(eqx.combine(arrays, static).cell, projected, state)[0] ** 2)

            gradient = jax.jit(jax.value_and_grad(loss)).lower(arrays, projected).compile()
            works[name] = lambda gradient=gradient: gradient(arrays, projected)
        native.PREFIX = "mann"
        times = measure(works)
    for name, seconds in times.items():
        ratio = np.median(times["in use"] / seconds)
        print(f"{name:<26} {1e3 * np.median(seconds):6.2f} ms, {ratio:.3f} times as fast as the one in use")


def precision() -> None:
    """The least processor time of each, so that other processes matter little."""
    rng = np.random.default_rng(0)
    works: dict[str, dict[str, Callable[[], Any]]] = {}
    ways = {
        "float32, XLA": ("float32", "0"),
        "bfloat16, XLA": ("bfloat16", "0"),
        "float32, kernel": ("float32", "1"),
        "bfloat16, kernel": ("bfloat16", "1"),
    }

    def add(what: str, function: Any, *arrays: Any) -> None:
        works[what] = {}
        for way, (precision, with_kernel) in ways.items():
            os.environ["MANN_NATIVE"] = with_kernel
            compiled = jax.jit(functools.partial(function, precision)).lower(*arrays).compile()
            works[what][way] = functools.partial(compiled, *arrays)

    def random(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def recurrence(precision: Any, model: Any, projected: Any) -> Any:
        def loss(arrays: Any, projected: Any) -> Any:
            network = with_precision(eqx.combine(arrays, static), precision)
            state = tile_state(network.initial_state(), EPISODES)
            return jnp.mean(choose_recurrence(network.cell)(network.cell, projected, state)[0] ** 2)

        return jax.grad(loss, argnums=(0, 1))(model, projected)

    def newton_schulz(precision: Any, gradients: Any) -> Any:
        rule = muon(1.0, 0.0, blocks, 1, optax.identity(), precision)
        return rule.update(gradients, rule.init(gradients), gradients)[0]

    def convolutions(precision: Any, encoder: Any, pictures: Any) -> Any:
        def loss(encoder: Any) -> Any:
            return jnp.mean(encode(with_precision(encoder, precision), pictures) ** 2)

        return jax.grad(loss)(encoder)

    rows, both = EPISODES * STEPS, PIXELS + LABELS
    x, d, w = random(rows, both), random(rows, GATES), random(both, GATES)
    add("projection", lambda precision, x, w: product(x, w, precision), x, w)
    add("weight gradient", lambda precision, x, d: outer_product(x, d, precision), x, d)
    task = Classification(classes=LABELS, length=STEPS)
    model = build_model(ModelConfig(), task, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)
    blocks = matrix_blocks(arrays)
    add("recurrence and its gradient", recurrence, arrays, random(EPISODES, STEPS, GATES))
    add("Muon", newton_schulz, jax.tree.map(lambda leaf: random(*leaf.shape), arrays))
    encoder = ConvStackConfig().build((28, 28, 1), key=jax.random.key(0))
    add("4 convolutions of 64 maps, 400 pictures", convolutions, encoder, random(rows, 28 * 28))
    for what, each in works.items():
        times = {way: measure_least(work) for way, work in each.items()}
        for way, seconds in times.items():
            ratio = times["float32, XLA"] / seconds
            print(
                f"{what + ': ' + way:<57} {1e3 * seconds:6.2f} ms, {ratio:5.2f} times as fast as float32 in XLA"
            )


def measure_least(work: Callable[[], Any]) -> float:
    """Seconds of processor time of one call, the least of many."""
    least = np.inf
    for _ in range(30):
        began = time.process_time()
        for _ in range(3):
            jax.block_until_ready(work())
        least = min(least, (time.process_time() - began) / 3)
    return float(least)


if __name__ == "__main__":
    works = {"products": products, "builds": builds, "precision": precision}
    if len(sys.argv) != 2 or sys.argv[1] not in works:
        sys.exit(__doc__)
    works[sys.argv[1]]()
