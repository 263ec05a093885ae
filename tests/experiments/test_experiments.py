"""Every experiment at the scale `smoke`, and its tables and page from records made by hand."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mann.cli import main
from mann.encoders import ConvConfig, NoEncoder
from mann.errors import MannError
from mann.experiments import EXPERIMENTS, load_experiment, regression
from mann.experiments.entries import Condition, Network, Shipped
from mann.experiments.networks import SETTINGS, network, with_changes
from mann.experiments.page import write_report
from mann.experiments.records import load_records, read_record, thin, typical_pace
from mann.experiments.scales import at_scale
from mann.experiments.tables import (
    SHOWN,
    accuracies,
    cells,
    comparison,
    mean_accuracies,
    of_model,
    series,
    stated_rates,
    training_cost,
)
from mann.models import ModelConfig
from mann.paper import paper_accuracy
from mann.web.results import list_results
from tests.conftest import made_once

REGRESSION_FIGURES = ("functions", "likelihood", "calibration")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory, shared_cache):
    """All experiments, in the order of a user who wants everything.

    Only the first draws its figures and the curves of its runs: the report draws those of all again.
    """

    def make(folder):
        first, *others = EXPERIMENTS
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MANN_CACHE", str(shared_cache))
            assert main(["reproduce", first, *scale(folder)]) == 0
            patch.setattr("mann.experiments.experiment.Experiment.save_figures", lambda *_: [])
            patch.setattr("mann.experiments.entries.save_curves", lambda folder: [])
            for name in others:
                assert main(["reproduce", name, *scale(folder)]) == 0

    reproduced = made_once(tmp_path_factory, "reproduced", make)
    return shutil.copytree(reproduced, tmp_path_factory.mktemp("reproduced"), dirs_exist_ok=True)


def scale(folder):
    return ["--scale", "smoke", "--runs", str(folder), "--devices", "2"]


def test_figures_and_curves_are_drawn(smoke):
    drawn = [*(smoke / "smoke/results/table1/figures").iterdir(), *(smoke / "smoke").glob("*/figures/*")]
    assert {path.name for path in drawn} >= {"curves.png", "curves.svg"}
    assert {path.parent.parent.name for path in drawn} == {
        "table1",
        *(entry.name for entry in load_experiment("table1").entries("smoke")),
    }


def made_up(accuracy, half=0.01, **more):
    """A record with the same accuracy for all instances."""
    instances = [
        {"instance": i, "accuracy": accuracy, "low": accuracy - half, "high": accuracy + half, "count": 100}
        for i in range(1, 11)
    ]
    return {"label": "ours", "evaluations": [{"instances": instances}]} | more


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke_leaves_records_and_a_table(smoke, name):
    folder = smoke / "smoke" / "results" / name
    chosen = load_experiment(name).entries("smoke")
    records = load_records(folder)
    assert sorted(records) == sorted(entry.name for entry in chosen)
    for entry in chosen:
        record = records[entry.name]
        assert record["scale"] == "smoke"
        assert record["label"] == entry.label
        if isinstance(entry, Network):
            assert record["metrics"][-1]["update"] == record["updates"] == 4
            assert len(record["evaluations"]) == len(entry.tests)
    table = read_record(folder / "table.json")
    assert all(len(row) == len(table["columns"]) for row in table["rows"])
    assert len(table["rows"]) >= len({entry.label for entry in chosen})


def test_the_same_command_does_nothing_twice(smoke, capsys, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("mann.experiments.entries.train", refuse)
    assert main(["reproduce", "figure2", *scale(smoke)]) == 0
    assert "MANN, 5 classes, one-hot" in capsys.readouterr().out
    # Without its record, a finished run is tested again, but not trained again.
    path = smoke / "smoke" / "results" / "figure2" / "5-onehot-mann-seed0.json"
    before = read_record(path)
    path.unlink()
    assert main(["reproduce", "figure2", *scale(smoke), "--only", "5-onehot-mann*"]) == 0
    assert read_record(path) == before
    assert main(["reproduce", "figure2", *scale(smoke), "--list"]) == 0
    assert capsys.readouterr().out.count("done  ") == 2


def test_another_configuration_is_not_mixed_in(smoke, capsys):
    path = smoke / "smoke" / "results" / "transfer" / "5-onehot-mann-glyphs-seed0.json"
    record = read_record(path)
    path.write_text(json.dumps(record | {"config": record["config"] | {"batch": 3}}))
    try:
        assert main(["reproduce", "transfer", *scale(smoke)]) == 2
        assert "another configuration" in capsys.readouterr().err
    finally:
        path.write_text(json.dumps(record))
    entry = network("5-onehot", "mann", "smoke", batch=6)
    other = Network(entry.name, entry.label, with_changes(entry.config, batch=6))
    with pytest.raises(MannError, match="another configuration"):
        other.measure(smoke / "smoke" / "5-onehot-mann-seed0", 4)


def test_a_record_from_before_a_field_existed_is_still_good():
    entry = network("5-onehot", "mann", "smoke", tests=(Condition(),))
    record = json.loads(json.dumps(entry.description()))
    del record["config"]["data"]["mirror"], record["tests"][0]["repeats"]
    assert not entry.config.data.mirror
    assert entry.matches(record)
    assert not dataclasses.replace(entry, tests=(Condition(repeats=True),)).matches(record)
    assert not dataclasses.replace(entry, config=with_changes(entry.config, data__mirror=True)).matches(
        record
    )


def test_mistakes_get_a_sentence(capsys):
    assert main(["reproduce", "table3"]) == 2
    assert "choose one of table1, table2" in capsys.readouterr().err
    assert main(["reproduce", "table1", "--scale", "smoke", "--only", "nothing"]) == 2
    assert "5-onehot-lstm-seed0" in capsys.readouterr().err
    assert main(["reproduce"]) == 2
    assert main(["reproduce", "--help"]) == 0
    assert "curriculum" in capsys.readouterr().out


def test_the_page_shows_every_experiment_with_its_figures(smoke, tmp_path):
    results = smoke / "smoke" / "results"
    page = write_report(results, tmp_path).read_text()
    for name in EXPERIMENTS:
        assert f"`mann reproduce {name} --scale full`" in page
    pictures = [line.split("](")[1].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert len(pictures) == 15
    for picture in pictures:
        with Image.open(tmp_path / picture) as image:
            assert image.width > 500
        assert (tmp_path / picture).with_suffix(".svg").exists()
    own = (tmp_path / "regression.md").read_text()
    own_pictures = [line.split("](")[1].rstrip(")") for line in own.splitlines() if line.startswith("![")]
    drawn = [picture for picture in own_pictures if not picture.startswith("images/")]
    assert {Path(picture).stem for picture in drawn} == {f"regression-{n}" for n in REGRESSION_FIGURES}
    assert all((tmp_path / picture).is_file() for picture in drawn)
    assert all((ROOT / "docs" / picture).is_file() for picture in set(own_pictures) - set(drawn))
    # The playground shows what was drawn, in the paper's order.
    shown = list_results(results)
    assert [result["name"] for result in shown] == list(EXPERIMENTS)
    assert sum(len(result["figures"]) for result in shown) == len(pictures)
    with pytest.raises(MannError, match="no records"):
        write_report(tmp_path / "nowhere", tmp_path)


def save_roughly(figure, folder, name):
    """One small file: what is drawn is the same."""
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=40)
    return [folder / f"{name}.png"]


def test_the_committed_page_agrees_with_the_committed_records(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mann.experiments.experiment.save", save_roughly)
    docs = tmp_path / "docs"
    made = shutil.ignore_patterns("figures", "table.json")
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=made)
    assert main(["report", "--results", str(tmp_path / "results"), "--docs", str(docs)]) == 0
    assert capsys.readouterr().out == f"Wrote {docs / 'results.md'}\n"
    assert (docs / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text()
    assert (docs / "regression.md").read_text() == (ROOT / "docs" / "regression.md").read_text()
    drawn = {path.relative_to(tmp_path) for path in tmp_path.glob("results/*/figures/*.png")}
    assert drawn == {path.relative_to(ROOT) for path in ROOT.glob("results/*/figures/*.png")}
    tables = list((ROOT / "results").glob("*/table.json"))
    assert tables
    for path in tables:
        experiment, records = load_experiment(path.parent.name), load_records(path.parent)
        table = experiment.table(records)
        assert read_record(path) == json.loads(json.dumps(table._asdict())), path
        assert read_record(tmp_path / path.relative_to(ROOT)) == read_record(path)
        assert experiment.table(dict(reversed(records.items()))) == table, path  # in whatever order they come
    for path in (ROOT / "results").glob("*/*.json"):
        assert path.stat().st_size < 100_000, path
        assert read_record(path).get("scale", "full") == "full", path


def test_committed_records_of_shipped_networks_are_of_the_weights_that_ship():
    found = 0
    for name in EXPERIMENTS:
        records = load_records(ROOT / "results" / name)
        for entry in load_experiment(name).entries("full"):
            if isinstance(entry, Shipped) and entry.name in records:
                record, found = records[entry.name], found + 1
                assert entry.matches(record), f"measure results/{name}/{entry.name}.json anew"
                assert not entry.matches(record | {"weights": "of another shipment"})
    assert found > 10


@pytest.mark.parametrize(
    ("table", "setting", "order"),
    [
        ("table1", "5-onehot", "feedforward lstm mann"),
        ("table2", "5-strings", "feedforward lstm mann"),
        ("table2", "5-strings", "knn-raw knn-deep mann"),
        ("table2", "15-strings", "feedforward lstm ntm-moving mann"),
        ("table2", "15-strings", "knn-raw knn-deep mann"),
    ],
)
def test_the_committed_records_have_the_papers_order(table, setting, order):
    records = load_records(ROOT / "results" / table)
    rows = []
    for model in order.split():
        name = f"{setting}-{model}"
        found = [records[name]] if name in records else of_model(records, setting, model)
        rows.append(mean_accuracies(found)[1:])  # from the 2nd instance on
    for lower, higher in itertools.pairwise(rows):
        assert all(a < b for a, b in zip(lower, higher, strict=True)), (lower, higher)


def test_dimensions_of_regression_are_measured_one_at_a_time(smoke, capsys):
    before = sorted((smoke / "smoke" / "results" / "regression").glob("*.json"))
    assert main(["reproduce", "regression", "--dim", "2", *scale(smoke)]) == 0
    assert sorted((smoke / "smoke" / "results" / "regression").glob("*.json")) == before
    assert main(["reproduce", "regression", "--dim", "2", *scale(smoke), "--only", "gp-1d*"]) == 2
    assert "No entry of regression matches" in capsys.readouterr().err


def test_regression_rows_are_the_records(smoke):
    records = load_records(smoke / "smoke" / "results" / "regression")
    rows = {(row[0], row[1]): row for row in load_experiment("regression").table(records).rows}
    test = records["gp-2d-mann-seed0"]["evaluations"][0]
    row = rows["2", "MANN"]
    assert row[2] == f"{test['nll']['model'][0]:.3f}"
    assert row[8] == f"{test['nll']['model'][49]:.3f}"
    gap = np.mean(np.subtract(test["nll"]["model"], test["nll"]["gp"])[19:])
    assert row[9].startswith(f"{gap:.3f} ±")
    assert row[11] == f"{100 * np.mean(test['coverage']['95']['model'][19:]):.1f}"
    assert rows["2", "Exact GP"][2] == f"{test['nll']['gp'][0]:.3f}"
    two = [records["gp-1d-mann-seed0"], records["gp-1d-lstm-seed0"]]
    values = sorted(record["evaluations"][0]["late_gap"]["value"] for record in two)
    assert regression.late_gap(two) == f"{np.mean(values):.3f} [{values[0]:.3f}, {values[1]:.3f}]"


def test_entries_that_share_a_name_share_everything():
    found = {}
    for name in EXPERIMENTS:
        for entry in load_experiment(name).entries("full"):
            assert found.setdefault(entry.name, entry.description()) == entry.description(), entry.name
    assert len(found) > 40


def test_runs_are_named_after_their_seed():
    by_position, by_name = network("5-onehot", "mann", "full", 3), network("5-onehot", "mann", "full", seed=3)
    assert by_position == by_name
    assert by_name.name == "5-onehot-mann-seed3"


def test_the_full_runs_are_the_papers():
    table1 = {entry.name: entry for entry in load_experiment("table1").entries("full")}
    mann = table1["5-onehot-mann-seed1"].config
    assert mann == dataclasses.replace(SETTINGS["5-onehot"], seed=1)
    memory = mann.model.memory
    assert (mann.model.controller.hidden, memory.slots, memory.width, memory.heads) == (200, 128, 40, 4)
    assert mann.model.encoder == NoEncoder()
    assert table1["5-onehot-mann-100k-seed0"].config.updates * 16 == 100_000
    assert table1["5-onehot-lstm-seed0"].config.updates == mann.updates
    assert table1["5-onehot-mann-conv-seed0"].config.model.encoder == ConvConfig(maps=32)
    table2 = {entry.name: entry for entry in load_experiment("table2").entries("full")}
    steps = SETTINGS["15-strings"].task.steps
    assert steps == 100
    assert table2["15-strings-knn-deep"].autoencoder.images == 3 * 100_000 * steps
    for curriculum in load_experiment("curriculum").entries("full"):
        assert [test.classes for test in curriculum.tests] == [0, *range(50, 101, 5)]


def test_rows_compare_with_the_paper():
    paper = paper_accuracy("table1", "MANN", 5)
    assert paper == [36.4, 82.8, 91.0, 92.6, 94.9, 98.1]
    ours, theirs, difference = comparison("MANN", [made_up(0.9), made_up(0.8)], paper, "extra")
    assert ours == ["MANN", "ours", *["85.0 [80.0, 90.0]"] * 6, "extra"]
    assert theirs[2:4] == ["36.4", "82.8"]
    assert difference[2:4] == ["+48.6", "+2.2"]
    assert difference[-2] == "-13.1"
    assert comparison("MANN", [made_up(0.98099)], paper)[2][-1] == "+0.0"  # no minus
    assert cells([made_up(0.5)]) == ["50.0 ±1.0"] * len(SHOWN)
    line = series("MANN", [made_up(0.9), made_up(0.8)], paper)
    assert line.ours == pytest.approx([85.0] * len(SHOWN))
    assert (line.label, line.paper) == ("MANN", paper)
    assert series("Human", [], paper).ours is None
    empty = made_up(0.5)
    empty["evaluations"][0]["instances"][9]["accuracy"] = None
    assert np.isnan(accuracies(empty)[9])
    assert cells([empty])[-1] == "–"


@pytest.mark.parametrize(("name", "rows"), [("persistent", 4), ("transfer", 4), ("curriculum", 12)])
def test_the_runs_of_a_row_are_tabled_together(name, rows):
    experiment = load_experiment(name)
    records = {}
    for entry in experiment.entries("full"):
        test = made_up(0.8 if entry.config.seed else 0.9)["evaluations"][0]
        described = [test | asked._asdict() | {"length": 50} for asked in entry.tests]
        records[entry.name] = {"label": entry.label, "evaluations": described, "metrics": []}
    assert {entry.config.seed for entry in experiment.entries("full")} == {0, 1}
    made = experiment.table(records).rows
    assert len(made) == rows
    assert all("85.0 [80.0, 90.0]" in row for row in made)
    first = {key: record for key, record in records.items() if key.endswith("seed0")}
    assert all("90.0 ±1.0" in row for row in experiment.table(first).rows)


def test_learning_rates_show_zero_as_zero_and_keep_their_order():
    last = {"accuracy": [0.0, 0.0, *[0.5] * 7, None], "held_out_loss": 1.0}
    record = {"label": "LSTM", "config": {"optimiser": {"learning_rate": 1e-3}}, "metrics": [last]}
    experiment = load_experiment("learning_rates")
    first, *_, final = [entry.name for entry in experiment.entries("full")]
    records = {final: record | {"label": "last"}, first: record}
    rows = experiment.table(records).rows
    assert rows[0][3:] == ["0.0", "50.0", "–"]
    assert [row[0] for row in rows] == ["LSTM", "last"]  # in the order of the entries


def test_learning_rates_are_stated_with_the_table():
    def trained(label, rate):
        return made_up(0.5) | {"label": label, "config": {"optimiser": {"learning_rate": rate}}}

    records = {
        "a": trained("MANN", 1e-3),
        "b": trained("LSTM", 3e-3),
        "c": trained("NTM", 3e-3),
        "knn": made_up(0.5),
    }
    assert stated_rates(records).startswith("Learning rate: 0.003 (MANN: 0.001); ")
    assert stated_rates({"a": records["a"]}).startswith("Learning rate: 0.001; ")
    assert stated_rates({"knn": made_up(0.5)}) == ""


def test_both_readings_of_repeated_drawings_are_tabled(smoke):
    table1 = load_experiment("table1")
    records = load_records(smoke / "smoke" / "results" / "table1")
    strict, returning = records["5-onehot-mann-seed0"]["evaluations"]
    rows = {tuple(row[:2]): row for row in table1.table(records).rows}
    assert rows["MANN, LSTM", "ours"][2].startswith(f"{100 * strict['instances'][0]['accuracy']:.1f}")
    row = rows["MANN, LSTM; drawings may return", "ours"]
    assert row[2].startswith(f"{100 * returning['instances'][0]['accuracy']:.1f}")
    assert (strict["repeats"], returning["repeats"]) == (False, True)


def test_the_time_of_a_row_leaves_pauses_out():
    times = [
        {"update": 100, "seconds": 5.0},
        {"update": 200, "seconds": 15.0},
        {"update": 300, "seconds": 999.0},
    ]
    assert typical_pace(times) == pytest.approx(0.1)
    run = {"updates": 60_000, "episodes": 960_000, "seconds": 9999.0}
    assert training_cost([run | {"seconds_per_update": 0.1}]) == "60 000 / 960 000 / 100 min"
    assert training_cost([run, run]) == "60 000 / 960 000 / 167, 167 min"


def test_scales_shorten_and_full_does_not():
    config = SETTINGS["5-onehot"]
    assert at_scale(config, "full") is config
    quick = at_scale(config, "quick")
    assert quick.updates == config.updates // 10
    assert quick.model == config.model == dataclasses.replace(ModelConfig(), memory=config.model.memory)
    assert at_scale(config, "smoke").data.kind == "glyphs"


def test_curves_are_thinned_to_their_ends():
    records = [{"update": i} for i in range(1, 1001)]
    thinned = thin(records)
    assert 50 <= len(thinned) <= 60
    assert thinned[-1]["update"] == 1000
    assert thin(records[:7]) == records[:7]
