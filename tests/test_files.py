"""Files: whole or not at all, arrays bit for bit, and nothing but regular files is ever replaced."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

from mann import files
from mann.errors import MannError


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


def test_the_same_content_gives_the_same_bytes(tmp_path, arrays):
    """safetensors alone writes the two entries of its metadata in a random order."""
    described = {"update": 3, "best": {"update": 1}}
    for i in range(12):
        files.save_arrays(tmp_path / f"{i}", arrays, described)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_other_programs_can_read_the_files(tmp_path, arrays):
    from safetensors import safe_open

    files.save_arrays(tmp_path / "x.safetensors", arrays, {"update": 3})
    with safe_open(tmp_path / "x.safetensors", "numpy") as file:
        assert set(file.keys()) == set(arrays)
        assert file.metadata()["description"] == '{"update": 3}'
        np.testing.assert_array_equal(file.get_tensor("a"), arrays["a"])


def test_written_files_have_the_permissions_of_ordinary_ones(tmp_path):
    (tmp_path / "ordinary").write_text("")
    files.write_atomically(tmp_path / "ours", b"x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_links_are_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "there" / "new")
    files.write_atomically(tmp_path / "link", b"new")
    files.write_atomically(tmp_path / "dangling", b"newer")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "dangling").is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "new"
    assert (tmp_path / "there" / "new").read_text() == "newer"
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["file", "new"]


def test_a_loop_of_links_is_an_error_and_stays(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="symbolic links"):
        files.write_atomically(tmp_path / "a", b"x")
    assert (tmp_path / "a").is_symlink()


def test_a_pipe_is_written_through_and_stays_a_pipe(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    received = []
    for path in (pipe, link):
        reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
        reader.start()
        files.write_atomically(path, b"through")
        reader.join(timeout=10)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert received == [b"through", b"through"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_what_cannot_be_written_is_known_before(tmp_path):
    (tmp_path / "file").write_text("a file")
    (tmp_path / "link").symlink_to(tmp_path / "file" / "below")
    os.mkfifo(tmp_path / "pipe")
    for name in ("file/below", "file/below/new", "link", "."):
        with pytest.raises(MannError, match=r"Cannot write .*: name a file in a folder"):
            files.check_writable(tmp_path / name)
        with pytest.raises(OSError, match=r"directory|File exists"):
            files.write_atomically(tmp_path / name, b"x")
    for name in ("file", "new", "other/folder/file"):
        files.check_writable(tmp_path / name)
        files.write_atomically(tmp_path / name, b"x")
    for path in (tmp_path / "pipe", Path(os.devnull), Path("/dev/stdout")):
        files.check_writable(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_named_with_the_file():
    with pytest.raises(MannError, match="Could not write /dev/full: the disk is full"):
        files.write_json(Path("/dev/full"), {"a": 1})


PRINTS = """
import sys
from pathlib import Path
from mann.files import write_atomically
print("before")
write_atomically(Path(sys.argv[1]), b"written\\n")
print("after")
"""


@pytest.mark.parametrize("redirected", [False, True])
def test_standard_output_by_its_path_prints(tmp_path, redirected):
    """To a pipe, or to a file that the shell opened. Through links of our own, whatever the code does."""
    link, out = tmp_path / "stdout", tmp_path / "out.txt"
    link.symlink_to("/proc/self/fd/1")
    with out.open("wb") as file:
        target = file if redirected else subprocess.PIPE
        done = subprocess.run(
            [sys.executable, "-c", PRINTS, str(link)], stdout=target, check=True, timeout=60
        )
    printed = out.read_bytes() if redirected else done.stdout
    assert printed == b"before\nwritten\nafter\n"
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt", "stdout"]


def test_folders_are_the_systems_unless_told_otherwise(tmp_path, monkeypatch):
    import platformdirs

    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MANN_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert files.cache_dir() == tmp_path / ".cache" / "mann"
    assert files.data_dir() == tmp_path / ".local" / "share" / "mann"
    mac = tmp_path / "Library" / "Caches" / "mann"
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *args, **kwargs: mac)
    assert files.cache_dir() == mac
    (tmp_path / ".cache" / "mann").mkdir(parents=True)  # from a version that had it there on every system
    assert files.cache_dir() == tmp_path / ".cache" / "mann"
    mac.mkdir(parents=True)
    assert files.cache_dir() == mac
    monkeypatch.setenv("MANN_CACHE", "elsewhere")
    assert files.cache_dir() == Path("elsewhere")
