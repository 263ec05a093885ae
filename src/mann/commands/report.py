"""`mann report`: the page of results and its figures, from the records of `mann reproduce`."""

import dataclasses
from pathlib import Path

from mann.commands import parse


@dataclasses.dataclass(frozen=True)
class Arguments:
    results: str = "results"
    """Where `mann reproduce` wrote its records; figures are drawn beside them, in RESULTS/NAME/figures."""
    docs: str = "docs"
    """Where to write results.md and the pages of single experiments."""


def main(arguments: list[str]) -> int:
    options = parse(Arguments, "report", "Write the page of results from its records.", arguments)
    from mann.experiments.page import write_report

    path = write_report(Path(options.results), Path(options.docs))
    print(f"Wrote {path}")
    return 0
