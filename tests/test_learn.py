"""`mann learn`: drawings, photographs of drawings, and what cannot be used."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from mann import OneShotLearner
from mann.cli import main
from mann.commands.learn import _ask
from tests.photographs import CONDITIONS, SHAPES, Camera, scan
from tests.sketches import sketch


def write_folder(folder: Path) -> None:
    for place in ("show", "ask"):
        (folder / place).mkdir(parents=True)
    for name in ("cross", "ring", "zigzag"):
        sketch(name, 0).save(folder / "show" / f"{name}.png")
        ImageOps.invert(sketch(name, 1, side=80)).save(folder / "ask" / f"{name}-2.png")


def test_learn_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    write_folder(tmp_path / "mine")
    arguments = ["learn", str(tmp_path / "mine"), "--model", "omniglot-5"]
    assert main([*arguments, "--json", str(tmp_path / "out.json"), "--save", str(tmp_path / "kept")]) == 0
    shown = capsys.readouterr().out
    assert "cross, ring, zigzag" in shown
    result = json.loads((tmp_path / "out.json").read_text())
    assert [answer["file"] for answer in result["predictions"]] == [
        "cross-2.png",
        "ring-2.png",
        "zigzag-2.png",
    ]
    assert [answer["prediction"] for answer in result["predictions"]] == ["cross", "ring", "zigzag"]
    for answer in result["predictions"]:
        assert sum(answer["probabilities"].values()) + answer["something_new"] == pytest.approx(1)
    assert OneShotLearner.load(tmp_path / "kept").labels == ("cross", "ring", "zigzag")
    assert main([*arguments, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.parametrize(("novelty", "is_new"), [(True, True), (False, False), (0.0, True), (1.0, False)])
def test_answers_are_those_of_the_learner(tmp_path, novelty, is_new):
    """However it decides what is new: by the more probable, never, or from a probability on."""
    for name in ("ring", "cross"):
        sketch(name, 0).save(tmp_path / f"{name}.png")
    learner = OneShotLearner.from_pretrained("omniglot-5", novelty=novelty)
    learner.learn_one(tmp_path / "ring.png", "ring")
    for name in ("ring", "cross"):
        path = tmp_path / f"{name}.png"
        answer, seen = _ask(learner, path)
        assert answer["prediction"] == learner.predict_one(path)
        assert (answer["prediction"] or "something new") in seen.caption
    assert (answer["prediction"] is None) == is_new


def test_mistakes_of_learn_are_one_sentence(tmp_path, capsys):
    (tmp_path / "show").mkdir()
    for expected in ("has no pictures", "ask does not exist", "more than one picture of a"):
        assert main(["learn", str(tmp_path)]) == 2
        assert expected in capsys.readouterr().err
        if expected == "ask does not exist":
            (tmp_path / "ask").mkdir()
            Image.new("L", (9, 9)).save(tmp_path / "ask" / "a.png")
            Image.new("L", (9, 9)).save(tmp_path / "show" / "a.jpg")
        else:
            Image.new("L", (9, 9)).save(tmp_path / "show" / "a.png")


def test_photographs_of_drawings(tmp_path, capsys):
    """Shown one scan of each of ten shapes, asked another drawing of each, photographed in ten ways."""
    for place in ("show", "ask"):
        (tmp_path / place).mkdir()
    for seed, (shape, strokes) in enumerate(SHAPES.items()):
        scan(Camera(seed, width=600), strokes).save(tmp_path / "show" / f"{shape}.jpg")
        for condition, photograph in CONDITIONS.items():
            photograph(Camera(100 + seed, width=600), strokes).save(
                tmp_path / "ask" / f"{shape}, {condition}.jpg"
            )
    assert main(["learn", str(tmp_path), "--json", "-"]) == 0
    captured = capsys.readouterr()
    answers = json.loads(captured.out)["predictions"]
    assert len(answers) == 100
    for condition in CONDITIONS:
        asked = [answer for answer in answers if answer["file"].endswith(f", {condition}.jpg")]
        right = [answer["prediction"] == answer["file"].split(",")[0] for answer in asked]
        assert sum(right) >= 8, condition
    assert captured.err.count("looks like nothing") <= 2


def test_what_cannot_be_used_is_named_and_the_rest_is_answered(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    write_folder(tmp_path)
    (tmp_path / "show" / "notes.txt").write_text("ring: a wedding ring")
    (tmp_path / "ask" / "photo.heic").write_bytes(b"not even that")
    (tmp_path / "ask" / "broken.png").write_bytes(b"no image")
    Image.new("L", (300, 200), 200).save(tmp_path / "ask" / "empty page.gif")
    speckles = np.random.default_rng(0).integers(0, 256, (40, 40), np.uint8)
    Image.fromarray(speckles).resize((400, 400)).save(tmp_path / "ask" / "speckles.tif")
    arguments = ["learn", str(tmp_path), "--model", "omniglot-5"]
    sheet, file = tmp_path / "seen.png", tmp_path / "out.json"
    assert main([*arguments, "--show-seen", str(sheet), "--json", str(file)]) == 1
    captured = capsys.readouterr()
    assert "left out" in captured.err
    assert "notes.txt" in captured.err
    assert "speckles.tif looks like nothing the network was trained on" in captured.err
    rows = {line.split("  ")[0]: line for line in captured.out.splitlines()}
    assert "it is not a readable image" in rows["broken.png"]
    assert "it is blank" in rows["empty page.gif"]
    result = json.loads(file.read_text())
    answers = {answer["file"]: answer for answer in result["predictions"]}
    assert answers["cross-2.png"]["prediction"] == "cross"
    assert "warning" in answers["speckles.tif"]
    assert "prediction" not in answers["broken.png"]
    assert any(entry["file"].endswith("notes.txt") for entry in result["left_out"])
    # Three shown and six asked (HEIC is left out, or broken as well), four to a row of three tiles each.
    with Image.open(sheet) as picture:
        assert picture.size == (4 * (3 * 105 + 4 * 8), 3 * (105 + 2 * 16 + 2 * 8))


def test_one_unusable_example_ends_the_run(tmp_path, capsys):
    write_folder(tmp_path)
    (tmp_path / "show" / "broken.png").write_bytes(b"no image")
    assert main(["learn", str(tmp_path), "--model", "omniglot-5"]) == 2
    assert "show/broken.png: it is not a readable image" in capsys.readouterr().err


def test_it_asks_for_names_only_where_it_is_unsure_and_learns_them(tmp_path, capsys, monkeypatch):
    """Nothing is shown before; the second picture of a thing is known from the first."""
    (tmp_path / "ask").mkdir()
    for number, (name, seed) in enumerate([("ring", 0), ("cross", 0), ("ring", 1), ("cross", 1)]):
        sketch(name, seed).save(tmp_path / "ask" / f"{number}.png")
    (tmp_path / "ask" / "4.png").write_bytes(b"no picture")
    monkeypatch.setattr("sys.stdin", io.StringIO("ring\ncross\n"))
    kept = tmp_path / "kept"
    arguments = ["learn", str(tmp_path), "--unsure", "--cost", "0.6", "--model", "omniglot-5"]
    assert main([*arguments, "--json", "-", "--save", str(kept)]) == 1
    captured = capsys.readouterr()
    answers = json.loads(captured.out)["predictions"]
    assert [answer.get("told") for answer in answers[:4]] == ["ring", "cross", None, None]
    assert [answer["prediction"] for answer in answers[2:4]] == ["ring", "cross"]
    assert "error" in answers[4]
    assert captured.err.count("What is ") == 2
    assert OneShotLearner.load(kept).labels == ("ring", "cross")
    # Where nobody answers it goes on without, and says what it thinks.
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main([*arguments, "--json", "-"]) == 1
    assert all(a["prediction"] is None for a in json.loads(capsys.readouterr().out)["predictions"][:4])
    assert main([*arguments, "--cost", "2"]) == 2
    assert "cost of a request" in capsys.readouterr().err
