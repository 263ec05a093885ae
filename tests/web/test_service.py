"""The service for programs, over HTTP: against the learner itself, and against those who should not be there."""

import base64
import copy
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from PIL import Image

from mann import MannError, OneShotLearner
from mann.client import Client
from mann.commands.serve import read_tokens
from mann.store import Gone
from mann.web.desk import Ask
from mann.web.openapi import OPERATIONS
from mann.web.service import Picture
from tests.sketches import sketch
from tests.web.conftest import encode

TOKEN = "a token of sixteen letters or more".replace(" ", "-")
DRAWINGS = {symbol: [sketch(symbol, seed) for seed in range(3)] for symbol in ("ring", "cross", "zigzag")}


def png(picture: Image.Image) -> bytes:
    return base64.b64decode(encode(picture))


@pytest.fixture(scope="module")
def service(serve):
    with serve(tokens=(TOKEN,), most_learners=40) as running:
        yield running


@pytest.fixture
def client(service):
    with httpx.Client(
        base_url=service.address + "/v1",
        headers={"authorization": f"Bearer {TOKEN}"},
        timeout=60,
        verify=False,
    ) as client:
        yield client
        for one in client.get("/learners").json()["learners"]:
            client.delete(f"/learners/{one['id']}")


def create(client, **body) -> str:
    answer = client.post("/learners", json=body)
    assert answer.status_code == 201
    return f"/learners/{answer.json()['id']}"


def teach(client, address, *pairs):
    examples = [{"image": encode(DRAWINGS[symbol][0]), "label": label} for label, symbol in pairs]
    answer = client.post(f"{address}/learn", json={"examples": examples})
    assert answer.status_code == 200, answer.text
    return answer.json()


def assert_like(client, address, learner):
    """It answers as the learner here does."""
    pictures = [DRAWINGS[symbol][seed] for symbol in DRAWINGS for seed in (1, 2)]
    answer = client.post(f"{address}/predict", json={"images": [encode(one) for one in pictures]}).json()
    for picture, told in zip(pictures, answer["predictions"], strict=True):
        expected = learner.predict_proba_one(picture)
        assert told["label"] == learner.predict_one(picture)
        assert told["new"] == pytest.approx(expected.pop(None), abs=1e-4)
        assert {one["label"]: one["probability"] for one in told["ranked"]} == pytest.approx(
            expected, abs=1e-4
        )


def test_everything_that_a_learner_does(client, learner):
    address = create(client, name="mine", seed=3)
    here = learner.sibling(seed=3)
    answer = client.post(f"{address}/learn", json={"image": encode(DRAWINGS["ring"][0]), "label": "ring"})
    assert answer.json()["labels"] == [{"label": "ring", "examples": 1}]
    here.learn_one(DRAWINGS["ring"][0], "ring")
    teach(client, address, ("cross", "cross"), ("oops", "zigzag"), ("ring", "ring"))
    for label, symbol in (("cross", "cross"), ("oops", "zigzag"), ("ring", "ring")):
        here.learn_one(DRAWINGS[symbol][0], label)
    assert_like(client, address, here)
    for path, body, change in (
        ("relabel", {"example": 3, "label": "zig"}, lambda: here.relabel(2, "zig")),
        ("rename", {"label": "zig", "to": "zigzag"}, lambda: here.rename("zig", "zigzag")),
        ("undo", {}, lambda: here.unlearn_one()),
        ("undo", {"example": 1}, lambda: here.unlearn_one(0)),
        ("forget", {"label": "cross"}, lambda: here.forget("cross")),
    ):
        answer = client.post(f"{address}/{path}", json=body)
        assert answer.status_code == 200, answer.text
        change()
        assert [one["label"] for one in answer.json()["labels"]] == list(here.labels)
        assert_like(client, address, here)
    assert client.patch(address, json={"novelty": 0.0, "name": "ours"}).json()["name"] == "ours"
    here.novelty = 0.0
    assert_like(client, address, here)
    examples = client.get(f"{address}/examples").json()["examples"]
    assert [one["label"] for one in examples] == ["zigzag"]
    thumbnail = np.asarray(Image.open(io.BytesIO(base64.b64decode(examples[0]["image"]))))
    np.testing.assert_array_equal(255 - thumbnail.ravel(), np.rint(255 * here.examples[0].pixels))
    assert client.post(f"{address}/forget", json={}).json()["examples"] == 0
    assert client.get("/learners").json()["learners"][0]["name"] == "ours"
    assert client.delete(address).status_code == 200
    assert client.get(address).status_code == 404


