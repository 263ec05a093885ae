"""Hundreds of wrong command lines and damaged files, from fixed seeds: a sentence each, never a traceback.

Only what would take long is stubbed: a network that would run says so and stops.
"""

import contextlib
import io
import json
import os
import random
import shutil
import sqlite3
import traceback
from pathlib import Path

import pytest

from mann.cli import COMMANDS, main
from mann.data import digits, glyphs, letters, objects, photographs, textures
from mann.errors import MannError
from mann.parts import Part
from mann.training.config import to_dict
from tests.training.tiny import TINY

ROOT = Path(__file__).parents[1]
NUMBERS = [
    "-1",
    "0",
    "1",
    "2",
    "7",
    "2147483648",
    "1" + 20 * "0",
    "-" + 30 * "9",
    "nan",
    "inf",
    "-inf",
    "1e400",
]
NUMBERS += ["", " ", "x", "1.5", "0x10", "１", "True", "None", "[]", "--help"]
WORDS = ["", "-", "--", "x", "None", "\n", "é\udcff", "*", "[", "a" * 5000, "--seed", "glyphs", "omniglot-5"]
NODES = [
    None,
    True,
    -1,
    0,
    10**20,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    [],
    {},
    ["lrua"],
    [[[]]],
    {"kind": []},
]
KINDS = {kind for family in Part.__subclasses__() for kind in family.members}
REACHED = "so far all was well"


def stop(*arguments, **options):
    raise MannError(REACHED)


@pytest.fixture(autouse=True)
def _quick(monkeypatch, shared_cache, tmp_path):
    """No network runs, no picture is rendered, nothing is downloaded, and forty glyphs are enough."""
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setenv("MANN_DATA", str(tmp_path / "no-omniglot"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("mann.models.Model.unroll_batch", stop)
    monkeypatch.setattr("mann.models.Model.step", stop)
    monkeypatch.setattr("mann.benchmark.measure", stop)
    monkeypatch.setattr("mann.commands.serve._prepare", stop)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **options: None)
    load = glyphs.load_glyphs

    def load_few(classes=1623, **options):
        glyphs._check(classes, 20, 0)
        return load(min(classes, 40), **options)

    monkeypatch.setattr("mann.data.glyphs.load_glyphs", load_few)
    for module in (textures, objects, digits, photographs):
        name = f"load_{module.__name__.rpartition('.')[2]}"
        load_all = getattr(module, name)
        monkeypatch.setattr(module, name, lambda many, *rest, load=load_all: load(min(many, 12), *rest))
    common = letters._common
    monkeypatch.setattr(letters, "_common", lambda faces: common(faces)[:12])
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def places(tmp_path) -> list[str]:
    """Names of files and folders that are not what a command hopes for."""
    folder = tmp_path / "places"
    (folder / "empty-folder").mkdir(parents=True)
    (folder / "config-is-a-folder" / "config.json").mkdir(parents=True)
    (folder / "folder.png").mkdir()
    (folder / "folder.py").mkdir()
    (folder / "table1").mkdir()
    contents = {
        "empty": b"",
        "text": b"hello\n",
        "binary": bytes(range(256)) * 9,
        "weights.safetensors": (ROOT / "src/mann/pretrained/gp-1d.safetensors").read_bytes()[:5000],
        "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(50),
        "read-only": b"",
        "mistake.py": b"def (",
        "raises.py": b"import mann\nmann.Config(task=3)",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "read-only").chmod(0)
    (folder / "table1" / "a.json").write_bytes(b"\xff\xfe{")
    with contextlib.closing(sqlite3.connect(folder / "some.sqlite")) as database:
        database.execute("create table trials (x)")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "dangling").symlink_to(folder / "nothing")
    configs = [
        b"[" * 100_000,
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b"{",
        b'"x"',
        b'{"task": {"kind": ["x"]}}',
        b"",
    ]
    for number, content in enumerate(configs):
        run = folder / f"run-{number}"
        (run / "checkpoints").mkdir(parents=True)
        (run / "config.json").write_bytes(content)
    inside = [
        folder / "text" / "inside",
        folder / ("n" * 300),
        folder / "loop" / "x",
        folder / "nothing" / "x",
    ]
    return [str(path) for path in [folder, *sorted(folder.iterdir()), *inside]] + [
        "/dev/null",
        "/proc/nothing/x",
    ]


