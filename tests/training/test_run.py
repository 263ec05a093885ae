"""A run folder that was killed, damaged, edited, deleted or wanted twice."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from mann.errors import MannError
from mann.files import load_arrays, save_arrays
from mann.trained import load_trained
from mann.training.config import to_dict
from mann.training.display import Observer
from mann.training.loop import train
from mann.training.run import NO_BEST, Run
from tests.training.tiny import change

pytestmark = pytest.mark.usefixtures("shared_trainers")
CONFIG = change(updates=18, evaluate_every=6)


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))


@pytest.fixture(scope="module")
def original(tmp_path_factory, shared_cache):
    folder = tmp_path_factory.mktemp("runs") / "original"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANN_CACHE", str(shared_cache))
        train(CONFIG, folder, observers=[])
    return folder


@pytest.fixture
def folder(original, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(original, tmp_path / "run")


def resume(folder):
    """Open a run as `train` does: its configuration and what was said."""
    warnings = []
    with Run(folder) as run:
        config, _ = run.resume(warnings.append)
        run.start_session(CONFIG, 1, warnings.append)
    return config, warnings


def test_an_undamaged_run_resumes_without_a_word(folder, original):
    assert resume(folder) == (CONFIG, [])
    assert (folder / "metrics.jsonl").read_bytes() == (original / "metrics.jsonl").read_bytes()
    assert (folder / "times.jsonl").read_bytes() == (original / "times.jsonl").read_bytes()


def test_identical_runs_have_identical_checkpoints(original, tmp_path):
    train(CONFIG, tmp_path / "again", observers=[])
    for path in (original / "checkpoints").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / "checkpoints" / path.name).read_bytes(), path.name


def alterations(content):
    """Bytes that a fault, an editor or a joker might leave."""
    rng = random.Random(0)
    yield from (
        b"",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b"null",
        b"[" * 100_000,
        b'{"sessions": 3}',
        b'{"update": "x"}\n',
    )
    for _ in range(40):
        altered = bytearray(content)
        for _ in range(rng.randint(1, 3)):
            altered[rng.randrange(len(altered))] = rng.randrange(256)
        yield bytes(altered)
        yield content[: rng.randrange(len(content))]


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "times.jsonl", "env.json"])
def test_any_alteration_is_one_sentence_or_set_aside(folder, original, name):
    content = (original / name).read_bytes()
    for altered in alterations(content):
        (folder / name).write_bytes(altered)
        problem = ""
        try:
            config, warnings = resume(folder)
        except MannError as error:
            problem = str(error)
        if problem:
            assert name == "config.json"
            assert "was edited" in problem
        else:
            assert config == CONFIG
            assert (folder / "metrics.jsonl").read_bytes() == (original / "metrics.jsonl").read_bytes()
            assert json.loads((folder / "config.json").read_bytes()) == to_dict(CONFIG)
            for warning in warnings:
                assert name in warning
            kept = list(folder.glob("*.damaged-*"))
            assert len(kept) == len(warnings)
            assert all(path.read_bytes() == altered for path in kept)
        for path in (*folder.glob("*.damaged-*"), folder / name):
            path.unlink()
        shutil.copy(original / name, folder)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "times.jsonl", "env.json"])
def test_a_folder_in_place_of_a_file_is_set_aside(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    config, warnings = resume(folder)
    assert config == CONFIG
    assert (folder / name).is_file()
    assert len(warnings) == 1
    assert (folder / f"{name}.damaged-1").is_dir()


def test_one_altered_digit_of_the_metrics_is_noticed_and_restored(folder, original):
    path = folder / "metrics.jsonl"
    content = path.read_text()
    position = content.index('"held_out_loss": ') + len('"held_out_loss": ')
    digit = "1" if content[position] != "1" else "2"
    path.write_text(content[:position] + digit + content[position + 1 :])
    _, warnings = resume(folder)
    assert len(warnings) == 1
    assert "metrics.jsonl was altered" in warnings[0]
    assert path.read_bytes() == (original / "metrics.jsonl").read_bytes()


def test_one_altered_digit_of_the_times_is_noticed_and_the_other_lines_are_kept(folder, original):
    path = folder / "times.jsonl"
    first, second, third = path.read_text().splitlines()
    seconds = json.loads(second)["seconds"]
    path.write_text("\n".join([first, second.replace(str(seconds), str(seconds + 1)), third]) + "\n")
    _, warnings = resume(folder)
    assert len(warnings) == 1
    assert "times.jsonl was damaged" in warnings[0]
    assert path.read_text() == f"{first}\n{third}\n"


def test_a_bad_line_does_not_hide_those_after_it(folder):
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\xff nonsense\n" + b"".join(lines[1:]) + b'{"update": 24, "lo')
    assert [record["update"] for record in Run(folder).read("metrics.jsonl")] == [6, 12, 18]


def test_checkpoints_from_before_they_held_the_metrics_go_on_from_the_file(folder, original):
    for path in (folder / "checkpoints").glob("update-*"):
        arrays, description = load_arrays(path)
        del arrays["metrics.jsonl"]
        save_arrays(path, arrays, description)
    assert resume(folder) == (CONFIG, [])
    assert (folder / "metrics.jsonl").read_bytes() == (original / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", 7),
        ("batch", 8),
        ("updates", 36),
        ("averaging", 0.5),
        ("persistent", True),
        ("data.mirror", True),
        ("optimiser.learning_rate", 0.5),
        ("model.memory.decay", float("inf")),
        ("task.classes", 4),
        ("task.kind", "regression"),
        ("task.kind", ["classification"]),
        ("nonsense", 1),
    ],
)
def test_an_edited_configuration_is_refused_by_field(folder, field, value):
    content = to_dict(CONFIG)
    *parents, last = field.split(".")
    inner = content
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(MannError, match=rf"edited since the run began \({field} is ") as caught:
        resume(folder)
    assert repr(value) in str(caught.value)
    (folder / "config.json").unlink()  # as the message says
    config, warnings = resume(folder)
    assert config == CONFIG
    assert len(warnings) == 1
    assert Run(folder).read_config() == CONFIG


def test_without_a_checkpoint_a_damaged_configuration_is_one_sentence(folder):
    shutil.rmtree(folder / "checkpoints")
    (folder / "config.json").write_bytes(b"\xff")
    with pytest.raises(MannError, match=r"config.json is damaged: it is not valid JSON"):
        resume(folder)


def damage(path):
    """One altered bit, in this file alone even if it has a second name."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(bytes(content))


