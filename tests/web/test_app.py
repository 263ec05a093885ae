"""The requests that the page makes, and those that it would never make."""

import base64
import http.client
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mann.errors import MannError
from mann.online.page import to_levels, to_page
from mann.web import sessions
from mann.web.results import choose_results
from tests.sketches import sketch
from tests.web.conftest import STATIC, encode


def test_page_and_files_come_with_strict_headers(running):
    with running.browser() as browser:
        names = re.findall(r'"/static/([a-z.]+)"', browser.get("/").text)
        assert {"app.js", "style.css", "icon.svg"} <= set(names)
        for path in (
            "/",
            "/health",
            "/api/session",
            "/nothing",
            *(f"/static/{f.name}" for f in STATIC.iterdir()),
        ):
            answer = browser.get(path)
            assert answer.status_code == (404 if path == "/nothing" else 200)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert browser.get("/health").json()["status"] == "ok"


def test_pages_use_nothing_from_outside():
    for file in STATIC.iterdir():
        outside = re.findall(r"https?://[^\s\"'<]+", file.read_text())
        assert set(outside) <= {"http://www.w3.org/2000/svg"}, file.name
        assert not re.search(r"\son\w+=|<script>|<style|style=\"|eval\(|innerHTML", file.read_text()), (
            file.name
        )


@pytest.mark.parametrize("novelty", [0.0, 1.0])
def test_the_guess_is_the_learners(running, novelty):
    """From which probability on something is new is the learner's to say."""
    ring = {"image": encode(sketch("ring", 0)), "label": "ring"}
    with running.browser() as browser:
        browser.post("/api/learn", json=ring)
        browser.post("/api/novelty", json={"threshold": novelty})
        answer = browser.post("/api/predict", json=ring).json()
    assert answer["guess"] == (None if novelty == 0 else "ring")
    assert answer["confidence"] == (answer["new"] if novelty == 0 else answer["ranked"][0]["probability"])


def test_teach_and_recognise(running):
    with running.browser() as browser:
        first = browser.post("/api/predict", json={"image": encode(sketch("ring", 0))}).json()
        assert first["guess"] is None
        assert first["new"] == 1
        for symbol in ("ring", "cross", "zigzag"):
            body = {"image": encode(sketch(symbol, 0)), "label": f"  my   {symbol} "}
            session = browser.post("/api/learn", json=body).json()
        assert [symbol["label"] for symbol in session["symbols"]] == ["my ring", "my cross", "my zigzag"]
        assert len(base64.b64decode(session["symbols"][0]["pictures"][0])) == 400
        for symbol in ("ring", "cross", "zigzag"):
            answer = browser.post("/api/predict", json={"image": encode(sketch(symbol, 1, side=300))}).json()
            assert answer["guess"] == f"my {symbol}"
            assert sum(row["probability"] for row in answer["ranked"]) + answer["new"] == pytest.approx(1)
        steps = browser.get("/api/memory").json()["steps"]
        assert [step["label"] for step in steps] == ["my ring", "my cross", "my zigzag"]
        writes = np.frombuffer(base64.b64decode(steps[0]["write"]), np.uint8)
        assert len(writes) == 128
        assert writes.max() > 100
        assert browser.post("/api/forget", json={}).json()["symbols"] == []
        assert browser.get("/api/memory").json()["steps"] == []


