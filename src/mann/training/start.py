"""Weights to start from: those of a trained network, as far as they fit, in place of random ones."""

from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax

from mann.data.seen import Fingerprints
from mann.errors import MannError
from mann.files import array_names, to_arrays

T = TypeVar("T")


@runtime_checkable
class Weights(Protocol):
    """A trained network: what `load_trained` returns."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> Any: ...
    @property
    def seen(self) -> Fingerprints | None: ...


class Started(NamedTuple):
    """What a run started from; it stands in every checkpoint."""

    name: str
    """Of the trained network."""
    new: tuple[str, ...]
    """The arrays that it does not have, or not in this shape: they began at random."""

    def __str__(self) -> str:
        return f"starting from {self.name}" + (f" but for {', '.join(self.new)}" if self.new else "")


def start_from(weights: Weights, model: T) -> tuple[T, Started, Fingerprints]:
    """A model with the arrays of a trained one wherever both have one of the same name and shape.

    Args:
        weights: what to start from.
        model: newly initialised.

    Returns:
        The model, what it started from, and what that has met.

    Raises:
        MannError: if they have nothing in common, or if nobody knows what the trained one has met.
    """
    if weights.seen is None:
        raise MannError(
            f"{weights.name} was trained by a version that did not record on what: train it anew to start from it."
        )
    theirs, new = to_arrays(weights.model), []

    def pick(name: str, leaf: Any) -> Any:
        if name in theirs and theirs[name].shape == leaf.shape:
            return jax.numpy.asarray(theirs[name], leaf.dtype)
        new.append(name)
        return leaf

    arrays, static = eqx.partition(model, eqx.is_array)
    names = array_names(arrays)
    started = jax.tree.map(pick, names, arrays)
    if len(new) == len(jax.tree.leaves(names)):
        raise MannError(
            f"The weights of {weights.name} fit nowhere into this network: choose parts of the same sizes."
        )
    return eqx.combine(started, static), Started(weights.name, tuple(new)), weights.seen
