"""An update as users get it, and each of its parts on its own, over the same devices."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Key

from mann.benchmark.timing import Work
from mann.data.render import Drawings, grid_side
from mann.episodes import Episode
from mann.models import Model
from mann.training import distributed
from mann.training.config import Config
from mann.training.distributed import AXIS
from mann.training.trainer import Trainer, TrainState

WHOLE, SPLIT = PartitionSpec(), PartitionSpec(None, AXIS)  # SPLIT: (updates, batch, …)
SGEMM = {512: 16, 1024: 2, 2048: 1}  # side of the matrices: products in a row


def random_drawings(classes: int, each: int, side: int = 20, seed: int = 0) -> Drawings:
    """Grids of noise: drawing an episode costs the same whatever is on the paper."""
    shape = (classes, each, grid_side(side), grid_side(side))
    grids = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return Drawings(jnp.asarray(grids), jnp.full(classes, each, jnp.int32))


def update_work(trainer: Trainer, state: TrainState, updates: int) -> Work:
    """Whole updates: draw, forward, backward, clip, optimiser; through `Trainer.advance`. Uses up the state."""

    def run() -> None:
        nonlocal state
        state, _ = trainer.advance(state, updates)

    return Work(run, updates)


def draw_work(config: Config, drawings: Drawings, mesh: Mesh, updates: int) -> Work:
    """Drawing a batch."""

    def draw(keys: Key[Array, "updates share"], drawings: Drawings) -> Episode:
        one = partial(config.task.draw_batch, source=drawings)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, keys[0]))
        # Each batch replaces the one before, so that every batch is written to memory as in training.
        return jax.lax.scan(lambda _, keys: (one(keys), None), nothing, keys)[0]

    compiled = _over(mesh, draw, (SPLIT, WHOLE), PartitionSpec(AXIS))
    return _work(updates, compiled, _keys(config, mesh, updates), distributed.replicate(drawings, mesh))


class Scanned(NamedTuple):
    """A model without the native kernel."""

    model: Model

    def unroll_batch(self, inputs: Array, labels: Array, state: Any = None) -> Any:
        return jax.vmap(self.model.unroll)(inputs, labels)

    def step(self, x: Array, previous_label: Array, state: Any) -> Any:
        return self.model.step(x, previous_label, state)

    def initial_state(self) -> Any:
        return self.model.initial_state()


def model_works(
    trainer: Trainer, arrays: Model, updates: int, network: Callable[[Model], Any] = lambda model: model
) -> dict[str, Work]:
    """What the task does with `network(model)`.

    `forward`: from episodes to the loss. `model`: to its gradient for every weight, summed over the devices.

    Every update has episodes of its own, drawn before.
    """
    config, mesh = trainer.config, trainer.mesh

    def draw(keys: Key[Array, "updates share"], drawings: Drawings | None) -> Episode:
        return jax.lax.map(lambda keys: config.task.draw_batch(keys, drawings), keys)

    episodes = _over(mesh, draw, (SPLIT, WHOLE), SPLIT)(_keys(config, mesh, updates), trainer.train)

    def loss(arrays: Model, episodes: Episode) -> Float[Array, ""]:
        model: Model = eqx.combine(arrays, trainer.static)
        outputs, _ = config.task.unroll(network(model), episodes)
        return jnp.sum(config.task.loss(outputs, episodes)) / config.batch

    def forward(arrays: Model, episodes: Episode) -> Float[Array, "updates"]:
        return jax.lax.map(lambda each: jax.lax.psum(loss(arrays, each), AXIS), episodes)

    def gradient(arrays: Model, episodes: Episode) -> Float[Array, "numbers"]:
        def one(_: Float[Array, "numbers"], each: Episode) -> tuple[Float[Array, "numbers"], None]:
            return jax.lax.psum(ravel_pytree(jax.value_and_grad(loss)(arrays, each))[0], AXIS), None

        numbers = 1 + sum(leaf.size for leaf in jax.tree.leaves(arrays))
        return jax.lax.scan(one, jnp.zeros(numbers), episodes)[0]

    return {
        "forward": _work(updates, _over(mesh, forward, (WHOLE, SPLIT), WHOLE), arrays, episodes),
        "model": _work(updates, _over(mesh, gradient, (WHOLE, SPLIT), WHOLE), arrays, episodes),
    }


def optimiser_work(trainer: Trainer, arrays: Model, state: Any, updates: int) -> Work:
    """Clip the gradient and change the weights; every device does this for itself, but for shares of Muon."""

    def change(carry: tuple[Model, Any], gradients: Model) -> tuple[Model, Any]:
        def one(carry: tuple[Model, Any], gradient: Model) -> tuple[tuple[Model, Any], None]:
            model, state = carry
            with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
                changes, state = trainer.optimiser.update(gradient, state, model)
            return (optax.apply_updates(model, changes), state), None

        return jax.lax.scan(one, carry, gradients)[0]

    gradients = jax.tree.map(lambda leaf: np.full((updates, *leaf.shape), 1e-3, leaf.dtype), arrays)
    compiled = _over(trainer.mesh, change, (WHOLE, WHOLE), WHOLE)
    return _work(updates, compiled, (arrays, state), distributed.replicate(gradients, trainer.mesh))


def sgemm_works(mesh: Mesh) -> dict[int, Work]:
    """Products of square matrices, each device its own at the same time, by the side of the matrices."""
    works = {}
    for side, products in SGEMM.items():
        shape = (2, mesh.size * side, side)
        factors = jax.random.normal(jax.random.key(0), shape) / np.sqrt(side, dtype=np.float32)

        def multiply(
            left: Float[Array, "n n"], right: Float[Array, "n n"], products: int = products
        ) -> Float[Array, "n n"]:
            return jax.lax.fori_loop(0, products, lambda _, product: left @ product, right)

        rows = PartitionSpec(AXIS)
        compiled = _over(mesh, multiply, (rows, rows), rows)
        placed = [jax.device_put(factor, NamedSharding(mesh, rows)) for factor in factors]
        works[side] = _work(1, compiled, *placed)
    return works


def sgemm_gflop(mesh: Mesh, side: int) -> float:
    """10⁹ operations in one run of the work for matrices of this side."""
    return mesh.size * SGEMM[side] * 2 * side**3 / 1e9


def _keys(config: Config, mesh: Mesh, updates: int) -> Key[Array, "updates batch"]:
    keys = jax.random.split(jax.random.key(config.seed), (updates, config.batch))
    return jax.device_put(keys, NamedSharding(mesh, SPLIT))


def _over(mesh: Mesh, function: Any, inputs: Any, outputs: Any) -> Any:
    """As in `Trainer`: each device computes its share."""
    return jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False),
    )


def _work(units: int, compiled: Any, *arguments: Any) -> Work:
    return Work(lambda: jax.block_until_ready(compiled(*arguments)), units)
