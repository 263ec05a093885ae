import itertools
import json
import math
import os
import shutil
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.random import key
from PIL import Image

from mann.commands.console import print_evaluation
from mann.data import Folder, NoData, glyphs
from mann.data.images import ImageSet
from mann.data.seen import fingerprints, seen_classes
from mann.errors import MannError
from mann.evaluation import evaluate, predict_along, split_keys
from mann.models import build_model
from mann.tasks import Classification, Regression
from mann.tasks.regression import Points, likelihood_by_step
from mann.trained import load_trained
from mann.training.loop import train
from tests.networks import network
from tests.training.tiny import change

pytestmark = pytest.mark.usefixtures("shared_trainers")


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))


@pytest.fixture(scope="module")
def run(tmp_path_factory, shared_cache):
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        train(change(updates=6), folder, observers=[])
    return folder


def test_ceiling_of_the_first_instance_by_simulation():
    """A perfect learner guesses a new class among the labels not given yet, in every order of appearance."""
    hits = [
        float(guess == truth)
        for order in itertools.permutations(range(3))
        for step, truth in enumerate(order)
        for guess in order[step:]
        for _ in range(6 // (3 - step))
    ]
    assert Classification(classes=3).first_instance_ceiling == pytest.approx(np.mean(hits))
    assert Classification(classes=5).first_instance_ceiling == pytest.approx(0.4567, abs=1e-4)
    assert Classification(classes=15, labels="strings").first_instance_ceiling < 0.001


def test_json_of_an_evaluation_has_what_scripts_need(run, monkeypatch):
    result = evaluate(run, episodes=50)
    assert result.class_range == (31, 40)
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
    assert evaluate(load_trained(run), episodes=50) == result
    load = glyphs.load_glyphs
    monkeypatch.setattr(glyphs, "load_glyphs", lambda classes: load({1623: 60}[classes]))  # all of them
    again = evaluate(
        load_trained(run), dataset="glyphs", task=Classification(classes=3, length=8), episodes=50
    )
    assert again.class_range == (45, 60)
    assert again.result.instances != result.result.instances


def test_few_episodes_are_the_first_of_many():
    """Whatever is computed at a time: a chunk of all that are asked for, or several full ones."""
    keys = jax.random.split(jax.random.key(5), 12)
    few, many = split_keys(5, 3, 4), split_keys(5, 9, 4)
    assert [len(part) for part in few] == [3]
    assert [len(part) for part in many] == [4, 4, 4]
    assert jnp.all(few[0] == keys[:3])
    assert jnp.all(jnp.concatenate(many) == keys)


def test_table_shows_test_classes_and_training_classes(run, capsys):
    from rich.console import Console

    trained = load_trained(run)
    print_evaluation(evaluate(trained, episodes=50), trained, Console(width=120))
    shown = capsys.readouterr().out
    assert "Tested on glyphs classes 31–40; trained on glyphs classes 1–24" in shown
    assert "95 % interval" in shown


def test_other_number_of_classes_needs_string_labels(run):
    with pytest.raises(MannError, match="exactly 3 classes"):
        evaluate(run, classes=4)


def test_string_model_takes_another_number_of_classes(tmp_path):
    config = change(
        task=Classification(classes=3, length=8, labels="strings"), updates=4, evaluate_every=4, dispatch=4
    )
    train(config, tmp_path / "run", observers=[])
    result = evaluate(tmp_path / "run", classes=5, episodes=4)
    assert (result.task.classes, result.task.steps) == (5, 50)
    assert sum(cell.samples for cell in result.result.instances) > 0
    with pytest.raises(MannError, match="cannot be drawn"):
        evaluate(tmp_path / "run", classes=11, episodes=4)


def test_regression_is_reported_by_step_beside_the_exact_process(tmp_path):
    config = change(task=Regression(length=6), data=NoData(), updates=4, evaluate_every=4, dispatch=4)
    train(config, tmp_path / "run", observers=[])
    result = evaluate(tmp_path / "run", episodes=400)
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
    found = likelihood_by_step(Regression(), ours, exact)
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
    short = likelihood_by_step(
        Regression(), *(Points(*(part[:, :5] for part in points)) for points in (ours, exact))
    )
    assert short.late_gap is None


@pytest.mark.parametrize("memory", ["lrua", "none"])
def test_a_prediction_along_x_is_the_next_step_of_an_episode_each_time(memory):
    """Each query as the 7th step of an episode of its own: what others asked before must not matter."""
    task = Regression(dimensions=2, length=7)
    model = build_model(network(memory=memory, hidden=8, slots=6, width=4, heads=2), task, key=key(0))
    episode = task.draw(key(1))
    seen, y = episode.inputs[:6], episode.targets[:6, 0]
    queries = jax.random.uniform(key(2), (5, 2))
    mean, scale = predict_along(model, seen, y, queries)
    unroll = eqx.filter_jit(model.unroll)
    for i, query in enumerate(queries):
        inputs = jnp.concatenate([seen, query[None]])
        outputs = unroll(inputs, jnp.concatenate([jnp.zeros(1), y])[:, None]).outputs
        assert float(mean[i]) == pytest.approx(float(outputs[-1, 0]), abs=1e-5)
        assert float(scale[i]) == pytest.approx(float(jax.nn.softplus(outputs[-1, 1])) + 1e-3, abs=1e-5)
    backwards = predict_along(model, seen, y, queries[::-1])
    np.testing.assert_allclose(backwards.mean[::-1], mean, atol=1e-6)


def test_unknown_model_is_one_helpful_sentence():
    with pytest.raises(MannError, match="no model 'omnigot-5'"):
        load_trained("omnigot-5")


def test_weights_alone_can_be_saved_and_loaded(run, tmp_path):
    from mann.trained import save_trained

    trained = load_trained(run)
    save_trained(tmp_path / "weights.safetensors", trained)
    back = load_trained(tmp_path / "weights.safetensors")
    assert back.config == trained.config
    for ours, theirs in zip(jax.tree.leaves(back.model), jax.tree.leaves(trained.model), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# The boundary between training and test


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of eight classes: rings of different sizes and gaps, as files."""
    root = tmp_path_factory.mktemp("data") / "pics"
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:40, :40] - 19.5
    for number in range(8):
        folder = root / f"class{number}"
        folder.mkdir(parents=True)
        for drawing in range(4):
            radius = 5 + 1.5 * number + rng.uniform(-0.5, 0.5)
            ring = np.abs(np.hypot(y + rng.uniform(-2, 2), x) - radius) < 1.2
            ring &= np.arctan2(y, x) > -3 + 0.3 * number
            Image.fromarray((255 * ~ring).astype(np.uint8)).save(folder / f"{drawing}.png")
    return root


@pytest.fixture(scope="module")
def trained_on_pictures(pictures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "pics"
    task = Classification(classes=2, length=4)
    data = Folder(path=str(pictures))
    config = change(task=task, data=data, updates=4, evaluate_every=4, evaluate_episodes=2)
    train(config, folder, observers=[])
    return folder


def spellings(pictures, tmp_path):
    """Ways to write the path of the folder that was trained on."""
    link = tmp_path / "link"
    link.symlink_to(pictures)
    relative = os.path.relpath(pictures, Path.cwd())
    return [str(pictures), f"{pictures}/", f"{pictures}/../{pictures.name}", str(link), relative]


def test_however_its_path_is_written_a_folder_trained_on_is_tested_on_its_other_classes(
    pictures, trained_on_pictures, tmp_path
):
    expected = evaluate(trained_on_pictures, episodes=2)
    assert expected.class_range == (7, 8)
    for path in spellings(pictures, tmp_path):
        assert evaluate(trained_on_pictures, dataset=path, episodes=2).class_range == (7, 8)


def test_a_copy_of_what_was_trained_on_is_refused_under_any_name(pictures, trained_on_pictures, tmp_path):
    copy = tmp_path / "holiday"
    for number, folder in enumerate(sorted(pictures.iterdir(), reverse=True)):
        shutil.copytree(folder, copy / f"photo{number}")
    with pytest.raises(MannError, match="6 of the 8 classes of 'holiday'"):
        evaluate(trained_on_pictures, dataset=str(copy), episodes=2)
    for number in range(2, 8):  # photo0 and photo1 are the two that were kept for the test
        shutil.rmtree(copy / f"photo{number}")
    assert evaluate(trained_on_pictures, dataset=str(copy), episodes=2).class_range == (1, 2)


def test_held_out_classes_count_as_met(run):
    """The checkpoint was selected by them: classes 25 to 30 of these 40 glyphs."""
    trained = load_trained(run)
    images = trained.config.data.load()
    assert seen_classes(images, trained.seen) == list(range(30))


def test_a_class_has_been_met_if_half_of_its_real_drawings_were():
    """Against sets and loops, for classes with different numbers of drawings."""
    rng = np.random.default_rng(0)
    counts = np.array([5, 2, 3, 1, 4])
    images = ImageSet("some", rng.integers(0, 2, (5, 5, 6, 6)).astype(np.uint8), counts, tuple("abcde"))
    known = [set(row.tolist()) for row in fingerprints(images)]
    assert [len(row) for row in known] == counts.tolist()
    for _ in range(20):
        met = {one for row in known for one in row if rng.random() < 0.5}
        expected = [number for number, row in enumerate(known) if 2 * len(row & met) >= len(row)]
        assert seen_classes(images, np.array(sorted(met), np.uint64)) == expected