def test_a_drawing_may_come_as_the_network_sees_it(running, learner):
    """As a picture of which the server finds that out; and what is none is refused."""

    def seen(symbol, number):
        picture = sketch(symbol, number)
        pixels = base64.b64encode(to_levels(learner.prepare(picture).pixels)).decode()
        return {"pixels": pixels}, {"image": encode(picture)}

    with running.browser() as browser:
        assert browser.get("/api/session").json()["side"] == 20
        for number, symbol in enumerate(("ring", "cross", "zigzag")):
            body = seen(symbol, 0)[number % 2]
            assert browser.post("/api/learn", json=body | {"label": symbol}).status_code == 200
        for symbol in ("ring", "cross", "zigzag"):
            one, other = (browser.post("/api/predict", json=body).json() for body in seen(symbol, 1))
            assert one["guess"] == symbol
            assert one == other
        blank = base64.b64encode(bytes(400)).decode()
        for pixels in (None, 7, [1], "", "?", "é", "abc", blank, blank[4:], blank + blank):
            for path in ("/api/predict", "/api/learn"):
                answer = browser.post(path, json={"pixels": pixels, "label": "ring"})
                assert answer.status_code == 400, pixels
                assert re.fullmatch(r"[A-Z][^\n]+\.", answer.json()["error"])
        assert browser.get("/api/session").json()["taught"] == 3


def test_names_differ_by_more_than_capitals(running):
    with running.browser() as browser:
        for name, label, examples in (
            ("Circle", "Circle", 1),
            (" circle ", "Circle", 2),
            ("CIRCLE 2", "CIRCLE 2", 1),
        ):
            body = {"image": encode(sketch("ring", 0)), "label": name}
            session = browser.post("/api/learn", json=body).json()
            assert session["learned"] == {"label": label, "examples": examples}
        assert [symbol["label"] for symbol in session["symbols"]] == ["Circle", "CIRCLE 2"]


def test_every_answer_says_which_learner_gave_it(running):
    """So that a page notices that its own is gone, or was taught by another tab."""
    drawing = {"image": encode(sketch("ring", 0))}
    with running.browser() as browser, running.browser() as other:
        first = browser.post("/api/learn", json=drawing | {"label": "ring"}).json()
        answer = browser.post("/api/predict", json=drawing).json()
        assert (answer["id"], answer["taught"]) == (first["id"], 1)
        assert browser.get("/api/session").json()["id"] == first["id"]
        assert other.post("/api/learn", json=drawing | {"label": "ring"}).json()["id"] != first["id"]
        assert browser.post("/api/forget", json={}).json()["id"] == first["id"]


def test_an_answer_is_explained_by_the_slot_that_was_read(running):
    """The name of an example comes in with the next picture: it is written one step after it was shown."""
    with running.browser() as browser:
        for symbol in ("ring", "cross", "zigzag"):
            browser.post("/api/learn", json={"image": encode(sketch(symbol, 0)), "label": symbol})
        steps = browser.get("/api/memory").json()["steps"]
        right = 0
        for place, symbol in enumerate(("ring", "cross"), start=1):
            because = browser.post("/api/predict", json={"image": encode(sketch(symbol, 1))}).json()[
                "because"
            ]
            writer = next(step for step in steps if step["step"] == place + 1)
            writes = np.frombuffer(base64.b64decode(writer["write"]), np.uint8)
            right += because["name"] == symbol and because["step"] == place + 1
            if because["name"] == symbol:
                assert writes[because["slot"] - 1] > 127
        assert right >= 1


def test_a_file_that_is_too_much_is_refused_for_what_it_has(running, learner):
    taught = learner.sibling()
    taught.learn_one(sketch("ring", 0), "ring")
    file = to_page(taught)
    (one,) = file["examples"]
    many = [one | {"label": f"symbol {number}"} for number in range(101)]
    with running.browser() as browser:
        for examples, reason in (
            ([one | {"label": 31 * "W"}], "a name of 31 letters"),
            (many, "101 symbols: the page keeps 100 at most"),
            (1001 * [one], "1001 examples: there is room for 1000"),
        ):
            answer = browser.post("/api/load", json={"text": json.dumps(file | {"examples": examples})})
            assert answer.status_code == 400
            assert answer.json()["error"].startswith(f"This file has {reason}")


