import dataclasses
import json
import math

import numpy as np
import pytest
from rich.console import Console

from mann.data import Folder
from mann.data.images import ImageSet
from mann.errors import MannError
from mann.files import load_arrays
from mann.training import loop, partners
from mann.training.display import LiveDisplay, Observer, PlainDisplay
from mann.training.loop import resume, train
from mann.training.optimisers import Muon
from mann.training.run import Run
from tests.training.tiny import TINY, change

pytestmark = pytest.mark.usefixtures("shared_trainers")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, shared_cache):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        result = train(TINY, folder, observers=[], tensorboard=True)
    assert result.finished
    return folder


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))


def test_a_warm_up_longer_than_the_run_is_refused_before_the_data_is_read(tmp_path):
    config = change(optimiser=Muon(warmup=24), data=Folder(path=str(tmp_path / "nothing")))
    with pytest.raises(MannError, match="A warm-up of 24 updates does not fit into a run of 24"):
        train(config, tmp_path / "run", observers=[])


def test_run_folder_explains_itself(finished):
    run = Run(finished)
    assert run.read_config() == TINY
    records = run.read("metrics.jsonl")
    assert [r["update"] for r in records] == [6, 12, 18, 24]
    assert [r["episodes"] for r in records] == [24, 48, 72, 96]
    for record in records:
        assert len(record["accuracy"]) == 10
        assert 0 <= record["accuracy"][0] <= 1
        assert math.isfinite(record["loss"])
        assert math.isfinite(record["held_out_loss"])
    times = [r["seconds"] for r in run.read("times.jsonl")]
    assert times == sorted(times)
    session = json.loads((finished / "env.json").read_text())["sessions"][0]
    assert session["devices"] == 2
    assert set(session["libraries"]) >= {"jax", "equinox", "optax"}
    assert list((finished / "tensorboard").iterdir())


def test_last_two_checkpoints_and_the_best_are_kept(finished):
    names = sorted(path.name for path in (finished / "checkpoints").iterdir())
    assert names == ["best.safetensors", "update-00000018.safetensors", "update-00000024.safetensors"]
    records = Run(finished).read("metrics.jsonl")
    scores = [np.nanmean([math.nan if a is None else a for a in r["accuracy"][1:]]) for r in records]
    best = load_arrays(finished / "checkpoints" / "best.safetensors")[1]["update"]
    assert best == records[int(np.argmax(scores))]["update"]


def test_loss_of_a_record_is_the_mean_since_the_one_before(finished, tmp_path):
    """Recorded at every update instead of every sixth, the same losses average to the same number."""
    fine = train(change(dispatch=1, evaluate_every=1, updates=6, evaluate_episodes=2), tmp_path / "fine")
    # The schedule depends on the length of the run, so compare the first updates through one run of ours.
    losses = [r["loss"] for r in fine.metrics]
    coarse = train(change(dispatch=1, evaluate_every=6, updates=6, evaluate_episodes=2), tmp_path / "coarse")
    assert coarse.metrics[0]["loss"] == pytest.approx(np.mean(losses), rel=1e-6)


def test_existing_run_is_never_overwritten(finished):
    before = {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()}
    with pytest.raises(MannError, match="not empty: resume the run in it"):
        train(TINY, finished, observers=[])
    assert before == {p: p.read_bytes() for p in finished.rglob("*") if p.is_file()}


def test_folder_with_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("dear to somebody")
    with pytest.raises(MannError, match="not empty: choose another"):
        train(TINY, tmp_path, observers=[])


def test_resuming_a_finished_run_changes_nothing(finished):
    metrics = (finished / "metrics.jsonl").read_bytes()
    result = resume(finished, observers=[])
    assert result.finished
    assert (finished / "metrics.jsonl").read_bytes() == metrics


def test_resuming_nothing_is_refused(tmp_path):
    with pytest.raises(MannError, match="it has no config"):
        resume(tmp_path / "absent", observers=[])


def test_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    real = loop.Trainer.advance

    def explode(self, state, updates):
        state, losses = real(self, state, updates)
        if int(state.update) > 8:
            losses = losses.copy()
            losses[1] = math.nan
        return state, losses

    monkeypatch.setattr(loop.Trainer, "advance", explode)
    with pytest.raises(MannError, match="no longer finite at update 10") as caught:
        train(TINY, tmp_path / "run", observers=[])
    kept = tmp_path / "run" / "checkpoints" / "update-00000006.safetensors"
    assert str(kept) in str(caught.value)
    arrays, description = load_arrays(kept)
    assert description["update"] == 6
    assert all(np.isfinite(array).all() for array in arrays.values())


