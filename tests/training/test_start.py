"""Starting from trained weights: what is taken, what is new, and that what they have met is not forgotten."""

import dataclasses

import numpy as np
import pytest

from mann.cli import main
from mann.data import Glyphs
from mann.errors import MannError
from mann.evaluation import evaluate
from mann.files import load_arrays, to_arrays
from mann.tasks import Classification
from mann.trained import load_trained
from mann.training.loop import resume, train
from tests.networks import network
from tests.training.tiny import OPTIONS, TINY, change

pytestmark = pytest.mark.usefixtures("shared_trainers")


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))


@pytest.fixture(scope="module")
def first(tmp_path_factory, shared_cache):
    """A short run to start others from."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        train(change(updates=6), folder, observers=[])
    return load_trained(folder)


def stopped_at_once(config, folder, start, monkeypatch):
    """The state in which a run starts: its checkpoint before the first update."""
    monkeypatch.setattr("mann.training.loop._loop", lambda *_: None)
    train(config, folder, start=start, observers=[])
    monkeypatch.undo()
    return load_arrays(folder / "checkpoints" / "update-00000000.safetensors")


def test_what_fits_is_taken_and_the_rest_is_new(first, tmp_path, monkeypatch):
    config = change(task=Classification(classes=3, length=8, labels="strings"))
    arrays, description = stopped_at_once(config, tmp_path / "run", first, monkeypatch)
    theirs = to_arrays(first.model)
    taken = set()
    for name, array in theirs.items():
        ours = arrays[f"model.{name}"]
        if ours.shape == array.shape:
            np.testing.assert_array_equal(ours, array)
            np.testing.assert_array_equal(arrays[f"average.{name}"], array)
            taken.add(name)
    new = {name.removeprefix("model.") for name in arrays if name.startswith("model.")} - taken
    assert description["started"]["name"] == first.name
    assert set(description["started"]["new"]) == new
    assert len(taken) > 3
    assert any("readout" in name for name in new)


def test_nothing_in_common_is_refused(first, tmp_path):
    other = change(
        task=Classification(classes=4, length=8), model=network(hidden=9, slots=6, width=5, heads=3)
    )
    with pytest.raises(MannError, match="fit nowhere"):
        train(other, tmp_path / "run", start=first, observers=[])
    assert not (tmp_path / "run").exists()
    with pytest.raises(MannError, match="did not record on what"):
        train(TINY, tmp_path / "run", start=first._replace(seen=None), observers=[])


def test_what_the_weights_have_met_cannot_be_tested(first, tmp_path):
    """Other glyphs to train on: the first ones stay refused, also after a resume."""
    config = change(updates=6, data=dataclasses.replace(TINY.data, classes=60))
    folder = tmp_path / "run"
    train(config, folder, start=first, observers=[])
    seen = load_trained(folder).seen
    assert set(first.seen.tolist()) <= set(seen.tolist())
    resume(folder, observers=[])
    np.testing.assert_array_equal(load_trained(folder).seen, seen)
    alone = first._replace(seen=np.zeros(0, np.uint64))
    with pytest.raises(MannError, match="trained on or selected by"):
        evaluate(
            load_trained(folder)._replace(config=TINY, seen=seen), dataset=Glyphs(classes=44), episodes=2
        )
    assert evaluate(alone, dataset=Glyphs(classes=44), episodes=2).class_range == (34, 44)


def test_a_run_that_was_stopped_at_once_goes_on_from_the_same_weights(first, tmp_path, monkeypatch):
    config = change(updates=6)
    stopped_at_once(config, tmp_path / "stopped", first, monkeypatch)
    resume(tmp_path / "stopped", observers=[])
    train(config, tmp_path / "whole", start=first, observers=[])
    ours, theirs = (to_arrays(load_trained(tmp_path / name).model) for name in ("stopped", "whole"))
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array)


def test_the_command_starts_from_a_folder(first, tmp_path, capsys):
    words = [*OPTIONS, "--updates", "6", "--run", str(tmp_path / "run"), "--start", str(first.name)]
    assert main(["train", *words, "--start", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err
    assert main(["train", "--resume", str(tmp_path / "run"), "--start", "omniglot-5"]) == 2
    assert "keeps its configuration" in capsys.readouterr().err
