"""The page in a real browser: Debian's chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.sketches import strokes

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (apt-get install chromium)")
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright's Python package is not installed")
expect = playwright.expect
expect.set_options(timeout=20_000)  # a busy machine is no failure
SCREENS = {"wide": (1280, 860), "narrow": (390, 844)}


@pytest.fixture(scope="module")
def chromium() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(params=["wide", "narrow"])
def page(request, chromium, running, tmp_path) -> Iterator["playwright.Page"]:
    """A page of its own cookies that must not log any error; screenshots go to $MANN_SCREENSHOTS if it is set."""
    width, height = SCREENS[request.param]
    narrow = request.param == "narrow"
    context = chromium.new_context(
        viewport={"width": width, "height": height}, has_touch=narrow, is_mobile=narrow
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.screen = request.param
    page.shots = Path(os.environ.get("MANN_SCREENSHOTS") or tmp_path)
    page.address = running.address
    yield page
    context.close()
    assert problems == []


def shoot(page, name: str) -> None:
    path = page.shots / f"{page.screen}-{name}.png"
    page.screenshot(path=path, full_page=True)
    assert path.stat().st_size > 5000
    body = page.locator("body").bounding_box()
    assert body["width"] <= SCREENS[page.screen][0]
    for section in page.locator("main > section:visible, .card:visible").all():
        box = section.bounding_box()
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= SCREENS[page.screen][0] + 1, name


def draw(page, symbol: str, seed: int) -> None:
    """With the mouse on the wide screen, with a finger on the narrow one."""
    pad = page.locator("#pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    touch = page.context.new_cdp_session(page) if page.screen == "narrow" else None
    for path in strokes(symbol, seed):
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in path.tolist()]
        if touch:
            for kind, place in [("touchStart", points[0]), *(("touchMove", point) for point in points[1:])]:
                finger = [{"x": place[0], "y": place[1]}]
                touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": finger})
            touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        else:
            page.mouse.move(*points[0])
            page.mouse.down()
            for point in points[1:]:
                page.mouse.move(*point, steps=2)
            page.mouse.up()
    if touch:
        touch.detach()


def test_draw_teach_recognise_and_look_at_the_memory(page):
    page.goto(page.address)
    expect(page.locator("#no-symbols")).to_be_visible()
    for count, symbol in enumerate(("ring", "cross", "zigzag"), start=1):
        draw(page, symbol, 0)
        expect(page.locator("#guess .remark")).not_to_be_empty()
        page.fill("#name", f"my {symbol}")
        page.press("#name", "Enter")
        expect(page.locator("#symbols tbody tr")).to_have_count(count)
    for symbol in ("cross", "ring"):
        draw(page, symbol, 1)
        expect(page.locator("#guess .guess")).to_have_text(f"my {symbol}")
        expect(page.locator("#ranking li").first).to_contain_text(f"my {symbol}")
        if symbol == "cross":
            page.click("#clear")
            expect(page.locator("#guess .guess")).to_have_text("…")
    shoot(page, "play")
    page.click("#chips button >> nth=0")  # yes, that was one
    expect(page.locator("#symbols tbody tr >> nth=0")).to_contain_text("2 times")

    page.click("nav a[href='#memory']")
    expect(page.locator("#step-title")).to_have_text("Step 4")
    expect(page.locator("#stored tbody tr")).not_to_have_count(0)
    page.locator("#slots").hover(position={"x": 5, "y": 5})
    expect(page.locator("#slot-text")).to_contain_text("Slot 1:")
    shoot(page, "memory")
    page.click("#replay")
    expect(page.locator("#film li")).to_have_count(50)
    page.click("#film button >> nth=11")
    page.click("#forward")
    expect(page.locator("#step-title")).to_have_text("Step 13")
    shoot(page, "replay")
    page.click("nav a[href='#results']")
    expect(page.locator("#results")).to_contain_text("no results here yet")
    shoot(page, "results")


def test_a_whole_shortened_trial(page):
    """Two seconds between pictures, by the page's clock, which the test moves on."""
    page.clock.install(time=datetime(2026, 1, 1))
    page.goto(f"{page.address}/#versus")
    expect(page.locator("#intro")).to_contain_text("test glyphs")
    page.clock.pause_at(datetime(2026, 1, 2))
    page.click("#begin")
    expect(page.locator("#trial-kind")).to_contain_text("not scored")
    for scored in (False, True):
        for step in range(1, 5):
            expect(page.locator("#progress")).to_have_text(f"Picture {step} of 4")
            expect(page.locator("#trial-picture")).to_be_visible()
            if step == 3 and scored:
                shoot(page, "trial")
            if step % 2:
                page.keyboard.press(str(step % 5 + 1))
            else:
                page.click(f"#digits button >> nth={step % 5}")
            expect(page.locator("#feedback")).to_contain_text("it was")
            expect(page.locator("#trial-picture")).to_be_hidden()
            page.clock.run_for(1900)
            expect(page.locator("#feedback")).to_be_visible()
            page.clock.run_for(200)
        expect(page.locator("#outcome-title")).to_have_text(
            "Your result" if scored else "The trial run is over"
        )
        expect(page.locator("#outcome-table")).to_contain_text("57.3")
        if not scored:
            page.click("#again")
    expect(page.locator("#chart circle")).not_to_have_count(0)
    shoot(page, "outcome")


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_keyboard_alone_and_errors_as_sentences(page):
    page.goto(page.address)
    page.fill("#name", "nothing drawn")
    page.press("#name", "Enter")
    expect(page.locator("#error")).to_contain_text("Draw the symbol first")
    page.locator("#pad").focus()
    page.keyboard.press("Space")
    for key in ("ArrowRight",) * 6 + ("ArrowDown",) * 6:
        page.keyboard.press(key)
    page.keyboard.press("Space")
    expect(page.locator("#guess .guess")).to_have_text("something new")
    page.fill("#name", "corner")
    page.press("#name", "Enter")
    expect(page.locator("#symbols tbody tr")).to_have_count(1)
    expect(page.locator("#error")).to_be_hidden()
    page.keyboard.press("Backspace")
    expect(page.locator("#guess .guess")).to_have_text("…")
