"""One learner for each browser: found by a cookie that cannot be guessed, bounded in number, dropped when idle."""

import contextlib
import copy
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mann.errors import MannError
from mann.online import Example, Label, Look, OneShotLearner, Prepared
from mann.online.page import from_levels, to_page
from mann.web.encoding import encode_levels, encode_png, encode_weights
from mann.web.experiment import Trial, compare
from mann.web.view import View

MOST_SYMBOLS = 100  # of one browser; the memory has 128 slots or more
MOST_EXAMPLES = 1000  # of one browser
MOST_TRIALS = 20  # of one browser
PRACTICE = 10  # pictures of the trial run after which it can be ended
LITTLE = 2  # examples and answers: whoever gave no more has little to lose
QUIET_SECONDS = 60.0  # after which those who have little to lose make room for others
KEPT_THUMBNAILS = 4  # of one symbol


class Outdated(MannError):
    """What is to be changed is no longer what the page showed."""


class Session:
    """What one browser has taught, and its trial. Safe to use from several threads, as two tabs do."""

    def __init__(self, learner: OneShotLearner) -> None:
        self.address = ""  # of the browser, set by `Sessions`
        self.used = 0.0  # when, by the clock of `Sessions`
        self._id = secrets.token_hex(8)  # no secret: by it a page notices that its session was dropped
        self._learner = learner
        self._version = 0  # counts every change
        self._lock = threading.Lock()  # of what was taught
        self._view = View(learner)
        self._participant = secrets.token_hex(4)
        self._trial_lock = threading.Lock()  # apart: a trial may wait for its file, teaching must not
        self._trial: Trial | None = None
        self._trials = 0
        self._practised = False  # after the trial run, trials can be scored

    @property
    def effort(self) -> int:
        """How much would be lost with this session: examples taught, and answers of the trial."""
        trial = self._trial
        return len(self._learner.examples) + (len(trial.answers) if trial else 0)

    def look(self, picture: Prepared) -> tuple[Look, dict[str, Any]]:
        """What the learner makes of a picture; and which learner that is, and why it thinks so."""
        with self._lock:
            look = self._learner.look(picture)
            taught = len(self._learner.examples)
            because = None if look.memory is None else self._view.writings.explain(taught + 1, look.memory)
            return look, {"id": self._id, "version": self._version, "taught": taught, "because": because}

    def teach(self, picture: Prepared, label: str) -> dict[str, Any]:
        """Learn from a picture; returns under which name, and how many examples of it there are now.

        A name that differs from a known one in capitals only is that one.
        """
        with self._changing() as learner:
            label = self._spell(label)
            _check_room(learner, [label], 1)
            self._view.add(learner.look_and_learn(picture, label), label)
            count = sum(example.label == label for example in learner.examples)
            return {"label": label, "examples": count}

    def _spell(self, label: str) -> str:
        """A name as it is known already, if it differs in capitals only."""
        spellings = {str(known).casefold(): str(known) for known in self._learner.labels}
        return spellings.get(label.casefold(), label)

    @contextlib.contextmanager
    def _changing(self, version: int | None = None) -> Iterator[OneShotLearner]:
        """The learner, to be changed by nobody else meanwhile; with a version, only if it is still that."""
        with self._lock:
            if version is not None and version != self._version:
                raise Outdated("Something else was taught meanwhile: look again, then repeat it.")
            yield self._learner
            self._version += 1

    @contextlib.contextmanager
    def _mending(self, version: int | None = None) -> Iterator[OneShotLearner]:
        """The same for changes of what was shown before."""
        with self._changing(version) as learner:
            yield learner
            self._view = View(self._learner)

    def forget(self, label: str | None = None) -> None:
        """One symbol, or everything."""
        with self._mending() as learner:
            if label is None:
                learner.reset()
            else:
                learner.forget(self._spell(label))

    def rename(self, old: str, new: str) -> None:
        with self._mending() as learner:
            old, known = self._spell(old), self._spell(new)
            if known not in (old, new):
                raise MannError(f"There is a symbol {known!r} already: choose another name.")
            learner.rename(old, new)

    def undo(self) -> None:
        """Take back the last example."""
        with self._mending() as learner:
            if not learner.examples:
                raise MannError("There is nothing to undo: nothing has been taught.")
            learner.unlearn_one()

    def unlearn(self, number: int, version: int | None = None) -> None:
        """Take back one example, by its number from 1; of that version of what was taught."""
        with self._mending(version) as learner:
            learner.unlearn_one(_place(learner, number))

    def relabel(self, number: int, label: str, version: int | None = None) -> None:
        """Give one example another name."""
        with self._mending(version) as learner:
            label = self._spell(label)
            _check_room(learner, [label], 0)
            learner.relabel(_place(learner, number), label)

    def set_novelty(self, threshold: float | None) -> None:
        """From which probability on something is new; None for what the model says."""
        with self._changing() as learner:
            learner.novelty = True if threshold is None else threshold

    def export(self) -> dict[str, Any]:
        """What was taught, for a file."""
        return to_page(copy.copy(self._learner))

    def load(self, examples: Sequence[tuple[str, bytes]], novelty: bool | float) -> None:
        """Take what a file holds in place of what was taught."""
        with self._mending() as learner:
            other = learner.sibling(novelty=novelty)
            pictures = [from_levels(levels, learner.format) for _, levels in examples]
            labels = [label for label, _ in examples]
            _check_room(other, labels, len(labels))
            other.learn_many(pictures, labels)
            self._learner = other

    def examples(self) -> dict[str, Any]:
        """Every example in the order in which it was shown."""
        with self._lock:
            examples, version = self._learner.examples, self._version
        return {
            "version": version,
            "examples": [
                {"example": number, "label": one.label, "picture": encode_levels(one.pixels)}
                for number, one in enumerate(examples, start=1)
            ],
        }

    def snapshot(self) -> dict[str, Any]:
        """What has been taught so far, and the memory after it."""
        with self._lock:
            learner, version = copy.copy(self._learner), self._version
        shown: dict[Label, list[tuple[int, Example]]] = {label: [] for label in learner.labels}
        for number, example in enumerate(learner.examples, start=1):
            shown[example.label].append((number, example))
        return {
            "id": self._id,
            "version": version,
            "taught": len(learner.examples),
            "novelty": {"threshold": learner.threshold, "own": not isinstance(learner.novelty, bool)},
            "symbols": [
                {
                    "label": label,
                    "examples": len(examples),
                    "numbers": [number for number, _ in examples[:KEPT_THUMBNAILS]],
                    "pictures": [encode_levels(example.pixels) for _, example in examples[:KEPT_THUMBNAILS]],
                }
                for label, examples in shown.items()
            ],
            "memory": encode_weights(learner.memory) if learner.examples else None,
        }

    def history(self) -> list[dict[str, Any]]:
        """The last steps of the memory."""
        with self._lock:
            return self._view.steps()

    def begin_trial(self, begin: Callable[[str, bool], Trial], *, scored: bool) -> dict[str, Any]:
        """`begin(participant, scored)` makes the trial; a scored one needs a trial run first."""
        with self._trial_lock:
            if self._trials >= MOST_TRIALS:
                raise MannError(
                    f"A participant can take part in {MOST_TRIALS} trials: thank you, that was all."
                )
            self._trial = begin(self._participant, scored and self._practised)
            self._trials += 1
            return self._describe(self._trial)

    def current_trial(self) -> dict[str, Any]:
        """The trial that is under way, as `begin_trial` describes it; of a finished one, the result."""
        with self._trial_lock:
            trial = self._trial
            if trial is None:
                return {"trial": None, "practised": self._practised, "result": None}
            return self._describe(trial) | {"result": compare(trial) if trial.finished else None}

    def answer_trial(self, trial_id: Any, step: int, answer: int, seconds: float) -> dict[str, Any]:
        """The right label, the next picture and, after the last one, the result."""
        with self._trial_lock:
            trial = self._trial
            if trial is None or trial.info.id != trial_id:
                raise MannError("This trial is over or has expired: begin a new one.")
            entry = trial.answer(step, answer, seconds)
            self._practised |= trial.finished or len(trial.answers) >= PRACTICE
            return {
                "label": entry.label,
                "correct": entry.answer == entry.label,
                "next": self._describe(trial),
                "result": compare(trial) if trial.finished else None,
            }

    def _describe(self, trial: Trial) -> dict[str, Any]:
        """The picture that waits for an answer, without anything about what comes after it."""
        picture = trial.picture
        return {
            "trial": trial.info.id,
            "participant": trial.info.participant,
            "scored": trial.info.scored,
            "practised": self._practised,
            "length": trial.info.length,
            "step": len(trial.answers) + 1,
            "picture": None if picture is None else encode_png(picture),
        }


