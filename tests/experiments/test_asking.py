"""The experiment on asking: its table, figure and page from records made by hand."""

import json

import numpy as np
import pytest

from mann.experiments import asking, load_experiment
from mann.experiments.asking import PRICES, ShippedAsker
from mann.metrics import InstanceCounts
from mann.tasks import Asking
from mann.tasks.asking import AskingTally

ENTRIES = asking.entries("full")


def tally(right, asked, seen=30, episodes=4):
    """The same numbers in every episode, as if all were of the 2nd instance."""
    here = np.zeros((episodes, 10))
    here[:, 1] = 1.0

    def whole(count):
        return np.full(episodes, float(count))

    return AskingTally(
        InstanceCounts(right * here, seen * here),
        InstanceCounts(asked * here, seen * here),
        whole(right),
        whole(asked),
        whole(seen),
        np.zeros((episodes, seen)),
    )


def made_up():
    """The rule asks for one label more than who has learned to; what ships is never wrong."""
    records = {}
    for entry in ENTRIES:
        rule = "rule" in entry.label
        task = entry.task if isinstance(entry, ShippedAsker) else entry.config.task
        tests = []
        for price in PRICES:
            right = 27 if isinstance(entry, ShippedAsker) else 26 - rule - ("seed1" in entry.name)
            chosen = Asking(task.classes, price=price, asks=task.asks, threshold=0.8)
            result = chosen.summarise(tally(right, 3 + rule), None)
            tests.append({"length": 30} | result.to_json())
        about = {"name": entry.name, "label": entry.label} | entry.description()
        records[entry.name] = json.loads(json.dumps(about)) | {"prices": tests}
    return records


def test_the_table_is_at_the_price_of_the_protocol():
    table = asking.table(made_up())
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    learned, rule = rows["LRUA, learned to ask"], rows["LRUA, asks when unsure (rule)"]
    # 26 right, 1 wrong, 3 asked: 25 − 0.15; the other seed has one more wrong.
    assert learned["reward"] == "23.85 [22.85, 24.85]"
    assert learned["requests %"] == "10.0 [10.0, 10.0]"
    assert learned["2nd: right / asked %"] == "85.0 / 10.0"
    assert learned["1st: right / asked %"] == "– / –"
    assert (learned["threshold"], rule["threshold"]) == ("", "0.8, 0.8")
    assert rows["omniglot-many, rule"]["reward"].endswith("±0.00")
    assert len(rows) == 4 + 4 + 3


def test_page_and_figure_are_made_of_what_there_is():
    records = made_up()
    page = load_experiment("asking").page(records)
    assert "LRUA: learning to ask earns 1.05 more than the rule at the price 0.05" in page
    assert "{" not in page
    (figure,) = asking.figures(records).values()
    left, right = figure.axes
    assert len(left.get_lines()) == 5 + 1  # and the fewest requests
    np.testing.assert_allclose(right.get_lines()[0].get_xdata(), PRICES)
    # 25.5 right and 1.5 wrong, as the mean of the seeds, less three requests.
    np.testing.assert_allclose(
        right.get_lines()[0].get_ydata(), [24 - 3 * price for price in PRICES], rtol=1e-6
    )
    assert asking.figures({}) == {}
    assert "been measured yet" in load_experiment("asking").page({})


def test_a_threshold_is_chosen_for_the_price():
    few, many = tally(20, 1), tally(26, 4)
    assert asking._reward(few, 0.05) == pytest.approx(20 - 9 - 0.05)
    assert asking._reward(many, 0.05) > asking._reward(few, 0.05)
    assert asking._reward(many, 10.0) < asking._reward(few, 10.0)


def test_records_of_another_number_of_classes_are_not_taken_for_these():
    three, five, _ = ENTRIES[-3:]
    record = made_up()[three.name]
    assert three.matches(record)
    assert not five.matches(record)
