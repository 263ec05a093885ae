"""The server under attack: slow, greedy and foreign clients. On loopback alone, bounded in number and time."""

import asyncio
import contextlib
import csv
import http.client
import io
import logging
import socket
import sqlite3
import threading
import time
import urllib.error
import urllib.request

import httpx
import pytest

from mann.experiments import figures_folder
from mann.web import guard, server, trials
from tests.sketches import sketch
from tests.web.conftest import Running, encode

DRAWING = encode(sketch("ring", 0))
UNFINISHED = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: "
JSON = {"content-type": "application/json"}


def port_of(running: Running) -> int:
    return int(running.address.rsplit(":", 1)[1])


def connect(running: Running, source: str = "127.0.0.1") -> socket.socket:
    """From any address of the loopback network, where the system has more than one."""
    try:
        return socket.create_connection(
            ("127.0.0.1", port_of(running)), timeout=10, source_address=(source, 0)
        )
    except OSError:
        pytest.skip(f"{source} is no address of this machine")


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def ask_health(connection: socket.socket) -> bytes:
    connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    return read_until(connection, b"}")


def read_until(connection: socket.socket, end: bytes) -> bytes:
    content = b""
    while not content.endswith(end):
        chunk = connection.recv(1000)
        assert chunk, content
        content += chunk
    return content


def wait_until(condition, seconds: float = 5) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_places_are_for_those_who_teach(serve):
    """Requests without cookies used to fill every place in a quarter of a second."""
    with serve(most_sessions=2) as running, running.browser() as browser:
        for _ in range(10):
            browser.cookies.clear()
            answers = [
                browser.get("/api/session"),
                browser.get("/api/memory"),
                browser.post("/api/predict", json={"image": DRAWING}),
                browser.post("/api/forget", json={}),
                browser.post("/api/learn", json={"image": DRAWING, "label": ""}),
                browser.post("/api/learn", json={"image": "", "label": "mine"}),
                browser.post("/api/answer", json={"trial": "x", "step": 1, "answer": 1, "seconds": 1}),
            ]
            assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 400, 400, 400]
            assert not any("set-cookie" in answer.headers for answer in answers)
        assert browser.get("/health").json()["browsers"] == 0
        assert browser.post("/api/learn", json={"image": DRAWING, "label": "mine"}).status_code == 200
        assert browser.get("/health").json()["browsers"] == 1


def test_an_address_has_a_share_of_the_places(serve):
    with serve(most_sessions=3, most_per_address=2) as running:
        statuses = []
        for source in ("127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.1", "127.0.0.1"):
            connect(running, source).close()
            with httpx.Client(
                base_url=running.address, transport=httpx.HTTPTransport(local_address=source)
            ) as browser:
                answer = browser.post("/api/learn", json={"image": DRAWING, "label": "mine"})
                statuses.append(answer.status_code)
        assert statuses == [200, 200, 503, 200, 503]


def test_unfinished_headers_do_not_lock_anybody_out(running, monkeypatch):
    """Neither others nor the same address: the connection that has kept us waiting for longest gives way."""
    monkeypatch.setattr(server, "MOST_PER_ADDRESS", 20)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 30)
    with contextlib.ExitStack() as stack:
        slow = []
        for number in range(60):
            connection = stack.enter_context(connect(running, "127.0.0.2" if number % 2 else "127.0.0.3"))
            connection.sendall(UNFINISHED)
            slow.append(connection)
        wait_until(lambda: sum(map(is_open, slow)) <= 30)
        for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            assert b" 200 " in ask_health(stack.enter_context(connect(running, source)))
        assert sum(map(is_open, slow)) >= 20  # no more than needed were closed