def _place(learner: OneShotLearner, number: int) -> int:
    if not 1 <= number <= len(learner.examples):
        raise MannError(f"There is no example {number}: they count from 1 to {len(learner.examples)}.")
    return number - 1


def _check_room(learner: OneShotLearner, labels: Sequence[str], more: int) -> None:
    """Refuse more symbols or examples than there is room for."""
    if len({*learner.labels, *labels}) > MOST_SYMBOLS:
        raise MannError(f"The playground keeps {MOST_SYMBOLS} symbols: forget one to teach another.")
    if len(learner.examples) + more > MOST_EXAMPLES:
        raise MannError(f"The playground keeps {MOST_EXAMPLES} examples: forget a symbol to teach more.")


class Full(MannError):
    """There is no room for another browser."""


class Sessions:
    """The sessions of all browsers that have taught something, least recently used first."""

    def __init__(
        self,
        make: Callable[[], Session],
        most: int,
        most_per_address: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._most, self._most_per_address = make, most, most_per_address
        self._idle, self._clock = idle_seconds, clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: str | None) -> Session | None:
        """The session of a cookie, unless it was dropped."""
        with self._lock:
            self._drop_idle()
            session = self._sessions.get(key or "")
            if session is not None:
                session.used = self._clock()
                self._sessions.move_to_end(key or "")
            return session

    def guest(self) -> Session:
        """A session for one request of a browser that has taught nothing: it takes up no place."""
        return self._make()

    @contextlib.contextmanager
    def place(self, address: str) -> Iterator[tuple[str, Session]]:
        """A new session with its secret key, kept unless an error comes; `Full` if there are too many."""
        with self._lock:
            self._drop_idle()
            self._make_room(address)
            key, session = secrets.token_urlsafe(32), self._make()
            session.address, session.used = address, self._clock()
            self._sessions[key] = session
        try:
            yield key, session
        except BaseException:
            with self._lock:
                self._sessions.pop(key, None)
            raise

    def _make_room(self, address: str) -> None:
        """If the address or the whole has no place left, drop the emptiest that has been quiet for a while."""
        crowd = {key: one for key, one in self._sessions.items() if one.address == address}
        if len(crowd) < self._most_per_address:
            if len(self._sessions) < self._most:
                return
            crowd = dict(self._sessions)
        limit = self._clock() - QUIET_SECONDS
        little = [key for key, one in crowd.items() if one.effort <= LITTLE and one.used < limit]
        if not little:
            raise Full(f"The playground is full: {len(crowd)} browsers are using it. Come back in a minute.")
        del self._sessions[min(little, key=lambda key: crowd[key].effort)]

    def _drop_idle(self) -> None:
        limit = self._clock() - self._idle
        while self._sessions and next(iter(self._sessions.values())).used < limit:
            self._sessions.popitem(last=False)
