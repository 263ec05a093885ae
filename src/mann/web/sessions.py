"""One learner for each browser, in the store: found by a cookie that cannot be guessed, bounded in number."""

import contextlib
import copy
import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from mann.errors import MannError
from mann.online import Example, Label, Look, OneShotLearner, Prepared
from mann.online.page import MOST_EXAMPLES, MOST_SYMBOLS, from_levels, to_page
from mann.online.sight import see_one
from mann.online.together import Glance
from mann.store import Head, Learners, Live, Moment, Version, WrongFormat
from mann.web.encoding import encode_levels, encode_png, encode_weights
from mann.web.experiment import Trial, compare
from mann.web.view import View

T = TypeVar("T")

MOST_TRIALS = 20  # of one browser
PRACTICE = 10  # pictures of the trial run after which it can be ended
LITTLE = 2  # examples and answers: whoever gave no more has little to lose
QUIET_SECONDS = 60.0  # after which those who have little to lose make room for others
KEPT_THUMBNAILS = 4  # of one symbol
CLEAR_SECONDS = 600.0  # after which idle ones are looked for again
MOST_KEY = 100  # letters of a cookie


class Outdated(MannError):
    """What is to be changed is no longer what the page showed."""


@runtime_checkable
class Taught(Protocol):
    """A learner that a session changes, at once or not at all."""

    @property
    def now(self) -> Moment:
        """The learner as it is now."""

    def change(self, change: Callable[[OneShotLearner], T]) -> T:
        """Make a change, to be kept on return; it may be tried several times."""


class Kept:
    """In the store: it outlives the server."""

    def __init__(self, learners: Learners, live: Live) -> None:
        self._learners, self._live = learners, live

    @property
    def now(self) -> Moment:
        return self._live.now

    def change(self, change: Callable[[OneShotLearner], T]) -> T:
        return self._learners.change(self._live, change)


class Unkept:
    """In memory alone, for as long as somebody holds it."""

    def __init__(self, learner: OneShotLearner) -> None:
        self.now = Moment(Head("", learner.model, learner.seed, True, 0.0), Version(0, 0), learner)
        self._lock = threading.Lock()

    def change(self, change: Callable[[OneShotLearner], T]) -> T:
        with self._lock:
            learner = copy.copy(self.now.learner)
            result = change(learner)
            version = Version(self.now.version.epoch + 1, len(learner.examples))
            self.now = self.now._replace(version=version, learner=learner)
            return result


