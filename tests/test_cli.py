import ast
import dataclasses
import errno
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

import mann
from mann.cli import COMMANDS, main
from tests.sketches import sketch
from tests.training.tiny import OPTIONS


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setenv("COLUMNS", "200")


def test_help_answers_at_once_and_without_jax():
    code = "import sys, mann.cli; mann.cli.main(['--help']); sys.exit('jax' in sys.modules)"
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert "mann quickstart" in done.stdout
    work = after.children_user + after.children_system - before.children_user - before.children_system
    assert work < 1  # seconds, however many others share the processor


def test_help_of_train_lists_presets(capsys):
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for preset in ("omniglot-5", "omniglot-5-strings", "omniglot-15-strings", "glyphs-5", "paper", "gp-1d"):
        assert preset in shown


def test_help_of_a_preset_lists_every_field_with_its_value(capsys):
    assert main(["train", "paper", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--model.memory.key-strength" in shown
    assert "(default: per_head)" in shown


@pytest.mark.parametrize("command", ["", *COMMANDS, "train glyphs-5", "train gp-1d", "reproduce table1"])
@pytest.mark.parametrize("width", [60, 80])
def test_help_is_wrapped_to_the_terminal_and_tells_no_empty_defaults(command, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "usage: mann" in shown
    fixed = max(width, 80)  # examples and lists keep their lines
    assert max(map(len, shown.splitlines())) <= fixed
    assert not re.search(r"\(default: *('')?\)", shown)
    assert not re.search(r"^│ *''\)? *│$", shown, re.MULTILINE)


def test_help_in_a_terminal_has_colours_and_no_empty_lines(monkeypatch):
    """An empty default that is broken over two lines, in colour, leaves no trace."""
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    for width in range(50, 70):
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(["eval", "--help"]) == 0
    shown = terminal.buffer.getvalue().decode()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert len(plain) < len(shown)
    assert plain.count("--json STR") == 20
    assert not re.search(r"^│ *(''\))? *│$|\(default: *│$\n│ *''", plain, re.MULTILINE)


@pytest.mark.parametrize(
    ("wrong", "right"), [("evel", "eval"), ("tain", "train"), ("reproduces", "reproduce")]
)
def test_a_misspelt_command_gets_a_suggestion(wrong, right, capsys):
    assert main([wrong]) == 2
    assert capsys.readouterr().err == f"mann: there is no command {wrong!r}: did you mean {right!r}?\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dance"], "no command 'dance'"),
        (["train"], "Say which preset"),
        (["train", "omniglot-6"], "no preset 'omniglot-6'"),
        (["train", "--batch", "8"], "Say which preset"),
        (["train", "--batch", "8", "omniglot-6"], "no preset 'omniglot-6'"),
        (["train", "--resume="], "--resume needs the folder"),
        (["train", "--resume", "somewhere", "--run", "elsewhere"], "keeps its configuration"),
        (["train", "--resume", "somewhere", "--batch", "16"], "keeps its configuration"),
        (["train", "--resume", "somewhere", "--model.memory", "lrua"], "keeps its configuration"),
        (["quickstart", "--updates", "-3"], "--updates must be at least 1"),
        (["eval", "gp-1d", "--dataset", "glyphs"], "leave the data set out"),
        (["train", "glyphs-5", "--batch", "0"], "batch must be at least 1"),
        (["train", "glyphs-5", "--task.classes", "0"], "classes in an episode must be at least 1"),
        (["train", "gp-1d", "--task.dimensions", "4"], "1, 2 or 3 dimensions"),
        (
            ["train", "gp-1d", "--task.process.length-scale", "-1"],
            "length scale of the process must be positive",
        ),
        (["reproduce", "regression", "--dim", "4"], "1, 2 or 3 dimensions, not 4"),
        (["reproduce", "table1", "--dim", "2"], "leave --dim out"),
        (["train", "glyphs-5", "--resume", "somewhere"], "keeps its configuration"),
        (["train", "--resume", "nowhere"], "no config.json"),
        (["train", "glyphs-5", "--process", "1"], "need --coordinator"),
        (["train", "glyphs-5", "--processes", "2"], "need --coordinator"),
        (["train", "glyphs-5", "--distributed", "--coordinator", "localhost:1"], "leave out one of them"),
        (["train", "glyphs-5", "--data.path", "somewhere"], "--data.path"),
        (["train", "gp-1d", "--data", "glyphs"], "set data to none"),
        (["train", "glyphs-5", "--model.memory", "tape"], "choose one of none, attention"),
        (["train", "glyphs-5", "--model.memory"], "--model.memory needs a name"),
        (["train", "nowhere.py:config"], "no file nowhere.py"),
        (["eval", "omniglot-5", "--use", "nowhere.py"], "no file nowhere.py"),
        (["train", "glyphs-5", "--devices", "100000"], "devices must be at most 256"),
        (["train", "glyphs-5", "--model.memory.slots", "2147483648"], "slots must be at most"),
        (["train", "glyphs-5", "--model.memory.slots", "16000000"], "or a smaller model"),
        (["eval", "gp-1d", "--episodes", "1" + 20 * "0"], "must be at most 1000000"),
        (["data", "glyphs", "--seed", "-1"], "seed must lie between"),
        (["data", "glyphs", "--path", "somewhere"], "no choice of path"),
        (["eval", "nothing-of-that-name"], "no model 'nothing-of-that-name'"),
        (["data", "folder"], "needs its path"),
        (["data", "folder", "--path", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_sentence_and_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert message in " ".join(shown.split())
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "glyphs-5", "--batch", "many"],
        ["train", "glyphs-5", "--bacth", "3"],
        ["data", "mnist"],
        ["eval"],
    ],
)
def test_mistakes_in_the_words_are_code_2(arguments, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err


def test_train_then_eval_writes_json(tmp_path, capsys):
    run, result = tmp_path / "run", tmp_path / "result.json"
    assert main(["train", *OPTIONS, "--updates", "6", "--run", str(run), "--devices", "2"]) == 0
    assert f"mann eval {run}" in capsys.readouterr().out
    assert main(["eval", str(run), "--episodes", "20", "--json", str(result)]) == 0
    assert "Tested on glyphs classes 31–40" in capsys.readouterr().out
    assert json.loads(result.read_text())["episodes"] == 20
    assert main(["train", *OPTIONS, "--run", str(run)]) == 2
    assert "not empty" in capsys.readouterr().err


def test_a_seed_that_cannot_be_is_refused_by_learn(tmp_path, capsys):
    for place in ("show", "ask"):
        (tmp_path / place).mkdir()
        sketch("ring", 0).save(tmp_path / place / "ring.png")
    assert main(["learn", str(tmp_path), "--seed", "-1"]) == 2
    assert "seed must lie between 0 and 2³¹ − 1, not -1" in capsys.readouterr().err


def test_sheet_of_a_folder_of_images(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for name in ("ankh", "bird"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for i in range(3):
            page = np.full((50, 60), 255, np.uint8)
            row, column = rng.integers(10, 30, 2)
            page[row : row + 12, column : column + 4] = 0
            Image.fromarray(page).save(tmp_path / "mine" / name / f"{i}.png")
    sheet = tmp_path / "sheet.png"
    arguments = ["data", "folder", "--path", str(tmp_path / "mine"), "--sheet", str(sheet)]
    assert main(arguments) == 0
    assert "2 classes, 3 drawings of each" in capsys.readouterr().out
    with Image.open(sheet) as picture:
        assert picture.width > 500
        assert np.asarray(picture).min() < 50
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0


def test_quickstart_trains_tests_draws_and_says_what_next(tmp_path, capsys, monkeypatch):
    from tests.training.tiny import TINY

    monkeypatch.setattr("mann.training.presets.QUICKSTART", TINY)
    run = tmp_path / "quick"
    assert main(["quickstart", "--run", str(run), "--updates", "6", "--devices", "2"]) == 0
    shown = capsys.readouterr().out
    for picture in ("curves", "episode", "memory"):
        with Image.open(run / "figures" / f"{picture}.png") as image:
            assert image.width > 500
        assert f"{picture}.png" in shown
    assert shown.index("Next:") > shown.index("Pictures:")
    assert main(["quickstart", "--run", str(run)]) == 2
    assert "--force" in capsys.readouterr().err


def fail_with(error):
    def run(arguments):
        raise error

    return run


OUT_OF_MEMORY = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes.")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "runs"), "Permission denied: runs."),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device."),
        (OSError("timed out"), "Timed out."),
        (FileExistsError(errno.EEXIST, "File exists", "a", None, "b"), "File exists: a and b."),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "not valid UTF-8"),
        (MemoryError(), "not enough memory"),
        (OUT_OF_MEMORY, "not enough memory"),
    ],
)
def test_errors_from_outside_are_one_sentence_and_code_2(error, sentence, monkeypatch, capsys):
    monkeypatch.setattr("mann.commands.report.main", fail_with(error))
    assert main(["report"]) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert shown.startswith("mann: ")
    assert shown.count("\n") == 1
    monkeypatch.setenv("MANN_TRACEBACK", "1")
    with pytest.raises(type(error)):
        main(["report"])


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), jax.errors.JaxRuntimeError("INTERNAL: x")])
def test_a_bug_of_ours_keeps_its_traceback(error, monkeypatch):
    monkeypatch.setattr("mann.commands.report.main", fail_with(error))
    with pytest.raises(type(error)):
        main(["report"])


