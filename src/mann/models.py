"""The networks of the paper: a controller with an external memory (the MANN), or without one (the baselines).

Data flow of one step, for one episode (batches are made by `vmap`):

    x_t ─ encoder ──┐
    y_{t−1} ────────┴─ controller ─ h_t ─ memory ─ r_t ─┐
                       ▲  ▲ h, c                 │      ├─ o_t = (h_t, r_t) ─ readout ─ p(y_t)
                       │  └──────────────────────│──────┘
                       └───────── r_{t−1} ───────┘

A model is its parts: `Model(encoder, controller, memory, readout)` takes modules, and only `build_model` reads a
configuration. How the recurrent part is run over a batch of episodes is chosen in `mann.recurrences`.
"""

import dataclasses
import math
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from mann import kernel
from mann.cell import Cell, State
from mann.controllers import Controller, ControllerConfig, LSTMConfig
from mann.data.images import PictureFormat
from mann.encoders import Encoder, EncoderConfig, NoEncoder
from mann.episodes import Encoded, SharedPictures
from mann.errors import MannError
from mann.layers import Layer, Linear, Precision, with_precision
from mann.memory import PAPER_MEMORY, LRUAConfig, Memory, MemoryConfig, MemoryTrace
from mann.native.convolutions import encode
from mann.native.host import HostStep, host_step
from mann.recurrences import choose_recurrence
from mann.runtime import has_fast_bfloat16
from mann.tasks import Task

MOST_TRACED = 2**31  # bytes of a trace


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Which parts; the defaults are the paper's network at its sizes.

    Raises:
        MannError: if the memory is to be queried by a cell state that the controller does not have, or by no
            controller at all.

    Examples:
        >>> import mann
        >>> small = mann.ModelConfig(controller=mann.LSTMConfig(hidden=32), memory=mann.NTMConfig(slots=16))
        >>> small.memory.kind, small.memory.slots
        ('ntm', 16)
    """

    encoder: EncoderConfig = NoEncoder()
    controller: ControllerConfig = LSTMConfig()
    memory: MemoryConfig = LRUAConfig()
    reads_to_controller: bool = True
    """Feed r_{t−1} to the controller: yes in the main text, absent from the supplement's equations."""
    query: Literal["hidden", "cell"] = "hidden"
    """What addresses the memory: the controller's output (main text) or its cell state (supplement)."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Of the factors of products with weights, in training and after it: auto takes bfloat16 where it is faster."""

    @property
    def resolved_precision(self) -> Precision:
        """What `precision` means on this machine."""
        if self.precision == "auto":
            # Without the kernel, a scan in bfloat16 is slower than in float32 on a CPU.
            fast = has_fast_bfloat16() and (kernel.available() or jax.default_backend() != "cpu")
            return "bfloat16" if fast else "float32"
        return self.precision

    def __post_init__(self) -> None:
        if self.query == "cell" and not self.controller.has_cell:
            raise MannError("Only the LSTM controller has a cell state: set query to hidden.")
        if not self.controller.hidden and self.memory.takes_query:
            raise MannError(
                f"A memory of kind {self.memory.kind!r} is asked by a controller: choose one, such as lstm."
            )


PAPER_MODEL = ModelConfig(memory=PAPER_MEMORY)
"""The literal reading of the main text."""


class Unrolled(NamedTuple):
    """What `Model.unroll` and `Model.unroll_batch` return for whole episodes."""

    outputs: Float[Array, "*batch time output"]
    """Parameters of p(y_t), as the task's `Output` reads them."""
    state: State
    """After the last step."""
    trace: MemoryTrace | None
    """What happened in the memory, if it was requested."""