class Session:
    """What one browser has taught, and its trial. Safe to use from several threads, as two tabs do."""

    def __init__(self, taught: Taught, public_id: str = "") -> None:
        self.address = ""  # of the browser, set by `Sessions`
        self.used = 0.0  # when, by the clock of `Sessions`
        self._id = public_id  # no secret: by it a page notices that its session was dropped
        self.taught = taught
        self._view = View()
        self._participant = secrets.token_hex(4)
        self._trial_lock = threading.Lock()  # apart: a trial may wait for its file, teaching must not
        self._trial: Trial | None = None
        self._trials = 0
        self._practised = False  # after the trial run, trials can be scored

    @property
    def effort(self) -> int:
        """How much would be lost with this session: examples taught, and answers of the trial."""
        return len(self.taught.now.learner.examples) + self.answers

    @property
    def answers(self) -> int:
        """Answers of the trial that is under way."""
        trial = self._trial
        return len(trial.answers) if trial else 0

    def explain(self, now: Moment, glance: Glance) -> dict[str, Any]:
        """Which learner answered, and why it thinks so."""
        taught = len(now.learner.examples)
        writings = self._view.writings(now.learner)
        because = None if glance.memory is None else writings.explain(taught + 1, glance.memory)
        return {"id": self._id, "version": _version(now), "taught": taught, "because": because}

    def teach(self, picture: Prepared, label: str) -> dict[str, Any]:
        """Learn from a picture; returns under which name, and how many examples of it there are now.

        A name that differs from a known one in capitals only is that one.
        """

        def change(learner: OneShotLearner) -> tuple[OneShotLearner, Look, str]:
            known = _spell(learner, label)
            _check_room(learner, [known], 1)
            return learner, learner.look_and_learn(picture, known), known

        learner, look, known = self.taught.change(change)
        self._view.add(learner, look)
        return {"label": known, "examples": sum(one.label == known for one in learner.examples)}

    def _mend(self, change: Callable[[OneShotLearner], None], version: str | None = None) -> None:
        """Make a change; with a version, only to what is still of that."""

        def checked(learner: OneShotLearner) -> None:
            if version is not None and version != _version(self.taught.now):
                raise Outdated("Something else was taught meanwhile: look again, then repeat it.")
            change(learner)

        self.taught.change(checked)

    def forget(self, label: str | None = None) -> None:
        """One symbol, or everything."""

        def change(learner: OneShotLearner) -> None:
            if label is None:
                learner.reset()
            else:
                learner.forget(_spell(learner, label))

        self._mend(change)

    def rename(self, old: str, new: str) -> None:
        """Call a symbol by another name."""

        def change(learner: OneShotLearner) -> None:
            present, known = _spell(learner, old), _spell(learner, new)
            if known != present and known in learner.labels:
                raise MannError(f"There is a symbol “{known}” already: choose another name.")
            learner.rename(present, new)

        self._mend(change)

    def undo(self) -> None:
        """Take back the last example."""

        def change(learner: OneShotLearner) -> None:
            if not learner.examples:
                raise MannError("There is nothing to undo: nothing has been taught.")
            learner.unlearn_one()

        self._mend(change)

    def unlearn(self, number: int, version: str | None = None) -> None:
        """Take back one example, by its number from 1; of that version of what was taught."""
        self._mend(lambda learner: learner.unlearn_one(_place(learner, number)), version)

    def relabel(self, number: int, label: str, version: str | None = None) -> None:
        """Give one example another name."""

        def change(learner: OneShotLearner) -> None:
            known = _spell(learner, label)
            _check_room(learner, [known], 0)
            learner.relabel(_place(learner, number), known)

        self._mend(change, version)

    def set_novelty(self, threshold: float | None) -> None:
        """From which probability on something is new; None for what the model says."""

        def change(learner: OneShotLearner) -> None:
            learner.novelty = True if threshold is None else threshold

        self._mend(change)

    def export(self) -> dict[str, Any]:
        """What was taught, for a file."""
        return to_page(self.taught.now.learner)

    def load(self, examples: Sequence[tuple[str, bytes]], novelty: bool | float) -> None:
        """Take what a file holds in place of what was taught."""
        labels = [label for label, _ in examples]

        def change(learner: OneShotLearner) -> None:
            pictures = [from_levels(levels, learner.format) for _, levels in examples]
            learner.reset()
            _check_room(learner, labels, len(labels))
            learner.learn_many(pictures, labels)
            learner.novelty = novelty

        self._mend(change)

    def examples(self) -> dict[str, Any]:
        """Every example in the order in which it was shown."""
        now = self.taught.now
        return {
            "version": _version(now),
            "examples": [
                {"example": number, "label": one.label, "picture": encode_levels(one.pixels)}
                for number, one in enumerate(now.learner.examples, start=1)
            ],
        }

    def snapshot(self) -> dict[str, Any]:
        """What has been taught so far, and the memory after it."""
        now = self.taught.now
        learner = now.learner
        memory = learner.memory if learner.examples else None
        shown: dict[Label, list[tuple[int, Example]]] = {label: [] for label in learner.labels}
        for number, example in enumerate(learner.examples, start=1):
            shown[example.label].append((number, example))
        return {
            "id": self._id,
            "version": _version(now),
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
            "memory": None if memory is None else encode_weights(see_one(memory)),
        }

    def history(self) -> list[dict[str, Any]]:
        """The last steps of the memory."""
        return self._view.steps(self.taught.now.learner)

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


def _version(now: Moment) -> str:
    """For the page to tell whether anything has changed."""
    return f"{now.version.epoch}.{now.version.examples}"


def _spell(learner: OneShotLearner, label: str) -> str:
    """A name as it is known already, if it differs in capitals only."""
    spellings = {str(known).casefold(): str(known) for known in learner.labels}
    return spellings.get(label.casefold(), label)


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


KIND = "browser"  # of these learners in the store


