"""One learner for each browser: found by a cookie that cannot be guessed, bounded in number, dropped when idle."""

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from mann.errors import MannError
from mann.online import OneShotLearner
from mann.web.experiment import Trial

MOST_SYMBOLS = 100  # of one browser; the memory has 128 slots
MOST_TRIALS = 20  # of one browser
KEPT_STEPS = 60  # of the memory's history
KEPT_THUMBNAILS = 4  # of one symbol


class Session:
    """What one browser has taught, and its trial."""

    def __init__(self, learner: OneShotLearner) -> None:
        self.learner = learner
        self.participant = secrets.token_hex(4)
        self.lock = threading.Lock()
        self.trial: Trial | None = None
        self.trials = 0
        self.practised = False  # after the trial run, trials can be scored
        self.used = 0.0
        self.forget()

    def forget(self) -> None:
        self.learner.reset()
        self.count = 0
        self.steps: deque[dict[str, Any]] = deque(
            maxlen=KEPT_STEPS
        )  # as the page wants them: they are small so
        self.symbols: dict[str, tuple[int, list[np.ndarray]]] = {}  # examples so far, and the first pictures


class Full(MannError):
    """There is no room for another browser."""


class Sessions:
    """All browsers. `get` finds one or makes room for it."""

    def __init__(
        self,
        make: Callable[[], Session],
        most: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._most, self._idle, self._clock = make, most, idle_seconds, clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # least recently used first

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

    def create(self) -> tuple[str, Session]:
        """A new session with its secret key; `Full` if there are too many."""
        with self._lock:
            self._drop_idle()
            if len(self._sessions) >= self._most:
                raise Full(
                    f"The playground is full: {self._most} browsers are using it. Come back in a few minutes."
                )
            key, session = secrets.token_urlsafe(32), self._make()
            session.used = self._clock()
            self._sessions[key] = session
            return key, session

    def _drop_idle(self) -> None:
        limit = self._clock() - self._idle
        while self._sessions and next(iter(self._sessions.values())).used < limit:
            self._sessions.popitem(last=False)
