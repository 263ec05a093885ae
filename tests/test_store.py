"""Learners in a store: the same tests for SQLite and for a real Redis, and processes that are killed."""

import contextlib
import functools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from mann import MannError, OneShotLearner
from mann.store import (
    Conflict,
    Gone,
    Head,
    Learners,
    Lesson,
    SQLiteStore,
    StoreError,
    Version,
    WrongFormat,
    open_store,
)
from tests.sketches import sketch
from tests.test_online import GLYPHS, tiny

HEAD = Head("a name", "a model", 7, 0.5, 1.0)
LESSONS = [Lesson("ring", b"\0\1\xff"), Lesson("ï¿½ 環", bytes(range(256))), Lesson("ring", b"")]


@pytest.fixture(scope="module")
def redis_address(tmp_path_factory):
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server here")
    folder = tmp_path_factory.mktemp("redis")
    socket = folder / "socket"
    process = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", socket, "--dir", folder, "--save", ""],
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            if socket.exists():
                break
            time.sleep(0.05)
        yield f"unix://{socket}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(params=["sqlite", "redis"])
def address(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "folder" / "learners.sqlite")
    address = request.getfixturevalue("redis_address")
    import redis

    with contextlib.closing(redis.Redis.from_url(address)) as client:
        client.flushall()
    return address


@pytest.fixture
def store(address):
    with contextlib.closing(open_store(address)) as opened:
        yield opened


def test_a_learner_is_created_loaded_and_deleted(store):
    assert store.load("a") is None
    assert store.create("kind", "a", HEAD, 10.0) == Version(0, 0)
    with pytest.raises(Conflict, match="already"):
        store.create("kind", "a", HEAD, 10.0)
    store.create("other", "b", HEAD._replace(novelty=True), 5.0)
    store.create("kind", "c", HEAD, 5.0)
    assert store.load("a") == (HEAD, Version(0, 0), [])
    assert store.load("b").head.novelty is True
    assert store.versions(["a", "x", "c"]) == [Version(0, 0), None, Version(0, 0)]
    assert [(key, used) for key, _, _, used in store.listing("kind")] == [("c", 5.0), ("a", 10.0)]
    store.touch("c", 20.0)
    store.touch("x", 20.0)
    assert [key for key, *_ in store.listing("kind")] == ["a", "c"]
    assert (store.count("kind"), store.count("other"), store.count("none")) == (2, 1, 0)
    assert store.delete("a")
    assert not store.delete("a")
    assert store.count("kind") == 1


def test_examples_are_added_and_replaced(store):
    version = store.create("kind", "a", HEAD, 1.0)
    first = store.append("a", version, LESSONS[:1], 2.0)
    second = store.append("a", first, LESSONS[1:], 3.0)
    assert store.load("a") == (HEAD, second, LESSONS)
    assert store.load("a", first).lessons == LESSONS[1:]
    assert store.load("a", second).lessons == []
    for stale in (version, first, Version(1, 3)):
        with pytest.raises(Conflict, match="meanwhile"):
            store.append("a", stale, LESSONS, 4.0)
        with pytest.raises(Conflict):
            store.replace("a", stale, HEAD, [], 4.0)
    third = store.replace("a", second, HEAD._replace(name="new"), LESSONS[::-1], 5.0)
    assert third not in (version, first, second)
    assert store.load("a", second) == (HEAD._replace(name="new"), third, LESSONS[::-1])  # all, not the rest
    assert store.listing("kind")[0][3] == 5.0
    store.delete("a")
    with pytest.raises(Conflict):
        store.append("a", third, LESSONS, 6.0)
    store.create("kind", "a", HEAD, 7.0)
    assert store.load("a").lessons == []  # nothing is left of the one before


@pytest.mark.parametrize("way", ["replace", "delete"])
def test_what_is_forgotten_is_overwritten_at_once(tmp_path, way):
    """In the file and in SQLite's log beside it, while the store stays open."""
    path = tmp_path / "learners.sqlite"

    def holds(text):
        return any(text in file.read_bytes() for file in tmp_path.iterdir())

    with contextlib.closing(SQLiteStore(path)) as store:
        version = store.create("kind", "a", HEAD, 1.0)
        version = store.append("a", version, [Lesson("a secret label", bytes(40))], 2.0)
        assert holds(b"a secret label")
        if way == "replace":
            store.replace("a", version, HEAD, LESSONS, 3.0)
        else:
            store.delete("a")
        assert not holds(b"a secret label")


@pytest.fixture(scope="module")
def parent():
    return OneShotLearner(tiny("strings"), seed=1)


def states(learner):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(learner._knowledge.state)]


