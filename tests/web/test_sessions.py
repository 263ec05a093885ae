"""One browser's session, asked from several tabs at once."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from mann.errors import MannError
from mann.online import prepare_picture
from mann.store import Learners, SQLiteStore
from mann.web import sessions
from mann.web.sessions import Full, Session, Sessions, Unkept
from tests.sketches import sketch


def test_two_tabs_may_read_and_teach_at_once(learner):
    """A snapshot is of one moment, however the other tab changes the symbols meanwhile."""
    session, picture, over = (
        Session(Unkept(learner.sibling())),
        prepare_picture(sketch("ring", 0)),
        threading.Event(),
    )

    def teach() -> None:
        while not over.is_set():
            for label in "abcde":
                session.teach(picture, label)
            session.forget()

    tab = threading.Thread(target=teach)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    tab.start()
    try:
        began, counts = time.monotonic(), set()
        while time.monotonic() < began + (1 if len(counts) > 2 else 20):
            snapshot = session.snapshot()
            assert snapshot["taught"] == len(snapshot["symbols"])
            assert (snapshot["memory"] is None) == (snapshot["taught"] == 0)
            counts.add(snapshot["taught"])
            session.history()
    finally:
        over.set()
        tab.join()
        sys.setswitchinterval(interval)
    assert len(counts) > 2  # the other tab did change it meanwhile


def test_symbols_are_bounded(learner, monkeypatch):
    monkeypatch.setattr(sessions, "MOST_SYMBOLS", 2)
    session = Session(Unkept(learner.sibling()))
    for label in ("one", "two", "one"):
        session.teach(prepare_picture(sketch("ring", 0)), label)
    with pytest.raises(MannError, match="keeps 2 symbols: forget one"):
        session.teach(prepare_picture(sketch("ring", 0)), "three")
    assert session.snapshot()["taught"] == 3
    session.forget()
    session.teach(prepare_picture(sketch("ring", 0)), "three")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def begin(sessions: Sessions, address: str, *, taught: int = 1) -> str:
    with sessions.place(address) as (key, session):
        for _ in range(taught):
            session.teach(prepare_picture(sketch("ring", 0)), "ring")
    return key


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def places(learner, clock, tmp_path) -> Iterator[Sessions]:
    """Four places, two at one address."""
    with contextlib.closing(SQLiteStore(tmp_path / "learners.sqlite")) as store:
        yield Sessions(Learners(store, learner, clock=clock), 4, 2, 1800.0)


def test_one_address_cannot_take_every_place(places):
    for _ in range(2):
        begin(places, "one")
    with pytest.raises(Full, match="Come back"):
        begin(places, "one")
    begin(places, "two")
    begin(places, "three")
    with pytest.raises(Full, match="4 browsers"):
        begin(places, "four")


def test_the_emptiest_that_is_quiet_makes_room(places, clock):
    busy = begin(places, "one", taught=3)
    begun, empty, other = begin(places, "two", taught=2), begin(places, "two"), begin(places, "three")
    clock.now += 61
    assert places.find(other)  # still there, so it stays
    newest = begin(places, "four")
    assert len(places) == 4
    assert places.find(empty) is None
    assert all(places.find(key) for key in (busy, begun, other, newest))
    with pytest.raises(Full):  # everyone has been there within a minute
        begin(places, "five")
    clock.now += 61
    assert places.find(newest)
    assert places.find(other)
    begin(places, "five")
    assert places.find(begun) is None
    clock.now += 61
    for key in (newest, other):
        assert places.find(key)
    assert places.find(busy)  # never: it has been taught too much


def test_a_place_is_given_back_when_nothing_comes_of_it(places):
    with pytest.raises(MannError, match="name"), places.place("one"):
        raise MannError("Give it a name.")
    assert len(places) == 0


def test_idle_ones_are_dropped(places, clock):
    key = begin(places, "one", taught=5)
    clock.now += 1801
    assert places.find(key) is None
    assert len(places) == 0
