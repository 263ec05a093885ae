"""Label codes: how the label of a class is written as numbers, for the network and for people."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from mann.errors import MannError

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@dataclasses.dataclass(frozen=True)
class LabelCode:
    """A label is a word of `letters` letters from an alphabet of `alphabet` symbols; each letter is a one-hot.

    One letter is an ordinary one-hot label; the paper's strings have five letters from {a..e}. A code is the
    number of a label, from 0 to `capacity` − 1.

    Raises:
        MannError: for sizes below 1, more than 26 symbols in a word, or 2³¹ labels and more.

    Examples:
        >>> strings = LabelCode(letters=5, alphabet=5)
        >>> strings.size, strings.capacity
        (25, 3125)
        >>> encoded = strings.encode_on_host([7, 3124])
        >>> encoded.shape, strings.decode(encoded).tolist(), strings.name(7)
        ((2, 25), [7, 3124], 'aaabc')
    """

    letters: int
    """Letters in a label."""
    alphabet: int
    """Symbols that a letter can be."""

    def __post_init__(self) -> None:
        if self.letters < 1 or self.alphabet < 1:
            raise MannError("A label code needs at least 1 letter and an alphabet of at least 1 symbol.")
        if self.letters > 1 and (self.alphabet > len(ALPHABET) or self.capacity >= 2**31):
            raise MannError("A label code has an alphabet of at most 26 symbols, and fewer than 2³¹ labels.")

    @property
    def size(self) -> int:
        """Numbers in an encoded label."""
        return self.letters * self.alphabet

    @property
    def capacity(self) -> int:
        """Different labels."""
        return int(self.alphabet**self.letters)

    def split(self, values: Float[Array, "*batch size"]) -> Float[Array, "*batch letters alphabet"]:
        """One row per letter."""
        return values.reshape(*values.shape[:-1], self.letters, self.alphabet)

    def encode(self, codes: Int[Array, "n"]) -> Float[Array, "n size"]:
        """Codes 0 … capacity − 1 as the network sees them, on the device."""
        powers = jnp.asarray(self._powers, jnp.int32)
        letters = codes[:, None] // powers[None] % self.alphabet
        return jax.nn.one_hot(letters, self.alphabet).reshape(len(codes), self.size)

    def encode_on_host(self, codes: list[int]) -> Float32[np.ndarray, "n size"]:
        """The same for a list of codes, with numpy."""
        letters = np.array(codes, int).reshape(-1, 1) // self._powers % self.alphabet
        return np.eye(self.alphabet, dtype=np.float32)[letters].reshape(len(codes), self.size)

    def decode(self, encoded: Float[np.ndarray | Array, "*batch size"]) -> Int[np.ndarray, "*batch"]:
        """Codes from encoded labels, or the most probable codes from scores, on the host."""
        values = np.asarray(encoded).reshape(*np.shape(encoded)[:-1], self.letters, self.alphabet)
        return np.asarray(np.argmax(values, axis=-1) @ self._powers)

    def name(self, code: int) -> str:
        """A label for people: the number of a one-hot from 1, else its letters."""
        if self.letters == 1:
            return str(code + 1)
        return "".join(ALPHABET[code // int(power) % self.alphabet] for power in self._powers)

    @property
    def _powers(self) -> Int[np.ndarray, "letters"]:
        return self.alphabet ** np.arange(self.letters - 1, -1, -1)


STRINGS = LabelCode(letters=5, alphabet=5)
"""The paper's string labels, such as "ecdba": 3125 of them, 25 numbers each."""


def one_hot(classes: int) -> LabelCode:
    """One label per class of the episode, as a one-hot."""
    return LabelCode(letters=1, alphabet=classes)
