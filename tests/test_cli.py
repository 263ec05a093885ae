import json
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from mann.cli import main
from tests.training.tiny import OPTIONS


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setenv("COLUMNS", "200")


def test_help_answers_at_once_and_without_jax():
    code = "import sys, mann.cli; mann.cli.main(['--help']); sys.exit('jax' in sys.modules)"
    best = 9.0
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        best = min(best, time.perf_counter() - began)
    assert done.returncode == 0, done.stderr
    assert "mann quickstart" in done.stdout
    assert best < 1


def test_help_of_train_lists_presets(capsys):
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for preset in ("omniglot-5", "omniglot-5-strings", "omniglot-15-strings", "glyphs-5", "paper", "gp-1d"):
        assert preset in shown


def test_help_of_a_preset_lists_every_field_with_its_value(capsys):
    assert main(["train", "paper", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--model.lrua.key-strength" in shown
    assert "(default: per_head)" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dance"], "no command 'dance'"),
        (["train"], "Say which preset"),
        (["train", "omniglot-6"], "no preset 'omniglot-6'"),
        (["train", "glyphs-5", "--batch", "0"], "batch must be at least 1"),
        (["train", "glyphs-5", "--task.classes", "0"], "at least 1 class"),
        (["train", "gp-1d", "--task.dimensions", "4"], "1, 2 or 3 dimensions"),
        (
            ["train", "gp-1d", "--task.process.length-scale", "-1"],
            "length scale of the process must be positive",
        ),
        (["reproduce", "regression", "--dim", "4"], "1, 2 or 3 dimensions, not 4"),
        (["reproduce", "table1", "--dim", "2"], "leave --dim out"),
        (["train", "glyphs-5", "--resume", "somewhere"], "keeps its configuration"),
        (["train", "--resume", "nowhere"], "no config.json"),
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
        assert (run / "figures" / f"{picture}.png").stat().st_size > 5000
        assert f"{picture}.png" in shown
    assert shown.index("Next:") > shown.index("Pictures:")
    assert main(["quickstart", "--run", str(run)]) == 2
    assert "--force" in capsys.readouterr().err