def test_browsers_do_not_share_anything(running):
    with running.browser() as one, running.browser() as other:
        one.post("/api/learn", json={"image": encode(sketch("ring", 0)), "label": "mine"})
        assert other.get("/api/session").json()["symbols"] == []
        assert other.post("/api/predict", json={"image": encode(sketch("ring", 0))}).json()["ranked"] == []
        other.post("/api/learn", json={"image": encode(sketch("ring", 0)), "label": "theirs"})
        assert [symbol["label"] for symbol in one.get("/api/session").json()["symbols"]] == ["mine"]
        cookies = [client.cookies["mann_session"] for client in (one, other)]
        assert len(set(cookies)) == 2
        assert min(map(len, cookies)) >= 43  # 256 bits


def test_cookie_is_protected_and_never_adopted(running):
    with running.browser() as browser:
        browser.cookies.set("mann_session", "chosen-by-an-attacker")
        body = {"image": encode(sketch("ring", 0)), "label": "mine"}
        header = browser.post("/api/learn", json=body).headers["set-cookie"]
    assert "chosen" not in header
    assert "HttpOnly" in header
    assert "SameSite=strict" in header


def test_onehot_model_runs_out_of_labels_with_a_sentence(running):
    with running.browser() as browser:
        for number in range(6):
            answer = browser.post(
                "/api/learn", json={"image": encode(sketch("ring", 0)), "label": str(number)}
            )
        assert answer.status_code == 400
        assert "5 labels" in answer.json()["error"]
        assert len(browser.get("/api/session").json()["symbols"]) == 5


def test_newcomer_is_told_when_it_is_full_and_idle_ones_make_room(serve):
    with serve(most_sessions=2, idle_seconds=1.0) as running:
        running.playground.learners.clock = lambda: 1e9  # it stands still, however busy the machine is
        browsers = [running.browser() for _ in range(3)]
        body = {"image": encode(sketch("ring", 0)), "label": "mine"}
        statuses = [browser.post("/api/learn", json=body).status_code for browser in browsers]
        assert statuses == [200, 200, 503]
        refused = browsers[2].post("/api/learn", json=body)
        assert "full" in refused.json()["error"]
        assert refused.headers["retry-after"]
        assert browsers[2].get("/health").json()["browsers"] == 2
        running.playground.learners.clock = lambda: 1e12  # much later
        assert browsers[2].post("/api/learn", json=body).status_code == 200
        assert browsers[2].get("/health").json()["browsers"] == 1
        for browser in browsers:
            browser.close()


def test_replay_of_a_test_episode(running):
    with running.browser() as browser:
        replay = browser.get("/api/replay?episode=3").json()
        assert len(replay["steps"]) == 50
        assert replay["dataset"] == "test glyphs"
        seen: dict[str, int] = {}
        for step in replay["steps"]:
            seen[step["label"]] = seen.get(step["label"], 0) + 1
            assert step["instance"] == seen[step["label"]]
            assert step["guess"] in {"1", "2", "3", "4", "5"}
        later = [step["guess"] == step["label"] for step in replay["steps"] if step["instance"] > 3]
        assert np.mean(later) > 0.6
        assert browser.get("/api/replay?episode=3").json() == replay
        for wrong in ("-1", "1000", "x", "１", "9" * 50):
            assert browser.get("/api/replay", params={"episode": wrong}).status_code == 400


