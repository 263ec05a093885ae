"""The weights that ship with the package."""

import dataclasses

import pytest

from mann.episodes import Classification
from mann.evaluation import choose_task, evaluate, test_drawings
from mann.experiments.regression import predictions_along_x
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
    assert trained.config == dataclasses.replace(PRESETS[name], seed=card["seed"])
    if scores := card.get("held_out_scores"):  # the best of several seeds
        assert card["command"] == f"mann train {name} --seed {card['seed']}"
        assert scores[f"seed {card['seed']}"] == max(scores.values())
    else:
        assert (card["command"], card["seed"]) == (f"mann train {name}", PRESETS[name].seed)
    if isinstance(trained.config.task, Classification):
        assert card["evaluation"]["class_ids"]["first"] > trained.description["classes"]["trained"][1]
    assert card["evaluation"]["episodes"] >= 2000


def test_weights_for_functions_track_the_exact_process():
    """The card, the same evaluation again (shorter), and the figures that the project promises for 1-D."""
    trained = load_trained("gp-1d")
    card = trained.description["card"]["evaluation"]
    assert card["late_gap"]["value"] < 0.15
    result = evaluate(trained, choose_task(trained), None, episodes=80).likelihood
    assert result.late_gap["value"] == pytest.approx(card["late_gap"]["value"], abs=0.05)
    assert result.nll["model"][-1] < result.nll["model"][9] < result.nll["model"][0] - 1
    along = predictions_along_x(trained.model, trained.config.task, 40)
    assert along["correlation"]["model"] > 0.5


@needs_data
@pytest.mark.parametrize("name", [name for name in pretrained_names() if not name.startswith("gp-")])
def test_weights_do_on_test_classes_what_their_card_says(name, monkeypatch, shared_cache):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setenv("MANN_DATA", str(REAL))
    trained = load_trained(name)
    drawings, *_ = test_drawings(trained)
    result = evaluate(trained, choose_task(trained), drawings, episodes=160)
    for ours, card in zip(
        result.instances, trained.description["card"]["evaluation"]["instances"], strict=True
    ):
        # Thirty comparisons: some 95 % intervals of a few episodes miss by a little.
        spread = (ours.high - ours.low + card["high"] - card["low"]) / 2
        assert abs(ours.value - card["accuracy"]) <= 1.5 * spread
