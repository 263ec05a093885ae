"""What was measured: one JSON record per entry of an experiment, in results/EXPERIMENT/ENTRY.json."""

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from mann.errors import MannError
from mann.files import write_json

POINTS = 60  # of a training curve that a record holds
TABLE = "table.json"  # beside the records of an experiment


class Record(TypedDict, total=False):
    """What stands in a record. Of neighbours, which have no weights to train, only the first part."""

    name: str  # of the entry
    label: str  # of its row
    experiment: str
    scale: str
    evaluations: list[dict[str, Any]]  # `Evaluation.to_json`, one per test
    config: dict[str, Any]  # `training.config.to_dict`
    tests: list[dict[str, Any]]
    start: str  # shipped weights that the training started from; empty: random ones
    updates: int
    episodes: int
    seconds: float  # of wall-clock time, pauses included
    seconds_per_update: float  # without pauses; missing in the oldest records
    environment: dict[str, Any]
    best_update: int
    trained_on: dict[str, Any]
    metrics: list[dict[str, Any]]  # of the run, thinned
    model: str  # of a network that ships
    weights: str  # their digest, when it was tested
    costs: list[dict[str, Any]]  # time and memory by the slots of the memory
    prices: list[dict[str, Any]]  # asking: `Evaluation.to_json`, one per price
    held_out: list[dict[str, Any]]  # asking by a rule: what its thresholds bring on held-out classes
    taught_once: list[dict[str, Any]]  # `TaughtOnce.to_json`, one per number of things
    taught_within: list[dict[str, Any]]  # the same within one alphabet
    neighbours: list[dict[str, Any]]  # `Evaluation.to_json` in the network's embedding, one per test
    novelty: dict[str, float]  # how it was told what is new, as calibrated on held-out classes
    along_x: dict[str, Any]  # regression in one dimension: predictions everywhere


Records = dict[str, Record]  # of an experiment, by the name of the entry


class Table(NamedTuple):
    """What an experiment shows: `table.json`, a table in the terminal and on the page of results."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str


def read_record(path: Path) -> Record:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise MannError(f"Could not read the result {path}: {error}.") from None
    if not isinstance(content, dict):
        raise MannError(f"{path} holds no result: it should hold named fields.")
    record: Record = content  # type: ignore[assignment]
    return record


def load_records(folder: Path) -> Records:
    """The records of one experiment."""
    paths = sorted(path for path in folder.glob("*.json") if path.name != TABLE)
    return {path.stem: read_record(path) for path in paths}


def write_table(folder: Path, table: Table) -> None:
    """What an experiment shows, beside its records."""
    write_json(folder / TABLE, table._asdict(), indent=1)


@contextlib.contextmanager
def reading_records(place: Path) -> Iterator[None]:
    """Records can be edited or cut short: where one is not as it was written, say so."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MannError(
            f"A record in {place} is not as `mann reproduce` writes it ({type(error).__name__}: {error}): restore "
            "it, or move it away and measure it anew."
        ) from error


def typical_pace(times: Sequence[dict[str, Any]]) -> float:
    """Seconds per update: the median over the stretches between evaluations, so that pauses do not count."""
    update, seconds = (np.array([0, *(time[key] for time in times)]) for key in ("update", "seconds"))
    return float(np.median(np.diff(seconds) / np.diff(update)))


def thin(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """About `POINTS` of a run's metrics, evenly spaced, the last one always."""
    step = max(1, math.ceil(len(metrics) / POINTS))
    return [point for i, point in enumerate(metrics) if (len(metrics) - 1 - i) % step == 0]
