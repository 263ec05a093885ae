"""The tables of `frontier` from records made by hand, and entries that start from shipped weights."""

import dataclasses
import json

import pytest

from mann.experiments import frontier, load_experiment
from mann.experiments.entries import Network
from mann.experiments.peers import Peer, smallest
from mann.experiments.records import read_record
from mann.paper import one_alphabet
from mann.trained import load_trained

FORCED = {"many-seed0": 0.9, "many-seed1": 0.94, "many-lake-seed0": 0.8}


def made_up():
    """Second seeds are two points better; Lake's split has one seed, and nothing new was asked there."""
    records = {}
    for entry in frontier.entries("full"):
        description = json.loads(json.dumps(entry.description()))
        record = {"name": entry.name, "label": entry.label, "updates": 10, "episodes": 40, "seconds": 60.0}
        if isinstance(entry, Peer):
            if entry.name not in FORCED:
                continue
            forced = FORCED[entry.name]
            row = {"accuracy": forced - 0.1, "accuracy_forced": forced, "accuracy_nearest": forced + 0.01}
            area = None if "lake" in entry.name else 0.875
            record["taught_within"] = [row | {"things": 20, "area_known_new": area}]
        else:
            accuracy = 0.95 + 0.02 * entry.config.seed
            cell = {"accuracy": accuracy, "low": accuracy - 0.01, "high": accuracy + 0.01}
            record["evaluations"] = [{"instances": [cell] * 10}]
        records[entry.name] = description | record
    return records


def test_rows_are_the_mean_of_the_seeds():
    table = frontier.table(made_up())
    rows = {(row[0], row[1]): row for row in table.rows}
    assert rows["5 classes, one-hot", "ours"][2] == "96.0 [95.0, 97.0]"
    assert rows["20 classes, strings", "ours"][-1] == "10 / 40 / 1, 1 min"
    assert rows["5 classes, one-hot", "paper"][2:8] == ["36.4", "82.8", "91.0", "92.6", "94.9", "98.1"]


def test_the_page_shows_characters_of_one_alphabet_beside_what_was_published():
    page = load_experiment("frontier").page(made_up())
    assert "{" not in page
    assert "| trained on classes 1 to 1200 | ours | 82.0 [80.0, 84.0] | 92.0 [90.0, 94.0] | " in page
    assert "| trained on Lake's 30 background alphabets | ours | 70.0 | 80.0 | 81.0 | – |" in page
    assert {row["model"]: row["accuracy"] for row in one_alphabet()}["people"] == 95.5
    assert "| people | Lake et al. (2015) |  | 95.5 |" in page


def test_the_two_splits_train_on_other_classes_and_nothing_else_differs():
    entries = {entry.name: entry for entry in frontier.entries("full")}
    ours, lake = entries["many-seed1"], entries["many-lake-seed1"]
    assert (ours.config.data.split, lake.config.data.split) == ("paper", "lake")
    data = dataclasses.replace(lake.config.data, split="paper")
    assert dataclasses.replace(lake.config, data=data) == ours.config


def test_a_network_starts_from_shipped_weights(tmp_path, monkeypatch):
    seen = []

    def train(config, folder, *, start, observers):
        seen.append(start)
        raise KeyboardInterrupt

    monkeypatch.setattr("mann.experiments.entries.train", train)
    entry = smallest("balanced")
    network = Network("started", "started", entry.config, start="omniglot-5")
    with pytest.raises(KeyboardInterrupt):
        network.measure(tmp_path / "started", 4)
    assert seen[0].name == load_trained("omniglot-5").name
    with pytest.raises(KeyboardInterrupt):
        dataclasses.replace(network, start="").measure(tmp_path / "random", 4)
    assert seen[1] is None


def test_a_record_from_before_started_at_random(tmp_path):
    network = Network("one", "one", smallest("balanced").config)
    path = tmp_path / "one.json"
    path.write_text(
        json.dumps({key: value for key, value in network.description().items() if key != "start"})
    )
    record = read_record(path)
    assert network.matches(record)
    assert not dataclasses.replace(network, start="omniglot-many").matches(record)
    assert dataclasses.replace(network, start="omniglot-many").matches(record | {"start": "omniglot-many"})