def test_results_are_listed_and_nothing_else_is_served(serve, tmp_path):
    place = tmp_path / "results" / "table one"
    place.mkdir(parents=True)
    table = {
        "title": "T",
        "columns": ["model", "1st"],
        "rows": [["ours", 34.0], ["theirs", 36.41]],
        "note": "n",
    }
    (place / "table.json").write_text(json.dumps(table))
    drawings = place / "figures"
    drawings.mkdir()
    (drawings / "figure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (drawings / "both.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (drawings / "both.png").write_bytes(b"a picture")
    (drawings / "notes.txt").write_text("secret")
    (drawings / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "results" / "elsewhere").symlink_to(tmp_path)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "results" / "bad").mkdir()
    (tmp_path / "results" / "bad" / "table.json").write_text('{"columns": 3}')
    with serve(results=tmp_path / "results") as running, running.browser() as browser:
        bad, good = browser.get("/api/results").json()["results"]
        assert good["rows"] == [["ours", "34.00"], ["theirs", "36.41"]]
        assert good["figures"] == ["both.png", "figure.svg"]
        assert "cannot be shown" in bad["problem"]
        figure = browser.get("/results/table%20one/figure.svg")
        assert figure.headers["content-type"].startswith("image/svg+xml")
        assert "sandbox" in figure.headers["content-security-policy"]
        port = int(running.address.rsplit(":", 1)[1])
        for path in (
            "/results/table%20one/notes.txt",
            "/results/table%20one/link.png",
            "/results/elsewhere/secret.png",
            "/results/table%20one/",
            "/results/",
            "/results/../secret.png",
            "/results/%2e%2e/secret.png",
            "/results/table%20one/..%2f..%2fsecret.png",
            "/results/../../secret.png",
            "/static/",
            "/static/../app.py",
            "/static/%2e%2e%2fapp.py",
            "/static/..%5capp.py",
        ):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 404, path
            assert b"secret" not in answer.read()
            connection.close()


def test_no_results_is_no_error(running):
    with running.browser() as browser:
        assert browser.get("/api/results").json() == {"results": [], "shipped": False}


