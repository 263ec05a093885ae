"""Learners at work over a store: the latest used are in memory, checked against the stored version."""

import copy
import operator
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from mann.errors import MannError
from mann.online import Example, OneShotLearner
from mann.online.page import from_levels, to_levels
from mann.store.base import Conflict, Head, Lesson, Store, Stored, StoreError, Version

T = TypeVar("T")

TRIES = 50  # to make a change while others make theirs
TOUCHED = 3600.0  # seconds after which the store is told again that a learner is in use


class Gone(MannError):
    """There is no such learner, or no longer."""


class WrongFormat(MannError):
    """A learner was taught with pictures of another kind than the network of this server sees."""


class Moment(NamedTuple):
    """A learner as it is at one moment. Nobody changes it."""

    head: Head
    version: Version
    learner: OneShotLearner


class Live:
    """A learner in memory; `now` is replaced as a whole, by `Learners` alone."""

    def __init__(self, key: str, now: Moment, touched: float) -> None:
        self.key, self.now = key, now
        self.touched = touched  # when the store was told that it is in use
        self.lock = threading.Lock()  # of a change


class Learners:
    """Learners by key: taught here, kept in the store, and in step with those of other servers.

    A change is made to a copy, stored for the version that it was made from, and only then to be seen; if somebody
    else was faster, it is made again from what is there by then.

    Args:
        store: where they are kept.
        parent: the learner whose network they share.
        most: learners in memory at a time.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        parent: OneShotLearner,
        most: int = 256,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.parent, self.clock, self._most = store, parent, clock, most
        self._lock = threading.Lock()  # of `_live`
        self._live: OrderedDict[str, Live] = OrderedDict()
        self.loads = 0  # that took more than the memory, for those who watch

    def __len__(self) -> int:
        return len(self._live)

    def create(
        self, kind: str, key: str, *, name: str = "", seed: int | None = None, novelty: bool | float = True
    ) -> Live:
        """A new learner that knows nothing.

        Raises:
            Conflict: if there is one of this key.
            StoreError: if it cannot be kept.
        """
        learner = self.parent.sibling(seed=seed, novelty=novelty, keep="pixels")
        now = self.clock()
        head = Head(name, learner.model, learner.seed, learner.novelty, now)
        return self._remember(Live(key, Moment(head, self.store.create(kind, key, head, now), learner), now))

    def find(self, key: str) -> Live | None:
        """A learner as it is now.

        Raises:
            StoreError: if the store cannot be asked.
            WrongFormat: if its examples are of another format than this network's.
        """
        (found,) = self.find_all([key])
        if isinstance(found, WrongFormat):
            raise found
        return found

    def find_all(self, keys: Sequence[str]) -> "list[Live | WrongFormat | None]":
        """Several learners as they are now, for one question to the store."""
        found: list[Live | WrongFormat | None] = []
        for key, version in zip(keys, self.store.versions(keys), strict=True):
            live = self._cached(key)
            if version is None:
                self._forget(key)
                live = None
            elif live is None:
                try:
                    live = self._read(key)
                except WrongFormat as error:
                    found.append(error)
                    continue
            elif live.now.version != version:
                with live.lock:
                    live = live if self._catch_up(live) else None
            if live is not None and self.clock() - live.touched > TOUCHED:
                live.touched = self.clock()
                self.store.touch(key, live.touched)
            found.append(live)
        return found

    def change(self, live: Live, change: Callable[[OneShotLearner], T], name: str | None = None) -> T:
        """Change a learner, durably on return.

        Args:
            live: what `create` or `find` gave.
            change: makes the change; it may be called several times, each time with another copy.
            name: what to call the learner from now on; None to leave it.

        Returns:
            What `change` returned.

        Raises:
            Gone: if the learner was deleted.
            StoreError: if it cannot be kept; the learner is as before.
        """
        with live.lock:
            for number in range(TRIES):
                before = live.now
                learner = copy.copy(before.learner)
                result = change(learner)
                head = before.head._replace(
                    name=before.head.name if name is None else name,
                    model=learner.model,
                    seed=learner.seed,
                    novelty=learner.novelty,
                )
                try:
                    version = self._store(live.key, before, head, learner.examples)
                except Conflict:
                    time.sleep(random.uniform(0, 0.002 * min(number, 10)))
                    if not self._catch_up(live):
                        raise Gone("This learner is no longer there: it was deleted.") from None
                    continue
                live.now = Moment(head, version, learner)
                live.touched = self.clock()
                return result
        raise StoreError("Too many change this learner at once: try again.")

    def _store(self, key: str, before: Moment, head: Head, after: Sequence[Example]) -> Version:
        known = before.learner.examples
        if head == before.head and is_start(known, after):
            if len(after) == len(known):
                return before.version
            return self.store.append(key, before.version, _lessons(after[len(known) :]), self.clock())
        return self.store.replace(key, before.version, head, _lessons(after), self.clock())

    def delete(self, key: str) -> bool:
        """Whether it was there."""
        self._forget(key)
        return self.store.delete(key)

    def _catch_up(self, live: Live) -> bool:
        """Learn what others taught it; False if it is gone. Only with its lock."""
        stored = self.store.load(live.key, live.now.version)
        if stored is None:
            self._forget(live.key)
            return False
        self.loads += 1
        known = live.now.learner if stored.version.epoch == live.now.version.epoch else None
        live.now = Moment(stored.head, stored.version, self._teach(stored, known))
        return True

    def _read(self, key: str) -> Live | None:
        stored = self.store.load(key)
        if stored is None:
            return None
        self.loads += 1
        return self._remember(Live(key, Moment(stored.head, stored.version, self._teach(stored, None)), 0.0))

    def _teach(self, stored: Stored, known: OneShotLearner | None) -> OneShotLearner:
        """A learner that was shown what is stored; after what one knows already, if there is one."""
        head = stored.head
        learner = (
            self.parent.sibling(seed=head.seed, novelty=head.novelty, keep="pixels")
            if known is None
            else copy.copy(known)
        )
        try:
            pictures = [from_levels(lesson.levels, learner.format) for lesson in stored.lessons]
        except MannError:
            raise WrongFormat(
                f"This learner was taught with {head.model}, whose pictures are of another kind: serve that."
            ) from None
        learner.learn_many(pictures, [lesson.label for lesson in stored.lessons])
        return learner

    def _cached(self, key: str) -> Live | None:
        with self._lock:
            live = self._live.get(key)
            if live is not None:
                self._live.move_to_end(key)
            return live

    def _remember(self, live: Live) -> Live:
        """The one that all threads share: whoever was first."""
        with self._lock:
            live = self._live.setdefault(live.key, live)
            self._live.move_to_end(live.key)
            while len(self._live) > self._most:
                self._live.popitem(last=False)
            return live

    def _forget(self, key: str) -> None:
        with self._lock:
            self._live.pop(key, None)


def is_start(known: Sequence[Example], examples: Sequence[Example]) -> bool:
    """Whether examples begin with those that are known, the very same ones."""
    return len(known) <= len(examples) and all(map(operator.is_, known, examples))


def _lessons(examples: Sequence[Example]) -> list[Lesson]:
    return [Lesson(str(example.label), to_levels(example.pixels)) for example in examples]