def test_a_learner_comes_back_as_it_was(store, parent):
    learners = Learners(store, parent)
    live = learners.create("kind", "a", name="mine", novelty=0.25)
    here = parent.sibling(seed=live.now.learner.seed)
    for change in (
        lambda one: one.learn_one(GLYPHS[0, 0], "a"),
        lambda one: one.learn_many([GLYPHS[1, 0], GLYPHS[2, 0]], ["b", "c"]),
        lambda one: one.forget("b"),
        lambda one: one.learn_one(GLYPHS[3, 0], "d"),
        lambda one: one.rename("a", "e"),
        lambda one: one.relabel(0, "c"),
        lambda one: one.unlearn_one(),
    ):
        learners.change(live, change)
        change(here)
        again = Learners(store, parent).find("a").now  # as after a restart
        assert again.version == live.now.version
        assert (again.head.name, again.learner.novelty) == ("mine", 0.25)
        assert list(again.learner.codes.items()) == list(here.codes.items())
        for one, other in zip(states(again.learner), states(here), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_change_that_fails_leaves_no_trace(store, parent, monkeypatch):
    learners = Learners(store, parent)
    live = learners.create("kind", "a")
    learners.change(live, lambda one: one.learn_one(GLYPHS[0, 0], "a"))
    before = live.now

    def half(learner):
        learner.learn_one(GLYPHS[1, 0], "b")
        raise MannError("no")

    with pytest.raises(MannError, match="no"):
        learners.change(live, half)
    assert live.now is before

    def broken(*_):
        raise StoreError("The disk is full.")

    monkeypatch.setattr(type(store), "append", broken)
    with pytest.raises(StoreError, match="full"):
        learners.change(live, lambda one: one.learn_one(GLYPHS[1, 0], "b"))
    assert live.now is before
    assert store.load("a").version == before.version


def test_two_that_share_a_store_see_each_others_examples(store, address, parent):
    with contextlib.closing(open_store(address)) as second:
        ours, theirs = Learners(store, parent), Learners(second, parent)
        live = ours.create("kind", "a")
        other = theirs.find("a")
        ours.change(live, lambda one: one.learn_one(GLYPHS[0, 0], "a"))
        assert theirs.find("a").now.learner.labels == ("a",)
        theirs.change(other, lambda one: one.learn_one(GLYPHS[1, 0], "b"))
        # Without having looked: it was made for an older version, so it is made again.
        ours.change(live, lambda one: one.learn_one(GLYPHS[2, 0], "c"))
        assert [example.label for example in live.now.learner.examples] == ["a", "b", "c"]
        theirs.change(other, lambda one: one.forget("b"))
        assert ours.find("a").now.learner.labels == ("a", "c")
        theirs.delete("a")
        assert ours.find("a") is None
        with pytest.raises(Gone, match="deleted"):
            ours.change(live, lambda one: one.learn_one(GLYPHS[2, 0], "d"))


def test_only_the_latest_used_are_in_memory(store, parent):
    learners = Learners(store, parent, most=2)
    for key in "abc":
        live = learners.create("kind", key)
        learners.change(live, lambda one, key=key: one.learn_one(GLYPHS[0, 0], key))
    assert len(learners) == 2
    before = learners.loads
    assert [live.now.learner.labels for live in learners.find_all(["c", "b", "a"])] == [
        ("c",),
        ("b",),
        ("a",),
    ]
    assert learners.loads == before + 1
    assert len(learners) == 2


def test_another_format_is_refused_with_a_sentence(store, parent):
    learners = Learners(store, parent)
    version = store.create("kind", "a", HEAD, 1.0)
    store.append("a", version, [Lesson("x", bytes(783))], 1.0)  # no square
    with pytest.raises(WrongFormat, match="a model, whose pictures"):
        learners.find("a")


def test_what_was_taught_survives_a_network_that_sees_other_sizes(store, parent):
    """As by Pillow, which interpolates in the same way where a picture is enlarged."""
    side = parent.format.side - 7
    levels = np.random.default_rng(0).integers(0, 256, (side, side), np.uint8)
    learners = Learners(store, parent)
    version = store.create("kind", "a", HEAD, 1.0)
    store.append("a", version, [Lesson("x", levels.tobytes())], 1.0)
    [example] = learners.find("a").now.learner.examples
    larger = Image.fromarray(levels).resize((parent.format.side,) * 2, Image.Resampling.BILINEAR)
    inner = (slice(2, -2), slice(2, -2))  # beyond the frame Pillow repeats the edge, where here is paper
    pixels = 255 * example.pixels.reshape(parent.format.shape[:2])
    np.testing.assert_allclose(pixels[inner], np.asarray(larger, np.float32)[inner], atol=1.01)


def test_threads_lose_nothing(store, address, parent):
    """Two servers in one process, two threads of each, all teaching one learner."""
    with contextlib.closing(open_store(address)) as second:
        both = Learners(store, parent), Learners(second, parent)
        both[0].create("kind", "a")

        def work(number):
            learners = both[number % 2]
            for turn in range(5):
                label = f"{number} {turn}"
                live = learners.find("a")
                learners.change(live, lambda one, label=label: one.learn_one(GLYPHS[number, 0], label))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lessons = store.load("a").lessons
    assert sorted(lesson.label for lesson in lessons) == sorted(
        f"{n} {turn}" for n in range(4) for turn in range(5)
    )


def test_what_is_no_file_of_learners_is_left_alone(tmp_path):
    path = tmp_path / "other"
    path.write_text("something else")
    with pytest.raises(StoreError, match="cannot be used"):
        SQLiteStore(path)
    assert path.read_text() == "something else"
    database = tmp_path / "database"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE mine (a)")
        connection.commit()
    with pytest.raises(StoreError, match="no file of learners"):
        SQLiteStore(database)
    with contextlib.closing(SQLiteStore(tmp_path / "learners")) as store, store._connection() as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreError, match="newer version"):
        SQLiteStore(tmp_path / "learners")
    with pytest.raises(StoreError, match="cannot be created"):
        SQLiteStore(path / "below")  # a file, not a folder
    assert (tmp_path / "learners").stat().st_mode & 0o077 == 0  # drawings are private


