"""What was taught, mended from the page: against a learner that was taught so from the start."""

import base64
import json

import numpy as np
import pytest

from tests.sketches import sketch
from tests.web.conftest import encode

DRAWINGS = {symbol: [sketch(symbol, seed) for seed in range(3)] for symbol in ("ring", "cross", "zigzag")}


def post(browser, path, **body):
    answer = browser.post(f"/api/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def teach(browser, *symbols):
    for symbol in symbols:
        session = post(browser, "learn", image=encode(DRAWINGS[symbol][0]), label=symbol)
    return session


@pytest.fixture
def browser(running):
    with running.browser() as client:
        yield client


def chances(browser, symbol):
    answer = post(browser, "predict", image=encode(DRAWINGS[symbol][1]))
    return {row["label"]: row["probability"] for row in answer["ranked"]} | {None: answer["new"]}


def assert_taught(running, browser, *examples):
    """As a learner of the same codes is that was shown nothing but these pairs of name and drawing."""
    session = running.playground.sessions.find(browser.cookies["mann_session"])
    learner = running.playground.learner.sibling(seed=session.taught.now.learner.seed)
    for name, symbol in examples:
        learner.learn_one(DRAWINGS[symbol][0], name)
    for symbol in DRAWINGS:
        expected = learner.predict_proba_one(DRAWINGS[symbol][1])
        told = chances(browser, symbol)
        assert set(told) == set(expected)
        assert [told[label] for label in expected] == pytest.approx(list(expected.values()), abs=1e-4)
    shown = browser.get("/api/examples").json()["examples"]
    assert [one["label"] for one in shown] == [name for name, _ in examples]
    for one, (_, symbol) in zip(shown, examples, strict=True):
        levels = np.frombuffer(base64.b64decode(one["picture"]), np.uint8)
        np.testing.assert_array_equal(levels, np.rint(255 * learner.prepare(DRAWINGS[symbol][0]).pixels))
    # Every step of the memory and every name in it are those of the replay.
    steps = browser.get("/api/memory").json()["steps"]
    assert [step["label"] for step in steps] == [name for name, _ in examples]
    assert {step["because"]["name"] for step in steps} <= {None, *(name for name, _ in examples)}


def test_one_symbol_is_forgotten(running, browser):
    teach(browser, "ring", "cross", "zigzag", "ring")
    session = post(browser, "forget", label="RING")
    assert [(symbol["label"], symbol["examples"]) for symbol in session["symbols"]] == [
        ("cross", 1),
        ("zigzag", 1),
    ]
    assert_taught(running, browser, ("cross", "cross"), ("zigzag", "zigzag"))
    assert "no label" in browser.post("/api/forget", json={"label": "ring"}).json()["error"]
    assert post(browser, "forget")["symbols"] == []


def test_a_symbol_is_renamed(running, browser):
    teach(browser, "ring", "cross", "ring")
    for name in (" Cross ", "cross"):
        refused = browser.post("/api/rename", json={"label": "ring", "to": name})
        assert refused.status_code == 400
        assert refused.json()["error"] == "There is a symbol “cross” already: choose another name."
    post(browser, "rename", label="ring", to="Ring")  # its own name in other capitals
    session = post(browser, "rename", label="ring", to="circle")
    assert [symbol["label"] for symbol in session["symbols"]] == ["circle", "cross"]
    assert_taught(running, browser, ("circle", "ring"), ("cross", "cross"), ("circle", "ring"))


def test_teaching_is_undone_step_by_step(running, browser):
    teach(browser, "ring", "cross", "zigzag")
    assert post(browser, "undo")["taught"] == 2
    assert_taught(running, browser, ("ring", "ring"), ("cross", "cross"))
    post(browser, "undo")
    assert post(browser, "undo")["symbols"] == []
    assert "nothing to undo" in browser.post("/api/undo", json={}).json()["error"]


def test_one_example_is_deleted_or_mended(running, browser):
    session = teach(browser, "ring", "cross", "zigzag", "ring")
    assert session["symbols"][0]["numbers"] == [1, 4]
    post(browser, "relabel", example=2, label="plus", version=session["version"])
    stale = browser.post("/api/unlearn", json={"example": 1, "version": session["version"]})
    assert stale.status_code == 409
    assert "look again" in stale.json()["error"]
    post(browser, "unlearn", example=1)
    assert_taught(running, browser, ("plus", "cross"), ("zigzag", "zigzag"), ("ring", "ring"))
    for number in (0, 4, 1.5, True, "1", None):
        assert browser.post("/api/unlearn", json={"example": number}).status_code == 400


def test_the_threshold_of_novelty(browser):
    teach(browser, "ring", "cross")
    drawing = encode(DRAWINGS["ring"][1])
    for threshold, guess in ((0, None), (1, "ring")):
        session = post(browser, "novelty", threshold=threshold)
        assert session["novelty"] == {"threshold": threshold, "own": True}
        assert post(browser, "predict", image=drawing)["guess"] == guess
    assert post(browser, "novelty", threshold=None)["novelty"]["own"] is False
    for wrong in (-0.1, 1.1, "0.5", True, float("nan")):
        body = json.dumps({"threshold": wrong})
        answer = browser.post("/api/novelty", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400
    assert browser.post("/api/novelty", json={}).status_code == 400


def test_what_was_taught_moves_to_another_browser(running, browser):
    teach(browser, "ring", "cross", "ring")
    post(browser, "novelty", threshold=0.75)
    text = browser.get("/api/save").json()["text"]
    saved = json.loads(text)
    assert saved["format"] == "mann page 1"
    assert [len(base64.b64decode(one["pixels"])) for one in saved["examples"]] == 3 * [400]
    assert {label for label, _ in saved["codes"]} == {"ring", "cross"}
    with running.browser() as other:
        teach(other, "zigzag")
        session = post(other, "load", text=text)
        assert session["novelty"] == {"threshold": 0.75, "own": True}
        assert_taught(running, other, ("ring", "ring"), ("cross", "cross"), ("ring", "ring"))
        before = other.get("/api/session").json()
        for wrong in (
            *("", "[]", "null", "{}", '{"format": "mann page 1"}', text[:-5], "[" * 10_000),
            json.dumps(saved | {"format": "mann page 2"}),
            json.dumps(saved | {"examples": [{"label": "a", "pixels": "AAAA"}]}),
            json.dumps(saved | {"examples": [{"label": 3, "pixels": saved["examples"][0]["pixels"]}]}),
            json.dumps(saved | {"examples": [{"label": "x" * 31, "pixels": saved["examples"][0]["pixels"]}]}),
            json.dumps(saved | {"examples": 1001 * saved["examples"][:1]}),
            json.dumps(saved | {"novelty": "high"}),
            json.dumps(saved | {"novelty": 3}),
        ):
            answer = other.post("/api/load", json={"text": wrong})
            assert answer.status_code == 400
            assert answer.json()["error"].endswith(".")
        assert other.get("/api/session").json() == before
    with running.browser() as third:  # without having taught anything
        assert post(third, "load", text=text)["taught"] == 3
        assert third.get("/api/session").json()["taught"] == 3