def test_what_ships_is_shown_in_the_papers_order(serve, tmp_path, monkeypatch):
    """Wherever `mann serve` is started, if there are no results of one's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "something else").mkdir(parents=True)
    with serve(results=choose_results("")) as running, running.browser() as browser:
        answer = browser.get("/api/results").json()
        assert answer["shipped"]
        names = [result["name"] for result in answer["results"]]
        assert (names[0], names[1], names[-1]) == ("table1", "table2", "ablation")
        assert not any("problem" in result for result in answer["results"])
        figures = [(result["name"], figure) for result in answer["results"] for figure in result["figures"]]
        assert ("table1", "table1.png") in figures
        assert len(figures) == 15
        for name, figure in figures:
            assert browser.get(f"/results/{name}/{figure}").content.startswith(b"\x89PNG")
    (tmp_path / "results" / "table1").mkdir()
    (tmp_path / "results" / "table1" / "table.json").write_text("{}")
    assert choose_results("") == Path("results")
    with pytest.raises(MannError, match="no folder other with results"):
        choose_results("other")
    Path("other").mkdir()
    assert choose_results("other") == Path("other")


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"image=1", "application/x-www-form-urlencoded", 415),
        (b"not json", "application/json", 400),
        (b"[1, 2]", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"image": "%s"}' % (b"A" * 300_000), "application/json", 413),
        (b'{"image": "!!!"}', "application/json", 400),
        (b"{}", "application/json; charset=utf-8", 400),
    ],
)
def test_bodies_are_bounded_and_checked(running, content, kind, status):
    with running.browser() as browser:
        answer = browser.post("/api/predict", content=content, headers={"content-type": kind})
    assert answer.status_code == status
    assert answer.json()["error"].endswith(".")


def test_a_body_of_unknown_length_is_bounded_too(running):
    def long():
        for _ in range(1000):
            yield b" " * 10_000

    with running.browser() as browser:
        answer = browser.post("/api/predict", content=long(), headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert browser.get("/health").status_code == 200


def test_large_and_blank_drawings_are_refused(running):
    with running.browser() as browser:
        for picture in (Image.new("1", (9000, 9000)), Image.new("L", (50, 50), 255), Image.new("L", (1, 1))):
            answer = browser.post("/api/predict", json={"image": encode(picture)})
            assert answer.status_code == 400
        for label in (None, "", "   ", "x" * 31, 7, "bell\a", "\ud800"):
            body = json.dumps({"image": encode(sketch("ring", 0)), "label": label})
            answer = browser.post("/api/learn", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400
            assert "name" in answer.json()["error"]
        assert browser.get("/api/session").json()["taught"] == 0


def test_other_host_names_are_refused(running):
    with running.browser() as browser:
        assert browser.get("/health", headers={"host": "evil.example"}).status_code == 400
        assert browser.get("/health", headers={"host": "localhost:80"}).status_code == 200
        assert browser.get("/health", headers={"host": "[::1]:8000"}).status_code == 200


def test_pages_of_other_sites_are_refused(running):
    with running.browser() as browser:
        for origin, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            answer = browser.get("/api/session", headers={"sec-fetch-site": origin})
            assert answer.status_code == status
        assert browser.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link to us


def test_a_whole_trial(running):
    with running.browser() as browser:
        assert browser.post("/api/trial", json={"scored": True}).json()["scored"] is False
        for scored in (False, True):  # no scored trial before the trial run was played
            trial = browser.post("/api/trial", json={"scored": True}).json()
            assert trial["scored"] is scored
            told: list[int] = []
            for step in range(1, trial["length"] + 1):
                body = {"trial": trial["trial"], "step": step, "answer": 1 + step % 5, "seconds": 0.5}
                answer = browser.post("/api/answer", json=body).json()
                told.append(answer["label"])
                again = browser.post("/api/answer", json=body)  # no way back
                assert again.status_code == 400
        assert answer["next"]["picture"] is None
        result = answer["result"]
        right = sum(label == 1 + step % 5 for step, label in enumerate(told, start=1))
        assert result["overall"]["you"] == pytest.approx(100 * right / len(told), abs=0.1)
        assert result["paper"][:5] == [34.5, 57.3, 70.1, 71.8, 81.4]
        assert result["paper"][9] == 92.4
    rows = [row for row in running.playground.store.scored() if row[1] == trial["trial"]]
    assert [row[3].label for row in rows] == told
    assert {row[2] for row in rows} == {"glyphs"}


def test_a_trial_can_be_taken_up_again(running):
    """As after a reload: the picture that waits, and nothing about those that come."""
    with running.browser() as browser:
        assert browser.get("/api/trial").json()["trial"] is None
        trial = browser.post("/api/trial", json={}).json()
        for step in range(1, trial["length"] + 1):
            again = browser.get("/api/trial").json()
            assert again == trial | {"step": step, "result": None}
            body = {"trial": trial["trial"], "step": step, "answer": 2, "seconds": 0.5}
            answer = browser.post("/api/answer", json=body).json()
            trial = answer["next"]
        assert browser.get("/api/trial").json()["result"] == answer["result"]
        pictures = answer["result"]["pictures"]
        assert [picture["step"] for picture in pictures] == [1, 2, 3, 4]
        assert {picture["you"] for picture in pictures} == {2}
        assert {len(base64.b64decode(picture["picture"])) for picture in pictures} == {400}
    rows = running.playground.store.export().splitlines()[-trial["length"] :]
    assert [row.split(",")[11:14] for row in rows] == [
        [str(picture[key]) for key in ("label", "you", "network")] for picture in pictures
    ]


def test_answers_are_checked(running):
    with running.browser() as browser:
        stranger = {"trial": "x", "step": 1, "answer": 1, "seconds": 1}
        assert "begin a new one" in browser.post("/api/answer", json=stranger).json()["error"]
        trial = browser.post("/api/trial", json={}).json()
        good = {"trial": trial["trial"], "step": 1, "answer": 1, "seconds": 1}
        for change in (
            {"answer": 6},
            {"answer": True},
            {"step": 2},
            {"seconds": -1},
            {"seconds": "1"},
            {"step": "1"},
        ):
            assert browser.post("/api/answer", json=good | change).status_code == 400
        assert browser.post("/api/answer", json=good).status_code == 200


def test_trials_of_one_browser_are_bounded(running, monkeypatch):
    monkeypatch.setattr(sessions, "MOST_TRIALS", 2)
    with running.browser() as browser:
        assert [browser.post("/api/trial", json={}).status_code for _ in range(3)] == [200, 200, 400]
        refused = browser.post("/api/trial", json={})
        assert "2 trials: thank you" in refused.json()["error"]