def test_pictures_as_files_of_a_form(client):
    address = create(client)
    jpeg = io.BytesIO()
    DRAWINGS["cross"][0].convert("L").save(jpeg, "JPEG", quality=95)
    files = [("image", png(DRAWINGS["ring"][0])), ("image", jpeg.getvalue())]
    answer = client.post(f"{address}/learn", files=files, data={"label": ["ring", "cross"]})
    assert [one["label"] for one in answer.json()["labels"]] == ["ring", "cross"]
    answer = client.post(f"{address}/predict", files=[("image", png(DRAWINGS["ring"][1]))])
    assert answer.json()["predictions"][0]["label"] == "ring"
    for files, data in (
        ([("image", b"no picture")], {"label": ["a"]}),
        ([("image", png(DRAWINGS["ring"][0]))], {"label": ["a", "b"]}),
        ([("image", png(DRAWINGS["ring"][0]))], {}),
        ([("other", b"")], {"label": "a", "image": "text"}),
        ([("image", b"x")] * 65, {"label": ["a"] * 65}),
    ):
        refused = client.post(f"{address}/learn", files=files, data=data)
        assert refused.status_code == 400
        assert refused.json()["error"].endswith(".")
    form = {"content-type": "multipart/form-data; boundary=x"}
    for content in (b"", b"--x", b"--y\r\n\r\n", b"--x\r\ncontent-disposition: form-data\r\n\r\n"):
        assert client.post(f"{address}/learn", content=content, headers=form).status_code == 400
    bare = {"content-type": "multipart/form-data"}
    assert client.post(f"{address}/learn", content=b"--x", headers=bare).status_code == 400