def test_headers_and_bodies_must_arrive_in_time(running, monkeypatch):
    """However often a byte comes, at the first request of a connection as at later ones."""
    monkeypatch.setattr(server, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(server, "BODY_SECONDS", 1.0)
    body = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n"
    with contextlib.ExitStack() as stack:
        silent, later = (stack.enter_context(connect(running)) for _ in range(2))
        assert b" 200 " in ask_health(later)
        time.sleep(1.1)  # between two requests there is more time
        began = time.monotonic()
        header, upload = (stack.enter_context(connect(running)) for _ in range(2))
        for connection, content in ((header, UNFINISHED), (later, UNFINISHED), (upload, body)):
            connection.sendall(content)
        waiting = {"header": header, "later": later, "upload": upload}
        while waiting and time.monotonic() < began + 5:
            for name, connection in list(waiting.items()):
                try:
                    connection.setblocking(True)
                    connection.sendall(b"x")
                except ConnectionError:
                    del waiting[name]
            time.sleep(0.05)
        assert waiting == {}
        assert time.monotonic() > began + 1
        assert not is_open(silent)


def test_an_answer_must_be_taken_in_time(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.3)
    place = figures_folder(tmp_path / "results", "big")
    place.mkdir(parents=True)
    size = 3_900_000
    (place / "figure.png").write_bytes(bytes(size))
    with serve(results=tmp_path / "results") as running, connect(running) as connection:
        connection.sendall(b"GET /results/big/figure.png HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 4)
        time.sleep(1.5)
        received = 0
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(1_000_000):
                received += len(chunk)
        assert received < 3 * size
        with running.browser() as browser:
            assert len(browser.get("/results/big/figure.png").content) == size


@pytest.mark.parametrize(
    "headers",
    [b"x: " + b"a" * 100_000 + b"\r\n", b"".join(b"x-%d: 1\r\n" % i for i in range(2000))],
    ids=["long", "many"],
)
@pytest.mark.parametrize("pause", [0, 0.05])
def test_long_headers_are_refused(running, headers, pause):
    """Whether they come in one piece or not."""
    with connect(running) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n" + headers[: len(headers) // 2])
        time.sleep(pause)
        with contextlib.suppress(ConnectionError):  # it may hang up meanwhile
            connection.sendall(headers[len(headers) // 2 :] + b"\r\n")
        try:
            status = connection.recv(1000).split(b" ")[1]
        except ConnectionError:
            status = b"reset"
    assert status in (b"431", b"400", b"reset")
    with running.browser() as browser:
        assert browser.get("/health", headers={"x": "a" * 5000}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "ftp://[", ""])
def test_foreign_origins_are_refused(running, origin):
    """Also from a browser that sends no Sec-Fetch-Site."""
    with running.browser() as browser:
        for path, body in (("/api/learn", {"image": DRAWING, "label": "mine"}), ("/api/forget", {})):
            answer = browser.post(path, json=body, headers={"origin": origin})
            assert answer.status_code == 403
            assert "own page" in answer.json()["error"]
            assert "set-cookie" not in answer.headers
        assert browser.get("/api/session", headers={"origin": origin}).status_code == 403
        both = [("origin", running.address), ("origin", origin)]
        assert browser.get("/api/session", headers=both).status_code == 403
        assert browser.get("/api/session", headers={"origin": running.address}).status_code == 200


def test_hosts_are_named_and_nothing_is_redirected(serve):
    with serve(hosts=("playground.example", "192.168.1.5")) as running, running.browser() as browser:
        for host in ("playground.example", "PLAYGROUND.example:8000", "192.168.1.5"):
            answer = browser.get("/api/session", headers={"host": host, "origin": f"https://{host}"})
            assert answer.status_code == 200
        for host in (
            "evil.example",
            "127.0.0.1",
            "playground.example.evil.example",
            "x@playground.example",
            "",
        ):
            answer = browser.get("/health", headers={"host": host})
            assert answer.status_code == 400
            assert "answers only to" in answer.json()["error"]
        for path in ("/health/", "/api/session/", "/static/app.js/"):
            answer = browser.get(path, headers={"host": "playground.example"})
            assert answer.status_code == 404
            assert "location" not in answer.headers


def test_a_large_upload_gets_its_answer(running):
    """With `Connection: close`, as urllib asks for, the server used to hang up on what was still coming."""
    for path, status in (("/api/learn", 413), ("/nothing", 404), ("/health", 405)):
        request = urllib.request.Request(running.address + path, data=bytes(5_000_000), headers=JSON)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=20)
        assert refused.value.code == status
        assert b'{"error":"' in refused.value.read()
        refused.value.close()


def test_who_asks_before_sending_is_answered_at_once(running):
    with connect(running) as connection:
        head = b"POST /api/learn HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        connection.sendall(head + b"content-length: 5000000\r\nexpect: 100-continue\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_arrive_is_a_sentence(running, monkeypatch):
    monkeypatch.setattr(server, "BODY_SECONDS", 0.3)
    connection = http.client.HTTPConnection("127.0.0.1", port_of(running), timeout=10)
    with contextlib.closing(connection):
        connection.request("POST", "/api/learn", headers=JSON | {"content-length": "100"}, body=b"{")
        answer = connection.getresponse()
        assert answer.status == 408
        assert b"took too long" in answer.read()


def test_replays_are_computed_one_at_a_time_and_once(serve, monkeypatch):
    """Predictions go on meanwhile; whoever comes when too many wait is told so."""
    release, active, most = threading.Event(), [], []

    async def everyone(address: str) -> list[int]:
        async with httpx.AsyncClient(base_url=address, timeout=120, verify=False) as browser:
            replays = [asyncio.create_task(browser.get(f"/api/replay?episode={i % 30}")) for i in range(40)]
            done, _ = await asyncio.wait(replays, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert all(task.result().status_code == 503 for task in done)
            predictions = [browser.post("/api/predict", json={"image": DRAWING}) for _ in range(5)]
            assert [answer.status_code for answer in await asyncio.gather(*predictions)] == [200] * 5
            release.set()
            return [answer.status_code for answer in await asyncio.gather(*replays)]

    with serve() as running:
        compute = running.playground.replay

        def slow(number: int) -> bytes:
            active.append(number)
            most.append(len(active))
            release.wait(100)
            content = compute(number) if number == 0 else b"{}"  # one is enough
            active.remove(number)
            return content

        monkeypatch.setattr(running.playground, "replay", slow)
        statuses = asyncio.run(everyone(running.address))
        assert max(most) == 1
        assert statuses.count(200) == 20
        assert statuses.count(503) == 20
        monkeypatch.undo()
        before = compute.cache_info().misses
        with running.browser() as browser:
            assert browser.get("/api/replay?episode=0").json()["episode"] == 0
        assert compute.cache_info().misses == before


def test_a_locked_file_of_trials_stalls_nobody_and_does_not_say_where_it_is(serve, monkeypatch, caplog):
    async def everyone(address: str, holder: sqlite3.Connection) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=address, timeout=30, verify=False) as browser:
            begun = [asyncio.create_task(browser.post("/api/trial", json={})) for _ in range(8)]
            await asyncio.sleep(0.3)
            for _ in range(5):
                answer = await browser.post("/api/predict", json={"image": DRAWING})
                assert answer.status_code == 200
            assert not any(task.done() for task in begun)
            holder.execute("ROLLBACK")
            return await asyncio.gather(*begun)

    with serve() as running, running.browser() as browser:
        path = running.playground.settings.trials
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            monkeypatch.setattr(trials, "WAIT_SECONDS", 0.2)
            answer = browser.post("/api/trial", json={})
            assert answer.status_code == 503
            assert answer.json() == {
                "error": "Trials cannot be kept at the moment: wait a little and try again."
            }
            assert str(path) in caplog.text  # for those who run it
            assert browser.get("/health").json()["browsers"] == 0
            monkeypatch.setattr(trials, "WAIT_SECONDS", 60)
            answers = asyncio.run(everyone(running.address, holder))
        assert {answer.status_code for answer in answers} == {200}
        assert browser.get("/health").json()["browsers"] == 8


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01 nothing of the kind\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /api/learn HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"expect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PUT / HTTP/1.1\r\nhost: 127.0.0.1\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET",
    ],
    ids=["bytes", "head", "body", "refused", "rest"],
)
def test_what_is_no_http_is_refused_without_a_stir(running, request_, caplog):
    """In the middle of a request too: uvicorn would answer twice, and log a traceback for each."""
    log = logging.getLogger("uvicorn.error")
    log.addHandler(caplog.handler)
    try:
        with connect(running) as connection:
            connection.sendall(request_)
            if request_.startswith(b"GET"):
                read_until(connection, b"}")
                connection.sendall(b" nothing more\r\n\r\n")
            content = read_until(connection, b"}")
            assert connection.recv(1) == b""
            assert content.startswith(b"HTTP/1.1 400 ")
            assert content.endswith(b'{"error":"The request is not valid HTTP."}')
        with running.browser() as browser:
            assert browser.get("/health").status_code == 200
    finally:
        log.removeHandler(caplog.handler)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_an_answer_that_could_not_be_kept_can_be_given_again(serve, monkeypatch):
    monkeypatch.setattr(trials, "WAIT_SECONDS", 0.1)
    with serve() as running, running.browser() as browser:
        trial = browser.post("/api/trial", json={}).json()["trial"]
        body = {"trial": trial, "step": 1, "answer": 1, "seconds": 1}
        with contextlib.closing(
            sqlite3.connect(running.playground.settings.trials, isolation_level=None)
        ) as holder:
            holder.execute("BEGIN IMMEDIATE")
            assert browser.post("/api/answer", json=body).status_code == 503
        answer = browser.post("/api/answer", json=body)
        assert answer.status_code == 200
        assert answer.json()["next"]["step"] == 2
        (row,) = csv.DictReader(io.StringIO(running.playground.store.export()))
        assert (row["trial"], row["step"]) == (trial, "1")


def test_bugs_are_a_sentence_with_strict_headers(serve, monkeypatch):
    with serve() as running:
        monkeypatch.setattr(running.playground.sessions, "find", None)
        monkeypatch.setattr(running.playground, "predict", None)
        for method, path in (("GET", "/api/session"), ("POST", "/api/predict")):
            with running.browser() as browser:  # after a bug the server closes the connection
                answer = browser.request(method, path, json={"pixels": ""} if method == "POST" else None)
            assert answer.status_code == 500
            assert "please try again" in answer.json()["error"]
            assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_networks_of_addresses():
    assert guard.network_of("192.168.1.5") == "192.168.1.5"
    assert guard.network_of("::ffff:192.168.1.5") == "192.168.1.5"
    assert guard.network_of("2001:db8:1:2:3::4") == guard.network_of("2001:db8:1:2::9")
    assert guard.network_of("2001:db8:1:2::9") != guard.network_of("2001:db8:1:3::9")
    assert guard.network_of("fe80::1%eth0") == guard.network_of("fe80::2%eth0")
