"""The networks of the paper: a controller with an external memory (the MANN), or without one (the baselines).

Data flow of one step, for one episode (batches are made by `vmap`):

    x_t ─ encoder? ─┐
    y_{t−1} ────────┴─ controller ─ h_t ─ memory ─ r_t ─┐
                       ▲  ▲ h, c                 │      ├─ o_t = (h_t, r_t) ─ linear ─ p(y_t)
                       │  └──────────────────────│──────┘
                       └───────── r_{t−1} ───────┘
"""

import dataclasses
from typing import Any, Literal, NamedTuple, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from mann.controllers import CONTROLLERS, Controller
from mann.episodes import Task
from mann.errors import MannError
from mann.layers import ConvEncoder, Linear
from mann.memory import LITERAL, LRUA, NTM, LRUAConfig, Memory, MemoryTrace, NTMConfig
from mann.outputs import output_of


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Which network, and how large; the defaults are the paper's sizes."""

    controller: Literal["lstm", "feedforward"] = "lstm"
    memory: Literal["lrua", "ntm", "none"] = "lrua"
    """The paper's LRUA, the NTM's access module, or none (the baselines)."""
    hidden: int = 200
    """Units of the controller (H)."""
    slots: int = 128
    """Slots of the memory (M)."""
    width: int = 40
    """Width of a slot (W)."""
    heads: int = 4
    """Read heads (R)."""
    reads_to_controller: bool = True
    """Feed r_{t−1} to the controller: yes in the main text, absent from the supplement's equations."""
    query: Literal["hidden", "cell"] = "hidden"
    """What addresses the memory: the controller's output (main text) or its cell state (supplement)."""
    encoder: Literal["none", "conv"] = "none"
    """A small convolutional network in front of the controller; the paper feeds pixels."""
    features: int = 64
    """Feature maps of the convolutional encoder, of 3×3 places each."""
    lrua: LRUAConfig = LRUAConfig()
    ntm: NTMConfig = NTMConfig()

    def __post_init__(self) -> None:
        for field in ("hidden", "slots", "width", "heads", "features"):
            if getattr(self, field) < 1:
                raise MannError(f"The model's {field} must be at least 1, not {getattr(self, field)}.")
        if self.memory == "lrua" and self.heads > self.slots:
            raise MannError(f"{self.heads} heads need at least as many slots, but there are {self.slots}.")
        if self.query == "cell" and self.controller != "lstm":
            raise MannError("Only the LSTM controller has a cell state: set query to hidden.")


PAPER = ModelConfig(lrua=LITERAL)  # the literal reading of the main text


class State(NamedTuple):
    """Everything that is carried from one step to the next."""

    controller: Any  # LSTMState, or () for a feed-forward controller
    reads: Float[Array, "*batch reads"] | None  # r_t
    memory: Any  # LRUAState or NTMState; None without a memory


