"""Predictions that arrive together are answered together: one thread, one run of the network for all that wait."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from starlette.exceptions import HTTPException

from mann.online import OneShotLearner
from mann.online.together import BATCHES, Glance, Together
from mann.web.metrics import Metrics

MOST_WAITING = 1000  # requests

Prepare = Callable[[list[Any]], "list[Ask | Exception]"]


class Ask(NamedTuple):
    """A request, ready for the network."""

    learner: OneShotLearner
    pixels: Sequence[np.ndarray]  # of its pictures
    finish: Callable[[list[Glance]], Any]  # makes the answer


class _Job(NamedTuple):
    prepare: Prepare
    content: Any
    future: "asyncio.Future[Any]"


class Desk:
    """Takes requests from the event loop, and answers all that wait at once.

    Args:
        parent: a learner of the network that all share.
        metrics: what is counted.
    """

    def __init__(self, parent: OneShotLearner, metrics: Metrics) -> None:
        self._parent, self._metrics = parent, metrics
        self._together = Together(parent)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._compiling: threading.Thread | None = None
        self._closed = threading.Event()

    def compile(self) -> None:
        """Compile for what a learner needs at first now, and for more examples in the background."""
        sizes = Together(self._parent).compile()
        for _ in BATCHES:
            next(sizes)

        def more() -> None:
            for _ in sizes:
                if self._closed.is_set():
                    return

        self._compiling = threading.Thread(target=more, name="compiler")
        self._compiling.start()

    async def ask(self, prepare: Prepare, content: Any) -> Any:
        """The answer to a request.

        Args:
            prepare: makes requests of a kind ready; each comes out as an `Ask`, or as what is wrong with it.
            content: of this request.
        """
        if self._jobs.qsize() >= MOST_WAITING:
            raise HTTPException(
                503, "Too many ask at the moment: try again in a second.", {"retry-after": "1"}
            )
        if self._thread is None:
            self._start()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(prepare, content, future))
        return await future

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="desk", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Answer what waits, and end the threads."""
        self._closed.set()
        if self._compiling is not None:
            self._compiling.join()
        with self._lock:
            if self._thread is not None:
                self._jobs.put(None)
                self._thread.join()
                self._thread = None

    def _work(self) -> None:
        while True:
            jobs = [self._jobs.get()]
            while len(jobs) < BATCHES[-1] and not self._jobs.empty():
                jobs.append(self._jobs.get())
            real = [job for job in jobs if job is not None]
            if real:
                results = self._answer(real)
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    real[0].future.get_loop().call_soon_threadsafe(_deliver, real, results)
            if len(real) < len(jobs):
                return

    def _answer(self, jobs: list[_Job]) -> list[Any]:
        """Of every job, its answer or what is wrong."""
        results: list[Any] = [None] * len(jobs)
        kinds: dict[Prepare, list[int]] = {}
        for place, job in enumerate(jobs):
            kinds.setdefault(job.prepare, []).append(place)
        try:
            asks: list[tuple[int, Ask]] = []
            for prepare, places in kinds.items():
                for place, ask in zip(
                    places, prepare([jobs[place].content for place in places]), strict=True
                ):
                    if isinstance(ask, Ask):
                        asks.append((place, ask))
                    else:
                        results[place] = ask
            learners = [ask.learner for _, ask in asks for _ in ask.pixels]
            if learners:
                pixels = [picture for _, ask in asks for picture in ask.pixels]
                glances = iter(self._together.look(learners, pixels))
                self._metrics.batches.add(len(pixels))
                self._metrics.predictions.add(len(pixels))
                for place, ask in asks:
                    results[place] = ask.finish([next(glances) for _ in ask.pixels])
        except Exception as error:  # of all that are not answered yet
            return [error if result is None else result for result in results]
        return results


def _deliver(jobs: list[_Job], results: list[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        if job.future.done():  # nobody waits for it any more
            continue
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)
