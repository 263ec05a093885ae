"""The capacity experiment's tables, figures and page from records made by hand; its cost really measured, once."""

import json

import numpy as np
import pytest

from mann.errors import MannError
from mann.experiments import capacity, cost, load_experiment
from mann.experiments.capacity import CLASSES
from mann.experiments.cost import Cost, measure_cost
from mann.experiments.entries import Shipped
from mann.memory import LRUAConfig, NTMConfig, SparseConfig
from mann.trained import load_trained, with_neighbours, with_slots

ENTRIES = capacity.entries("full")


def evaluation(classes, accuracy):
    instances = [
        {"instance": i, "accuracy": accuracy + i / 100, "low": accuracy, "high": accuracy + 0.2, "count": 50}
        for i in range(1, 11)
    ]
    return {"classes": classes, "instances": instances}


def made_up():
    """Better with sparse access, worse with more classes; a million dense slots do not fit."""
    records = {}
    for entry in ENTRIES:
        about = json.loads(json.dumps({"name": entry.name, "label": entry.label} | entry.description()))
        if isinstance(entry, Shipped):
            start = 0.7 if entry.tests[0].neighbours else 0.5
            tests = [evaluation(test.classes, start - test.classes / 1000) for test in entry.tests]
            records[entry.name] = about | {"evaluations": tests}
        else:
            assert isinstance(entry, Cost)
            factor = 1e-5 if entry.neighbours else 1e-3
            rows = [
                {
                    "slots": slots,
                    "training_ms": 0.1 + factor * slots,
                    "training_bytes": 10**6 + 400 * slots,
                    "online_ms": 0.2 + factor * slots,
                }
                for slots in entry.slots
            ]
            if not entry.neighbours:
                rows[-1] |= {"training_ms": None, "training_bytes": None}
            records[entry.name] = about | {"costs": rows}
    return records


def test_every_network_has_a_row_per_number_of_classes_beside_what_others_published():
    table = capacity.table(made_up())
    networks = [entry for entry in ENTRIES if isinstance(entry, Shipped)]
    assert len(table.rows) == len(networks) * len(CLASSES) + 4
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert (first["access"], first["slots"], first["classes"]) == ("dense", "128", "25")
    assert first["2nd"] == "49.5 ±10.0"  # 0.5 − 0.025 + 0.02
    assert first["all ten"] == "53.0"
    rae, dense, few, many = table.rows[-4:]
    assert (rae[-1], dense[-1]) == ("above 80", "60")
    by_column = dict(zip(table.columns, few, strict=True))
    assert (by_column["classes"], by_column["2nd"], by_column["6th"]) == ("423", "73.5", "88.0")
    assert (many[3], many[5], many[8]) == ("1000", "68.9", "78.9")
    assert "Dense access, 1 048 576 slots: training too large for this machine" in table.note
    assert "Sparse access, 65 536 slots: training 0.76 ms per step, online 0.86 ms." in table.note


def test_page_and_figures_are_made_of_what_there_is():
    records = made_up()
    page = load_experiment("capacity").page(records)
    assert "| sparse access | 1 048 576 | 11 | 420 | 11 |" in page
    assert "| Rae et al. (2016), sparse access | 1 048 576 | 7 |  |  |" in page
    assert "{" not in page
    assert sorted(capacity.figures(records)) == ["capacity", "capacity-cost"]
    accuracies = {name: record for name, record in records.items() if "evaluations" in record}
    assert list(capacity.figures(accuracies)) == ["capacity"]
    assert capacity.figures({}) == {}


def test_records_of_other_tests_are_not_taken_for_these():
    entry = ENTRIES[0]
    record = made_up()[entry.name]
    assert entry.matches(record)
    assert not entry.matches(record | {"tests": record["tests"][1:]})


def test_long_episodes_are_fewer():
    for test in capacity.tests(8, 1024):
        assert test.share * test.classes == pytest.approx(25 * capacity.SHARE)


def test_shipped_weights_take_another_number_of_slots_and_sparse_access():
    trained = load_trained("omniglot-15-strings")
    sparse = with_neighbours(with_slots(trained, 300), 8)
    config = sparse.config.model.memory
    assert isinstance(config, SparseConfig)
    assert (config.slots, config.neighbours, config.width) == (300, 8, 40)
    np.testing.assert_array_equal(sparse.model.memory.keys.weight, trained.model.memory.keys.weight)
    with pytest.raises(MannError, match="300 neighbours"):
        with_neighbours(trained, 300)
    with pytest.raises(MannError, match="cannot read from its most similar slots"):
        NTMConfig().with_neighbours(4)
    with pytest.raises(MannError, match="writes first"):
        LRUAConfig(order="read_first").with_neighbours(4)


def test_cost_is_measured_and_what_would_not_fit_is_left_out(monkeypatch):
    memory = LRUAConfig(slots=16).with_neighbours(4)
    row = measure_cost(memory, slots=16, steps=2, seconds=0.0)
    assert row["slots"] == 16
    assert min(row["training_ms"], row["online_ms"]) > 0
    monkeypatch.setattr(cost, "bytes_available", lambda: 1000)
    assert measure_cost(memory, slots=16, steps=2, seconds=0.0)["training_ms"] is None


def test_a_process_that_fails_at_once_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(cost.sys, "executable", "/bin/false")
    with pytest.raises(MannError, match="failed with code 1"):
        Cost("cost-none", "none", 0, (8,)).measure(tmp_path, 4)
