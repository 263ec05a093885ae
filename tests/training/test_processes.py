"""What only real processes can show: kills at any moment, signals, two processes, one core."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mann.training.checkpoint import load_arrays
from tests.training.tiny import OPTIONS

UPDATES = 36


def start(arguments, cache, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "mann", *map(str, arguments)],
        env=os.environ | {"MANN_CACHE": str(cache)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process, timeout=120):
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        pytest.fail(f"no end after {timeout} s: {output}")
    return process.returncode, output


def final_state(folder):
    arrays, description = load_arrays(folder / "checkpoints" / f"update-{UPDATES:08d}.safetensors")
    return arrays, description, (folder / "metrics.jsonl").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, shared_cache):
    folder = tmp_path_factory.mktemp("runs") / "uninterrupted"
    process = start(["train", *OPTIONS, "--updates", UPDATES, "--run", folder], shared_cache)
    code, output = finish(process)
    assert code == 0, output
    return folder


def assert_identical(folder, reference):
    ours, our_description, our_metrics = final_state(folder)
    theirs, their_description, their_metrics = final_state(reference)
    assert our_metrics == their_metrics
    assert our_description == their_description
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].tobytes() == theirs[name].tobytes(), name
    best = load_arrays(folder / "checkpoints" / "best.safetensors")[1]["update"]
    assert best == load_arrays(reference / "checkpoints" / "best.safetensors")[1]["update"]


def wait_for_records(folder, count, process, timeout=90):
    """Until metrics.jsonl has so many lines."""
    deadline = time.monotonic() + timeout
    path = folder / "metrics.jsonl"
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        time.sleep(0.01)


def test_killed_at_random_moments_and_resumed_it_ends_bit_identical(tmp_path, shared_cache, uninterrupted):
    rng = random.Random(0)
    folder = tmp_path / "killed"
    arguments = ["train", *OPTIONS, "--updates", UPDATES, "--run", folder]
    for kill in range(3):
        process = start(arguments, shared_cache)
        wait_for_records(folder, 1 + kill, process)
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
        process.communicate()
        arguments = ["train", "--resume", folder]
    code, output = finish(start(arguments, shared_cache))
    assert code == 0, output
    assert_identical(folder, uninterrupted)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_first_and_the_run_goes_on_as_if_nothing_had_happened(
    tmp_path, shared_cache, uninterrupted, number
):
    folder = tmp_path / "interrupted"
    process = start(["train", *OPTIONS, "--updates", UPDATES, "--run", folder], shared_cache)
    wait_for_records(folder, 1, process)
    process.send_signal(number)
    code, output = finish(process)
    if code == 0:
        pytest.skip("the run was finished before the signal came")
    assert code == 130, output
    assert f"mann train --resume {folder}" in output
    newest = sorted((folder / "checkpoints").glob("update-*"))[-1]
    assert f"Stopped at update {load_arrays(newest)[1]['update']} " in output
    code, output = finish(start(["train", "--resume", folder], shared_cache))
    assert code == 0, output
    assert_identical(folder, uninterrupted)


def test_damaged_newest_checkpoint_is_named_and_the_one_before_gives_the_same_end(
    tmp_path, shared_cache, uninterrupted
):
    folder = tmp_path / "damaged"
    process = start(["train", *OPTIONS, "--updates", UPDATES, "--run", folder], shared_cache)
    wait_for_records(folder, 4, process)
    process.kill()
    process.communicate()
    newest = sorted((folder / "checkpoints").glob("update-*"))[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.unlink()  # best.safetensors may be a link to it
    newest.write_bytes(bytes(content))
    code, output = finish(start(["train", "--resume", folder], shared_cache))
    assert code == 0, output
    assert newest.name in output.replace("\n", "")
    assert "damaged" in output
    assert_identical(folder, uninterrupted)


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def test_two_processes_give_the_result_of_one(tmp_path, shared_cache, uninterrupted):
    """One device each, on loopback: same seed and same batch, up to the order of sums."""
    folder = tmp_path / "two"
    port = free_port()
    together = ["--coordinator", f"127.0.0.1:{port}", "--processes", 2, "--devices", 1]
    arguments = ["train", *OPTIONS, "--updates", UPDATES, "--run", folder, *together]
    processes = [start([*arguments, "--process", i], shared_cache) for i in range(2)]
    for process in processes:
        code, output = finish(process)
        assert code == 0, output
    ours, theirs = final_state(folder), final_state(uninterrupted)
    losses = [[json.loads(line)["loss"] for line in metrics.splitlines()] for metrics in (ours[2], theirs[2])]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    for name in theirs[0]:
        if name.startswith("model."):
            np.testing.assert_allclose(ours[0][name], theirs[0][name], atol=5e-3)
    assert json.loads((folder / "env.json").read_text())["sessions"][0]["processes"] == 2


@pytest.mark.parametrize("cores", [1, 2])
def test_thousands_of_updates_on_two_devices_never_hang(tmp_path, shared_cache, cores):
    """In-process collectives on CPU can deadlock: see `mann.training.distributed`."""
    usable = sorted(os.sched_getaffinity(0))[:cores]
    options = ["--task.classes", 2, "--task.length", 2, "--batch", 2, "--evaluate-every", 1000]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os; os.sched_setaffinity(0, {usable}); from mann.cli import main; import sys; "
            "sys.exit(main(sys.argv[1:]))",
            *map(str, ["train", *OPTIONS, *options, "--updates", 2000, "--dispatch", 5, "--devices", 2]),
            "--run",
            str(tmp_path / "many"),
        ],
        env=os.environ | {"MANN_CACHE": str(shared_cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    code, output = finish(process, timeout=150)
    assert code == 0, output
    last = json.loads((tmp_path / "many" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["update"] == 2000


def test_read_only_folder_is_one_clear_sentence(tmp_path, shared_cache):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code, output = finish(start(["train", *OPTIONS, "--run", blocked / "run"], shared_cache))
    assert code == 2
    assert "Could not write" in output
    assert "Traceback" not in output
    assert Path(blocked).read_text() == "not a folder"
