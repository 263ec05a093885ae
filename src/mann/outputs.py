"""Output distributions: categorical, five independent categoricals (strings), Gaussian."""

import abc
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mann.episodes import LETTERS, Task
from mann.errors import MannError


class Output(eqx.Module):
    """How the numbers of the last linear layer are read as a distribution over y_t."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Numbers that the last layer must give."""

    @abc.abstractmethod
    def nll(
        self, outputs: Float[Array, "*batch size"], target: Float[Array, "*batch label"]
    ) -> Float[Array, "*batch"]:
        """−log p(y_t), in nats: the loss of each step."""

    @abc.abstractmethod
    def predict(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch label"]:
        """The most probable label, encoded like the target."""

    @abc.abstractmethod
    def correct(
        self, outputs: Float[Array, "*batch size"], target: Float[Array, "*batch label"]
    ) -> Bool[Array, "*batch"]:
        """Whether the prediction is the target."""


class Strings(Output):
    """`letters` independent categoricals of `alphabet` symbols each; a string is right if every letter is."""

    letters: int = LETTERS
    alphabet: int = LETTERS

    @property
    def size(self) -> int:
        return self.letters * self.alphabet

    def _split(self, values: Float[Array, "*batch size"]) -> Float[Array, "*batch letters alphabet"]:
        return values.reshape(*values.shape[:-1], self.letters, self.alphabet)

    def log_probabilities(
        self, outputs: Float[Array, "*batch size"]
    ) -> Float[Array, "*batch letters alphabet"]:
        return jax.nn.log_softmax(self._split(outputs), axis=-1)

    def nll(
        self, outputs: Float[Array, "*batch size"], target: Float[Array, "*batch label"]
    ) -> Float[Array, "*batch"]:
        return -jnp.sum(self._split(target) * self.log_probabilities(outputs), axis=(-2, -1))

    def predict(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch label"]:
        letters = jnp.argmax(self._split(outputs), axis=-1)
        return jax.nn.one_hot(letters, self.alphabet).reshape(outputs.shape)

    def correct(
        self, outputs: Float[Array, "*batch size"], target: Float[Array, "*batch label"]
    ) -> Bool[Array, "*batch"]:
        guess = jnp.argmax(self._split(outputs), axis=-1)
        return jnp.all(guess == jnp.argmax(self._split(target), axis=-1), axis=-1)


class Categorical(Strings):
    """One categorical over the episode's labels: a "string" of a single letter."""

    def __init__(self, classes: int) -> None:
        self.letters, self.alphabet = 1, classes


def gaussian_nll(
    y: Float[Array, "*batch"], mean: Float[Array, "*batch"], scale: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """−log N(y; mean, scale²), in nats."""
    return 0.5 * ((y - mean) / scale) ** 2 + jnp.log(scale) + 0.5 * math.log(2 * math.pi)


class Gaussian(Output):
    """Mean and a positive scale."""

    smallest: float = 1e-3  # keeps the density bounded

    @property
    def size(self) -> int:
        return 2

    def mean_and_scale(
        self, outputs: Float[Array, "*batch 2"]
    ) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
        return outputs[..., 0], jax.nn.softplus(outputs[..., 1]) + self.smallest

    def nll(
        self, outputs: Float[Array, "*batch 2"], target: Float[Array, "*batch 1"]
    ) -> Float[Array, "*batch"]:
        return gaussian_nll(target[..., 0], *self.mean_and_scale(outputs))

    def predict(self, outputs: Float[Array, "*batch 2"]) -> Float[Array, "*batch 1"]:
        return self.mean_and_scale(outputs)[0][..., None]

    def correct(
        self, outputs: Float[Array, "*batch 2"], target: Float[Array, "*batch 1"]
    ) -> Bool[Array, "*batch"]:
        """Within two standard deviations: about 95 % for a calibrated model."""
        mean, scale = self.mean_and_scale(outputs)
        return jnp.abs(target[..., 0] - mean) < 2 * scale


def output_of(task: Task) -> Output:
    """The distribution that a task asks for."""
    return make_output(task.output, task.label_size)


def make_output(name: Literal["categorical", "strings", "gaussian"], labels: int) -> Output:
    """An output distribution by name; `labels` is the number of labels of a categorical."""
    if name == "categorical":
        return Categorical(labels)
    if name == "strings":
        return Strings()
    if name == "gaussian":
        return Gaussian()
    raise MannError(f"There is no output {name!r}: choose categorical, strings or gaussian.")