class Model(eqx.Module):
    """A network for one episode at a time. All arrays are unbatched: wrap in `jax.vmap` for a batch.

    >>> model = build_model(ModelConfig(), Classification(classes=5), key=jax.random.key(0))
    >>> outputs, state = model.unroll(episode.inputs, time_offset(episode.targets))
    """

    encoder: ConvEncoder | None
    controller: Controller
    memory: Memory | None
    head: Linear
    input_size: int = eqx.field(static=True)
    label_size: int = eqx.field(static=True)
    query: Literal["hidden", "cell"] = eqx.field(static=True)

    def __init__(self, config: ModelConfig, task: Task, *, key: PRNGKeyArray) -> None:
        encoder_key, controller_key, memory_key, head_key = jax.random.split(key, 4)
        self.input_size, self.label_size, self.query = task.input_size, task.label_size, config.query
        features = self.input_size
        self.encoder = None
        if config.encoder == "conv":
            if task.output == "gaussian":
                raise MannError("The convolutional encoder reads pictures: set encoder to none.")
            self.encoder = ConvEncoder(config.features, key=encoder_key)
            features = self.encoder.outputs

        sizes = (config.hidden, config.slots, config.width, config.heads)
        self.memory = None
        if config.memory == "lrua":
            self.memory = LRUA(*sizes, config.lrua, key=memory_key)
        elif config.memory == "ntm":
            self.memory = NTM(*sizes, config.ntm, key=memory_key)
        elif config.memory != "none":
            raise MannError(f"There is no memory {config.memory!r}: choose lrua, ntm or none.")
        reads = self.memory.read_size if self.memory else 0

        if config.controller not in CONTROLLERS:
            raise MannError(f"There is no controller {config.controller!r}: choose lstm or feedforward.")
        self.controller = CONTROLLERS[config.controller](
            (features, self.label_size),
            config.hidden,
            reads if config.reads_to_controller else 0,
            key=controller_key,
        )
        self.head = Linear(config.hidden + reads, output_of(task).size, key=head_key)

    def initial_state(self) -> State:
        """The state at the start of an episode: wiped memory, fresh controller, nothing read."""
        if self.memory is None:
            return State(self.controller.initial_state(), None, None)
        reads = jnp.zeros(self.memory.read_size)
        return State(self.controller.initial_state(), reads, self.memory.initial_state())

    def next_episode(self, state: State, keep_controller: bool = False) -> State:
        """Carry the memory into the next episode unwiped, with a fresh controller state or the old one."""
        return state if keep_controller else self.initial_state()._replace(memory=state.memory)

    def step(
        self, x: Float[Array, "features"], previous_label: Float[Array, "label"], state: State
    ) -> tuple[Float[Array, "output"], State]:
        """One step: x_t and y_{t−1} to the parameters of p(y_t) and the next state."""
        self._check(x, previous_label)
        hidden, state = self._advance(self._project(x, previous_label), state)
        return self.head(hidden), state

    @overload
    def unroll(
        self,
        inputs: Float[Array, "time features"],
        previous_labels: Float[Array, "time label"],
        state: State | None = None,
        trace: Literal[False] = False,
    ) -> tuple[Float[Array, "time output"], State]: ...

    @overload
    def unroll(
        self,
        inputs: Float[Array, "time features"],
        previous_labels: Float[Array, "time label"],
        state: State | None = None,
        *,
        trace: Literal[True],
    ) -> tuple[Float[Array, "time output"], State, MemoryTrace]: ...

    def unroll(
        self,
        inputs: Float[Array, "time features"],
        previous_labels: Float[Array, "time label"],
        state: State | None = None,
        trace: bool = False,
    ) -> Any:
        """A whole episode: the outputs of all steps and the last state.

        Starts from `state`, or from a wiped one. With `trace`, also the weights and contents of the memory at
        every step.
        """
        self._check(inputs, previous_labels)
        if trace and self.memory is None:
            raise MannError("This model has no memory to trace.")
        projected = self._project(inputs, previous_labels)

        def advance(state: State, projected: Float[Array, "gates"]) -> tuple[State, Any]:
            hidden, state = self._advance(projected, state)
            return state, (hidden, self.memory.trace(state.memory) if trace and self.memory else None)

        first = self.initial_state() if state is None else state
        if not jax.tree.leaves(first):  # a network without a past: all steps at once
            last, (hidden, memory) = first, jax.vmap(lambda x: advance(first, x)[1])(projected)
        else:
            last, (hidden, memory) = jax.lax.scan(advance, first, projected)
        outputs = self.head(hidden)
        return (outputs, last, memory) if trace else (outputs, last)

    def unroll_batch(
        self,
        inputs: Float[Array, "batch time features"],
        previous_labels: Float[Array, "batch time label"],
        state: State | None = None,
    ) -> tuple[Float[Array, "batch time output"], State]:
        """`unroll` for a batch of episodes, from a batch of states or from wiped ones.

        On a CPU the recurrent part of the paper's networks runs as one native call (`mann.native`), if it can
        be compiled here; the result is the same up to rounding.
        """
        from mann import native

        if state is None:
            state = tile_state(self.initial_state(), len(inputs))
        if not native.supports(self):
            return jax.vmap(self.unroll)(inputs, previous_labels, state)
        self._check(inputs, previous_labels)
        # The steps of all episodes as rows of one matrix: one product, forward and for the weights' gradient.
        projected = self._project(*(x.reshape(-1, x.shape[-1]) for x in (inputs, previous_labels)))
        projected = projected.reshape(*inputs.shape[:2], projected.shape[-1])
        hidden, last = native.unroll_batch(self, projected, state)
        return self.head(hidden), last

    def _project(
        self, x: Float[Array, "*time features"], previous_label: Float[Array, "*time label"]
    ) -> Float[Array, "*time gates"]:
        """What does not depend on the past: for a whole episode this is one matrix product."""
        if self.encoder is not None:
            x = self.encoder(x)
        return self.controller.project(jnp.concatenate([x, previous_label], axis=-1))

    def _advance(
        self, projected: Float[Array, "gates"], state: State
    ) -> tuple[Float[Array, "controller_and_reads"], State]:
        """The recurrent part of one step: o_t = (h_t, r_t) and the next state."""
        output, controller = self.controller(projected, state.reads, state.controller)
        if self.memory is None:
            return output.hidden, State(controller, None, None)
        query = output.hidden if self.query == "hidden" else output.cell
        reads, memory = self.memory(query, state.memory)
        return jnp.concatenate([output.hidden, reads]), State(controller, reads, memory)

    def _check(self, x: Float[Array, "..."], labels: Float[Array, "..."]) -> None:
        """Catch what a caller may get wrong: sizes always, unusable numbers where they can be seen."""
        if x.shape[-1] != self.input_size or labels.shape != (*x.shape[:-1], self.label_size):
            raise MannError(
                f"This model takes inputs of size {self.input_size} with labels of size {self.label_size} for "
                f"the same steps, but got shapes {x.shape} and {labels.shape}: use data of the task it is for."
            )
        for name, values in (("inputs", x), ("labels", labels)):
            if not isinstance(values, jax.core.Tracer) and not np.all(np.isfinite(values)):
                raise MannError(f"The {name} contain NaN or infinity: clean them first.")


def tile_state(state: State, batch: int) -> State:
    """The same state for every episode of a batch."""
    return jax.tree.map(lambda leaf: jnp.tile(leaf[None], (batch,) + (1,) * leaf.ndim), state)


def build_model(config: ModelConfig, task: Task, *, key: PRNGKeyArray) -> Model:
    """A newly initialised network for a task."""
    return Model(config, task, key=key)
