import itertools
import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from mann.baselines.gp import sequential_nll
from mann.data.functions import GaussianProcess
from mann.episodes import Classification, Regression
from mann.errors import MannError
from mann.evaluation import (
    choose_task,
    evaluate,
    first_instance_ceiling,
    paper_rows,
    test_drawings,
    wilson_by_episode,
)
from mann.models import ModelConfig
from mann.report import print_evaluation
from mann.training.display import Display
from mann.training.loop import train
from mann.weights import load_trained
from tests.training.tiny import change

test_drawings.__test__ = False  # a function of ours, not a test


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))


@pytest.fixture(scope="module")
def run(tmp_path_factory, shared_cache):
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        train(change(updates=6), folder, display=Display())
    return folder


@pytest.mark.parametrize(("right", "total"), [(0, 50), (50, 50), (13, 50), (499, 500)])
def test_interval_of_independent_predictions_is_wilsons(right, total):
    correct = np.zeros(total)
    correct[:right] = 1
    ours = wilson_by_episode(correct, np.ones(total))
    theirs = scipy.stats.binomtest(right, total).proportion_ci(0.95, method="wilson")
    assert ours.value == right / total
    assert ours.low == pytest.approx(theirs.low, abs=0.002)
    assert ours.high == pytest.approx(theirs.high, abs=0.002)