def test_interrupted_is_130(monkeypatch, capsys):
    monkeypatch.setattr("mann.commands.report.main", fail_with(KeyboardInterrupt()))
    assert main(["report"]) == 130
    assert capsys.readouterr().err == "mann: interrupted.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_nobody_can_take_is_a_sentence_or_silence():
    command = [sys.executable, "-m", "mann", "--help"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "mann: No space left on device.\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(("arguments", "code"), [("--help", 0), ("eval --help", 0), ("evel", 2)])
def test_closed_outputs_are_no_reason_to_fail(arguments, code):
    for closed in (">&-", ">&- 2>&-"):
        line = f"{shlex.quote(sys.executable)} -m mann {arguments} {closed}"
        done = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("omniglot-5 --batch 8", "omniglot-5"),
        ("--batch 8 omniglot-5", "omniglot-5"),
        ("omniglot-5 --run omniglot-5", "omniglot-5"),
        ("--run gp-1d omniglot-5", "omniglot-5"),
        ("--tensorboard omniglot-5", "omniglot-5"),
        ("--task.balanced omniglot-5 --run=gp-1d", "omniglot-5"),
        ("--run omniglot-5", ""),
        ("--help omniglot-5", "omniglot-5"),
        ("--data.no_mirror omniglot-5", "omniglot-5"),
        ("--data.path gp-1d omniglot-5", "omniglot-5"),
        ("--data folder --data.path omniglot-5", ""),
        ("--run nowhere.py:config omniglot-5", "omniglot-5"),
        ("--misspelt omniglot-5", "omniglot-5"),
    ],
)
def test_a_preset_is_found_wherever_it_stands(words, expected):
    from mann.commands.train import take_preset
    from mann.training.presets import PRESETS

    arguments = words.split()
    name, config = take_preset(arguments)
    assert name == expected
    assert config == PRESETS.get(expected)
    assert arguments.count("omniglot-5") == words.split().count("omniglot-5") - bool(expected)


