"""Which classes an episode has: of all alphabets, or of one, where classes resemble each other."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

Alphabets = Literal["across", "within", "mixed"]


class Choice(NamedTuple):
    """Different classes of a data set."""

    classes: Int[Array, "count"]
    alike: Int[Array, "count"]
    """The place of the first that is of the same alphabet; where alphabets play no part, the class's own place."""


def choose_classes(
    key: PRNGKeyArray, alphabets: Int[Array, "classes"], count: int, kind: Alphabets
) -> Choice:
    """Different classes, in random order or alphabet by alphabet.

    Alphabet by alphabet, they are of as few alphabets as can be: all of one, in random order, then of a second if
    the first has too few, and so on.

    Args:
        key: random key.
        alphabets: of every class of the data set, as numbers below the number of classes.
        count: how many to choose.
        kind: across all alphabets, within one, or either at even odds.
    """
    odds_key, alphabet_key, class_key = jax.random.split(key, 3)
    odds = {"across": 0.0, "mixed": 0.5, "within": 1.0}[kind]
    within = jax.random.bernoulli(odds_key, odds)
    of_alphabet = jax.random.uniform(alphabet_key, alphabets.shape)[alphabets]
    of_class = jax.random.uniform(class_key, alphabets.shape)
    chosen = jnp.lexsort((of_class, jnp.where(within, of_alphabet, 0.0)))[:count].astype(jnp.int32)
    own = alphabets[chosen]
    first = jnp.argmax(own[:, None] == own[None, :], axis=1).astype(jnp.int32)
    return Choice(chosen, jnp.where(within, first, jnp.arange(count, dtype=jnp.int32)))
