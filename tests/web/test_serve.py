"""`mann serve` as a user starts and stops it."""

import os
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest

from mann.cli import main
from mann.commands.serve import Arguments, _hosts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "--public"),
        (["--host", "192.168.1.5"], "--public"),
        (["--host", "example.org"], "--public"),
        (["--host", "0.0.0.0", "--public"], "--public 192.168.1.5"),
        (["--host", "0.0.0.0", "--public", "example.org"], "needs a token"),
        (["--public", "http://example.org"], "without http://"),
        (["--public", "example.org:80"], "without http://"),
        (["--public", "*"], "without http://"),
        (["--learners", "0"], "between 1 and"),
        (["--idle", "0"], "more than 0 days"),
        (["--token-file", "nowhere"], "cannot be read"),
        (["--port", "70000"], "0 to 65535"),
        (["--browsers", "0"], "between 1 and"),
        (["--trial-length", "0"], "between 1 and 500"),
        (["--model", "nothing-of-that-name", "--port", "0"], "no model"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message, capsys):
    assert main(["serve", "--no-browser", *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_public_names_the_hosts_that_are_served():
    loopback = {"127.0.0.1", "localhost", "::1"}
    assert set(_hosts(Arguments())) == loopback
    public = Arguments(host="0.0.0.0", public=("Playground.example", "192.168.1.5"))
    assert set(_hosts(public)) == {*loopback, "playground.example", "192.168.1.5"}


def test_a_port_in_use_is_one_sentence(running, capsys):
    port = running.address.rsplit(":", 1)[1]
    assert main(["serve", "--port", port, "--no-browser"]) == 2
    assert "Try another --port" in capsys.readouterr().err


def test_starts_answers_and_stops_in_peace(tmp_path, shared_cache):
    environment = os.environ | {
        "MANN_CACHE": str(shared_cache),
        "HOME": str(tmp_path),  # where a folder of an earlier version would be taken instead
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PYTHONPATH": ":".join(sys.path),
    }
    environment.pop("MANN_DATA", None)
    public = ["--public", "playground.example"]
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mann",
            "serve",
            "--port",
            "0",
            "--no-browser",
            "--model",
            "omniglot-5",
            *public,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    try:
        shown = ""
        while "The playground is at" not in shown:
            line = server.stdout.readline()
            assert line, shown
            shown += line
        address = re.search(r"http://127\.0\.0\.1:\d+", shown).group()
        assert httpx.get(f"{address}/health").json() == {"status": "ok", "browsers": 0}
        assert httpx.get(f"{address}/api/experiment").json()["length"] == 50
        for host, status in (("playground.example", 200), ("evil.example", 400)):
            assert httpx.get(f"{address}/health", headers={"host": host}).status_code == status
        server.send_signal(signal.SIGTERM)
        began = time.monotonic()
        rest, _ = server.communicate(timeout=20)
        assert time.monotonic() - began < 10
        assert server.returncode == 0
        assert rest == "Stopped.\n"
        for name in ("trials", "learners"):
            assert (tmp_path / "data" / "mann" / f"{name}.sqlite").is_file()
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
