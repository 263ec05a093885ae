"""The requests that the page makes, and those that it would never make."""

import base64
import http.client
import json
import re

import httpx
import numpy as np
import pytest
from PIL import Image

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


def test_browsers_do_not_share_anything(running):
    with running.browser() as one, running.browser() as other:
        one.post("/api/learn", json={"image": encode(sketch("ring", 0)), "label": "mine"})
        assert other.get("/api/session").json()["symbols"] == []
        assert other.post("/api/predict", json={"image": encode(sketch("ring", 0))}).json()["ranked"] == []
        cookies = [client.cookies["mann_session"] for client in (one, other)]
        assert len(set(cookies)) == 2
        assert min(map(len, cookies)) >= 43  # 256 bits


def test_cookie_is_protected_and_never_adopted(running):
    with running.browser() as browser:
        browser.cookies.set("mann_session", "chosen-by-an-attacker")
        header = browser.get("/api/session").headers["set-cookie"]
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
        browsers = [running.browser() for _ in range(3)]
        statuses = [browser.get("/api/session").status_code for browser in browsers]
        assert statuses == [200, 200, 503]
        refused = browsers[2].get("/api/session")
        assert "full" in refused.json()["error"]
        assert refused.headers["retry-after"]
        assert browsers[2].get("/health").json()["browsers"] == 2
        running.playground.sessions._clock = lambda: 1e12  # much later
        assert browsers[2].get("/api/session").status_code == 200
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
    (place / "figure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (place / "notes.txt").write_text("secret")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "results" / "bad").mkdir()
    (tmp_path / "results" / "bad" / "table.json").write_text('{"columns": 3}')
    with serve(results=tmp_path / "results") as running, running.browser() as browser:
        bad, good = browser.get("/api/results").json()["results"]
        assert good["rows"] == [["ours", "34.00"], ["theirs", "36.41"]]
        assert good["figures"] == ["figure.svg"]
        assert "cannot be shown" in bad["problem"]
        figure = browser.get("/results/table%20one/figure.svg")
        assert figure.headers["content-type"].startswith("image/svg+xml")
        assert "sandbox" in figure.headers["content-security-policy"]
        port = int(running.address.rsplit(":", 1)[1])
        for path in (
            "/results/table%20one/notes.txt",
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
        assert browser.get("/api/results").json() == {"results": []}


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
    def endless():
        for _ in range(1000):
            yield b" " * 10_000

    with running.browser() as browser:
        try:
            answer = browser.post(
                "/api/predict", content=endless(), headers={"content-type": "application/json"}
            )
        except httpx.TransportError:
            return  # the server hung up while we were still sending
    assert answer.status_code == 413


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