def problem_of(arguments: list[str]) -> str | None:
    """What is wrong with how a command line was answered; None if nothing is."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", "replace"), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
    except BaseException:
        return traceback.format_exc(limit=-4)
    shown = err.getvalue()
    if code not in (0, 2):
        return f"exit code {code}: {shown}"
    if code == 2 and not shown.strip() and arguments[1:]:
        return "exit code 2 without a word"
    return shown if "Traceback" in shown else None


def check(command_lines) -> None:
    problems = {}
    for arguments in command_lines:
        if problem := problem_of(arguments):
            problems[" ".join(word[:200] for word in arguments)] = problem
    report = "\n".join(f"mann {line!r}\n{problem}" for line, problem in problems.items())
    assert not problems, f"{len(problems)} command lines:\n{report}"


OPTIONS = {  # words: places and odd words; numbers: odd numbers; the rest: their values
    "export": {"": "places", "--onnx": ["new"]},
    "export omniglot-5": {"--onnx": "places", "--web": "places"},
    "quickstart": {"--run": "places", "--updates": "numbers", "--devices": "numbers", "--force": None},
    "train glyphs-5": {
        "--run": "places",
        "--resume": "places",
        "--devices": "numbers",
        "--coordinator": "words",
        "--processes": "numbers",
        "--batch": "numbers",
        "--updates": "numbers",
        "--seed": "numbers",
        "--averaging": "numbers",
        "--dispatch": "numbers",
        "--evaluate-every": "numbers",
        "--evaluate-episodes": "numbers",
        "--task.classes": "numbers",
        "--task.length": "numbers",
        "--task.labels": "words",
        "--model.controller.hidden": "numbers",
        "--model.memory": "kinds",
        "--model.encoder": "kinds",
        "--model.controller": "kinds",
        "--task": "kinds",
        "--optimiser": "kinds",
        "--use": "places",
        "--model.memory.slots": "numbers",
        "--data": "kinds",
        "--data.classes": "numbers",
        "--data.validation": "numbers",
        "--optimiser.learning-rate": "numbers",
        "--optimiser.warmup": "numbers",
        "--curriculum.every": "numbers",
    },
    "train --resume": {"": "places"},
    "train": {"": "words", "--use": "places"},
    "train --model.memory ntm": {"": ["glyphs-5", "gp-1d", "paper"], "--model.memory.decay": "numbers"},
    "eval": {
        "": "places",
        "--episodes": "numbers",
        "--dataset": "places",
        "--classes": "numbers",
        "--length": "numbers",
        "--json": "places",
    },
    "eval gp-1d": {
        "--use": "places",
        "--episodes": "numbers",
        "--classes": "numbers",
        "--length": "numbers",
        "--json": "places",
    },
    "reproduce table1 --scale smoke": {"--runs": "places", "--results": "places", "--only": "words"},
    "reproduce": {"": "words", "--dim": "numbers", "--scale": "words"},
    "report": {"--results": "places", "--docs": "places"},
    "learn": {"": "places", "--model": "places", "--json": "places", "--seed": "numbers", "--save": "places"},
    "serve --no-browser": {
        "--port": "numbers",
        "--host": ["", "::1", "[", "\n"],
        "--results": "places",
        "--trials": "places",
        "--browsers": "numbers",
        "--idle": "numbers",
        "--trial-length": "numbers",
    },
    "trials summary": {"--file": "places"},
    "trials export": {"--file": "places", "--out": "places"},
    "trials": {"": "words"},
    "data folder": {"--path": "places", "--sheet": "places"},
    "data omniglot": {"--path": "places"},
    "data glyphs": {"--classes": "numbers", "--rows": "numbers", "--columns": "numbers", "--seed": "numbers"},
    "bench": {"--json": "places", "--plot": "places", "--devices": "numbers", "--quick": None},
    "": {"": "words"},
}


AT_MOST = {
    start: 3 if start.startswith(("train glyphs", "quickstart", "reproduce")) else 15 for start in OPTIONS
}


def test_every_command_is_tried():
    assert {start.split()[0] for start in OPTIONS if start} == set(COMMANDS)


@pytest.mark.parametrize("start", OPTIONS)
def test_wrong_words_get_a_sentence(start, places):
    """Every option with a few odd values, then some together."""
    chance = random.Random(start)
    values = {
        "places": places + WORDS[:4],
        "words": WORDS,
        "numbers": NUMBERS,
        "kinds": sorted(KINDS) + WORDS[:4],
    }

    def words_of(option, how_many=1):
        kind = OPTIONS[start][option]
        prefix = [option] if option else []
        if kind is None:
            return [prefix]
        choices = values[kind] if isinstance(kind, str) else kind
        return [[*prefix, value] for value in chance.sample(choices, min(how_many, len(choices)))]

    options = list(OPTIONS[start])
    lines = [start.split() + words for option in options for words in words_of(option, AT_MOST[start])]
    for _ in range(max(6, len(options))):
        some = chance.sample(options, min(len(options), chance.randint(2, 3)))
        lines.append(start.split() + [word for option in some for word in words_of(option)[0]])
    check(lines)


def mutate(content, chance: random.Random):
    """One place in a tree of JSON is replaced, renamed or removed."""
    trail, node = [], content
    while isinstance(node, dict | list) and node and (not trail or chance.random() < 0.8):
        key = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        trail.append((node, key))
        node = node[key]
    place, key = trail[-1]
    choice = chance.random()
    if choice < 0.8:
        place[key] = chance.choice(NODES)
    elif isinstance(place, dict):
        value = place.pop(key)
        if choice < 0.9:
            place["renamed"] = value
    else:
        del place[key]


def test_an_edited_configuration_gets_a_sentence(tmp_path):
    chance = random.Random(1)
    run = tmp_path / "run"
    lines = []
    for number in range(60):
        content = to_dict(TINY)
        mutate(content, chance)
        run = tmp_path / f"run-{number}"
        (run / "checkpoints").mkdir(parents=True)
        (run / "config.json").write_text(json.dumps(content))
        lines.append(["train", "--resume", str(run)] if number % 3 else ["eval", str(run)])
    check(lines)


@pytest.mark.parametrize("name", ["table1", "figure2", "regression"])
def test_edited_records_get_a_sentence(name, tmp_path):
    chance = random.Random(name)
    originals = sorted((ROOT / "results" / name).glob("*-seed0.json"))[:3]
    lines = []
    for number in range(15):
        folder = tmp_path / str(number) / name
        folder.mkdir(parents=True)
        for path in originals:
            shutil.copy(path, folder)
        damaged = folder / chance.choice(originals).name
        content = json.loads(damaged.read_text())
        mutate(content, chance)
        damaged.write_text(json.dumps(content))
        lines.append(["report", "--results", str(folder.parent), "--docs", str(tmp_path / "docs")])
        if name == "table1":
            records = ["--results", str(folder.parent), "--runs", str(tmp_path / "runs")]
            lines.append(["reproduce", name, "--scale", "full", "--list", *records])
    check(lines)


def test_a_record_that_is_a_list_or_nested_too_deeply_gets_a_sentence(tmp_path):
    place = tmp_path / "results" / "table1"
    place.mkdir(parents=True)
    for content in ("[]", "3", "[" * 100_000, '{"evaluations": 3}'):
        (place / "5-onehot-mann-seed0.json").write_text(content)
        check([["report", "--results", str(place.parent), "--docs", str(tmp_path / "docs")]])


def test_a_full_disk_gets_a_sentence(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    check([["report", "--results", str(ROOT / "results"), "--docs", str(tmp_path / "docs")]])