class Model(Layer):
    """A network for one episode at a time. All arrays are unbatched: wrap in `jax.vmap` for a batch.

    Every method refuses inputs and labels of other sizes than the network's, and where their values can be seen
    (outside `jit`) also NaN and infinity, with a `MannError`.

    Args:
        encoder: what the controller sees of x_t.
        controller: takes the features of x_t, y_{t−1} and r_{t−1}.
        memory: an external memory, or `NoMemory()`.
        readout: the output layer, from o_t = (h_t, r_t) to the parameters of p(y_t).
        inputs: length of x_t.
        labels: length of y_{t−1}.
        query: what addresses the memory, the controller's output or its cell state.

    Examples:
        >>> import jax, mann
        >>> task = mann.Classification(classes=5)
        >>> model = mann.build_model(mann.ModelConfig(), task, key=jax.random.key(0))
        >>> pictures, labels = jax.numpy.zeros((7, 400)), jax.numpy.zeros((7, 5))
        >>> model.unroll(pictures, labels).outputs.shape
        (7, 5)
        >>> output, state = model.step(pictures[0], labels[0], model.initial_state())
        >>> output.shape
        (5,)
    """

    plain: ClassVar[tuple[str, ...]] = ("readout",)
    encoder: Encoder
    controller: Controller
    memory: Memory
    readout: Linear
    input_size: int = eqx.field(static=True)
    label_size: int = eqx.field(static=True)
    query: Literal["hidden", "cell"] = eqx.field(static=True)

    def __init__(
        self,
        encoder: Encoder,
        controller: Controller,
        memory: Memory,
        readout: Linear,
        *,
        inputs: int,
        labels: int,
        query: Literal["hidden", "cell"] = "hidden",
    ) -> None:
        self.encoder, self.controller, self.memory, self.readout = encoder, controller, memory, readout
        self.input_size, self.label_size, self.query = inputs, labels, query

    @property
    def cell(self) -> Cell:
        """The recurrent part."""
        return Cell(self.controller, self.memory, self.query)

    def initial_state(self) -> State:
        """The state at the start of an episode: wiped memory, fresh controller, nothing read."""
        return self.cell.initial_state()

    def next_episode(self, state: State) -> State:
        """The state at the start of an episode that follows another: its memory unwiped, all else fresh."""
        return self.initial_state()._replace(memory=state.memory)

    def step(
        self, x: Float[Array, "features"], previous_label: Float[Array, "label"], state: State
    ) -> tuple[Float[Array, "output"], State]:
        """One step.

        Args:
            x: x_t, flattened.
            previous_label: y_{t−1}, zeros at the first step.
            state: before the step.

        Returns:
            The parameters of p(y_t), and the state after the step.
        """
        self._check(x, previous_label)
        output, state = self.cell(self.project(x, previous_label), state)
        return self.readout(output), state

    def host_step(self) -> HostStep | None:
        """`step` as a native call on NumPy's arrays, with weights as they are now, for a network that is a memory
        alone; None where there is none."""
        if not self.encoder.passes_on:
            return None
        return host_step(self.cell, self.readout, self.input_size, self.label_size)

    def unroll(
        self,
        inputs: Float[Array, "time features"],
        previous_labels: Float[Array, "time label"],
        state: State | None = None,
        trace: bool = False,
    ) -> Unrolled:
        """A whole episode, step by step in one compiled loop.

        Args:
            inputs: x_t of every step, flattened.
            previous_labels: y_{t−1} of every step: `time_offset` of the targets.
            state: to start from; a wiped one if left out.
            trace: also return what happened in the memory at every step.
        """
        self._check(inputs, previous_labels)
        if trace:
            self._check_trace(len(inputs))
        first = self.initial_state() if state is None else state
        outputs, last, traces = self.cell.scan(self.project(inputs, previous_labels), first, trace)
        return Unrolled(self.readout(outputs), last, traces)

    def unroll_batch(
        self,
        inputs: Float[Array, "batch time features"] | SharedPictures | Encoded,
        previous_labels: Float[Array, "batch time label"],
        state: State | None = None,
    ) -> Unrolled:
        """`unroll` for a batch of episodes, from a batch of states or from wiped ones.

        On a CPU the recurrent part of the paper's networks runs as one native call (`mann.native`), if it can
        be compiled here; the result is the same up to rounding. It has no trace.

        Args:
            inputs: x_t of every step of every episode, flattened; or pictures that episodes share; or what the
                encoder has made of them already.
            previous_labels: y_{t−1} of the same steps.
            state: of every episode, to start from; wiped ones if left out.
        """
        batch, time, labels = previous_labels.shape
        if state is None:
            state = tile_state(self.initial_state(), batch)
        if isinstance(inputs, SharedPictures):
            features = inputs.spread(self.encode(inputs.pictures))
        elif isinstance(inputs, Encoded):
            features = inputs.features
        else:
            self._check(inputs, previous_labels)
            features = self.encode(inputs)
        # All steps of all episodes at once: one large product, forward and for the weights' gradient.
        projected = self._project_features(
            features.reshape(batch * time, self.encoder.features),
            previous_labels.reshape(batch * time, labels),
        )
        projected = projected.reshape(batch, time, projected.shape[-1])
        cell = self.cell
        outputs, last = choose_recurrence(cell)(cell, projected, state)
        return Unrolled(self.readout(outputs), last, None)

    def project(
        self, x: Float[Array, "*time features"], previous_label: Float[Array, "*time label"]
    ) -> Float[Array, "*time gates"]:
        """What does not depend on the past: for a whole episode this is one matrix product."""
        return self._project_features(self.encode(x), previous_label)

    def encode(self, x: Float[Array, "*time inputs"]) -> Float[Array, "*time features"]:
        """What the encoder makes of inputs; on a CPU convolutions run as one native call."""
        features = encode(self.encoder, x.reshape(-1, self.input_size))
        return features.reshape(*x.shape[:-1], self.encoder.features)

    def embed(self, x: Float[Array, "*time inputs"]) -> Float[Array, "*time embedding"]:
        """The network's embedding: a plain nearest neighbour in it shows what its memory adds or loses."""
        return self.memory.embed(self.encode(x))

    def _project_features(
        self, features: Float[Array, "*time features"], previous_label: Float[Array, "*time label"]
    ) -> Float[Array, "*time gates"]:
        gates = self.controller.project(jnp.concatenate([features, previous_label], axis=-1))
        return jnp.concatenate([gates, self.memory.project(features, previous_label)], axis=-1)

    def _check_trace(self, steps: int) -> None:
        """Refuse to hold a large memory of every step."""
        memory = self.memory
        traced = jax.eval_shape(lambda: memory.trace(memory.initial_state()))
        needed = 4 * steps * sum(leaf.size for leaf in jax.tree.leaves(traced))
        if needed > MOST_TRACED:
            raise MannError(
                f"The trace of {steps} steps of a memory with {memory.slots} slots takes {needed / 1e9:.0f} GB: "
                "trace fewer steps, or use `step` and look at the memory after each."
            )

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


