import numpy as np
import pytest

from mann.files import save_arrays
from mann.training.checkpoint import checkpoint_path, newest_checkpoint, prune_checkpoints


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {"a": rng.normal(size=(3, 4)).astype(np.float32), "b.c": np.arange(5, dtype=np.int32)}


def test_damaged_newest_checkpoint_is_named_and_skipped(tmp_path, arrays):
    for update in (10, 20, 30):
        save_arrays(checkpoint_path(tmp_path, update), arrays, {"update": update})
    newest = checkpoint_path(tmp_path, 30)
    newest.write_bytes(newest.read_bytes()[:100])
    warnings = []
    found = newest_checkpoint(tmp_path, warnings.append)
    assert found is not None
    assert found.description["update"] == 20
    assert len(warnings) == 1
    assert str(newest) in warnings[0]


def test_no_checkpoint_at_all(tmp_path):
    assert newest_checkpoint(tmp_path, print) is None


def test_pruning_keeps_the_newest_two_and_the_best(tmp_path, arrays):
    for update in (10, 20, 30, 40):
        save_arrays(checkpoint_path(tmp_path, update), arrays, {})
    (tmp_path / "best.safetensors").write_bytes(b"")
    prune_checkpoints(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["best.safetensors", "update-00000030.safetensors", "update-00000040.safetensors"]
