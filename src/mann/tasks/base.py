"""What a task is. Training, evaluation, reports and the learner know no more of a task than this.

A task is a frozen dataclass, so that it is its own configuration. A new one is one file, inside the package or
outside: examples/my_task.py shows one in which the network itself decides what it is told.
"""

import abc
import dataclasses
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from mann.data import DataConfig
from mann.data.images import PictureFormat
from mann.data.seen import Fingerprints
from mann.episodes import time_offset
from mann.errors import MannError
from mann.labels import LabelCode
from mann.outputs import Letters, Output
from mann.paper import PaperRow
from mann.parts import Part
from mann.tasks.alphabets import Alphabets


@runtime_checkable
class Network(Protocol):
    """What a task may ask of a network (`mann.Model`)."""

    def step(self, x: Any, previous_label: Any, state: Any) -> tuple[Any, Any]: ...
    def unroll_batch(self, inputs: Any, previous_labels: Any, state: Any = None) -> Any: ...
    def initial_state(self) -> Any: ...


class Sources(NamedTuple):
    """What a run draws its episodes from. A source is a tree of arrays, or None for a task that needs none."""

    train: Any
    """The source of training episodes."""
    held_out: Any
    """The source of the episodes that watch the training and select the best checkpoint."""
    about: str
    """The same for people, in a sentence."""
    classes: dict[str, Any] | None
    """Data set and ranges of class ids, from 1; stored with every checkpoint."""
    seen: Fingerprints
    """Of every drawing that the network trains on or is selected by; stored as well."""


class Unseen(NamedTuple):
    """What a test draws its episodes from: nothing that the network has met."""

    source: Any
    """The source of test episodes."""
    dataset: str
    """Its name, for people."""
    class_range: tuple[int, int] | None
    """First and last class id, from 1."""


class Stage(NamedTuple):
    """A stage of a curriculum."""

    task: "Task"  # what the network is compiled for; several stages may share it
    size: tuple[int, int]  # classes and length that are drawn: the rest of the steps is masked


class ResultTable(NamedTuple):
    """A result for people."""

    columns: list[str]
    rows: list[list[str]]
    notes: list[str]  # sentences below the table


@runtime_checkable
class Result(Protocol):
    """What a task makes of all that was counted in a test."""

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers."""

    def table(self, paper: list[PaperRow]) -> ResultTable:
        """For people, beside the paper's rows where there are any."""


