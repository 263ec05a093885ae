"""The tables, figures and pages of `peers` and `roaming` from records made by hand."""

import json

import numpy as np
import pytest

from mann.experiments import load_experiment, peers, roaming
from mann.experiments.peers import CLASSES, PEERS, THINGS, Peer, StepCost, state_bytes
from mann.figures.style import save
from mann.paper import roaming as published


def instances(accuracy):
    return [
        {"instance": i, "accuracy": accuracy + i / 1000, "low": accuracy, "high": accuracy + 0.02, "count": 9}
        for i in range(1, 11)
    ]


def taught(things, accuracy):
    fields = {"accuracy": accuracy - 0.05, "accuracy_forced": accuracy, "accuracy_nearest": accuracy + 0.01}
    return {"things": things, "area_known_new": None if things == 423 else accuracy} | fields


def about(entry):
    return json.loads(json.dumps({"name": entry.name, "label": entry.label} | entry.description()))


def made_up_peers():
    """A row is ten points worse than the one before, the second seed two points better than the first; with more
    things all are worse."""
    records = {}
    for entry in peers.entries("full"):
        if isinstance(entry, Peer):
            _, peer, seed = entry.name.split("-")
            start = 0.9 - 0.1 * list(PEERS).index(peer) + 0.02 * (seed == "seed1")
            tests = [{"instances": instances(start - 0.001 * classes)} for classes in CLASSES]
            measured = {
                "evaluations": tests,
                "neighbours": tests,
                "taught_once": [taught(things, start - things / 1000) for things in THINGS],
                "taught_within": [taught(20, start - 0.1)],
            }
        else:
            assert isinstance(entry, StepCost)
            cost = {"training_ms": 1.234, "online_ms": 0.5, "bytes_per_thing": 616.0, "bytes_fixed": 2048.0}
            measured = {"costs": [cost]}
        records[entry.name] = about(entry) | measured
    return records


def test_every_peer_has_a_row_with_the_mean_of_its_seeds():
    table = peers.table(made_up_peers())
    assert [row[0] for row in table.rows] == [label for label, _ in PEERS.values()]
    ours = dict(zip(table.columns, table.rows[0], strict=True))
    assert ours["5 classes: 2nd"] == "90.7 [89.7, 91.7]"
    assert ours["20 classes: 2nd"] == "89.2 [88.2, 90.2]"
    assert (ours["taught 5 once"], ours["taught 423 once"]) == ("90.5", "48.7")
    once = dict(zip(table.columns, table.rows[list(PEERS).index("lstm")], strict=True))
    assert once["5 classes: 2nd"] == "39.7 ±1.0"  # one run
    assert peers.table({}).rows == []


def test_the_page_of_peers_has_what_was_measured(tmp_path):
    records = made_up_peers()
    page = load_experiment("peers").page(records)
    assert "{" not in page
    assert "| online ProtoNet | as answered | 65.5 | 64.0 | 56.0 | 23.7 | 56.0 |" in page
    assert "| online ProtoNet | known or new | 70.5 | 69.0 | 61.0 | – | 61.0 |" in page
    assert "| nearest neighbour in the embedding of: online ProtoNet | 20 | 69.2 [68.2, 70.2] |" in page
    assert "| LSTM, no memory | 1.2 | 0.5 | 616 | 2048 |" in page
    assert "In no column of the two tables above is a peer ahead of ours." in page
    [figure] = peers.figures(records).values()
    assert save(figure, tmp_path, "peers")[0].stat().st_size > 10_000
    assert peers.figures({}) == {}


def test_the_page_says_where_a_peer_is_ahead():
    records = made_up_peers()
    for seed in (0, 1):
        rows = records[f"many-prototypes-seed{seed}"]["taught_once"]
        rows[2] |= {"accuracy_forced": 0.95}
    records["many-lstm-seed0"]["evaluations"][1]["instances"][9]["accuracy"] = 0.999
    ahead = peers._ahead(records).splitlines()
    assert ahead == [
        "- 20 classes, 10th instance: LSTM, no memory 99.9; ours 90.0.",
        "- 100 things taught once, forced: online ProtoNet 95.0; ours 81.0.",
    ]
    assert peers._ahead({}) == "Ours has not been measured beside others yet."


def test_records_of_other_tests_are_not_taken_for_these():
    records = made_up_peers()
    for entry in peers.entries("full"):
        record = records[entry.name]
        assert entry.matches(record)
        assert not entry.matches(record | {"slots": 7})
    entry = peers.entries("full")[0]
    assert not entry.matches(records[entry.name] | {"tests": []})


@pytest.mark.parametrize(
    ("peer", "per_thing"),
    [
        ("keyvalue", 128 + 25 + 2),
        ("balanced", 128 + 25 + 3),
        ("prototypes", 128 + 25 + 4),
        ("attention", 3 * 2 * 128 + 5),
        ("lstm", 0),
    ],
)
def test_what_a_thing_takes_is_counted(peer, per_thing):
    """Numbers of 4 bytes: embedding, label, its place in the order, and what the trace keeps of a slot."""
    model = peers.config(peer).model
    grown, small = (state_bytes(peers._with_slots(model, slots)) for slots in (64, 32))
    assert grown - small == 32 * 4 * per_thing


def made_up_streams():
    """The second seed is three points worse than the first."""
    records = {}
    for entry in roaming.entries("full"):
        worse = 0.03 * entry.name.endswith("seed1")
        tests = [
            {"average_precision": area, "low": area - 0.01, "high": area + 0.01, "instances": instances(area)}
            for area in (0.9 - worse, 0.95 - worse)
        ]
        training = {"updates": 12000, "episodes": 48000, "seconds": 6000.0, "seconds_per_update": 0.5}
        records[entry.name] = about(entry) | {"evaluations": tests} | training
    return records


def test_streams_beside_what_was_published():
    table = roaming.table(made_up_streams())
    assert len(table.rows) == 2 * len(roaming.COMPARED) + len(published())
    ours, mixture = (dict(zip(table.columns, row, strict=True)) for row in table.rows[:2])
    assert (ours["average precision"], ours["a context is"]) == ("88.50 [87.00, 90.00]", "an alphabet")
    assert (mixture["after 1 show"], mixture["a context is"]) == ("93.70 [92.20, 95.20]", "a mixture")
    assert ours["training"] == "12 000 / 48 000 / 100, 100 min"
    cpm = dict(zip(table.columns, table.rows[-5], strict=True))
    assert (cpm["network"], cpm["average precision"], cpm["after 3 shows"]) == ("CPM", "94.17", "97.74")
    single = {name: record for name, record in made_up_streams().items() if name.endswith("seed0")}
    assert roaming.table(single).rows[0][3] == "90.00 ±1.00"
    page = load_experiment("roaming").page(single)
    assert "{" not in page
    assert np.all([row["model"] in page for row in published()])
