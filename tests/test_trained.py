"""The weights that ship with the package."""

import dataclasses
import logging
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from mann.data import Glyphs, Objects, Omniglot, Photographs
from mann.data.seen import seen_classes
from mann.evaluation import evaluate
from mann.experiments.regression import predictions_along_x
from mann.trained import load_trained, pretrained_names, save_trained, with_precision, with_slots
from mann.training.presets import PRESETS
from tests.data.test_omniglot import REAL, needs_data


def test_names_are_those_of_presets():
    assert "omniglot-5" in pretrained_names()
    assert set(pretrained_names()) <= set(PRESETS)


@pytest.mark.parametrize("name", pretrained_names())
def test_card_says_how_the_weights_came_about(name):
    trained = load_trained(name)
    card = trained.description["card"]
    if slots := card.get("trained_with_slots"):
        trained = with_slots(trained, slots)
    trained = with_precision(trained, PRESETS[name].model.precision)  # float32 ships
    assert trained.config == dataclasses.replace(PRESETS[name], seed=card["seed"])
    if scores := card.get("held_out_scores"):  # the best of several seeds
        assert card["command"] == f"mann train {name} --seed {card['seed']}"
        assert scores[f"seed {card['seed']}"] == max(scores.values())
    else:
        assert (card["command"], card["seed"]) == (f"mann train {name}", PRESETS[name].seed)
    if trained.config.task.needs_data:
        assert card["evaluation"]["class_ids"]["first"] > trained.description["classes"]["trained"][1]
    assert card["evaluation"]["episodes"] >= 2000


DRAWINGS = [
    name
    for name in pretrained_names()
    if PRESETS[name].task.needs_data and isinstance(PRESETS[name].data, Omniglot)
]


@pytest.mark.parametrize("name", DRAWINGS)
def test_weights_are_tested_on_other_pictures_where_their_data_is_not(
    name, tmp_path, monkeypatch, shared_cache
):
    """They carry the fingerprints of what they were trained on, so that nothing has to be downloaded."""
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setenv("MANN_DATA", str(tmp_path / "nowhere"))
    trained = load_trained(name)
    assert len(set(trained.seen.tolist())) == 1200 * 20 - 1  # two of the drawings are the same
    tested = evaluate(trained, dataset=Glyphs(classes=100), length=10, episodes=2)
    assert tested.class_range == (75, 100)


@needs_data
@pytest.mark.parametrize("name", DRAWINGS)
def test_weights_know_the_drawings_that_they_were_trained_on(name, monkeypatch):
    monkeypatch.setenv("MANN_DATA", str(REAL))
    images = Omniglot().load()
    trained = load_trained(name)
    classes = trained.description["classes"]["held_out"][1]
    assert seen_classes(images, trained.seen) == list(range(classes))


def test_weights_for_photographs_know_what_they_were_trained_on_and_do_what_the_page_says(
    tmp_path, monkeypatch, shared_cache
):
    """Where nothing else of their mixture is: they have met the first objects, and no photograph."""
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setenv("MANN_DATA", str(tmp_path / "nowhere"))
    trained = load_trained("photographs")
    objects = next(source for source in trained.config.data.sources if isinstance(source, Objects))
    met = seen_classes(dataclasses.replace(objects, classes=40).load(), trained.seen)
    assert met == list(range(40))
    tested = evaluate(trained, dataset=Photographs(), classes=5, episodes=60)
    by_instance = [cell.value for cell in tested.result.instances]
    assert by_instance[1] == pytest.approx(0.914, abs=0.05)
    assert by_instance[9] == pytest.approx(0.976, abs=0.03)


def test_weights_for_functions_track_the_exact_process():
    """The card, the same evaluation again (shorter), and the figures that the project promises for 1-D."""
    trained = load_trained("gp-1d")
    card = trained.description["card"]["evaluation"]
    assert card["late_gap"]["value"] < 0.15
    result = evaluate(trained, episodes=80).result
    assert result.late_gap["value"] == pytest.approx(card["late_gap"]["value"], abs=0.05)
    assert result.nll["model"][-1] < result.nll["model"][9] < result.nll["model"][0] - 1
    along = predictions_along_x(trained.model, trained.config.task, 40)
    assert along["correlation"]["model"] > 0.5


def test_weights_may_be_kept_in_half_precision(tmp_path):
    trained = load_trained("omniglot-many")
    for half in (False, True):
        save_trained(tmp_path / f"{half}", trained, half=half)
    assert (tmp_path / "True").stat().st_size < 0.6 * (tmp_path / "False").stat().st_size
    again = load_trained(tmp_path / "True").model
    weight, rounded = trained.model.encoder.last.weight, again.encoder.last.weight
    assert rounded.dtype == jnp.float32
    np.testing.assert_array_equal(rounded, np.asarray(weight).astype(np.float16).astype(np.float32))


def test_precision_is_a_choice_at_test_time():
    trained = load_trained("omniglot-5-strings")
    rounded = with_precision(trained, "bfloat16")
    assert (trained.config.model.precision, rounded.config.model.precision) == ("float32", "bfloat16")
    inputs, labels = jnp.full((3, 400), 0.3), jnp.zeros((3, 25))
    ours, theirs = (np.asarray(t.model.unroll(inputs, labels).outputs) for t in (trained, rounded))
    assert 0 < np.abs(ours - theirs).max() < 0.05 * np.abs(ours).max()


def test_a_shipped_name_does_not_hide_a_run_or_file_of_that_name_silently(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    other = load_trained("gp-1d")
    with caplog.at_level(logging.WARNING):
        shipped = load_trained("omniglot-5")
        assert not caplog.records
        save_trained(Path("omniglot-5"), other)
        assert load_trained("omniglot-5").config == shipped.config
    assert [record.getMessage() for record in caplog.records] == [
        "mann: omniglot-5 means the shipped weights; for the one in this folder give ./omniglot-5."
    ]
    assert load_trained("./omniglot-5").config == other.config
    assert load_trained(Path("omniglot-5")).config == other.config


@needs_data
@pytest.mark.parametrize("name", DRAWINGS)
def test_weights_do_on_test_classes_what_their_card_says(name, monkeypatch, shared_cache):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setenv("MANN_DATA", str(REAL))
    trained = load_trained(name)
    result = evaluate(trained, episodes=160).result
    for ours, card in zip(
        result.instances, trained.description["card"]["evaluation"]["instances"], strict=True
    ):
        # Sixty comparisons: some 95 % intervals of a few episodes miss by a little.
        spread = (ours.high - ours.low + card["high"] - card["low"]) / 2
        assert abs(ours.value - card["accuracy"]) <= 2 * spread
