"""Output distributions: how the numbers of the last layer are read as a distribution over y_t."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mann.labels import LabelCode


class Output(eqx.Module):
    """A distribution over y_t, from the numbers of the output layer. The base of one's own.

    All methods take arrays with any axes before the last one.

    Examples:
        >>> import jax.numpy as jnp
        >>> from mann.labels import one_hot
        >>> output = Letters(one_hot(4))
        >>> scores, target = jnp.zeros((1, 4)), jnp.eye(4)[:1]
        >>> output.size, round(float(output.nll(scores, target)[0]), 3)  # log 4
        (4, 1.386)
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Numbers per step that the output layer must give."""

    @abc.abstractmethod
    def nll(
        self, outputs: Float[Array, "*batch size"], target: Float[Array, "*batch label"]
    ) -> Float[Array, "*batch"]:
        """−log p(y_t), in nats: the loss of each step.

        Args:
            outputs: what the output layer gave.
            target: y_t, encoded as the task encodes it.
        """

    @abc.abstractmethod
    def predict(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch label"]:
        """The most probable label, encoded like the target."""


class Letters(Output):
    """One independent categorical per letter of a label code; a label is right if every letter is.

    The letters are the first numbers of an output; a subclass may state more after them.
    """

    code: LabelCode = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.code.size

    def letters(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch letters alphabet"]:
        """What the output layer gave for each letter."""
        return self.code.split(outputs[..., : self.code.size])

    def log_probabilities(
        self, outputs: Float[Array, "*batch size"]
    ) -> Float[Array, "*batch letters alphabet"]:
        return jax.nn.log_softmax(self.letters(outputs), axis=-1)

    def nll(
        self, outputs: Float[Array, "*batch size"], target: Float[Array, "*batch label"]
    ) -> Float[Array, "*batch"]:
        return -jnp.sum(self.code.split(target) * self.log_probabilities(outputs), axis=(-2, -1))

    def new(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch"] | None:
        """The probability of something new, where the network states one; None (as here) where it does not."""
        return None

    def predict(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch label"]:
        letters = jnp.argmax(self.letters(outputs), axis=-1)
        return jax.nn.one_hot(letters, self.code.alphabet).reshape(*outputs.shape[:-1], self.code.size)

    def correct(
        self, outputs: Float[Array, "*batch size"], target: Float[Array, "*batch label"]
    ) -> Bool[Array, "*batch"]:
        """Whether the most probable label is the target."""
        guess = jnp.argmax(self.letters(outputs), axis=-1)
        return jnp.all(guess == jnp.argmax(self.code.split(target), axis=-1), axis=-1)

    def sureness(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch"]:
        """How probable its answer is: as its least sure letter, and not at all as far as this is something new.

        Letters share their doubts, so that their product would count the same one several times.
        """
        sure = jnp.min(jnp.max(jnp.exp(self.log_probabilities(outputs)), axis=-1), axis=-1)
        new = self.new(outputs)
        return sure if new is None else (1 - new) * sure


class LettersOrNew(Letters):
    """The letters of a label, and one number more: how likely it is that this class is new in the episode.

    Nobody can know the label of a new class, so that only the labels of known ones count as wrong or right.
    """

    @property
    def size(self) -> int:
        return self.code.size + 1

    def new(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch"]:
        """The probability of something new."""
        return jax.nn.sigmoid(outputs[..., -1])

    def new_nll(
        self, outputs: Float[Array, "*batch size"], is_new: Bool[Array, "*batch"]
    ) -> Float[Array, "*batch"]:
        """−log of the probability stated for what is the case, new or known, in nats."""
        return jax.nn.softplus(jnp.where(is_new, -outputs[..., -1], outputs[..., -1]))


class LettersOrAsk(Letters):
    """The letters of a label, and two numbers more: what it is worth to ask for the label instead of naming it."""

    @property
    def size(self) -> int:
        return self.code.size + 2

    def worth(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch"]:
        """How much more all answers of the episode earn if it asks now, this one included, before any price."""
        return outputs[..., -2]

    def requests(self, outputs: Float[Array, "*batch size"]) -> Float[Array, "*batch"]:
        """How many requests more there are in the episode if it asks now: this one, less those that it saves."""
        return 1 + outputs[..., -1]


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

    def from_mean_and_scale(
        self, mean: Float[Array, "*batch"], scale: Float[Array, "*batch"]
    ) -> Float[Array, "*batch 2"]:
        """The numbers that `mean_and_scale` reads so; a smaller scale than it can state becomes the smallest."""
        above = jnp.maximum(scale - self.smallest, 1e-6)
        return jnp.stack([mean, above + jnp.log(-jnp.expm1(-above))], axis=-1)

    def nll(
        self, outputs: Float[Array, "*batch 2"], target: Float[Array, "*batch 1"]
    ) -> Float[Array, "*batch"]:
        return gaussian_nll(target[..., 0], *self.mean_and_scale(outputs))

    def predict(self, outputs: Float[Array, "*batch 2"]) -> Float[Array, "*batch 1"]:
        return self.mean_and_scale(outputs)[0][..., None]
