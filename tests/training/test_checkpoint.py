import errno
from pathlib import Path

import jax
import numpy as np
import pytest

from mann.errors import MannError
from mann.training import checkpoint as files


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {"a": rng.normal(size=(3, 4)).astype(np.float32), "b.c": np.arange(5, dtype=np.int32)}


def test_arrays_and_description_return_bit_for_bit(tmp_path, arrays):
    files.save_arrays(tmp_path / "x.safetensors", arrays, {"update": 3, "losses": [0.1, 1e-30]})
    back, description = files.load_arrays(tmp_path / "x.safetensors")
    assert description == {"update": 3, "losses": [0.1, 1e-30]}
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_truncated_file_is_detected(tmp_path, arrays, share):
    path = tmp_path / "x.safetensors"
    files.save_arrays(path, arrays, {"update": 3})
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(files.Damaged, match="damaged"):
        files.load_arrays(path)


def test_any_altered_byte_is_detected(tmp_path, arrays):
    path = tmp_path / "x.safetensors"
    files.save_arrays(path, arrays, {"update": 3})
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        altered = bytearray(content)
        altered[position] ^= 0x10
        path.write_bytes(bytes(altered))
        try:
            back, description = files.load_arrays(path)
        except MannError:
            continue
        # Only a change that means nothing (such as white space in the header) may go unnoticed.
        assert description == {"update": 3}
        assert set(back) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(back[name], array)


def test_damaged_newest_checkpoint_is_named_and_skipped(tmp_path, arrays):
    for update in (10, 20, 30):
        files.save_arrays(files.checkpoint_path(tmp_path, update), arrays, {"update": update})
    newest = files.checkpoint_path(tmp_path, 30)
    newest.write_bytes(newest.read_bytes()[:100])
    warnings = []
    found = files.newest_checkpoint(tmp_path, warnings.append)
    assert found is not None
    assert found.description["update"] == 20
    assert len(warnings) == 1
    assert str(newest) in warnings[0]


def test_no_checkpoint_at_all(tmp_path):
    assert files.newest_checkpoint(tmp_path, print) is None


def test_pruning_keeps_the_newest_two_and_the_best(tmp_path, arrays):
    for update in (10, 20, 30, 40):
        files.save_arrays(files.checkpoint_path(tmp_path, update), arrays, {})
    (tmp_path / "best.safetensors").write_bytes(b"")
    files.prune_checkpoints(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["best.safetensors", "update-00000030.safetensors", "update-00000040.safetensors"]


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_full_disk_leaves_the_previous_file_intact(tmp_path, arrays, monkeypatch, moment):
    path = tmp_path / "x.safetensors"
    files.save_arrays(path, arrays, {"update": 1})
    before = path.read_bytes()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    if moment == "replace":
        monkeypatch.setattr(Path, "replace", full)
    elif moment == "fsync":
        monkeypatch.setattr("os.fsync", full)
    else:
        monkeypatch.setattr("os.fdopen", full)
    with pytest.raises(MannError, match="the disk is full"):
        files.save_arrays(path, arrays, {"update": 2})
    assert path.read_bytes() == before
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_wrong_model_is_named(arrays):
    like = {"a": jax.ShapeDtypeStruct((3, 5), np.float32)}
    with pytest.raises(MannError, match=r"a in the file has shape \(3, 4\), expected \(3, 5\)"):
        files.from_arrays(like, arrays)
    with pytest.raises(MannError, match="no array z"):
        files.from_arrays({"z": jax.ShapeDtypeStruct((1,), np.float32)}, arrays)
