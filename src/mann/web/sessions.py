"""One learner for each browser: found by a cookie that cannot be guessed, bounded in number, dropped when idle."""

import contextlib
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mann.errors import MannError
from mann.online import Look, OneShotLearner, Prepared
from mann.web.encoding import encode_levels, encode_png, encode_step, encode_weights
from mann.web.experiment import Trial, compare
from mann.web.explain import Writings

MOST_SYMBOLS = 100  # of one browser; the memory has 128 slots
MOST_TRIALS = 20  # of one browser
PRACTICE = 10  # pictures of the trial run after which it can be ended
LITTLE = 2  # examples and answers: whoever gave no more has little to lose
QUIET_SECONDS = 60.0  # after which those who have little to lose make room for others
KEPT_STEPS = 60  # of the memory's history
KEPT_THUMBNAILS = 4  # of one symbol


class Session:
    """What one browser has taught, and its trial. Safe to use from several threads, as two tabs do."""

    def __init__(self, learner: OneShotLearner) -> None:
        self.address = ""  # of the browser, set by `Sessions`
        self.used = 0.0  # when, by the clock of `Sessions`
        self._id = secrets.token_hex(8)  # no secret: by it a page notices that its session was dropped
        self._learner = learner
        self._lock = threading.Lock()  # of what was taught
        self._begin()
        self._participant = secrets.token_hex(4)
        self._trial_lock = threading.Lock()  # apart: a trial may wait for its file, teaching must not
        self._trial: Trial | None = None
        self._trials = 0
        self._practised = False  # after the trial run, trials can be scored

    def _begin(self) -> None:
        self._learner.reset()
        self._taught = 0
        # Steps are kept as the page wants them: they are small so.
        self._steps: deque[dict[str, Any]] = deque(maxlen=KEPT_STEPS)
        self._symbols: dict[str, tuple[int, list[np.ndarray]]] = {}  # examples so far, and the first pictures
        self._writings = Writings()

    @property
    def effort(self) -> int:
        """How much would be lost with this session: examples taught, and answers of the trial."""
        trial = self._trial
        return self._taught + (len(trial.answers) if trial else 0)

    def look(self, picture: Prepared) -> tuple[Look, dict[str, Any]]:
        """What the learner makes of a picture; and which learner that is, and why it thinks so."""
        with self._lock:
            look, step = self._learner.look(picture), self._taught + 1
            because = None if look.memory is None else self._writings.explain(step, look.memory)
            return look, {"id": self._id, "taught": self._taught, "because": because}

    def teach(self, picture: Prepared, label: str) -> dict[str, Any]:
        """Learn from a picture; returns under which name, and how many examples of it there are now.

        A name that differs from a known one in capitals only is that one.
        """
        with self._lock:
            spellings = {known.casefold(): known for known in self._symbols}
            label = spellings.get(label.casefold(), label)
            if label not in self._symbols and len(self._symbols) >= MOST_SYMBOLS:
                raise MannError(f"The playground keeps {MOST_SYMBOLS} symbols: start again to teach others.")
            look = self._learner.look_and_learn(picture, label)
            self._taught += 1
            count, pictures = self._symbols.get(label, (0, []))
            self._symbols[label] = (count + 1, [*pictures, picture.pixels][:KEPT_THUMBNAILS])
            if look.memory is not None:
                because = self._writings.explain(self._taught, look.memory, self._learner.similarity)
                self._writings.add(self._taught, label, look.memory)
                step = encode_step(self._taught, label, look.best, picture.pixels, look.memory)
                self._steps.append(step | {"because": because})
            return {"label": label, "examples": count + 1}

    def forget(self) -> None:
        with self._lock:
            self._begin()

    def snapshot(self) -> dict[str, Any]:
        """What has been taught so far, and the memory after it."""
        with self._lock:
            symbols, taught, trace = dict(self._symbols), self._taught, self._learner.memory
        return {
            "id": self._id,
            "taught": taught,
            "symbols": [
                {
                    "label": label,
                    "examples": count,
                    "pictures": [encode_levels(picture) for picture in pictures],
                }
                for label, (count, pictures) in symbols.items()
            ],
            "memory": encode_weights(trace) if taught else None,
        }

    def history(self) -> list[dict[str, Any]]:
        """The last steps of the memory."""
        with self._lock:
            return list(self._steps)

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