def test_a_damaged_best_checkpoint_is_named_where_it_is_chosen(folder):
    damage(folder / "checkpoints" / "best.safetensors")
    with pytest.raises(MannError, match=r"best.safetensors is damaged.*update-00000018.safetensors"):
        load_trained(folder)


@pytest.mark.parametrize("deed", [damage, os.unlink])
def test_a_damaged_or_missing_best_checkpoint_is_found_at_resume(folder, deed):
    best, newest = (folder / "checkpoints" / f"{name}.safetensors" for name in ("best", "update-00000018"))
    arrays, description = load_arrays(newest)
    save_arrays(newest, arrays, description | {"best": {"update": 12, "score": 0.5}})
    (folder / "checkpoints" / "update-00000012.safetensors").unlink()
    save_arrays(best, arrays, description | {"update": 12})
    assert resume(folder) == (CONFIG, [])
    deed(best)
    warnings = []
    with Run(folder) as run:
        _, checkpoint = run.resume(warnings.append)
    assert checkpoint.description["best"] == NO_BEST
    assert len(warnings) == 1
    assert "best.safetensors" in warnings[0]
    assert load_trained(folder).description["update"] == 18


@pytest.mark.parametrize("deed", [damage, os.unlink])
def test_the_best_checkpoint_is_restored_where_it_has_a_second_name(folder, deed):
    """Also what is left when a run is killed between the checkpoint and its second name."""
    best, newest = (folder / "checkpoints" / f"{name}.safetensors" for name in ("best", "update-00000018"))
    arrays, description = load_arrays(newest)
    save_arrays(newest, arrays, description | {"best": {"update": 18, "score": 0.5}})
    deed(best)
    _, warnings = resume(folder)
    assert len(warnings) == (1 if deed is damage else 0)
    assert best.read_bytes() == newest.read_bytes()


def test_temporary_files_are_swept_away_at_resume(folder):
    names = [".config.json.a1b2.tmp", ".env.json.xyz", "checkpoints/.update-00000006.safetensors.abc12345"]
    names += [
        "checkpoints/best.tmp",
        "checkpoints/.best.safetensors.tmp",
        "figures/.curves.png.1234.tmp",
        ".lock",
    ]
    (folder / "figures").mkdir(exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"half")
    (folder / ".hidden-notes").write_text("mine")
    resume(folder)
    assert not [name for name in names if (folder / name).exists()]
    assert (folder / ".hidden-notes").exists()


@pytest.mark.parametrize("names", [[".config.json.a1b2c3"], [".lock", ".config.json.a1b2.tmp"], []])
def test_a_run_that_was_killed_while_it_began_can_be_started_again(tmp_path, names):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    for name in names:
        (folder / name).write_text('{"seed": ')
    with Run(folder) as run:
        run.create(CONFIG, 1)
    assert Run(folder).read_config() == CONFIG
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("call", [0, 1])
def test_a_new_run_on_a_full_disk_leaves_no_folder(tmp_path, monkeypatch, call):
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) > call:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with Run(tmp_path / "run") as run, pytest.raises(MannError, match="the disk is full"):
        run.create(CONFIG, 1)
    assert len(calls) == call + 1
    assert not (tmp_path / "run").exists()


def test_a_second_process_in_the_folder_is_refused(folder, original):
    metrics = (folder / "metrics.jsonl").read_bytes()
    with Run(folder) as run:
        run.resume(print)
        with pytest.raises(MannError, match="Another process is writing to the run"):
            resume(folder)
        with pytest.raises(MannError, match="not empty"):
            Run(folder).create(CONFIG, 1)
    assert (folder / "metrics.jsonl").read_bytes() == metrics
    assert resume(folder) == (CONFIG, [])
    assert not (folder / ".lock").exists()


HOLD = """
import sys
from pathlib import Path
from mann.files import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_no_lock_behind(folder):
    command = [sys.executable, "-c", HOLD, str(folder / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(MannError, match="Another process is writing to the run"):
            resume(folder)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert (folder / ".lock").exists()
    assert resume(folder) == (CONFIG, [])


@pytest.mark.parametrize("update", [6, 18])
@pytest.mark.parametrize("deed", [shutil.rmtree, lambda folder: folder.rename(folder.with_name("elsewhere"))])
def test_a_run_whose_folder_is_deleted_under_it_does_not_finish(tmp_path, update, deed):
    folder = tmp_path / "run"

    class Deletes(Observer):
        def evaluated(self, record):
            if record["update"] == update:
                deed(folder)

    with pytest.raises(MannError, match="was deleted, moved or replaced"):
        train(CONFIG, folder, observers=[Deletes()])
    assert not folder.exists()


def test_metrics_in_a_checkpoint_are_those_of_its_update(original):
    lines = (original / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    for number, update in ((2, 12), (3, 18)):
        arrays, _ = load_arrays(original / "checkpoints" / f"update-{update:08d}.safetensors")
        assert np.asarray(arrays["metrics.jsonl"]).tobytes() == b"".join(lines[:number])
