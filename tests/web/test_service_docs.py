"""What docs/how-to/service.md tells people to type, against a real server."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sketches import sketch

PAGE = (Path(__file__).parents[2] / "docs/how-to/service.md").read_text()
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, symbol, seed in (("ring", "ring", 0), ("cross", "cross", 0), ("another-ring", "ring", 1)):
        sketch(symbol, seed).save(tmp_path / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_commands_do_what_they_say(running, folder):
    key, answers = "", []
    for line in re.findall(r"^curl .*$", PAGE, re.MULTILINE):
        command = line.replace(ADDRESS, running.address).replace("$ID", key)
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True, cwd=folder)
        answers.append(json.loads(done.stdout or (folder / "symbols.json").read_text()))
        assert "error" not in answers[-1], line
        key = key or answers[0]["id"]
    created, _, taught, predicted, forgotten, exported, imported = answers
    assert created["name"] == "symbols"
    assert [one["label"] for one in taught["labels"]] == ["ring", "cross"]
    assert predicted["predictions"][0]["label"] == "ring"
    assert [one["label"] for one in forgotten["labels"]] == ["ring"]
    assert exported["format"]
    assert imported["labels"] == forgotten["labels"]
    assert imported["id"] != key


def test_the_client_does_what_it_says(running, folder):
    (block,) = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    namespace: dict = {}
    exec(block.replace(ADDRESS, running.address), namespace)
    with namespace["server"]:
        assert namespace["learner"].predict_one("another-ring.png") == "ring"
        assert namespace["twin"].labels == ("ring",)