def test_interval_covers_the_truth_when_predictions_of_an_episode_agree():
    """Five predictions an episode that are all right or all wrong: the interval must not count them as five."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        correct = 5.0 * (rng.random(100) < 0.8)
        interval = wilson_by_episode(correct, np.full(100, 5.0))
        covered += interval.low <= 0.8 <= interval.high
    assert 0.92 < covered / 400 < 0.98


def test_interval_of_nothing_is_nothing():
    interval = wilson_by_episode(np.zeros(3), np.zeros(3))
    assert math.isnan(interval.value)
    assert interval.samples == 0


def test_ceiling_of_the_first_instance_by_simulation():
    """A perfect learner guesses a new class among the labels not given yet, in every order of appearance."""
    hits = [
        float(guess == truth)
        for order in itertools.permutations(range(3))
        for step, truth in enumerate(order)
        for guess in order[step:]
        for _ in range(6 // (3 - step))
    ]
    assert first_instance_ceiling(Classification(classes=3)) == pytest.approx(np.mean(hits))
    assert first_instance_ceiling(Classification(classes=5)) == pytest.approx(0.4567, abs=1e-4)
    assert first_instance_ceiling(Classification(classes=15, labels="strings")) < 0.001


def test_json_of_an_evaluation_has_what_scripts_need(run, tmp_path):
    trained = load_trained(run)
    drawings, dataset, class_range = test_drawings(trained)
    assert class_range == (31, 40)
    assert len(drawings.counts) == 10
    result = evaluate(
        trained, choose_task(trained), drawings, dataset=dataset, class_range=class_range, episodes=50
    )
    content = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert content["model"] == str(run)
    assert (content["dataset"], content["classes"], content["length"]) == ("glyphs", 3, 8)
    assert content["episodes"] == 50
    assert [cell["instance"] for cell in content["instances"]] == list(range(1, 11))
    for cell in content["instances"]:
        if cell["count"]:
            assert 0 <= cell["low"] <= cell["accuracy"] <= cell["high"] <= 1
    total = sum(cell["count"] for cell in content["instances"])
    assert total == 50 * 8
    again = evaluate(trained, choose_task(trained), drawings, episodes=50)
    assert again.instances == result.instances


def test_table_shows_test_classes_and_training_classes(run, capsys):
    from rich.console import Console

    trained = load_trained(run)
    drawings, dataset, class_range = test_drawings(trained)
    result = evaluate(
        trained, choose_task(trained), drawings, dataset=dataset, class_range=class_range, episodes=10
    )
    print_evaluation(result, trained, Console(width=120))
    shown = capsys.readouterr().out
    assert "Tested on glyphs classes 31–40; trained on glyphs classes 1–24" in shown
    assert "95 % interval" in shown


def test_paper_rows_stand_beside_the_same_task():
    rows = paper_rows(ModelConfig(), Classification(classes=5))
    assert [row.model for row in rows] == ["Human", "MANN"]
    assert rows[0].accuracy == {1: 34.5, 2: 57.3, 3: 70.1, 4: 71.8, 5: 81.4, 10: 92.4}
    assert rows[1].accuracy[10] == 98.1
    ntm = paper_rows(ModelConfig(memory="ntm"), Classification(classes=15, length=100, labels="strings"))
    assert ntm[0].accuracy[2] == 35.4
    assert paper_rows(ModelConfig(), Classification(classes=7)) == []


def test_other_number_of_classes_needs_string_labels(run):
    with pytest.raises(MannError, match="exactly 3 classes"):
        choose_task(load_trained(run), classes=4)


def test_string_model_takes_another_number_of_classes(tmp_path):
    config = change(
        task=Classification(classes=3, length=8, labels="strings"), updates=4, evaluate_every=4, dispatch=4
    )
    train(config, tmp_path / "run", display=Display())
    trained = load_trained(tmp_path / "run")
    task = choose_task(trained, classes=5)
    assert (task.classes, task.steps) == (5, 50)
    drawings, *_ = test_drawings(trained)
    result = evaluate(trained, task, drawings, episodes=4)
    assert sum(cell.samples for cell in result.instances) > 0
    with pytest.raises(MannError, match="cannot be drawn"):
        evaluate(trained, choose_task(trained, classes=11), drawings, episodes=4)


def test_regression_is_reported_by_step_beside_the_exact_process(tmp_path):
    config = change(task=Regression(length=6), updates=4, evaluate_every=4, dispatch=4)
    train(config, tmp_path / "run", display=Display())
    trained = load_trained(tmp_path / "run")
    result = evaluate(trained, choose_task(trained), None, episodes=400)
    content = result.to_json()
    assert len(content["nll"]["model"]) == len(content["nll"]["gp"]) == 6
    # Before any sample, the exact process predicts N(0, 1 + 0.1²): its entropy is known.
    entropy = 0.5 * math.log(2 * math.pi * math.e * 1.01)
    assert content["nll"]["gp"][0] == pytest.approx(entropy, abs=0.12)
    assert all(
        ours > gp - 0.05 for ours, gp in zip(content["nll"]["model"], content["nll"]["gp"], strict=True)
    )


@pytest.mark.parametrize("dimensions", [1, 3])
def test_oracle_equals_scikit_learn_step_by_step(dimensions):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    rng = np.random.default_rng(dimensions)
    x = rng.uniform(-2, 2, (12, dimensions))
    y = rng.normal(size=12)
    process = GaussianProcess(length_scale=0.7, variance=1.0, noise=0.2)
    ours = sequential_nll(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), process)
    for step in range(12):
        mean, scale = 0.0, 1.0  # before any sample
        if step:
            model = GaussianProcessRegressor(RBF(0.7), alpha=0.04, optimizer=None).fit(x[:step], y[:step])
            (mean,), (scale,) = model.predict(x[step : step + 1], return_std=True)
        expected = -scipy.stats.norm.logpdf(y[step], mean, math.sqrt(scale**2 + 0.04))
        assert float(ours[step]) == pytest.approx(expected, abs=1e-3)


def test_unknown_model_is_one_helpful_sentence():
    with pytest.raises(MannError, match="no model 'omnigot-5'"):
        load_trained("omnigot-5")


def test_weights_alone_can_be_saved_and_loaded(run, tmp_path):
    import jax

    from mann.weights import save_trained

    trained = load_trained(run)
    save_trained(tmp_path / "weights.safetensors", trained)
    back = load_trained(tmp_path / "weights.safetensors")
    assert back.config == trained.config
    for ours, theirs in zip(jax.tree.leaves(back.model), jax.tree.leaves(trained.model), strict=True):
        np.testing.assert_array_equal(ours, theirs)
