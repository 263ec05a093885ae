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

from mann.data.render import Drawings
from mann.episodes import Classification, Episode, draw_episodes, time_offset
from mann.errors import MannError
from mann.metrics import InstanceCounts, Tally, episode_loss
from mann.models import Model, State, build_model, tile_state
from mann.outputs import output_of
from mann.training import distributed
from mann.training.checkpoint import is_array
from mann.training.config import Config, OptimiserConfig
from mann.training.curriculum import Stage, bucket_task, stage_at
from mann.training.distributed import AXIS
from mann.training.muon import muon
from mann.training.validation import make_tally


class TrainState(NamedTuple):
    """All that a run carries from one update to the next; with the configuration, all that a resume needs."""

    model: Model
    optimiser: Any
    average: Model | None  # moving average of the weights
    carried: State | None  # persistent memory: the state of every episode of the batch
    update: Int[Array, ""]


def make_optimiser(
    config: OptimiserConfig, updates: int, block: int = 1, devices: int = 1
) -> optax.GradientTransformation:
    """The optimiser with its schedule and clipping. `block` and `devices`: see `muon`."""
    if config.warmup >= updates:
        raise MannError(
            f"A warm-up of {config.warmup} updates does not fit into a run of {updates}: shorten it."
        )
    rate: optax.ScalarOrSchedule = config.learning_rate
    if config.schedule == "cosine":
        rate = optax.warmup_cosine_decay_schedule(0.0, config.learning_rate, config.warmup, updates)
    elif config.warmup:
        rate = optax.linear_schedule(0.0, config.learning_rate, config.warmup)
    if config.name in ("muon", "adamw"):
        rule = optax.adamw(rate, b2=config.beta2, weight_decay=config.weight_decay)
        if config.name == "muon":
            rule = muon(rate, config.weight_decay, block, devices, others=rule)
    else:  # Graves 2013: centred, with momentum, and 1e-4 under the root
        rule = optax.rmsprop(
            rate, config.decay, eps=1e-4, eps_in_sqrt=True, centered=True, momentum=config.momentum
        )
    return optax.chain(optax.clip_by_global_norm(config.clip), rule) if config.clip else rule


class Trainer:
    """Compiled functions for one configuration, over all devices of a mesh."""

    def __init__(
        self, config: Config, train: Drawings | None, validation: Drawings | None, mesh: Mesh
    ) -> None:
        self.config, self.mesh = config, mesh
        self.output = output_of(config.task)
        self.optimiser = make_optimiser(config.optimiser, config.updates, config.model.hidden, mesh.size)
        self.local_mesh = distributed.local_mesh(mesh)
        self.train = distributed.replicate(train, mesh)
        self.validation = distributed.replicate(validation, self.local_mesh)
        for drawings in (train, validation):
            if drawings is not None and isinstance(config.task, Classification):
                config.task.check(drawings)
        # The static part of a model (sizes and choices) is the same for all of its life.
        self.static: Any = eqx.partition(eqx.filter_eval_shape(self._new_model, jax.random.key(0)), is_array)[
            1
        ]
        self.tally = make_tally(config.task, config.persistent, self.static, self.local_mesh)

    def _new_model(self, key: PRNGKeyArray) -> Model:
        return build_model(self.config.model, self.config.task, key=key)

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
        update = int(state.update)
        stage = stage_at(self.config, update)
        size = None if stage is None else jnp.array([stage.classes, stage.length], jnp.int32)
        state, losses = self._advance(state, self.train, size, updates, stage and stage.bucket)
        return state, np.asarray(losses.addressable_data(0))

    @partial(jax.jit, static_argnums=(0, 4, 5), donate_argnums=1)
    def _advance(
        self,
        state: TrainState,
        drawings: Drawings | None,
        size: Int[Array, "2"] | None,
        updates: int,
        bucket: int | None,
    ) -> tuple[TrainState, Float[Array, "updates"]]:
        replicated, split = PartitionSpec(), PartitionSpec(AXIS)
        layout: Any = TrainState  # the same tree, holding how each part is spread over the devices
        specs = layout(replicated, replicated, replicated, split, replicated)

        def many(
            state: TrainState, drawings: Drawings | None, size: Int[Array, "2"] | None
        ) -> tuple[TrainState, Float[Array, "updates"]]:
            one = partial(self._update, drawings=drawings, size=size, bucket=bucket)
            return jax.lax.scan(lambda state, _: one(state), state, None, length=updates)

        # check_vma=False: the one all-reduce an update is written out below, instead of one for each weight.
        return jax.shard_map(
            many,
            mesh=self.mesh,
            in_specs=(specs, replicated, replicated),
            out_specs=(specs, replicated),
            check_vma=False,
        )(state, drawings, size)

    def _update(
        self,
        state: TrainState,
        drawings: Drawings | None,
        size: Int[Array, "2"] | None,
        bucket: int | None,
    ) -> tuple[TrainState, Float[Array, ""]]:
        """One update, as seen by one device."""
        config = self.config
        episodes = self._draw(state.update, drawings, size, bucket)

        def loss(arrays: Model) -> tuple[Float[Array, ""], State]:
            model: Model = eqx.combine(arrays, self.static)
            carried = state.carried
            if carried is not None:
                carried = jax.vmap(model.next_episode)(carried)
            outputs, last = model.unroll_batch(episodes.inputs, time_offset(episodes.targets), carried)
            return jnp.sum(episode_loss(self.output, outputs, episodes)) / config.batch, last

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

    def _draw(
        self,
        update: Int[Array, ""],
        drawings: Drawings | None,
        size: Int[Array, "2"] | None,
        bucket: int | None,
    ) -> Episode:
        """This device's share of the batch. An episode depends on the seed, the update and its index alone."""
        share = self.config.batch // self.mesh.size
        indices = jax.lax.axis_index(AXIS) * share + jnp.arange(share)
        update_key = jax.random.fold_in(jax.random.key(self.config.seed), update)
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(update_key, indices)
        if size is None or bucket is None:
            return draw_episodes(self.config.task, keys, drawings)
        task = bucket_task(self.config, Stage(0, 0, bucket))
        assert task is not None and drawings is not None
        return jax.vmap(task.draw, in_axes=(0, None, None, None))(keys, drawings, size[0], size[1])

    def validate(self, state: TrainState) -> Tally:
        """Always the same episodes of held-out classes, shared out over this process's devices."""
        devices = self.local_mesh.size
        episodes = -(-self.config.evaluate_episodes // devices) * devices
        # Updates count from 0: their keys never meet the last one.
        last = jax.random.fold_in(jax.random.key(self.config.seed), 2**32 - 1)
        keys = jax.random.split(last, episodes)
        model = distributed.replicate(self.evaluated_model(state), self.local_mesh)
        return self.tally(eqx.filter(model, eqx.is_array), self.validation, keys)


def accuracy(counts: InstanceCounts) -> Float[np.ndarray, "10"]:
    """Accuracy by instance over all episodes; NaN for an instance that never occurred."""
    correct, seen = np.asarray(counts.correct).sum(0), np.asarray(counts.seen).sum(0)
    return np.divide(correct, seen, out=np.full_like(correct, np.nan), where=seen > 0)
