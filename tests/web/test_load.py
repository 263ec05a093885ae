"""A hundred browsers at once, and requests that no page would make. On loopback alone, bounded in number."""

import asyncio
import http.client
import json
import random
import time

import httpx
import numpy as np

from tests.sketches import sketch
from tests.web.conftest import encode

BROWSERS = 100
PICTURES = {symbol: [encode(sketch(symbol, seed)) for seed in range(3)] for symbol in ("ring", "cross")}


async def _play(address: str, number: int, ready: asyncio.Barrier) -> list[float]:
    """Teach two symbols with labels of one's own and ask for them; only these labels may come back."""
    own = {f"{number} {symbol}" for symbol in PICTURES}
    seconds = []
    async with httpx.AsyncClient(base_url=address, timeout=60, verify=False) as browser:
        await browser.get("/api/session")
        await ready.wait()
        for symbol, pictures in PICTURES.items():
            answer = await browser.post(
                "/api/learn", json={"image": pictures[0], "label": f"{number} {symbol}"}
            )
            assert answer.status_code == 200
        symbol = "ring" if number % 2 else "cross"
        began = time.perf_counter()
        answer = (await browser.post("/api/predict", json={"image": PICTURES[symbol][1]})).json()
        seconds.append(time.perf_counter() - began)
        assert {row["label"] for row in answer["ranked"]} == own
        assert answer["guess"] == f"{number} {symbol}"
    return seconds


def test_a_hundred_browsers_at_once_do_not_mix(serve):
    async def everyone(address: str) -> list[list[float]]:
        ready = asyncio.Barrier(BROWSERS)
        return await asyncio.gather(*(_play(address, number, ready) for number in range(BROWSERS)))

    with serve(most_sessions=BROWSERS) as running:
        seconds = np.concatenate(asyncio.run(everyone(running.address)))
        assert len(running.playground.sessions) == BROWSERS
    # Checks of the tests and both sides on the same cores included, which other tests may use as well.
    assert np.percentile(seconds, 99) < 30


def _random_value(rng: random.Random, depth: int = 0) -> object:
    choices = [
        None, True, -1, 0, 1, 6, 1e308, float("nan"), float("inf"), 10**30, "", "a", "\0", "\ud800", "💠" * 40,
        "A" * 5000, PICTURES["ring"][0], PICTURES["ring"][0][:200], PICTURES["ring"][0][::-1], "../../etc/passwd",
    ]  # fmt: skip
    if depth < 2 and rng.random() < 0.2:
        return [_random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if depth < 2 and rng.random() < 0.2:
        return {str(i): _random_value(rng, depth + 1) for i in range(rng.randrange(4))}
    return rng.choice(choices)


def test_malformed_requests_never_break_the_server(serve):
    with serve(most_sessions=1000) as running:
        _send_nonsense(running)


def _send_nonsense(running):
    rng = random.Random(0)
    paths = [
        *("/", "/api/predict", "/api/learn", "/api/forget", "/api/memory", "/api/trial", "/api/answer"),
        *(
            "/api/results",
            "/api/replay?episode=%00",
            "/api/replay?episode=1e3",
            "/results/a/b",
            "/results/%ff/%fe",
        ),
        *(
            "/static/%00",
            "/static/" + "a" * 3000,
            "//api/session",
            "/api/session/",
            "/%2e%2e/%2e%2e/etc/passwd",
        ),
    ]
    kinds = ["application/json"] * 4 + ["text/html", "application/json;;;", "ünï".encode().decode("latin-1")]
    fields = ["image", "pixels", "label", "trial", "step", "answer", "seconds", "scored"]
    seen = set()
    port = int(running.address.rsplit(":", 1)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with running.browser() as browser:
        browser.post("/api/learn", json={"image": PICTURES["ring"][0], "label": "ring"})
        good = f"mann_session={browser.cookies['mann_session']}"
    for _ in range(150):
        method = rng.choice(["GET", "POST", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"])
        body = json.dumps(
            {field: _random_value(rng) for field in rng.sample(fields, rng.randrange(7))}
        ).encode()
        if rng.random() < 0.3:
            body = rng.randbytes(rng.randrange(200))
        cookie = rng.choice([good, good, good, "", "mann_session=" + "z" * 500, ";=;"])
        headers = {"content-type": rng.choice(kinds), "cookie": cookie}
        try:
            connection.request(method, rng.choice(paths), body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        except (http.client.HTTPException, ConnectionError):
            connection.close()  # the server hung up on it; the next request opens a new connection
            continue
        seen.add(answer.status)
        assert answer.status < 500, (method, body, content)
        if answer.status >= 400 and method != "HEAD" and answer.headers["content-type"] == "application/json":
            assert json.loads(content)["error"].endswith(".")
    connection.close()
    assert {200, 400, 404, 405, 415} <= seen
    with running.browser() as browser:
        assert browser.get("/health").status_code == 200
