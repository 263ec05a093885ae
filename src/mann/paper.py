"""The numbers of the paper's tables, and those that others published later."""

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple


class PaperRow(NamedTuple):
    model: str
    accuracy: dict[int, float]  # percent, by instance


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((resources.files("mann") / "paper.json").read_text())
    return content


def paper_accuracy(table: str, model: str, classes: int) -> list[float]:
    """A row of the paper's Table 1 or 2: accuracy in % for the instances that it reports (1 to 5 and 10)."""
    for row in _content()[table]:
        if row["model"] == model and row["classes"] == classes:
            return list(row["accuracy"])
    raise KeyError((table, model, classes))


def paper_human(classes: int) -> dict[int, float]:
    """What people reached in the paper's experiment, in % by instance."""
    return _by_instance(paper_accuracy("table1", "Human", classes))


def paper_rows(classes: int, labels: str, controller: str, memory: str) -> list[PaperRow]:
    """The human row and the paper's row for the same kind of network and task, where it has them."""
    return [
        PaperRow(row["model"], _by_instance(row["accuracy"]))
        for row in _content()["table1"] + _content()["table2"]
        if row["classes"] == classes and row["labels"] == labels
        if row["model"] == "Human" or (row.get("controller"), row.get("memory")) == (controller, memory)
    ]


def many_classes() -> list[dict[str, Any]]:
    """What others published for episodes of a hundred classes or more, with the source of each."""
    return list(_content()["many_classes"])


def step_cost() -> list[dict[str, Any]]:
    """What others published of time and memory against the slots of the memory."""
    return list(_content()["step_cost"])


def roaming() -> list[dict[str, Any]]:
    """What others published for RoamingOmniglot, in %."""
    return list(_content()["roaming"])


def one_alphabet() -> list[dict[str, Any]]:
    """What others published for 20 characters of one of Lake's evaluation alphabets, each shown once, in %."""
    return list(_content()["one_alphabet"])


def _by_instance(accuracy: list[float]) -> dict[int, float]:
    return dict(zip(_content()["instances"], accuracy, strict=True))