def test_export_and_import_move_a_learner(client, learner, running):
    address = create(client, seed=5)
    teach(client, address, ("ring", "ring"), ("cross", "cross"), ("ring", "ring"))
    complete = client.get(f"{address}/export")
    here = OneShotLearner.from_json(complete.text)
    assert_like(client, address, here)
    answer = client.post(
        "/learners/import", content=complete.content, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 201
    assert_like(client, f"/learners/{answer.json()['id']}", here)
    page = client.get(f"{address}/export", params={"format": "page"})
    answer = client.post("/learners/import", json=page.json())
    assert answer.json()["labels"] == [{"label": "ring", "examples": 2}, {"label": "cross", "examples": 1}]
    with running.browser() as browser:  # and to the page
        session = browser.post("/api/load", json={"text": page.text}).json()
        assert [symbol["label"] for symbol in session["symbols"]] == ["ring", "cross"]
    count = len(client.get("/learners").json()["learners"])
    damaged = copy.deepcopy(complete.json())
    damaged["sha256"] = "0" * 64
    nothing = learner.sibling(keep="nothing")
    nothing.learn_one(DRAWINGS["ring"][0], "ring")
    numbered = learner.sibling()
    numbered.learn_one(DRAWINGS["ring"][0], 7)
    for wrong in (
        *("{}", "[]", "3", '{"format": "mann page 1"}', json.dumps(damaged)),
        *(nothing.to_json(), numbered.to_json()),
    ):
        refused = client.post("/learners/import", content=wrong, headers={"content-type": "application/json"})
        assert refused.status_code == 400
        assert refused.json()["error"].endswith(".")
    assert len(client.get("/learners").json()["learners"]) == count
    assert client.get(f"{address}/export", params={"format": "pickle"}).status_code == 400


@pytest.mark.parametrize(
    ("label", "limit", "reason"),
    [
        (31 * "W", {}, "a name of 31 letters, “" + 30 * "W" + "…”: the page takes 1 to 30"),
        (" ", {}, "a name of 0 letters"),
        ("ring", {"MOST_SYMBOLS": 1}, "2 symbols: the page keeps 1 at most"),
        ("ring", {"MOST_EXAMPLES": 1}, "2 examples: the page keeps 1 at most"),
    ],
)
def test_what_the_page_cannot_open_is_not_exported_for_it(client, monkeypatch, label, limit, reason):
    address = create(client)
    teach(client, address, (label, "ring"), (30 * "W", "cross"))
    for name, most in limit.items():
        monkeypatch.setattr(f"mann.online.page.{name}", most)
    refused = client.get(f"{address}/export", params={"format": "page"})
    assert refused.status_code == 400
    assert refused.json()["error"].startswith(f"This learner has {reason}")
    assert client.get(f"{address}/export").status_code == 200
    monkeypatch.undo()
    client.post(f"{address}/rename", json={"label": label, "to": "circle"})
    assert client.get(f"{address}/export", params={"format": "page"}).status_code == 200


def test_predictions_that_arrive_together_ask_the_store_once(client, service, monkeypatch):
    ids = [create(client).rpartition("/")[2] for _ in range(3)]
    store, asked = service.playground.learners.store, []
    versions = store.versions
    monkeypatch.setattr(store, "versions", lambda keys: asked.append([*keys]) or versions(keys))
    pictures = [Picture(png(DRAWINGS["ring"][0]))]
    asks = service.playground.service.prepare_predictions(
        [(key, pictures) for key in (*ids, "nobody", 24 * "0")]
    )
    assert [type(ask) for ask in asks] == [Ask, Ask, Ask, Gone, Gone]
    assert asked == [[*ids, 24 * "0"]]


def test_a_change_for_another_version_is_refused(client):
    address = create(client)
    before = teach(client, address, ("ring", "ring"))["version"]
    image = encode(DRAWINGS["cross"][0])
    assert client.post(f"{address}/undo", json={"version": before}).status_code == 200
    for path, body in (
        ("undo", {}),
        ("forget", {"label": "ring"}),
        ("learn", {"image": image, "label": "x"}),
    ):
        refused = client.post(f"{address}/{path}", json=body | {"version": before})
        assert refused.status_code == 409
        assert "look again" in refused.json()["error"]


def test_learners_are_bounded(client):
    for _ in range(40):
        create(client)
    refused = client.post("/learners", json={})
    assert refused.status_code == 503
    assert "40 learners" in refused.json()["error"]


def test_requests_are_checked(client):
    address = create(client)
    image = encode(DRAWINGS["ring"][0])
    for path, body in (
        ("learn", {}),
        ("learn", {"image": image}),
        ("learn", {"image": image, "label": ""}),
        ("learn", {"image": image, "label": "x" * 101}),
        ("learn", {"image": image, "label": "a\nb"}),
        ("learn", {"image": image, "label": 3}),
        ("learn", {"image": "!", "label": "a"}),
        ("learn", {"image": "AAAA", "label": "a"}),
        ("learn", {"examples": []}),
        ("learn", {"examples": [3]}),
        ("learn", {"examples": [{"image": image, "label": "a"}] * 65}),
        ("learn", {"image": encode(Image.new("1", (9000, 9000))), "label": "a"}),
        ("learn", {"image": encode(Image.new("L", (50, 50), 255)), "label": "a"}),
        ("predict", {"image": None}),
        ("predict", {"images": "all"}),
        ("forget", {"label": "unknown"}),
        ("rename", {"label": "unknown", "to": "b"}),
        ("rename", {"label": "a"}),
        ("relabel", {"example": 1, "label": "a"}),
        ("undo", {}),
        ("undo", {"example": 0}),
        ("undo", {"example": 1.5}),
    ):
        refused = client.post(f"{address}/{path}", json=body)
        assert refused.status_code == 400, (path, refused.text)
        assert refused.json()["error"].endswith(".")
    for body in ({"seed": -1}, {"seed": True}, {"novelty": 2}, {"novelty": "yes"}, {"name": "x" * 101}):
        assert client.post("/learners", json=body).status_code == 400
    assert (
        client.post(f"{address}/learn", content=b"{}", headers={"content-type": "text/plain"}).status_code
        == 415
    )
    assert (
        client.post(f"{address}/forget", content=b"{}", headers={"content-type": "text/plain"}).status_code
        == 415
    )
    large = client.post(f"{address}/forget", json={"label": "x" * 200_000})
    assert large.status_code == 413
    for path in ("/learners/x", "/learners/" + "a" * 24, "/learners/%00", "/learners/" + "0" * 3000):
        assert client.get(path).status_code == 404
    assert client.get(address).json()["examples"] == 0


def test_learners_of_browsers_are_not_to_be_had(client, service):
    with service.browser() as browser:
        body = {"image": encode(DRAWINGS["ring"][0]), "label": "ring"}
        browser.post("/api/learn", json=body)
        (digest,) = service.playground.sessions._sessions
    assert client.get(f"/learners/{digest}").status_code == 404
    assert client.get(f"/learners/{digest[:24]}").status_code == 404
    assert client.get("/learners").json()["learners"] == []


def test_without_a_token_nobody_is_let_in(service):
    paths = [("GET", "/metrics")] + [(one.method, one.path.replace("{id}", "a" * 24)) for one in OPERATIONS]
    with service.browser() as stranger:
        assert stranger.get("/health").status_code == 200
        assert stranger.get("/v1/openapi.json").status_code == 200
        for method, path in paths:
            for header in (
                None,
                "",
                "Bearer",
                "Bearer x",
                f"Basic {TOKEN}",
                f"Bearer {TOKEN}x",
                "Bearer \xff",
            ):
                headers = {} if header is None else {"authorization": header.encode("latin-1")}
                answer = stranger.request(method, path, headers=headers, json={})
                assert answer.status_code == 401, (method, path, header)
                assert answer.headers["www-authenticate"] == "Bearer"
                assert "Authorization" in answer.json()["error"]


def test_pages_of_other_sites_may_not_ask_even_on_loopback(running):
    with running.browser() as browser:
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            assert browser.post("/v1/learners", json={}, headers=headers).status_code == 403
            assert browser.get("/v1/learners", headers=headers).status_code == 403
            assert browser.get("/metrics", headers=headers).status_code == 403
        assert browser.get("/v1/learners").status_code == 200  # a program on this machine


def test_files_of_tokens(tmp_path):
    path = tmp_path / "tokens"
    for content in ("", "short\n", f"{TOKEN} {TOKEN}\n", "ü" * 20):
        path.write_text(content)
        with pytest.raises(MannError, match="at least 16 letters"):
            read_tokens(path)
    path.write_text(f"\n{TOKEN}\n  {TOKEN}2\n")
    assert read_tokens(path) == (TOKEN, f"{TOKEN}2")
    with pytest.raises(MannError, match="cannot be read"):
        read_tokens(tmp_path / "none")


def test_the_document_is_valid_and_says_what_is_there(client, service):
    from openapi_spec_validator import validate

    document = client.get("/openapi.json").json()
    validate(document)
    routes = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert routes == {(one.method.lower(), one.path) for one in OPERATIONS}
    for method, path in routes:  # none of them is unknown to the server
        answer = client.request(method, service.address + path.replace("{id}", "a" * 24))
        assert answer.status_code != 405


def test_answers_are_as_the_document_says(client):
    from jsonschema import Draft202012Validator

    document = client.get("/openapi.json").json()

    def check(name, answer):
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        Draft202012Validator(schema).validate(answer.json())

    address = create(client, name="one")
    check("Error", client.get("/learners/none"))
    teach(client, address, ("ring", "ring"))
    check("Learner", client.get(address))
    check("Learners", client.get("/learners"))
    check("Examples", client.get(f"{address}/examples"))
    check("Predictions", client.post(f"{address}/predict", json={"image": encode(DRAWINGS["ring"][1])}))


def test_metrics_are_read_by_an_independent_parser(client, service):
    from prometheus_client.parser import text_string_to_metric_families

    def read():
        text = client.get(service.address + "/metrics").text
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    address = create(client)
    before = read()
    teach(client, address, ("ring", "ring"), ("cross", "cross"))
    for _ in range(3):
        client.post(f"{address}/predict", json={"image": encode(DRAWINGS["ring"][1])})
    client.post(f"{address}/predict", json={})
    after = read()

    def grown(*key):
        return after[key] - before.get(key, 0)

    route = ("route", "/v1/learners/{id}/predict")
    assert grown("mann_examples_total") == 2
    assert grown("mann_predictions_total") == 3
    assert grown("mann_requests_total", ("method", "POST"), route, ("status", "200")) == 3
    assert grown("mann_requests_total", ("method", "POST"), route, ("status", "400")) == 1
    assert grown("mann_request_seconds_count", route) == 4
    assert grown("mann_request_seconds_bucket", ("le", "+Inf"), route) == 4
    assert after["mann_learners", ("kind", "learner")] == 1


def test_the_client(service, tmp_path, learner):
    server = Client(service.address, TOKEN)
    remote = server.create("from Python")
    path = tmp_path / "ring.png"
    DRAWINGS["ring"][0].save(path)
    remote.learn_one(path, "ring")
    remote.learn_one(DRAWINGS["cross"][0], "cross")
    remote.learn_one(np.asarray(DRAWINGS["zigzag"][0]), "zig")
    assert remote.predict_one(png(DRAWINGS["ring"][1])) == "ring"
    assert remote.predict_many([DRAWINGS[symbol][1] for symbol in ("ring", "cross")]) == ["ring", "cross"]
    remote.rename("zig", "zigzag")
    remote.forget("cross")
    remote.unlearn_one(0)
    assert remote.labels == ("zigzag",)
    assert [one["label"] for one in remote.examples] == ["zigzag"]
    assert OneShotLearner.from_json(remote.export()).labels == ("zigzag",)
    twin = server.load(remote.export())
    assert twin.labels == ("zigzag",)
    assert {one["id"] for one in server.learners()} >= {remote.id, twin.id}
    twin.delete()
    stranger = Client(service.address)
    for call, match in (
        (lambda: twin.labels, "no learner"),
        (lambda: remote.learn_one(tmp_path / "none.png", "x"), "Could not read"),
        (stranger.learners, "token"),
        (lambda: Client("127.0.0.1:8000"), "no address"),
        (lambda: Client("http://127.0.0.1:1").learners(), "does not answer"),
    ):
        with pytest.raises(MannError, match=match):
            call()
    remote.delete()
    server.close()
    stranger.close()


def test_the_client_sends_pictures_of_every_kind_and_says_what_it_cannot_send(service):
    """As `OneShotLearner` takes them: levels, bits, floats, deep integers, and colours that a PNG does not have."""
    ring, cross = (np.asarray(DRAWINGS[symbol][1].convert("L")) for symbol in ("ring", "cross"))
    with Client(service.address, TOKEN) as server:
        remote = server.create("kinds")
        remote.learn_many([DRAWINGS["ring"][0], DRAWINGS["cross"][0]], ["ring", "cross"])
        assert repr(remote) == f"RemoteLearner({service.address!r}, {remote.id!r})"
        kinds = [
            ring / 255,
            ring < 128,
            (ring < 128).astype(np.uint8),
            ring.astype(int),
            257 * ring.astype(np.uint16),
        ]
        kinds += [ring[..., None], np.stack([ring] * 3, axis=-1), Image.fromarray(ring).convert("CMYK")]
        kinds += [Image.fromarray(ring).convert(mode) for mode in ("F", "I", "1", "LA", "P", "YCbCr")]
        assert remote.predict_many(kinds) == ["ring"] * len(kinds)
        assert (
            remote.predict_many([ring, cross] * 40) == ["ring", "cross"] * 40
        )  # more than one request takes
        assert remote.predict_many([]) == []
        remote.relabel(1, "plus")
        assert remote.labels == ("ring", "plus")
        remote.relabel(-2, "circle")
        assert remote.labels == ("circle", "plus")
        here = OneShotLearner.from_json(remote.export())
        assert remote.predict_proba_one(ring) == pytest.approx(here.predict_proba_one(ring), abs=1e-4)
        remote.relabel(-2, "ring")
        with pytest.raises(MannError, match="example"):
            remote.relabel(-3, "x")
        for call, match in (
            (lambda: remote.predict_one(None), "Cannot use the picture"),
            (lambda: remote.predict_one(np.full((5, 5), np.nan)), "NaN"),
            (lambda: remote.predict_one(np.zeros((0, 5))), "empty"),
            (lambda: remote.predict_one("a\0b"), "Could not read"),
            (lambda: server.ask("POST", "/v1/learners", {"name": b"bytes"}), "labels are text"),
            (lambda: server.ask("POST", "/v1/learners", {"seed": np.int64(3)}), "labels are text"),
            (lambda: remote.learn_many([ring], []), "need as many labels"),
            (lambda: Client("http://127.0.0.1:port"), "no address"),
            (lambda: Client("http://127.0.0.1:99999"), "no address"),
            (lambda: Client("http://[::1"), "no address"),
            (lambda: Client(service.address, "a\nb"), "printable ASCII"),
        ):
            with pytest.raises(MannError, match=match):
                call()
        remote.unlearn_one()
        remote.unlearn_one()
        with pytest.raises(MannError, match="nothing was taught yet"):
            remote.unlearn_one()
        remote.delete()


def test_threads_that_share_a_client_get_their_own_answers(service):
    with Client(service.address, TOKEN) as server:
        remote = server.create("threads")
        remote.learn_many([DRAWINGS[symbol][0] for symbol in ("ring", "cross")], ["ring", "cross"])
        with ThreadPoolExecutor(4) as threads:
            asked = ["ring", "cross"] * 20
            answers = list(threads.map(lambda symbol: remote.predict_one(DRAWINGS[symbol][1]), asked))
        assert answers == asked
        remote.delete()


def test_many_teach_one_learner_at_once(client, service):
    """No example is lost, and every answer counts its own."""
    address = create(client)
    errors = []

    def work(number):
        with httpx.Client(base_url=service.address + "/v1", timeout=60, verify=False) as other:
            other.headers["authorization"] = f"Bearer {TOKEN}"
            for _ in range(5):
                body = {"image": encode(DRAWINGS["ring"][0]), "label": f"ring {number}"}
                answer = other.post(f"{address}/learn", json=body)
                if answer.status_code != 200:
                    errors.append(answer.text)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    labels = client.get(address).json()["labels"]
    assert sorted((one["label"], one["examples"]) for one in labels) == [(f"ring {n}", 5) for n in range(4)]
