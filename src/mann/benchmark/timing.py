"""Repeated measurements of several things in turn, so that a change of the machine's speed meets all of them."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

Report = Callable[[str, int, int], None]  # what is being done, how much of it is done, and of how much


class Work(NamedTuple):
    run: Callable[[], object]  # returns when everything is computed
    units: int  # updates (draws, …) in one run


class Spread(NamedTuple):
    """Milliseconds for one unit."""

    median: float
    min: float
    max: float
    samples: int


def warm_up(works: dict[str, Work], report: Report) -> None:
    """Compile, and fill the caches."""
    for done, (name, work) in enumerate(works.items()):
        report(f"compiling: {name}", done, len(works))
        work.run()


def interleave(works: dict[str, Work], rounds: int, report: Report) -> dict[str, Spread]:
    """Time every work once a round."""
    samples: dict[str, list[float]] = {name: [] for name in works}
    for done in range(rounds):
        report("measuring", done, rounds)
        for name, work in works.items():
            samples[name].append(seconds(work) * 1e3 / work.units)
    return {name: spread(values) for name, values in samples.items()}


def seconds(work: Work) -> float:
    began = time.perf_counter()
    work.run()
    return time.perf_counter() - began


def spread(values: list[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values), len(values))
