"""The experiment on mixtures: its entries, and its table, figure and page from records made by hand."""

import json

import pytest

from mann.data import Digits
from mann.errors import MannError
from mann.experiments import load_experiment, mixture
from mann.experiments.mixture import ALL, ITSELF, OMNIGLOT

ENTRIES = mixture.entries("full")


def start(name: str) -> float:
    """All others 70 %, Omniglot alone 60, itself alone 80."""
    return {"without": 0.7, "omniglot": 0.6, "only": 0.8}[name]


def made_up():
    records = {}
    for entry in ENTRIES:
        way = (
            "omniglot" if "only-omniglot" in entry.name else "without" if "without" in entry.name else "only"
        )
        evaluations, taught = [], []
        for test, target in zip(entry.tests, entry.targets, strict=True):
            own = test.dataset == "omniglot" and way == "omniglot"
            value = 0.9 if own else start(way) + 0.02 * entry.name.endswith("seed1")
            cell = {"accuracy": value, "low": value - 0.01, "high": value + 0.01, "count": 9}
            evaluations.append({"instances": [{"instance": i + 1} | cell for i in range(10)]})
            taught += [
                {"things": things, "accuracy_forced": value / 2, "dataset": test.dataset}
                for things in target.things
            ]
        about = {"name": entry.name, "label": entry.label} | entry.description()
        training = {"updates": 4000, "episodes": 32000, "seconds": 600.0, "seconds_per_update": 0.15}
        records[entry.name] = json.loads(json.dumps(about | training)) | {
            "evaluations": evaluations,
            "taught_once": taught,
        }
    return records


def test_the_one_left_out_is_never_among_those_trained_on():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES) == 2 * (5 + 1 + 3 + 2 + 1 + 1)
    for entry in ENTRIES:
        trained = {source.kind for source in entry.config.data.used}
        tested = {target.data.kind for target in entry.targets}
        assert [test.dataset for test in entry.tests] == [target.data.kind for target in entry.targets]
        if "without" in entry.name:
            assert not trained & tested
            drawn = {"omniglot", "glyphs", "letters", "textures"}
            assert len(trained) == 4 + ("photographs" in tested) - bool(tested & drawn)
        assert {target.data.channels for target in entry.targets} == {entry.config.data.channels}
    same = {(entry.config.updates, entry.config.batch, entry.config.model) for entry in ENTRIES}
    assert len(same) == 1


def test_entries_know_their_records():
    for entry, record in zip(ENTRIES, made_up().values(), strict=True):
        assert entry.matches(record)
    assert not ENTRIES[0].matches(list(made_up().values())[1])


def test_the_table_has_every_way_to_train_with_the_mean_of_its_seeds():
    table = mixture.table(made_up())
    rows = {(row[0], row[1]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert len(rows) == len(table.rows) == 2 + 3 + 3 + 3 + 2 + 3 + 3  # on Omniglot, alone and itself are one
    assert rows["letters", ALL]["2nd"] == "71.0 [70.0, 72.0]"
    assert rows["letters", OMNIGLOT]["taught 100 once"] == "30.5 [30.0, 31.0]"
    assert rows["digits", ALL]["taught 20 once"] == ""
    assert rows["textures", ITSELF]["10th"] == "81.0 [80.0, 82.0]"
    assert rows["photographs, in colour", "objects alone"]["2nd"] == "81.0 [80.0, 82.0]"
    assert mixture.table({}).rows == []


def test_page_and_figure_are_made_of_what_there_is():
    records = made_up()
    page = load_experiment("mixture").page(records)
    assert "{" not in page
    assert (
        "- glyphs: trained on all others 71.0 %, 10.0 points above Omniglot alone; trained on itself 81.0 %."
        in page
    )
    assert "- omniglot: without a single drawing of it 71.0 %, trained on it 90.0 %." in page
    (figure,) = mixture.figures(records).values()
    (axes,) = figure.axes
    heights = [bar.get_height() for bar in axes.patches]
    assert len(heights) == 19
    assert max(heights) == pytest.approx(90.0)
    assert mixture.figures({}) == {}
    assert "have not all been measured yet" in load_experiment("mixture").page({})


def test_what_cannot_be_had_for_the_tests_is_told_before_the_training(tmp_path, monkeypatch):
    def missing(data):
        raise MannError("The digits come with scikit-learn.")

    monkeypatch.setattr(Digits, "load", missing)
    entry = next(entry for entry in ENTRIES if entry.name == "mixture-without-digits-seed0")
    with pytest.raises(MannError, match="scikit-learn"):
        entry.measure(tmp_path / "run", 4)
    assert not (tmp_path / "run").exists()