def build_model(
    config: ModelConfig, task: Task, pictures: PictureFormat | None = None, *, key: PRNGKeyArray
) -> Model:
    """A newly initialised network for a task.

    Args:
        config: which parts, each a configuration that builds its module.
        task: says how long inputs, labels and outputs are.
        pictures: the format of the data set's pictures, for tasks that show any; grey 20×20 if left out.
        key: random key; the same key gives the same weights.

    Raises:
        MannError: if a part cannot be built for this task, such as a convolution for numbers.

    Examples:
        >>> import jax
        >>> from mann.tasks import Regression
        >>> build_model(ModelConfig(), Regression(dimensions=2), key=jax.random.key(0)).input_size
        2
    """
    encoder_key, controller_key, memory_key, readout_key = jax.random.split(key, 4)
    shape = task.input_shape(pictures or PictureFormat())
    encoder = config.encoder.build(shape, key=encoder_key)
    hidden = config.controller.hidden
    memory = config.memory.build(hidden, (encoder.features, task.label_size), key=memory_key)
    controller = config.controller.build(
        (encoder.features, task.label_size),
        memory.read_size if config.reads_to_controller else 0,
        key=controller_key,
    )
    readout = Linear(hidden + memory.read_size, task.output.size, key=readout_key)
    model = Model(
        encoder,
        controller,
        memory,
        memory.first_readout(readout, hidden),
        inputs=math.prod(shape),
        labels=task.label_size,
        query=config.query,
    )
    return with_precision(model, config.resolved_precision)
