"""What only real processes can show: kills at any moment, signals, two processes, one core."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mann.files import load_arrays
from mann.training.run import Run
from tests.training.tiny import OPTIONS

UPDATES = 120  # with twenty evaluations: a run that is killed or stopped after a few is far from its end


STARTED = []


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test():
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()
        process.stdout.close()


def start(arguments, cache, **environment):
    process = subprocess.Popen(
        [sys.executable, "-m", "mann", *map(str, arguments)],
        env=os.environ | {"MANN_CACHE": str(cache)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    STARTED.append(process)
    return process


def finish(process, timeout=300):
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


def last_update(folder):
    return json.loads((folder / "metrics.jsonl").read_bytes().splitlines()[-1])["update"]


def wait_for_records(folder, count, process, timeout=240):
    """Until metrics.jsonl has so many lines."""
    deadline = time.monotonic() + timeout
    path = folder / "metrics.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"no {count} records after {timeout} s or at the end: {process.communicate()[0]}")
        time.sleep(0.01)


def wait_while_it_moves(folder, process, patience=300):
    """Until the end, however slow a busy machine makes it: only a run without a new record hangs."""
    path, count, since = folder / "metrics.jsonl", 0, time.monotonic()
    while process.poll() is None and time.monotonic() < since + patience:
        now = path.read_bytes().count(b"\n") if path.exists() else 0
        if now > count:
            count, since = now, time.monotonic()
        time.sleep(0.05)


def kill(process, folder):
    """Kill a run, and make sure that it was in the midst of its work."""
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert last_update(folder) < UPDATES


def test_killed_at_random_moments_and_resumed_it_ends_bit_identical(tmp_path, shared_cache, uninterrupted):
    """Even if its newest checkpoint is damaged in the end: that is named, and the one before it is taken."""
    rng = random.Random(0)
    folder = tmp_path / "killed"
    arguments = ["train", *OPTIONS, "--updates", UPDATES, "--run", folder]
    for records in (1, 3, 5):
        process = start(arguments, shared_cache)
        wait_for_records(folder, records, process)
        time.sleep(rng.uniform(0, 0.15))
        kill(process, folder)
        arguments = ["train", "--resume", folder]
    newest = sorted((folder / "checkpoints").glob("update-*"))[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.unlink()  # best.safetensors may be a link to it
    newest.write_bytes(bytes(content))
    code, output = finish(start(arguments, shared_cache))
    assert code == 0, output
    assert newest.name in output.replace("\n", "")
    assert "damaged" in output
    assert_identical(folder, uninterrupted)


def test_signals_save_first_and_the_run_goes_on_as_if_nothing_had_happened(
    tmp_path, shared_cache, uninterrupted
):
    folder = tmp_path / "interrupted"
    arguments, records = ["train", *OPTIONS, "--updates", UPDATES, "--run", folder], 0
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(arguments, shared_cache)
        wait_for_records(folder, records + 1, process)
        process.send_signal(number)
        code, output = finish(process)
        assert code == 130, output
        assert last_update(folder) < UPDATES
        assert f"mann train --resume {folder}" in output
        newest = sorted((folder / "checkpoints").glob("update-*"))[-1]
        assert f"Stopped at update {load_arrays(newest)[1]['update']} " in output
        arguments, records = ["train", "--resume", folder], len(Run(folder).read("metrics.jsonl"))
    code, output = finish(start(arguments, shared_cache))
    assert code == 0, output
    assert_identical(folder, uninterrupted)


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def start_together(arguments, cache):
    """Two processes on loopback, one device each."""
    together = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", 2, "--devices", 1]
    return [start([*arguments, *together, "--process", i], cache) for i in range(2)]


def test_two_processes_give_the_result_of_one(tmp_path, shared_cache, uninterrupted):
    """One device each, on loopback: same seed and same batch, up to the order of sums."""
    folder = tmp_path / "two"
    for process in start_together(["train", *OPTIONS, "--updates", UPDATES, "--run", folder], shared_cache):
        code, output = finish(process)
        assert code == 0, output
    ours, theirs = final_state(folder), final_state(uninterrupted)
    losses = [[json.loads(line)["loss"] for line in metrics.splitlines()] for metrics in (ours[2], theirs[2])]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    for name in theirs[0]:
        if name.startswith("model."):
            np.testing.assert_allclose(ours[0][name], theirs[0][name], atol=1e-5, err_msg=name)
    assert json.loads((folder / "env.json").read_text())["sessions"][0]["processes"] == 2


def test_what_the_writing_process_refuses_ends_the_other_too(tmp_path, shared_cache):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    processes = start_together(["train", *OPTIONS, "--run", folder], shared_cache)
    (code, output), (other_code, other_output) = map(finish, processes)
    assert (code, other_code) == (2, 2), output + other_output
    assert f"mann: The folder {folder} is not empty: resume the run in it" in output
    assert "mann: Another process of this run stopped: see its message." in other_output
    assert [path.name for path in folder.iterdir()] == ["config.json"]


@pytest.mark.parametrize("victim", [0, 1])
def test_when_a_process_is_killed_the_other_ends_with_one_sentence(tmp_path, shared_cache, victim):
    """Process 0 coordinates and writes the files."""
    folder = tmp_path / "run"
    processes = start_together(["train", *OPTIONS, "--updates", UPDATES, "--run", folder], shared_cache)
    wait_for_records(folder, 2, processes[0])
    kill(processes[victim], folder)
    code, output = finish(processes[1 - victim], timeout=60)  # heartbeats would take 100 s to tell
    assert code == 2, output
    *rest, sentence = output.splitlines()
    assert sentence.startswith("mann: Another process of this run has ended or cannot be reached.")
    assert not [line for line in rest if re.match(r"mann:|[EFW]\d{4} |Traceback|    @ |\*\*\*", line)], output
    warnings = []
    with Run(folder) as run:
        _, checkpoint = run.resume(warnings.append)
    assert not warnings
    assert checkpoint.description["update"] >= last_update(folder)


@pytest.mark.parametrize(
    ("process", "who"), [(0, "processes 1 to 2"), (1, "process 0 at 127.0.0.1:{port} and")]
)
def test_a_missing_process_is_awaited_aloud_and_not_for_ever(tmp_path, shared_cache, process, who):
    port = free_port()
    together = ["--coordinator", f"127.0.0.1:{port}", "--processes", 3, "--process", process, "--wait", 4]
    code, output = finish(start(["train", *OPTIONS, "--run", tmp_path / "run", *together], shared_cache))
    assert code == 2, output
    waiting, sentence = output.splitlines()
    assert re.match(rf"Waiting for {who.format(port=port)}.* to join, for [012] s at most\.$", waiting)
    assert sentence.startswith("mann: Not everybody joined within 4 s (awaited: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("cores", [1, 2])
def test_thousands_of_updates_on_two_devices_never_hang(tmp_path, shared_cache, cores):
    """In-process collectives on CPU can deadlock: see `mann.training.distributed`."""
    usable = sorted(os.sched_getaffinity(0))[:cores]
    options = ["--task.classes", 2, "--task.length", 2, "--batch", 2, "--evaluate-every", 100]
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
    wait_while_it_moves(tmp_path / "many", process)
    code, output = finish(process, timeout=5)
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