def test_addresses_that_lead_nowhere():
    for address in ("redis://127.0.0.1:1", "unix:///nowhere/at/all"):
        with pytest.raises(StoreError, match="Redis cannot be used"):
            open_store(address)


def test_an_address_of_another_kind_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="mongodb://x is no store: give redis://…"):
        open_store("mongodb://x")
    with pytest.raises(StoreError, match="Redis cannot be used"):
        open_store("Redis://127.0.0.1:1")
    assert not list(tmp_path.iterdir())


# What follows is about real servers, each a process of its own.


class Server:
    """`mann serve`, to be killed."""

    def __init__(self, store: str, folder: Path) -> None:
        arguments = ["serve", "--port", "0", "--no-browser", "--model", "omniglot-5"]
        arguments += ["--store", store, "--trials", str(folder / "trials.sqlite")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mann", *arguments], stdout=subprocess.PIPE, text=True, env=os.environ
        )

    @functools.cached_property
    def address(self) -> str:
        """Once it is ready."""
        for line in self.process.stdout:
            if "http://" in line:
                return line.split("at ")[1].split("/ ")[0]
        raise AssertionError("it did not start")

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


@pytest.fixture
def servers(address, tmp_path):
    started = []

    def start() -> Server:
        started.append(Server(address, tmp_path))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


def test_a_killed_server_loses_no_acknowledged_example(servers):
    """SIGKILL while four threads teach: what was answered is there, and at most what was under way beside it."""
    from mann.client import Client

    server = servers()
    with Client(server.address) as client:
        key = client.create().id
    acknowledged: list[str] = []

    def work(number: int) -> None:
        with Client(server.address) as client, contextlib.suppress(MannError):
            for turn in range(1000):
                client.learner(key).learn_one(sketch("ring", number), f"{number}")
                acknowledged.append(f"{number} {turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 20:
        time.sleep(0.01)
    server.end(signal.SIGKILL)
    for thread in threads:
        thread.join()
    again = servers()
    with Client(again.address) as client:
        kept = [one["label"] for one in client.learner(key).examples]
        for number in range(4):
            answered = sum(one.startswith(f"{number} ") for one in acknowledged)
            assert answered <= kept.count(str(number)) <= answered + 1
        assert client.learner(key).predict_one(sketch("ring", 0)) is not None
    assert again.end(signal.SIGTERM) == 0


def test_two_servers_teach_one_learner_at_once(servers):
    """And the page's learner, by its cookie, on either of them."""
    import httpx

    from mann.client import Client
    from tests.web.conftest import encode

    both = servers(), servers()  # which start at the same time
    addresses = [server.address for server in both]
    with Client(addresses[0]) as client:
        key = client.create().id

    def work(number: int) -> None:
        with Client(addresses[number % 2]) as client:
            for _ in range(6):
                client.learner(key).learn_one(sketch("cross", number), f"{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in both:
        with Client(server.address) as client:
            labels = [one["label"] for one in client.learner(key).examples]
            assert sorted(labels) == sorted(6 * ["0", "1", "2", "3"])
    with httpx.Client(verify=False, timeout=60) as browser:
        for server, symbol in zip(both, ("ring", "cross"), strict=True):
            body = {"image": encode(sketch(symbol, 0)), "label": symbol}
            session = browser.post(f"{server.address}/api/learn", json=body).json()
        assert [one["label"] for one in session["symbols"]] == ["ring", "cross"]
        for server in both:
            assert server.end(signal.SIGTERM) == 0
        answer = browser.get(f"{servers().address}/api/session").json()
        assert json.dumps(answer["symbols"]) == json.dumps(session["symbols"])
        assert answer["id"] == session["id"]
