"""What a store is: learners as what they were shown, with a version that tells whether somebody was faster.

An example is its label and the levels of its pixels, 1600 bytes for the default model. What the network makes of
them is not stored: it is shown the examples again. So an example is added by writing it alone, and the store does
not depend on the network.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from mann.errors import MannError


class StoreError(MannError):
    """The store cannot be used, at least not now."""


class Conflict(MannError):
    """The learner is not, or no longer, of the version that a change was made for."""


class Lesson(NamedTuple):
    """One example as it is stored."""

    label: str
    levels: bytes  # of the pixels, one byte each


class Version(NamedTuple):
    """Of a learner: never the same again after any change."""

    epoch: int  # counts the changes other than further examples
    examples: int  # so many


class Head(NamedTuple):
    """What is stored of a learner beside its examples."""

    name: str  # for people
    model: str  # that it was last taught with
    seed: int  # of the labels' codes
    novelty: bool | float
    created: float  # seconds since 1970


class Stored(NamedTuple):
    """A learner as the store has it."""

    head: Head
    version: Version
    lessons: list[Lesson]  # those after the ones that were known, if any were


@runtime_checkable
class Store(Protocol):
    """Learners by key, each of a kind. Safe to use from several threads and processes."""

    def create(self, kind: str, key: str, head: Head, used: float) -> Version:
        """A new learner without examples; `Conflict` if there is one of this key."""

    def load(self, key: str, known: Version | None = None) -> Stored | None:
        """A learner; of one whose version is known, the examples after those only, if that is all that changed.

        `lessons` then begins after the known ones if the epoch is the same.
        """

    def versions(self, keys: Sequence[str]) -> list[Version | None]:
        """The versions of some learners; None for those that are not there."""

    def append(self, key: str, version: Version, lessons: Sequence[Lesson], used: float) -> Version:
        """Add examples to this version of a learner; `Conflict` if it has another. Durable on return."""

    def replace(
        self, key: str, version: Version, head: Head, lessons: Sequence[Lesson], used: float
    ) -> Version:
        """Put another head and other examples in the place of this version; `Conflict` if it has another."""

    def delete(self, key: str) -> bool:
        """Whether it was there."""

    def touch(self, key: str, used: float) -> None:
        """Note that a learner was used."""

    def listing(self, kind: str) -> list[tuple[str, Head, Version, float]]:
        """All learners of a kind, the least recently used first, with the time of that."""

    def count(self, kind: str) -> int:
        """How many learners of a kind there are."""

    def close(self) -> None:
        """No further calls."""
