"""What version 0.1 wrote is still read: run folders, weights, records of results; for saved
learners see test_saved_learner.py."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mann.data import Glyphs
from mann.encoders import ConvConfig
from mann.evaluation import evaluate
from mann.memory import NTMConfig
from mann.trained import load_trained
from mann.training.legacy import upgrade_config
from mann.training.loop import resume
from mann.training.optimisers import RMSProp

OLD = Path(__file__).parent / "legacy"
RUNS = ("lrua", "ntm-conv", "lstm-function")
EXPECTED = json.loads((OLD / "expected.json").read_text())


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))


@pytest.mark.parametrize("name", RUNS)
def test_an_old_run_evaluates_as_it_did(name):
    result = evaluate(OLD / name, episodes=80).to_json()
    before = EXPECTED[name]
    assert result.keys() == before.keys()
    if "instances" in before:
        for ours, theirs in zip(result["instances"], before["instances"], strict=True):
            assert ours["count"] == theirs["count"]
            assert ours["accuracy"] == pytest.approx(
                theirs["accuracy"], abs=0.02
            )  # rounding of other machines
    else:
        np.testing.assert_allclose(result["nll"]["model"], before["nll"]["model"], rtol=1e-3)


@pytest.mark.parametrize("name", RUNS)
def test_an_old_run_goes_on_as_it_did(name, tmp_path):
    """From update 2 to 4, which version 0.1 had recorded."""
    shutil.copytree(OLD / name, tmp_path / name)
    result = resume(tmp_path / name, observers=[])
    assert result.finished
    recorded = [json.loads(line) for line in (OLD / name / "metrics.jsonl").read_text().splitlines()]
    assert [record["update"] for record in result.metrics] == [2, 4]
    assert result.metrics[-1]["loss"] == pytest.approx(recorded[-1]["loss"], rel=1e-4)
    assert result.metrics[-1]["held_out_loss"] == pytest.approx(recorded[-1]["held_out_loss"], rel=1e-4)


def test_old_configurations_become_new_ones():
    config = load_trained(OLD / "ntm-conv").config
    assert config.model.encoder == ConvConfig(maps=2)
    assert config.model.memory == NTMConfig(slots=8, width=4, heads=2, initial_strength=2.0)
    assert config.data == Glyphs(classes=30, validation=5, mirror=True)
    assert config.optimiser == RMSProp(warmup=0, schedule="constant", learning_rate=1e-3)


@pytest.mark.parametrize("content", [{}, [], 3, {"model": 3}, {"model": {"memory": {"kind": "lrua"}}}])
def test_what_is_not_old_is_left_alone(content):
    assert upgrade_config(content) == content
