"""An update as users get it, and each of its parts on its own, over the same devices."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Key

from mann.benchmark.timing import Work
from mann.data.render import GRID, Drawings
from mann.episodes import Episode, draw_episodes, time_offset
from mann.metrics import episode_loss
from mann.models import Model
from mann.outputs import output_of
from mann.training import distributed
from mann.training.config import Config
from mann.training.distributed import AXIS
from mann.training.trainer import Trainer, make_optimiser

WHOLE, SPLIT = PartitionSpec(), PartitionSpec(None, AXIS)  # SPLIT: (updates, batch, …)
SGEMM = {512: 16, 1024: 4, 2048: 1}  # side of the matrices: products in a row


def random_drawings(classes: int, each: int, seed: int = 0) -> Drawings:
    """Grids of noise: drawing an episode costs the same whatever is on the paper."""
    grids = np.random.default_rng(seed).integers(0, 256, (classes, each, GRID, GRID), np.uint8)
    return Drawings(jnp.asarray(grids), jnp.full(classes, each, jnp.int32))


def update_work(config: Config, drawings: Drawings, mesh: Mesh, updates: int) -> Work:
    """Whole updates: draw, forward, backward, clip, optimiser; through `Trainer.advance`."""
    trainer = Trainer(config, drawings, None, mesh)
    state = trainer.initial_state()

    def run() -> None:
        nonlocal state
        state, _ = trainer.advance(state, updates)

    return Work(run, updates)


def draw_work(config: Config, drawings: Drawings, mesh: Mesh, updates: int) -> Work:
    """Drawing a batch."""
    keys = jax.random.split(jax.random.key(config.seed), (updates, config.batch))

    def draw(keys: Key[Array, "updates share"], drawings: Drawings) -> Episode:
        one = partial(draw_episodes, config.task, drawings=drawings)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, keys[0]))
        # Each batch replaces the one before, so that every batch is written to memory as in training.
        return jax.lax.scan(lambda _, keys: (one(keys), None), nothing, keys)[0]

    compiled = _over(mesh, draw, (SPLIT, WHOLE), PartitionSpec(AXIS))
    placed = jax.device_put(keys, NamedSharding(mesh, SPLIT)), distributed.replicate(drawings, mesh)
    return _work(updates, compiled, *placed)


def model_works(config: Config, drawings: Drawings, mesh: Mesh, updates: int) -> dict[str, Work]:
    """`forward`: from episodes to the loss. `model`: to its gradient for every weight, summed over the devices."""
    trainer = Trainer(config, drawings, None, mesh)
    arrays, output = trainer.initial_state().model, output_of(config.task)
    keys = jax.random.split(jax.random.key(config.seed), updates * config.batch)
    drawn = jax.jit(partial(draw_episodes, config.task))(keys, drawings)
    episodes = jax.tree.map(lambda leaf: leaf.reshape(updates, config.batch, *leaf.shape[1:]), drawn)
    episodes = jax.device_put(episodes, NamedSharding(mesh, SPLIT))

    def loss(arrays: Model, episodes: Episode) -> Float[Array, ""]:
        model: Model = eqx.combine(arrays, trainer.static)
        outputs, _ = model.unroll_batch(episodes.inputs, time_offset(episodes.targets))
        return jnp.sum(episode_loss(output, outputs, episodes)) / config.batch

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


def optimiser_work(config: Config, mesh: Mesh, updates: int) -> Work:
    """Clip the gradient and change the weights; every device does this for itself."""
    trainer = Trainer(config, None, None, mesh)
    optimiser = make_optimiser(config.optimiser, config.updates)
    start = trainer.initial_state()
    keys = jax.random.split(jax.random.key(config.seed), updates)
    flat, unflatten = ravel_pytree(start.model)
    gradients = jax.vmap(lambda key: unflatten(1e-3 * jax.random.normal(key, flat.shape)))(keys)

    def change(carry: tuple[Model, Any], gradients: Model) -> tuple[Model, Any]:
        def one(carry: tuple[Model, Any], gradient: Model) -> tuple[tuple[Model, Any], None]:
            model, state = carry
            with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
                changes, state = optimiser.update(gradient, state, model)
            return (optax.apply_updates(model, changes), state), None

        return jax.lax.scan(one, carry, gradients)[0]

    compiled = _over(mesh, change, (WHOLE, WHOLE), WHOLE)
    return _work(updates, compiled, (start.model, start.optimiser), distributed.replicate(gradients, mesh))


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


def _over(mesh: Mesh, function: Any, inputs: Any, outputs: Any) -> Any:
    """As in `Trainer`: each device computes its share."""
    return jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False),
    )


def _work(units: int, compiled: Any, *arguments: Any) -> Work:
    return Work(lambda: jax.block_until_ready(compiled(*arguments)), units)
