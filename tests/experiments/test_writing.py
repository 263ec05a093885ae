"""The experiment on learned writing: its entries, and its table, figure and page from records made by hand."""

import json

import numpy as np

from mann.controllers import NoControllerConfig
from mann.encoders import NoEncoder
from mann.experiments import load_experiment, writing
from mann.experiments.entries import Shipped
from mann.experiments.writing import BLIND, LEARNED, LRUA, MEMORIES

*ENTRIES, LONGER = writing.entries("full")
START = {
    "shipped": 0.85,
    "lrua": 0.80,
    "ntm": 0.70,
    "dnc": 0.60,
    "keyvalue": 0.75,
    "selective": 0.90,
    "blind": 0.85,
}


def made_up():
    """Kept is 10 points behind wiped on the 3rd instance, and 5 elsewhere; the second seed is 2 better."""
    records = {}
    for entry in (*ENTRIES, LONGER):
        _, setting, memory, seed = f"{entry.name}-".split("-")[:4]
        accuracies = START[memory] + 0.02 * (seed == "seed1") - 0.05 * (setting == "kept") * np.ones(10)
        accuracies[2] -= 0.05 * (setting == "kept")
        tests = [
            {"instance": i + 1, "accuracy": a, "low": a - 0.01, "high": a + 0.01, "count": 9}
            for i, a in enumerate(accuracies)
        ]
        about = {"name": entry.name, "label": entry.label} | entry.description()
        training = {"updates": 3000, "episodes": 48000, "seconds": 600.0, "seconds_per_update": 0.2}
        records[entry.name] = json.loads(json.dumps(about | training)) | {
            "evaluations": [{"instances": tests}]
        }
    return records


def test_all_memories_have_the_same_task_and_slots_and_those_without_a_controller_an_encoder():
    for setting in ("small", "kept", "wiped"):
        configs = [entry.config for entry in ENTRIES if f"-{setting}-" in entry.name]
        assert len(configs) == 8 + 2 * (setting == "kept")  # NTM and DNC once
        assert len({(config.task, config.persistent) for config in configs}) == 1
        for model in (config.model for config in configs):
            driven = not isinstance(model.controller, NoControllerConfig)
            assert (model.encoder == NoEncoder()) is driven is model.memory.takes_query
        assert {config.model.memory.slots for config in configs} == {32 if setting == "small" else 128}
        assert {config.persistent for config in configs} == {setting == "kept"}
    small = next(entry.config.task for entry in ENTRIES if "-small-" in entry.name)
    assert (small.classes, small.steps, small.labels) == (15, 200, "strings")


def test_lrua_trained_for_longer_meets_the_same_task():
    (test,) = LONGER.tests
    assert isinstance(LONGER, Shipped)
    assert LONGER.model == "omniglot-15-strings"
    assert (test.classes, test.length, test.slots) == (15, 200, 32)


def test_the_table_has_every_memory_in_every_setting_with_the_mean_of_its_seeds():
    table = writing.table(made_up())
    assert len(table.rows) == 6 + 6 + 5
    rows = {(row[0], row[1]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    small = rows["15 classes, 200 steps, 32 slots", LEARNED]
    assert small["10th"] == "91.0 [90.0, 92.0]"
    assert rows["10 classes, 75 steps, 128 slots, memory kept", BLIND]["3rd"] == "76.0 [75.0, 77.0]"
    assert rows["10 classes, 75 steps, 128 slots, memory wiped", "DNC"]["2nd"] == "60.0 ±1.0"  # one run
    assert writing.table({}).rows == []


def test_page_and_figure_are_made_of_what_there_is():
    records = made_up()
    page = load_experiment("writing").page(records)
    assert "{" not in page
    assert f"- {LEARNED}: kept, it is at most 10.0 points behind wiped, on the 3rd instance." in page
    # Blind, it starts 5 points lower, and is compared with the same memory, wiped.
    assert f"- {BLIND}: kept, it is at most 15.0 points behind wiped, on the 3rd instance." in page
    assert f"- {LEARNED}: with 32 slots, 6.0 points above the better LRUA on the 10th instance." in page
    assert "- DNC: with 32 slots, 25.0 points below the better LRUA on the 10th instance." in page
    (figure,) = writing.figures(records).values()
    left, right = figure.axes
    assert len(left.get_lines()) == 6
    assert len(right.get_lines()) == 2 * 5 + 1
    lrua = {line.get_label(): line for line in left.get_lines()}[LRUA]
    np.testing.assert_allclose(lrua.get_ydata(), 81.0)
    assert writing.figures({}) == {}
    assert "have not all been measured yet" in load_experiment("writing").page({})


def test_every_memory_is_named_once():
    assert len({row.label for row in MEMORIES.values()}) == len(MEMORIES)
