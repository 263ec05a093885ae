"""The tools of a release, on tiny runs: what they write into the package, here into a folder of the test."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import mann
from tests.training.tiny import change

TOOLS = Path(__file__).parents[1] / "tools"
SEEDS = (0, 1)


@pytest.fixture(autouse=True)
def _beside_each_other(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.fixture(scope="module")
def runs(tmp_path_factory, shared_cache):
    """Two runs of a preset `tiny`, which differ in their seeds."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        for seed in SEEDS:
            mann.train(change(updates=6, seed=seed), folder / f"seed{seed}")
    (folder / "tiny").symlink_to(folder / "seed0", target_is_directory=True)
    return folder


@pytest.fixture(autouse=True)
def _tiny_preset(monkeypatch, shared_cache):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setattr("mann.training.presets.PRESETS", {"tiny": change(updates=6)})


def test_the_best_run_is_shipped_with_a_card(runs, tmp_path, monkeypatch):
    ship = load_tool("ship")
    monkeypatch.setattr(ship, "TARGET", tmp_path)
    monkeypatch.setattr(ship, "EPISODES", 8)
    folders = [runs / f"seed{seed}" for seed in SEEDS]
    ship.main("tiny", *folders)
    shipped = mann.load_trained(tmp_path / "tiny.safetensors")
    scores = [ship.held_out_score(mann.load_trained(folder)) for folder in folders]
    card = shipped.description["card"]
    assert scores[0] != scores[1]
    assert card["seed"] == shipped.config.seed == np.argmax(scores)
    assert card["command"] == f"mann train tiny --seed {card['seed']}"
    assert card["held_out_scores"] == {f"seed {seed}": round(scores[seed], 4) for seed in SEEDS}
    assert card["evaluation"]["model"] == "tiny"
    assert card["evaluation"]["episodes"] == 8
    assert card["evaluation"]["class_ids"] == {"first": 31, "last": 40}  # never trained on
    assert card["stored_in"] == "float32"
    ship.main("tiny", *folders, half=True)
    half = mann.load_trained(tmp_path / "tiny.safetensors")
    assert half.description["card"]["stored_in"] == "float16"


def test_a_run_of_another_configuration_is_not_shipped(runs, tmp_path, monkeypatch):
    ship = load_tool("ship")
    monkeypatch.setattr(ship, "TARGET", tmp_path)
    monkeypatch.setattr("mann.training.presets.PRESETS", {"tiny": change(updates=8)})
    with pytest.raises(AssertionError, match="was not trained with"):
        ship.main("tiny", runs / "seed0")
    assert not list(tmp_path.iterdir())


def test_presets_are_measured_where_there_is_a_finished_run(runs, tmp_path, monkeypatch, capsys):
    presets = load_tool("presets")
    target = tmp_path / "measured.json"
    target.write_text(json.dumps({"other": {"minutes": 1.0}}))
    monkeypatch.setattr(presets, "TARGET", target)
    monkeypatch.setattr(presets, "EPISODES", 8)
    monkeypatch.setattr(presets, "DISPATCHES", 1)
    monkeypatch.setattr(presets, "SHOWN", (1, 2))  # tiny episodes have no 10th instance
    other = change(updates=6, seed=3)
    monkeypatch.setattr("mann.training.presets.PRESETS", {"tiny": change(updates=6), "other": other})
    presets.main(runs)
    measured = json.loads(target.read_text())
    assert measured["other"] == {"minutes": 1.0}  # what was measured before
    assert "other: no finished run" in capsys.readouterr().out
    tiny = measured["tiny"]
    assert tiny["best_update"] == 6
    assert tiny["class_ids"] == [31, 40]
    assert tiny["instances"] == [1, 2]
    assert all(0 <= value <= 1 for value in tiny["accuracy"])
    assert tiny["minutes"] >= 0
