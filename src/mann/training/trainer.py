"""The compiled part of training: draw, unroll, differentiate, update; several times in one call."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mann.files import is_array
from mann.layers import matrix_blocks
from mann.models import Model, State, build_model, tile_state
from mann.tasks import Task
from mann.training import distributed
from mann.training.config import Config
from mann.training.curriculum import stage_at
from mann.training.distributed import AXIS
from mann.training.validation import make_tally


class TrainState(NamedTuple):
    """All that a run carries from one update to the next; with the configuration, all that a resume needs."""

    model: Model
    optimiser: Any
    average: Model | None  # moving average of the weights
    carried: State | None  # persistent memory: the state of every episode of the batch
    update: Int[Array, ""]


class Trainer:
    """Compiled functions for one configuration, over all devices of a mesh.

    `train` and `held_out` are what the task draws its episodes from (`Sources`).
    """

    def __init__(self, config: Config, train: Any, held_out: Any, mesh: Mesh) -> None:
        self.config, self.mesh = config, mesh
        self.precision = config.model.resolved_precision
        self.local_mesh = distributed.local_mesh(mesh)
        self.train = distributed.replicate(train, mesh)
        self.held_out = distributed.replicate(held_out, self.local_mesh)
        # The static part of a model (sizes and choices) is the same for all of its life.
        shapes, self.static = eqx.partition(
            eqx.filter_eval_shape(self._new_model, jax.random.key(0)), is_array
        )
        self.optimiser = config.optimiser.build(
            config.updates, matrix_blocks(shapes), mesh.size, self.precision
        )
        self.tally = make_tally(config.task, config.persistent, self.static, self.local_mesh)
        # Compiled for this trainer alone, so that nothing outlives it.
        self._advance = jax.jit(self._updates, static_argnums=(3, 4), donate_argnums=0)

    def _new_model(self, key: PRNGKeyArray) -> Model:
        config = self.config
        return build_model(config.model, config.task, config.data.format, key=key)

    def initial_state(self) -> TrainState:
        """The state at update 0, a pure function of the seed."""
        config = self.config

        @jax.jit
        def initialise() -> TrainState:
            model = eqx.filter(self._new_model(jax.random.key(config.seed)), eqx.is_array)
            carried = None
            if config.persistent:
                carried = tile_state(eqx.combine(model, self.static).initial_state(), config.batch)
            average = jax.tree.map(jnp.copy, model) if config.averaging else None
            return TrainState(model, self.optimiser.init(model), average, carried, jnp.zeros((), jnp.int32))

        return self.place(initialise())

    def place(self, state: TrainState) -> TrainState:
        """Put a state onto the devices: replicated, except for what belongs to single episodes."""
        carried = distributed.split_batch(state.carried, self.mesh)
        return distributed.replicate(state._replace(carried=None), self.mesh)._replace(carried=carried)

    def evaluated_model(self, state: TrainState) -> Model:
        """The weights to evaluate: the averaged ones if there are any. On the host."""
        chosen = state.model if state.average is None else state.average
        return eqx.combine(distributed.to_host(chosen), self.static)

    def advance(self, state: TrainState, updates: int) -> tuple[TrainState, Float[np.ndarray, "updates"]]:
        """Some updates in one call to the devices; waits for them. The state passed in is used up."""
        task, size = self.config.task, None
        if stage := stage_at(self.config, int(state.update)):
            task, size = stage.task, jnp.array(stage.size, jnp.int32)
        state, losses = self._advance(state, self.train, size, updates, task)
        return state, np.asarray(losses.addressable_data(0))

    def _updates(
        self, state: TrainState, source: Any, size: Int[Array, "2"] | None, updates: int, task: Task
    ) -> tuple[TrainState, Float[Array, "updates"]]:
        replicated, split = PartitionSpec(), PartitionSpec(AXIS)
        layout: Any = TrainState  # the same tree, holding how each part is spread over the devices
        specs = layout(replicated, replicated, replicated, split, replicated)

        def many(
            state: TrainState, source: Any, size: Int[Array, "2"] | None
        ) -> tuple[TrainState, Float[Array, "updates"]]:
            one = partial(self._update, task=task, source=source, size=size)
            return jax.lax.scan(lambda state, _: one(state), state, None, length=updates)

        # check_vma=False: the one all-reduce per update is written out below, instead of one for each weight.
        return jax.shard_map(
            many,
            mesh=self.mesh,
            in_specs=(specs, replicated, replicated),
            out_specs=(specs, replicated),
            check_vma=False,
        )(state, source, size)

    def _update(
        self, state: TrainState, task: Task, source: Any, size: Int[Array, "2"] | None
    ) -> tuple[TrainState, Float[Array, ""]]:
        """One update, as seen by one device."""
        config = self.config
        episodes = self._draw(state.update, task, source, size)

        def loss(arrays: Model) -> tuple[Float[Array, ""], State]:
            model: Model = eqx.combine(arrays, self.static)
            carried = state.carried
            if carried is not None:
                carried = self._next_episodes(model, carried, state.update)
            outputs, last = task.unroll(model, episodes, carried)
            return jnp.sum(task.loss(outputs, episodes)) / config.batch, last

        (value, last), gradient = jax.value_and_grad(loss, has_aux=True)(state.model)
        flat, unflatten = ravel_pytree((value, gradient))
        value, gradient = unflatten(jax.lax.psum(flat, AXIS))
        with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
            changes, optimiser = self.optimiser.update(gradient, state.optimiser, state.model)
        model = optax.apply_updates(state.model, changes)
        average = state.average
        if average is not None:
            # Early in a run the average forgets faster, so that it does not remember the initial weights.
            step = state.update.astype(jnp.float32)
            decay = jnp.minimum(config.averaging, (1 + step) / (10 + step))
            average = jax.tree.map(lambda a, m: decay * a + (1 - decay) * m, average, model)
        carried = None if state.carried is None else last
        return TrainState(model, optimiser, average, carried, state.update + 1), value

    def _next_episodes(self, model: Model, carried: State, update: Int[Array, ""]) -> State:
        """What the episodes before left in memory; nothing for those whose turn it is to be wiped."""
        following = jax.vmap(model.next_episode)(carried)
        if not self.config.wiped_after:
            return following
        wiped = (update + self._indices()) % self.config.wiped_after == 0
        return jax.tree.map(
            lambda fresh, kept: jax.vmap(jnp.where, (0, None, 0))(wiped, fresh, kept),
            model.initial_state(),
            following,
        )

    def _indices(self) -> Int[Array, "episodes"]:
        """Of this device's share of the batch."""
        share = self.config.batch // self.mesh.size
        return jax.lax.axis_index(AXIS) * share + jnp.arange(share)

    def _draw(self, update: Int[Array, ""], task: Task, source: Any, size: Int[Array, "2"] | None) -> Any:
        """This device's share of the batch. An episode depends on the seed, the update and its index alone."""
        update_key = jax.random.fold_in(jax.random.key(self.config.seed), update)
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(update_key, self._indices())
        return task.draw_training(keys, source, size)

    def validate(self, state: TrainState) -> Any:
        """A tally of held-out episodes, always the same ones, split over this process's devices."""
        # Updates count from 0: their keys never meet the last one.
        last = jax.random.fold_in(jax.random.key(self.config.seed), 2**32 - 1)
        keys = jax.random.split(last, self.config.evaluate_episodes)
        model = distributed.replicate(self.evaluated_model(state), self.local_mesh)
        return self.tally(eqx.filter(model, eqx.is_array), self.held_out, keys)
