import itertools
import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.random import key

from mann.episodes import Classification, Regression
from mann.errors import MannError
from mann.evaluation import (
    Points,
    by_step,
    choose_task,
    evaluate,
    first_instance_ceiling,
    paper_rows,
    predict_along,
    test_drawings,
    wilson_by_episode,
)
from mann.models import ModelConfig, build_model
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
    assert len(content["squared_error"]["model"]) == len(content["coverage"]["95"]["gp"]) == 6
    # The exact process is calibrated: 400 × 6 samples, three standard errors.
    assert np.mean(content["coverage"]["50"]["gp"]) == pytest.approx(0.5, abs=0.03)
    assert np.mean(content["coverage"]["95"]["gp"]) == pytest.approx(0.95, abs=0.014)
    # Before any sample, the exact process predicts N(0, 1 + 0.1²): its entropy is known.
    entropy = 0.5 * math.log(2 * math.pi * math.e * 1.01)
    assert content["nll"]["gp"][0] == pytest.approx(entropy, abs=0.12)
    assert all(
        ours > gp - 0.05 for ours, gp in zip(content["nll"]["model"], content["nll"]["gp"], strict=True)
    )


def test_likelihood_by_step_is_what_numpy_and_scipy_say():
    rng = np.random.default_rng(0)
    ours, exact = (Points(*(rng.normal(size=(50, 25)) for _ in range(3))) for _ in range(2))
    found = by_step(ours, exact)
    assert found.nll["gp"] == pytest.approx(exact.nll.mean(0))
    interval = scipy.stats.norm.interval(0.95, ours.nll[:, 3].mean(), scipy.stats.sem(ours.nll[:, 3]))
    assert found.half_width["model"][3] == pytest.approx((interval[1] - interval[0]) / 2, rel=1e-5)
    gap = ours.nll - exact.nll
    assert found.half_width["gap"][7] == pytest.approx(1.959964 * scipy.stats.sem(gap[:, 7]), rel=1e-5)
    late = gap[:, 19:].mean(1)  # from step 20 on
    assert found.late_gap["value"] == pytest.approx(late.mean())
    assert found.late_gap["half_width"] == pytest.approx(1.959964 * scipy.stats.sem(late), rel=1e-5)
    for band in (50, 95):
        edge = scipy.stats.norm.ppf(0.5 + band / 200)
        expected = np.mean((ours.deviations > -edge) & (ours.deviations < edge), axis=0)
        assert found.coverage[str(band)]["model"] == pytest.approx(expected)
    short = by_step(*(Points(*(part[:, :5] for part in points)) for points in (ours, exact)))
    assert short.late_gap is None


@pytest.mark.parametrize("memory", ["lrua", "none"])
def test_a_prediction_along_x_is_the_next_step_of_an_episode_each_time(memory):
    """Each query as the 7th step of an episode of its own: what others asked before must not matter."""
    task = Regression(dimensions=2, length=7)
    model = build_model(ModelConfig(memory=memory, hidden=8, slots=6, width=4, heads=2), task, key=key(0))
    episode = task.draw(key(1))
    seen, y = episode.inputs[:6], episode.targets[:6, 0]
    queries = jax.random.uniform(key(2), (5, 2))
    mean, scale = predict_along(model, seen, y, queries)
    unroll = eqx.filter_jit(model.unroll)
    for i, query in enumerate(queries):
        inputs = jnp.concatenate([seen, query[None]])
        outputs, _ = unroll(inputs, jnp.concatenate([jnp.zeros(1), y])[:, None])
        assert float(mean[i]) == pytest.approx(float(outputs[-1, 0]), abs=1e-5)
        assert float(scale[i]) == pytest.approx(float(jax.nn.softplus(outputs[-1, 1])) + 1e-3, abs=1e-5)
    backwards = predict_along(model, seen, y, queries[::-1])
    np.testing.assert_allclose(backwards.mean[::-1], mean, atol=1e-6)


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