@dataclasses.dataclass(frozen=True)
class Task(Part):
    """The family of tasks, and the base of one's own: examples/my_task.py.

    A subclass is a frozen dataclass with at least `steps`, `label_size`, `output`, `input_shape`, `draw`, `tally`,
    `record` and `summarise`. Arrays of one episode are unbatched in `draw`; all other methods take a batch.

    Examples:
        >>> import jax, mann
        >>> task = mann.Regression(length=20)
        >>> episodes = task.draw_batch(jax.random.split(jax.random.key(0), 3))
        >>> model = mann.build_model(mann.ModelConfig(), task, key=jax.random.key(1))
        >>> outputs, state = task.unroll(model, episodes)
        >>> outputs.shape, task.loss(outputs, episodes).shape
        ((3, 20, 2), (3,))
    """

    # --- shapes -----------------------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def steps(self) -> int:
        """Samples in an episode (T)."""

    @property
    @abc.abstractmethod
    def label_size(self) -> int:
        """Numbers in a label, y_t."""

    @property
    @abc.abstractmethod
    def output(self) -> Output:
        """The distribution over y_t that the network states."""

    @abc.abstractmethod
    def input_shape(self, pictures: PictureFormat) -> tuple[int, ...]:
        """The shape of x_t, which reaches the network flattened.

        Args:
            pictures: the format of the data set's pictures.
        """

    @property
    def needs_data(self) -> bool:
        """Whether episodes are drawn from a data set."""
        return False

    @property
    def label_code(self) -> LabelCode:
        """How labels are encoded.

        Raises:
            MannError: if a label is not the name of a thing (the default).
        """
        return self.names.code

    @property
    def names(self) -> Letters:
        """The distribution over labels, for a learner of labels of one's own."""
        raise MannError("This model was not trained to name things: choose one that was trained on pictures.")

    # --- episodes ---------------------------------------------------------------------------------------------

    def load(self, data: DataConfig) -> Sources:
        """What to train on and what to hold out; never the test classes.

        Args:
            data: the run's data set.
        """
        return Sources(None, None, "drawn anew in every episode", None, np.zeros(0, np.uint64))

    def load_unseen(
        self, data: DataConfig, trained_on: DataConfig, seen: Fingerprints | None, model: str
    ) -> Unseen:
        """What to test on: nothing that the network has met.

        Args:
            data: the data set to test on.
            trained_on: the one of the training.
            seen: fingerprints of the pictures that the network has met; None if they were not recorded.
            model: the network's name, for messages.

        Raises:
            MannError: if the network has met any of it.
        """
        return Unseen(None, self.kind, None)

    @abc.abstractmethod
    def draw(self, key: PRNGKeyArray, source: Any = None, size: Int[Array, "2"] | None = None) -> Any:
        """One episode, as a pure function of the key.

        Args:
            key: random key.
            source: what `load` or `load_unseen` gave.
            size: of a curriculum's stage (`Stage.size`); the whole size if left out.

        Returns:
            An `Episode`, or any named tuple that this task understands.
        """

    def draw_batch(
        self, keys: Key[Array, "batch"], source: Any = None, size: Int[Array, "2"] | None = None
    ) -> Any:
        """One episode for each key.

        Args:
            keys: random keys.
            source: as in `draw`.
            size: as in `draw`; one for all.
        """
        return jax.vmap(self.draw, in_axes=(0, None, None))(keys, source, size)

    @property
    def together(self) -> int:
        """Episodes of an update that share something, so that they must be on one device."""
        return 1

    def draw_training(
        self, keys: Key[Array, "batch"], source: Any = None, size: Int[Array, "2"] | None = None
    ) -> Any:
        """The episodes of an update: those of `draw_batch`, unless a task has a cheaper way to make many.

        Args:
            keys: random keys.
            source: as in `draw`.
            size: as in `draw`; one for all.
        """
        return self.draw_batch(keys, source, size)

    # --- the seam between a network and what it is told -------------------------------------------------------

    def unroll(self, network: Network, episodes: Any, state: Any = None) -> tuple[Any, Any]:
        """Run a network over episodes; y_t goes in with x_{t+1}.

        Override it where what goes in depends on what the network does.

        Args:
            network: a `Model`, or what has its methods.
            episodes: a batch of what `draw` gives.
            state: a batch of states to start from; wiped ones if left out.

        Returns:
            Outputs, as `loss` and `tally` take them, and the last state.
        """
        outputs, last, _ = network.unroll_batch(episodes.inputs, time_offset(episodes.targets), state)
        return outputs, last

    def loss(self, outputs: Any, episodes: Any) -> Float[Array, "batch"]:
        """What training makes small: −log p(y_t), averaged over the steps that are not padding."""
        losses = jnp.where(episodes.mask, self.output.nll(outputs, episodes.targets), 0.0)
        return jnp.sum(losses, axis=-1) / jnp.sum(episodes.mask, axis=-1).astype(losses.dtype)

    # --- what is counted, and what becomes of it --------------------------------------------------------------

    @abc.abstractmethod
    def tally(self, outputs: Any, episodes: Any) -> Any:
        """What is counted, as a tree of arrays whose first axis is the episodes.

        Args:
            outputs: what `unroll` gave.
            episodes: for these.
        """

    def reference(self, episodes: Any) -> Any:
        """What an ideal predictor would have done on the same episodes, in the same manner; None for none."""
        return None

    @abc.abstractmethod
    def record(self, tally: Any) -> dict[str, Any]:
        """A line of metrics.jsonl from a tally of held-out episodes: names and numbers, with `held_out_loss`."""

    def score(self, record: dict[str, Any]) -> float:
        """The higher, the better the checkpoint."""
        return -float(record["held_out_loss"])

    def headline(self, record: dict[str, Any]) -> str:
        """A record in a few words, shown while training."""
        return f"held-out loss {record['held_out_loss']:.3f}"

    @abc.abstractmethod
    def summarise(self, tally: Any, reference: Any) -> Result:
        """The result of a test.

        Args:
            tally: of all episodes.
            reference: what `reference` gave for the same ones.
        """

    def describe(self, episodes: int) -> str:
        """That many episodes, in words."""
        return f"{episodes} episodes of {self.steps} steps"

    def paper_rows(self, controller: str, memory: str) -> list[PaperRow]:
        """Rows of the paper for the same task and kind of network."""
        return []

    # --- sizes ------------------------------------------------------------------------------------------------

    def resized(self, classes: int = 0, length: int = 0, alphabets: Alphabets | Literal[""] = "") -> "Task":
        """The same task with other episodes.

        Args:
            classes: per episode; 0 for as many as there are.
            length: samples per episode; 0 for as many as there are.
            alphabets: that classes come from; empty for as it is.

        Raises:
            MannError: if the task has one size alone (the default), or not this one.
        """
        if classes or length or alphabets not in ("", "across"):
            raise MannError(
                "The episodes of this task have one size and no alphabets: leave classes, length and alphabets out."
            )
        return self

    def stage(self, classes: int) -> Stage:
        """The stage of a curriculum at which an episode has that many classes, or as many as the task has."""
        raise MannError("A curriculum needs a classification task of length 0 (10 per class).")

    def smallest(self) -> "Task":
        """The same task, as small as it gets: for trials that only show that all of it runs."""
        return self

    @property
    def extra_floats(self) -> int:
        """Numbers that drawing one episode takes besides its inputs."""
        return 0
