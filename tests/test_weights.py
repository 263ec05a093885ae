"""The weights that ship with the package."""

import pytest

from mann.evaluation import choose_task, evaluate, test_drawings
from mann.training.presets import PRESETS
from mann.weights import load_trained, pretrained_names
from tests.data.test_omniglot import REAL, needs_data

test_drawings.__test__ = False  # a function of ours, not a test


def test_names_are_those_of_presets():
    assert "omniglot-5" in pretrained_names()
    assert set(pretrained_names()) <= set(PRESETS)


@pytest.mark.parametrize("name", pretrained_names())
def test_card_says_how_the_weights_came_about(name):
    trained = load_trained(name)
    card = trained.description["card"]
    assert trained.config == PRESETS[name]
    assert card["command"] == f"mann train {name}"
    assert card["evaluation"]["class_ids"]["first"] > trained.description["classes"]["trained"][1]
    assert card["evaluation"]["episodes"] >= 2000


@needs_data
@pytest.mark.parametrize("name", pretrained_names())
def test_weights_do_on_test_classes_what_their_card_says(name, monkeypatch, shared_cache):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setenv("MANN_DATA", str(REAL))
    trained = load_trained(name)
    drawings, *_ = test_drawings(trained)
    result = evaluate(trained, choose_task(trained), drawings, episodes=160)
    for ours, card in zip(
        result.instances, trained.description["card"]["evaluation"]["instances"], strict=True
    ):
        assert ours.low <= card["high"]
        assert card["low"] <= ours.high