class Sessions:
    """The sessions of all browsers that have taught something.

    What was taught is in the store, under a digest of the browser's secret key; trials, and the addresses that
    browsers came from, are in memory alone.
    """

    def __init__(self, learners: Learners, most: int, most_per_address: int, idle_seconds: float) -> None:
        self._learners, self._most, self._most_per_address = learners, most, most_per_address
        self._idle = idle_seconds
        self._lock = threading.Lock()  # of `_sessions`
        self._placing = threading.Lock()  # of the number of learners
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # by digest, least recently used first
        self._cleared = -1e9  # when idle ones were last looked for

    def __len__(self) -> int:
        return self._learners.store.count(KIND)

    def find(self, key: str | None) -> Session | None:
        """The session of a cookie, unless it was dropped."""
        return self.find_all([key])[0]

    def find_all(self, keys: Sequence[str | None]) -> list[Session | None]:
        """The sessions of several cookies, for one question to the store."""
        self._drop_idle()
        digests = [_digest(key) if key and len(key) <= MOST_KEY else None for key in keys]
        known = [digest for digest in digests if digest is not None]
        found = dict(zip(known, self._learners.find_all(known), strict=True)) if known else {}
        with self._lock:
            return [None if digest is None else self._take(digest, found[digest]) for digest in digests]

    def _take(self, digest: str, live: Live | WrongFormat | None) -> Session | None:
        if not isinstance(live, Live):  # of the wrong format: taught with another model, which may come back
            self._sessions.pop(digest, None)
            return None
        session = self._sessions.get(digest) or self._begin(digest, live)
        session.taught = Kept(self._learners, live)
        session.used = self._learners.clock()
        self._sessions.move_to_end(digest)
        return session

    def _begin(self, digest: str, live: Live) -> Session:
        session = self._sessions[digest] = Session(Kept(self._learners, live), digest[:16])
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
        return session

    def guest(self) -> Session:
        """A session for one request of a browser that has taught nothing: it takes up no place."""
        return Session(Unkept(self._learners.parent.sibling(keep="pixels")))

    @contextlib.contextmanager
    def place(self, address: str) -> Iterator[tuple[str, Session]]:
        """A new session with its secret key, kept unless an error comes; `Full` if there are too many."""
        key = secrets.token_urlsafe(32)
        digest = _digest(key)
        with self._placing:
            self._drop_idle(at_once=True)
            self._make_room(address)
            live = self._learners.create(KIND, digest)
            with self._lock:
                session = self._begin(digest, live)
                session.address, session.used = address, self._learners.clock()
        try:
            yield key, session
        except BaseException:
            self._drop(digest)
            raise

    def _make_room(self, address: str) -> None:
        """If the address or the whole has no place left, drop the emptiest that has been quiet for a while."""
        with self._lock:
            crowd = {digest: one for digest, one in self._sessions.items() if one.address == address}
        crowded = len(crowd) >= self._most_per_address
        if not crowded and len(self) < self._most:
            return
        limit = self._learners.clock() - QUIET_SECONDS
        efforts = {}
        for digest, _, version, used in self._learners.store.listing(KIND):
            session = self._sessions.get(digest)
            if session is not None:
                used = max(used, session.used)
            if used < limit and (not crowded or digest in crowd):
                efforts[digest] = version.examples + (session.answers if session else 0)
        emptiest = min(efforts, key=efforts.__getitem__, default=None)
        if emptiest is None or efforts[emptiest] > LITTLE:
            many = len(crowd) if crowded else len(self)
            raise Full(f"The playground is full: {many} browsers are using it. Come back in a minute.")
        self._drop(emptiest)

    def _drop_idle(self, at_once: bool = False) -> None:
        now = self._learners.clock()
        if not at_once and now < self._cleared + min(self._idle / 4, CLEAR_SECONDS):
            return
        self._cleared = now
        for digest, _, _, used in self._learners.store.listing(KIND):
            session = self._sessions.get(digest)
            if max(used, session.used if session else 0.0) < now - self._idle:
                self._drop(digest)

    def _drop(self, digest: str) -> None:
        with self._lock:
            self._sessions.pop(digest, None)
        self._learners.delete(digest)


def _digest(key: str) -> str:
    """Whoever reads the store cannot take a browser's place."""
    return hashlib.sha256(key.encode()).hexdigest()