def test_parts_are_exchanged_by_name_and_keep_what_they_have_in_common(capsys):
    from mann.commands.train import choose_parts
    from mann.training.presets import PRESETS

    words = [
        "--model.memory",
        "ntm",
        "--batch",
        "8",
        "--optimiser=adamw",
        "--data",
        "glyphs",
        "--model.memory.slots",
        "7",
    ]
    config = choose_parts(PRESETS["omniglot-5"], words)
    assert words == ["--batch", "8", "--model.memory.slots", "7"]
    assert [config.model.memory.kind, config.optimiser.kind, config.data.kind] == ["ntm", "adamw", "glyphs"]
    assert (config.model.memory.slots, config.data.mirror) == (128, True)
    assert main(["train", "omniglot-5", "--model.memory", "ntm", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--model.memory.initial-heads" in shown
    assert "--model.memory.least-used" not in shown
    assert re.search(r"none \| attention \| [a-z |\n-]*ntm", shown)
    assert ">>>" not in shown  # examples of Python in docstrings


def test_a_part_keeps_what_was_changed_and_has_its_own_defaults_otherwise():
    from mann.commands.train import choose_parts
    from mann.memory import LRUAConfig, SelectiveConfig
    from mann.training.presets import PRESETS

    start = PRESETS["omniglot-15-strings"]  # 4 read heads, of which a selective memory has one
    assert choose_parts(start, ["--model.memory", "selective"]).model.memory == SelectiveConfig()
    changed = dataclasses.replace(start.model, memory=LRUAConfig(slots=32, initial_strength=3.0))
    chosen = choose_parts(dataclasses.replace(start, model=changed), ["--model.memory", "selective"])
    assert chosen.model.memory == SelectiveConfig(slots=32)


def test_the_last_of_several_names_of_a_part_counts():
    from mann.commands.train import choose_parts
    from mann.training.presets import PRESETS

    words = ["--model.memory=none", "--seed", "3", "--model.memory", "lrua", "--model.memory", "ntm"]
    assert choose_parts(PRESETS["omniglot-5"], words).model.memory.kind == "ntm"
    assert words == ["--seed", "3"]


def test_a_folder_in_use_is_refused_before_the_data_is_read(tmp_path, monkeypatch, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setattr("mann.data.Glyphs.load", lambda self: pytest.fail("the data was read"))
    assert main(["train", "glyphs-5", "--run", str(tmp_path)]) == 2
    assert "is not empty: choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "no-such-model", "--json"],
        ["eval", "no-such-model", "--teach-once", "5", "--json"],
        ["learn", "no-such-folder", "--json"],
        ["learn", "no-such-folder", "--save"],
        ["learn", "no-such-folder", "--show-seen"],
        ["data", "no-such-data", "--sheet"],
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(words, capsys):
    assert main([*words, "/dev/null/file"]) == 2
    assert capsys.readouterr().err.startswith("mann: Cannot write /dev/null/file")


def test_texts_of_options_stand_on_one_line():
    """The parser of the command line would keep the break between two, wherever the terminal breaks them."""
    several = []
    for file in Path(mann.__file__).parent.rglob("*.py"):
        for cls in ast.walk(ast.parse(file.read_text())):
            frozen = isinstance(cls, ast.ClassDef) and "frozen=True" in map(ast.unparse, _keywords(cls))
            for field, text in itertools.pairwise(cls.body) if frozen else ():
                match field, text:
                    case ast.AnnAssign(), ast.Expr(ast.Constant(str(words))) if "\n" in words:
                        several.append(f"{file.name} {cls.name}.{ast.unparse(field.target)}")
    assert several == ["images.py ImageSet.images"]  # is no option


def _keywords(cls):
    return [word for call in cls.decorator_list if isinstance(call, ast.Call) for word in call.keywords]