def test_when_another_process_is_lost_amid_updates_the_last_whole_state_is_saved(
    tmp_path, finished, monkeypatch
):
    """The collective fails after the state has been given away to it. Evaluations are at 6 and 12."""
    real = loop.Trainer.advance

    def fail(self, state, updates):
        update = int(state.update)
        result = real(self, state, updates)
        if update == 10:
            raise ValueError("UNKNOWN: Gloo AllReduce failed: Connection closed by peer [127.0.0.1]:13019")
        return result

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "advance", fail)
        patch.setattr(loop.distributed, "has_partners", lambda: True)
        patch.setattr(loop, "watch", partners._Watch())
        with pytest.raises(ValueError, match="Gloo") as caught:
            train(TINY, folder, observers=[])
    assert partners.is_loss(caught.value)
    newest = sorted((folder / "checkpoints").glob("update-*"))[-1]
    assert newest.name == "update-00000010.safetensors"
    resume(folder, observers=[])
    for name in ("metrics.jsonl", "checkpoints/update-00000024.safetensors", "checkpoints/best.safetensors"):
        assert (folder / name).read_bytes() == (finished / name).read_bytes(), name


def test_a_learning_rate_far_too_high_really_ends_that_way(tmp_path):
    config = change(
        optimiser=Muon(learning_rate=1e38, warmup=0, schedule="constant", clip=0.0), averaging=0.0
    )
    with pytest.raises(MannError, match="no longer finite at update"):
        train(config, tmp_path / "run", observers=[])


def test_training_never_touches_test_classes(monkeypatch):
    asked = []
    original = ImageSet.subset

    def note(self, start, stop):
        asked.append((start, stop))
        return original(self, start, stop)

    monkeypatch.setattr(ImageSet, "subset", note)
    TINY.task.load(TINY.data)
    parts = TINY.data.divide(40, 3)
    assert parts.train == 24
    assert parts.validation == 30 == round(40 * 1200 / 1623)
    assert asked == [(0, 30), (0, 24), (24, 30)]  # fingerprints, training, held out


def test_plain_display_shows_what_is_asked(finished, capsys, tmp_path):
    display = PlainDisplay(Console(width=200, highlight=False))
    train(change(updates=6), tmp_path / "run", observers=[display])
    shown = capsys.readouterr().out
    for part in ("updates/s", "24 episodes", "loss", "held-out accuracy", "(1st 2nd 5th 10th)", "2 devices"):
        assert part in shown
    assert "trained on classes 1–24, watched on held-out classes 25–30" in shown


@pytest.mark.parametrize("kind", [PlainDisplay, LiveDisplay])
def test_a_pace_that_is_not_known_yet_is_a_dash(kind, capsys, tmp_path):
    display = kind(Console(width=200, highlight=False, force_terminal=False))
    display.start(TINY, tmp_path, "glyphs", 1, 4)
    display.progress(6, 1.5)
    display.evaluated(
        {"update": 6, "episodes": 24, "loss": 1.5, "held_out_loss": 1.25, "accuracy": [0.25] + 9 * [None]}
    )
    display.stop()
    shown = capsys.readouterr().out
    assert "    – updates/s  loss 1.500  held-out accuracy 25.0%     –     –     –" in shown
    assert "nan" not in shown


def test_mirror_images_are_new_classes_of_the_training_alone():
    plain = TINY.task.load(TINY.data)
    doubled = TINY.task.load(dataclasses.replace(TINY.data, mirror=True))
    classes = len(plain.train.counts)
    assert len(doubled.train.counts) == 2 * classes
    np.testing.assert_array_equal(doubled.train.grids[:classes], plain.train.grids)
    flipped = np.asarray(plain.train.grids)[..., ::-1].astype(int)
    assert np.abs(np.asarray(doubled.train.grids[classes:]).astype(int) - flipped).max() <= 1
    np.testing.assert_array_equal(doubled.held_out.grids, plain.held_out.grids)
    assert doubled.classes == plain.classes


class Diary(Observer):
    """Notes everything that it is told."""

    def __init__(self):
        self.notes = []

    def start(self, config, folder, data, devices, update):
        self.notes.append(("start", update))

    def progress(self, update, loss):
        self.notes.append(("progress", update))

    def evaluated(self, record):
        self.notes.append(("evaluated", record["update"]))

    def stop(self):
        self.notes.append(("stop",))


def test_observers_are_told_what_happens_in_order(tmp_path):
    diary = Diary()
    train(change(updates=8, evaluate_every=4), tmp_path / "run", observers=[diary])
    assert diary.notes == [
        ("start", 0),
        ("progress", 2),
        ("progress", 4),
        ("evaluated", 4),
        ("progress", 6),
        ("progress", 8),
        ("evaluated", 8),
        ("stop",),
    ]
