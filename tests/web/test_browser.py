"""The page in a real browser: Debian's chromium, driven by Playwright."""

import base64
import io
import os
import re
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageColor, ImageOps

from mann.online import OneShotLearner
from mann.online.page import from_levels
from mann.trained import load_trained, with_neighbours, with_slots
from mann.web.app import COOKIE
from mann.web.results import SHIPPED
from tests.sketches import sketch, strokes
from tests.test_function_learner import TRAINED as FUNCTIONS
from tests.web.conftest import STATIC, encode

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FIREFOX = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (apt-get install chromium)")
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright's Python package is not installed")
expect = playwright.expect
expect.set_options(timeout=60_000)  # a busy machine is no failure
LAUNCH = 120_000  # milliseconds: a first start on a busy machine
SCREENS = {"wide": (1280, 860), "narrow": (390, 844)}


@pytest.fixture(scope="module")
def driver() -> Iterator["playwright.Playwright"]:
    with playwright.sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="module")
def chromium(driver) -> Iterator["playwright.Browser"]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    arguments += ["--use-fake-device-for-media-stream"]  # a camera
    browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=LAUNCH)
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def firefox(driver) -> Iterator["playwright.BrowserContext"]:
    """Debian's firefox-esr, by WebDriver BiDi: no build of Playwright's own is needed."""
    if FIREFOX is None:
        pytest.skip("there is no firefox (apt-get install firefox-esr)")
    browser = driver.firefox.launch(channel="moz-firefox", executable_path=FIREFOX, timeout=LAUNCH)
    try:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
    except playwright.Error as error:  # a Playwright that is too new for this Firefox, or the other way round
        browser.close()
        pytest.skip(f"Playwright cannot drive this Firefox: {str(error).splitlines()[0]}")
    yield context
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
    page.problems_expected = False
    yield page
    context.close()
    assert page.problems_expected == bool(problems), problems


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


class Pen:
    """The mouse on the wide screen, a finger on the narrow one; `pause` is the time between two points in ms."""

    def __init__(self, page, pause: int = 0) -> None:
        self.page, self.pause = page, pause
        self.finger = page.context.new_cdp_session(page) if page.screen == "narrow" else None

    def down(self, x: float, y: float) -> None:
        if self.finger:
            self._touch("touchStart", x, y)
        else:
            self.page.mouse.move(x, y)
            self.page.mouse.down()

    def move(self, x: float, y: float) -> None:
        if self.pause:
            self.page.wait_for_timeout(self.pause)
        if self.finger:
            self._touch("touchMove", x, y)
        else:
            self.page.mouse.move(x, y, steps=2)

    def up(self) -> None:
        if self.finger:
            self.finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        else:
            self.page.mouse.up()

    def _touch(self, kind: str, x: float, y: float) -> None:
        points = [{"x": x, "y": y}]
        self.finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def draw(page, symbol: str, seed: int, *, pause: int = 0, wait: int = 0) -> None:
    """`pause`: milliseconds between two points; `wait`: after the pen has come down."""
    pad = page.locator("#pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    pen = Pen(page, pause)
    for path in strokes(symbol, seed):
        points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in path.tolist()]
        pen.down(*points[0])
        page.wait_for_timeout(wait)
        for point in points[1:]:
            pen.move(*point)
        pen.up()


def teach(page, symbol: str, name: str, seed: int = 0) -> None:
    draw(page, symbol, seed)
    page.fill("#name", name)
    page.press("#name", "Enter")
    expect(page.locator("#guess .label")).to_have_text("Learned")


def mend(page, folder: Path, *, saves: bool = True) -> Path:
    """All that can be done with what was taught, on a page that knows nothing yet; returns the saved file."""
    page.screen = "wide"
    rows, guess = page.locator("#symbols tbody tr"), page.locator("#guess .guess")
    for number, symbol in enumerate(("ring", "cross", "ring", "zigzag")):
        teach(page, symbol, symbol, seed=number)
    expect(rows).to_have_text(
        [re.compile("ring.*2 times"), re.compile("cross.*once"), re.compile("zigzag.*once")]
    )

    page.click("[aria-label='Change ring']")
    expect(page.locator("#edit-examples li")).to_have_count(2)
    page.click("[aria-label='Delete example 1 of 2']")
    expect(page.locator("#edit-examples li")).to_have_count(1)
    page.fill("#new-name", "cross")
    page.press("#new-name", "Enter")
    expect(page.locator("#edit-problem")).to_contain_text("already")
    page.fill("#new-name", "wheel")
    page.press("#new-name", "Enter")
    expect(page.locator("#edit-dialog")).to_be_hidden()
    expect(rows).to_have_count(3)
    expect(page.locator("#symbols tbody")).to_contain_text("wheel")
    page.click("#untaught")
    expect(page.locator("#guess .label")).to_have_text("Taken back")
    expect(guess).to_have_text("zigzag")
    expect(rows).to_have_count(2)
    page.click("[aria-label='Change cross']")
    page.click("#forget-symbol")
    expect(rows).to_have_count(1)
    teach(page, "cross", "cross", seed=7)

    draw(page, "cross", 8)
    expect(guess).to_have_text("cross")
    page.click("#doubt summary")
    page.locator("#threshold").fill("0")
    expect(guess).to_have_text("something new")
    expect(page.locator("#threshold-text")).to_have_text("0 %")
    page.click("#threshold-own")
    expect(guess).to_have_text("cross")
    expect(page.locator("#threshold-own")).to_be_disabled()
    page.reload()
    expect(rows).to_have_count(2)

    file = folder / "symbols.json"
    if saves:
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(file)
        page.click("#forget")
        page.click("#forget-dialog button[value=forget]")
        expect(page.locator("#no-symbols")).to_be_visible()
        page.set_input_files("#file", file)
        expect(rows).to_have_count(2)
        expect(page.locator("#note")).to_contain_text("2 symbols")
        page.click("#note button")
        open_asks_first(page, file)
    paste(page, "wheel", "paste")
    expect(guess).to_have_text("wheel")
    paste(page, "cross", "drop")
    expect(guess).to_have_text("cross")
    page.click("#undo")
    expect(guess).to_have_text("…")
    return file


def open_asks_first(page, file: Path) -> None:
    """A file that is opened by mistake would cost all that was taught, here a symbol more than is in the file."""
    rows, dialog = page.locator("#symbols tbody tr"), page.locator("#open-dialog")
    teach(page, "zigzag", "zigzag")
    for choice, count in (("Keep what is here", 3), ("Escape", 3), ("Open", 2)):
        page.set_input_files("#file", file)
        expect(dialog).to_contain_text(f"Open “{file.name}”?")
        expect(dialog).to_contain_text("the place of all 3 symbols learned here")
        if choice == "Escape":
            page.keyboard.press("Escape")
        else:
            dialog.get_by_role("button", name=choice, exact=True).click()
        expect(dialog).to_be_hidden()
        expect(rows).to_have_count(count)
    page.click("#note button")


def ask_when_unsure(page) -> None:
    """The mode that asks only where a mistake is likely, switched on by keyboard; the page knows nothing yet."""
    heading, guess, name = page.locator("#guess .label"), page.locator("#guess .guess"), page.locator("#name")
    switch, price, tally = page.locator("#unsure"), page.locator("#price"), page.locator("#tally")
    expect(price).to_be_hidden()
    switch.focus()
    page.keyboard.press("Space")
    expect(switch).to_have_attribute("aria-pressed", "true")
    draw(page, "ring", 0)
    expect(heading).to_have_text("What is this?")
    name.fill("ring")
    name.press("Enter")
    expect(heading).to_have_text("Learned")
    expect(tally).to_have_text("Asked about 1 of 1 drawing.")
    draw(page, "ring", 1)
    expect(heading).to_have_text("This is")
    expect(guess).to_have_text("ring")
    expect(page.locator("#guess .remark")).to_contain_text("I do not ask")
    expect(page.get_by_label("Its name, if I am wrong")).to_have_id("name")
    page.click("#clear")
    expect(tally).to_have_text("Asked about 1 of 2 drawings.")
    expect(page.get_by_label("Its name", exact=True)).to_have_id("name")
    draw(page, "cross", 0)
    expect(heading).to_have_text("What is this?")


def paste(page, symbol: str, event: str) -> None:
    """A picture of a symbol, large and light on dark, comes in by the clipboard, or is dropped."""
    content = encode(ImageOps.invert(sketch({"wheel": "ring"}.get(symbol, symbol), 3, 500)))
    page.evaluate(
        """([png, event]) => {
            const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
            const files = new DataTransfer();
            files.items.add(new File([bytes], "symbol.png", { type: "image/png" }));
            const pad = document.querySelector("#pad");
            const made = new Event(event, { bubbles: true, cancelable: true });
            made[event === "paste" ? "clipboardData" : "dataTransfer"] = files;
            pad.dispatchEvent(made);
        }""",
        [content, event],
    )


def ink(page) -> list[float]:
    """Where the ink on the pad is: left, top, right, bottom, as shares of its side; and how much of it is inked."""
    return page.evaluate(
        """() => {
            const pad = document.querySelector("#pad"), side = pad.width;
            const { data } = pad.getContext("2d").getImageData(0, 0, side, side);
            let box = [1, 1, 0, 0], count = 0;
            for (let i = 0; i < side * side; i++) {
                if (data[4 * i + 3] < 128 || data[4 * i] > 128) continue;
                const x = (i % side) / side, y = Math.floor(i / side) / side;
                box = [Math.min(box[0], x), Math.min(box[1], y), Math.max(box[2], x), Math.max(box[3], y)];
                count += 1;
            }
            return [...box, count / (side * side)];
        }"""
    )


def watch_requests(page) -> list[str]:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(page.address)))
    return asked


def test_the_first_stroke_at_human_speed_is_drawn_where_the_pen_goes(page):
    """A second of pause after the pen comes down, then a point every 16 ms."""
    page.goto(page.address)
    expect(page.locator("#hint")).to_be_visible()
    asked = watch_requests(page)
    pad, button = page.locator("#pad"), page.locator("#teach button[type=submit]")
    before, place = pad.bounding_box(), button.bounding_box()
    x, y = (before["x"] + 0.2 * before["width"], before["y"] + 0.3 * before["height"])
    pen = Pen(page, pause=16)
    pen.down(x, y)
    page.wait_for_timeout(1000)
    assert "/api/predict" not in asked  # of a drawing that has hardly begun
    left, top, right, bottom, _ = ink(page)
    assert [left, top, right, bottom] == pytest.approx([0.185, 0.285, 0.215, 0.315], abs=0.01)  # a dot
    for step in range(1, 31):
        pen.move(x + 0.02 * step * before["width"], y + 0.01 * step * before["height"])
    pen.up()
    expect(page.locator("#guess .guess")).to_have_text("something new")
    assert ink(page)[:4] == pytest.approx([0.185, 0.285, 0.815, 0.615], abs=0.02)
    assert pad.bounding_box() == before
    assert button.bounding_box() == place
    expect(page.locator("#error")).to_be_hidden()


def test_a_tap_is_a_dot_that_can_be_taught(page):
    page.goto(page.address)
    box = page.locator("#pad").bounding_box()
    pen = Pen(page)
    pen.down(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    pen.up()
    expect(page.locator("#guess .guess")).to_have_text("something new")
    assert ink(page)[4] == pytest.approx(3.1416 * 0.015**2, rel=0.25)
    page.fill("#name", "dot")
    page.press("#name", "Enter")
    expect(page.locator("#symbols tbody tr")).to_have_count(1)
    seen = page.locator("#symbols .thumb").evaluate(
        "canvas => Math.min(...canvas.getContext('2d').getImageData(0, 0, 20, 20).data)"
    )
    assert seen < 210  # the network saw ink


def test_no_message_moves_the_pad_or_stops_the_pen(page):
    page.goto(page.address)
    pad = page.locator("#pad")
    page.fill("#name", "nothing")  # a narrow page scrolls to the field
    before = pad.bounding_box()
    page.press("#name", "Enter")
    expect(page.locator("#error")).to_contain_text("Draw the symbol first")
    assert pad.bounding_box() == before
    covered = page.locator("#error").bounding_box()
    through = page.evaluate(
        "([x, y]) => document.elementFromPoint(x, y).closest('#error') === null",
        [covered["x"] + 20, covered["y"] + covered["height"] / 2],
    )
    assert through
    draw(page, "cross", 0)
    expect(page.locator("#guess .guess")).to_have_text("something new")
    expect(page.locator("#error")).to_be_hidden()


def test_the_teach_button_stays_while_one_draws(page):
    """With several long names, which fill the list of answers."""
    page.goto(page.address)
    for count, symbol in enumerate(("ring", "cross", "zigzag", "ring", "cross")):
        teach(page, symbol, f"{count} is a name of thirty letters", seed=count)
    button, pad = page.locator("#teach button[type=submit]"), page.locator("#pad")
    places = [(button.bounding_box(), pad.bounding_box())]
    draw(page, "cross", 9)
    expect(page.locator("#ranking li")).to_have_count(5)
    places.append((button.bounding_box(), pad.bounding_box()))
    page.click("#clear")
    expect(page.locator("#guess .guess")).to_have_text("…")
    places.append((button.bounding_box(), pad.bounding_box()))
    assert places[0] == places[1] == places[2]
    shoot(page, "long-names")


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
    expect(page.locator("#step-reason")).to_contain_text("It read")
    expect(page.locator("#stored")).to_contain_text("my ring (step 2)")  # written when its name came in
    read = re.search(r"slot (\d+)", page.locator("#step-reason").inner_text())
    expect(page.locator("#slot-text")).to_contain_text(f"Slot {read[1]} at step 4:")
    page.locator("#slots").hover(position={"x": 5, "y": 5})
    expect(page.locator("#slot-text")).to_contain_text("Slot 1 at step 4:")
    shoot(page, "memory")
    page.click("#replay")
    expect(page.locator("#film li")).to_have_count(50)
    page.click("#film button >> nth=11")
    page.click("#forward")
    expect(page.locator("#step-title")).to_have_text("Step 13")
    shoot(page, "replay")
    page.click("nav a[href='#results']")
    expect(page.locator("#results")).to_contain_text("no results here")


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_a_replay_does_not_give_away_what_is_to_come(page):
    page.goto(f"{page.address}/#memory")
    page.click("#replay")
    tiles = page.locator("#film button")
    expect(tiles).to_have_count(50)
    for shown in (1, 2, 5):
        expect(page.locator("#step-title")).to_have_text(f"Step {shown}")
        for place in range(50):
            label, text = tiles.nth(place).get_attribute("aria-label"), tiles.nth(place).inner_text()
            assert ("guess" in label) == (place < shown)
            assert ("✓" in text or "→" in text) == (place < shown)
            assert tiles.nth(place).locator("canvas").is_visible() == (place < shown)
            assert ("right" in tiles.nth(place).get_attribute("class")) <= (place < shown)
        page.click("#film button >> nth=1" if shown == 1 else "#film button >> nth=4")


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_the_memory_by_keyboard_and_head_by_head(page):
    page.goto(f"{page.address}/#memory")
    page.click("#replay")
    page.click("#film button >> nth=20")
    text = page.locator("#slot-text")
    page.focus("#slots")
    page.keyboard.press("Home")
    expect(text).to_contain_text("Slot 1 at step 21:")
    page.keyboard.press("ArrowRight")
    expect(text).to_contain_text("Slot 2 at step 21:")
    page.focus("#written")
    page.keyboard.press("ArrowDown")
    expect(text).to_contain_text("Slot 3 at step 21:")
    page.keyboard.press("ArrowLeft")
    expect(text).to_contain_text("Slot 3 at step 20:")
    expect(page.locator("#step-title")).to_have_text("Step 20")
    page.keyboard.press("Home")
    expect(text).to_contain_text("at step 1:")
    page.click("#film button >> nth=20")
    page.click("#view-memory summary")
    rows = page.locator("#head-table tbody tr")
    expect(rows).to_have_count(4)
    for head in range(1, 5):
        number, reads, share, similarity, _, gate = rows.nth(head - 1).inner_text().split()
        assert int(number) == head
        assert 0 < float(share) <= 1
        assert -1 <= float(similarity) <= 1
        assert 0 <= float(gate) <= 1
        page.get_by_role("button", name=f"Head {head}").click()
        page.focus("#slots")
        page.keyboard.press("Home")
        for _ in range(int(reads) - 1):
            page.keyboard.press("ArrowRight")
        shown = re.match(r"Slot (\d+) at step 21: read (\d+) %", text.inner_text())
        assert shown[1] == reads
        assert int(shown[2]) == pytest.approx(100 * float(share), abs=1.1)


def test_results_fit_the_screen_with_their_figures(page, serve):
    """Those that ship, Table 1 first; nothing scrolls sideways on a narrow screen, not even a table."""
    with serve(results=SHIPPED) as shipping:
        page.goto(f"{shipping.address}/#results")
        expect(page.locator("#results article h2").first).to_contain_text("Table 1")
        expect(page.locator("#results article h2").last).to_contain_text("Ablation")
        expect(page.locator("#results img")).to_have_count(15)
        for picture in page.locator("#results img").all():
            picture.scroll_into_view_if_needed()
            expect(picture).to_have_js_property("complete", True)
            assert picture.evaluate("image => image.naturalWidth") > 300
        page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        shoot(page, "results")
        wide = "element => element.scrollWidth > element.clientWidth + 1"
        assert not page.locator("html").evaluate(wide)
        if page.screen == "narrow":
            assert not any(table.evaluate(wide) for table in page.locator("#results .scroll").all())


def test_a_whole_shortened_trial(page, running):
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
    kept = running.playground.store.export().splitlines()[-4:]
    expect(page.locator("#pictures li")).to_have_text(
        [
            re.compile(rf"{label}You [✓✗] {you}Net [✓✗] {network}")
            for label, you, network in (row.split(",")[11:14] for row in kept)
        ]
    )
    page.reload()
    expect(page.locator("#outcome-title")).to_have_text("Your result")


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_a_trial_survives_a_reload_and_another_tab(page):
    page.goto(f"{page.address}/#versus")
    page.click("#begin")
    expect(page.locator("#progress")).to_have_text("Picture 1 of 4")
    page.keyboard.press("1")
    expect(page.locator("#progress")).to_have_text("Picture 2 of 4")
    before = page.locator("#trial-picture").get_attribute("src")
    page.reload()
    expect(page.locator("#progress")).to_have_text("Picture 2 of 4")
    expect(page.locator("#trial-kind")).to_have_text("Trial run, not scored")
    assert page.locator("#trial-picture").get_attribute("src") == before
    other = page.context.new_page()
    other.goto(f"{page.address}/#versus")
    expect(other.locator("#progress")).to_have_text("Picture 2 of 4")
    other.keyboard.press("2")
    expect(other.locator("#feedback")).to_be_visible()
    page.bring_to_front()
    page.problems_expected = True  # its answer comes too late
    page.keyboard.press("3")
    expect(page.locator("#error")).to_contain_text("answered already")
    expect(page.locator("#progress")).to_have_text("Picture 3 of 4")


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_a_trial_that_the_server_has_lost_offers_a_new_one(page):
    page.goto(f"{page.address}/#versus")
    page.click("#begin")
    expect(page.locator("#progress")).to_have_text("Picture 1 of 4")
    page.context.clear_cookies()  # as if the server had been restarted
    page.problems_expected = True
    page.keyboard.press("1")
    expect(page.locator("#lost")).to_be_visible()
    expect(page.locator("#trial")).to_be_hidden()
    page.keyboard.press("Enter")  # the button has the focus
    expect(page.locator("#progress")).to_have_text("Picture 1 of 4")


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_equal_lines_of_the_outcome_do_not_hide_one_another(page):
    """You, the network and the paper's people, all the same: each colour must be there to see."""

    def same_for_all(route):
        answer = route.fetch().json()
        if answer["result"]:
            same = [50.0] * 10
            answer["result"] |= {"you": same, "network": same, "paper": same}
        route.fulfill(json=answer)

    page.route("**/api/answer", same_for_all)
    page.clock.install(time=datetime(2026, 1, 1))
    page.goto(f"{page.address}/#versus")
    page.click("#begin")
    for step in range(1, 5):
        expect(page.locator("#progress")).to_have_text(f"Picture {step} of 4")
        page.keyboard.press("1")
        expect(page.locator("#feedback")).to_be_visible()
        page.clock.run_for(2100)
    expect(page.locator("#outcome")).to_be_visible()
    shoot(page, "equal-lines")
    picture = Image.open(io.BytesIO(page.locator("#chart").screenshot())).convert("RGB")
    inside = np.asarray(picture)[:, 60:-170].reshape(-1, 3)
    for name in ("--write", "--read", "--soft"):
        colour = page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('{name}').trim()"
        )
        assert (inside == ImageColor.getrgb(colour)).all(axis=1).sum() > 200, name


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_pictures_are_painted_in_the_format_that_the_network_sees(page):
    """Ink is dark, colours are themselves, and the side is whatever the model has."""
    page.goto(page.address)
    paint = """async (levels) => {
        const { paintPicture } = await import("/static/common.js");
        const canvas = paintPicture(document.createElement("canvas"), btoa(String.fromCharCode(...levels)));
        const { width, height } = canvas;
        return [width, height, ...canvas.getContext("2d").getImageData(0, 0, width, height).data];
    }"""
    rng = np.random.default_rng(0)
    for shape in ((20, 20), (28, 28), (12, 12, 3)):
        levels = rng.integers(0, 256, shape)
        colours = levels if len(shape) == 3 else np.repeat(255 - levels[..., None], 3, axis=2)
        width, height, *data = page.evaluate(paint, levels.ravel().tolist())
        assert (width, height) == shape[:2]
        pixels = np.array(data).reshape(*shape[:2], 4)
        assert (pixels[..., :3] == colours).all()
        assert (pixels[..., 3] == 255).all()


@pytest.mark.parametrize("coloured", [False, True])
@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_a_photograph_is_sent_in_colours_where_the_network_sees_them(page, coloured):
    def answer(route):
        session = route.fetch().json()
        assert session["coloured"] is False
        route.fulfill(json=session | {"coloured": coloured, "side": None if coloured else session["side"]})

    page.route("**/api/session", answer)
    page.goto(page.address)
    expect(page.locator("#lead")).to_contain_text("photograph" if coloured else "symbol")
    file = io.BytesIO()
    Image.new("RGB", (50, 40), (250, 120, 10)).save(file, "PNG")
    with page.expect_request("**/api/predict") as sent:
        page.set_input_files(
            "#picture", {"name": "plain.png", "mimeType": "image/png", "buffer": file.getvalue()}
        )
    picture = Image.open(io.BytesIO(base64.b64decode(sent.value.post_data_json["image"])))
    red, green, blue = picture.convert("RGB").getpixel((25, 20))
    assert (red - blue > 200) is coloured
    assert (red == green == blue) is not coloured
    page.problems_expected = True  # to this server a plain picture holds no drawing, and the page says so
    expect(page.locator("#error")).to_be_visible()


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_a_pause_with_the_keyboards_pen_down_asks_for_nothing(page):
    page.goto(page.address)
    asked = watch_requests(page)
    page.locator("#pad").focus()
    page.keyboard.press("Space")
    page.wait_for_timeout(500)
    assert "/api/predict" not in asked
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(30)
    expect(page.locator("#guess .guess")).to_have_text("something new")  # with the pen still down
    page.keyboard.press("Control+z")
    expect(page.locator("#guess .guess")).to_have_text("…")
    page.keyboard.press("ArrowRight")  # the pen was lifted by that
    assert ink(page)[4] == 0
    page.keyboard.press("Space")
    page.keyboard.press("Space")
    expect(page.locator("#guess .guess")).to_have_text("something new")  # a dot


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_ctrl_z_takes_strokes_back_but_letters_in_a_field(page):
    page.goto(page.address)
    draw(page, "cross", 0)
    whole = ink(page)
    page.keyboard.press("Control+z")
    assert ink(page)[4] == pytest.approx(whole[4] / 2, rel=0.2)
    page.locator("#name").press_sequentially("ab")
    page.keyboard.press("Control+z")
    assert page.input_value("#name") != "ab"
    assert ink(page)[4] > 0
    page.fill("#name", "")
    page.keyboard.press("Control+z")
    assert ink(page)[4] == 0


def test_a_double_click_teaches_once_and_says_so(page):
    page.goto(page.address)
    draw(page, "ring", 0)
    page.fill("#name", "Circle")
    asked = watch_requests(page)
    page.dblclick("#teach button[type=submit]")
    expect(page.locator("#guess .label")).to_have_text("Learned")
    expect(page.locator("#guess .guess")).to_have_text("Circle")
    expect(page.locator("#guess .remark")).to_contain_text("From one example")
    page.wait_for_timeout(300)
    assert asked.count("/api/learn") == 1
    expect(page.locator("#symbols tbody tr")).to_contain_text("once")
    expect(page.locator("#error")).to_be_hidden()
    teach(page, "ring", "circle", seed=1)  # the same thing
    expect(page.locator("#symbols tbody tr")).to_have_count(1)
    expect(page.locator("#symbols tbody tr")).to_contain_text("2 times")
    expect(page.locator("#guess .remark")).to_contain_text("2 examples")


def test_start_again_asks_first(page):
    page.goto(page.address)
    teach(page, "ring", "ring")
    for choice, count in (("Keep", 1), ("Escape", 1), ("Forget", 0)):
        page.click("#forget")
        expect(page.locator("#forget-dialog")).to_contain_text("Forget the symbol?")
        if choice == "Escape":
            page.keyboard.press("Escape")
        else:
            page.get_by_role("button", name=choice, exact=True).click()
        expect(page.locator("#forget-dialog")).to_be_hidden()
        expect(page.locator("#symbols tbody tr")).to_have_count(count)


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_what_was_read_is_still_shown_after_a_look_at_the_memory(page):
    page.goto(page.address)
    for symbol in ("ring", "cross"):
        teach(page, symbol, symbol)
    taught = page.evaluate("document.querySelector('#strip').toDataURL()")
    draw(page, "ring", 3)
    expect(page.locator("#guess .guess")).to_have_text("ring")
    page.wait_for_timeout(1000)  # a guess may be of the half-drawn ring
    read = page.evaluate("document.querySelector('#strip').toDataURL()")
    assert read != taught
    page.click("nav a[href='#memory']")
    expect(page.locator("#step-title")).to_have_text("Step 2")
    with page.expect_response("**/api/session"):
        page.click("nav a[href='#play']")
    page.wait_for_function("read => document.querySelector('#strip').toDataURL() === read", arg=read)
    page.wait_for_timeout(200)
    assert page.evaluate("document.querySelector('#strip').toDataURL()") == read


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_a_second_tab_shows_what_the_first_teaches(page):
    page.goto(page.address)
    other = page.context.new_page()
    other.goto(page.address)
    page.bring_to_front()
    teach(page, "ring", "ring")
    expect(other.locator("#symbols tbody tr")).to_have_count(1)
    page.click("#forget")
    page.get_by_role("button", name="Forget", exact=True).click()
    expect(other.locator("#symbols tbody tr")).to_have_count(0)
    expect(other.locator("#note")).to_be_hidden()  # nothing was lost against anybody's will


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_a_lost_session_is_noticed_at_the_next_stroke(page):
    """As after a restart, or when the server has dropped a learner that was idle."""
    page.goto(page.address)
    teach(page, "ring", "ring")
    page.context.clear_cookies()
    draw(page, "cross", 0)
    expect(page.locator("#note")).to_contain_text("What you had taught is gone")
    expect(page.locator("#symbols tbody tr")).to_have_count(0)
    expect(page.locator("#no-symbols")).to_be_visible()
    page.click("#note button")
    expect(page.locator("#note")).to_be_hidden()
    teach(page, "ring", "ring")
    page.context.clear_cookies()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # somebody comes back to the tab
    expect(page.locator("#note")).to_contain_text("What you had taught is gone")
    expect(page.locator("#symbols tbody tr")).to_have_count(0)
    page.click("nav a[href='#results']")
    expect(page.locator("#note")).to_be_hidden()


@pytest.mark.parametrize("page", ["narrow"], indirect=True)
def test_the_example_tells_the_whole_story_in_ten_seconds(page):
    page.goto(page.address)
    began = time.monotonic()
    page.click("#example")
    expect(page.locator("#note")).to_contain_text("1 of 3")
    expect(page.locator("#note")).to_contain_text("That is one-shot learning")
    assert time.monotonic() - began < 15  # ten, on a machine that does nothing else
    expect(page.locator("#symbols tbody tr")).to_have_text(
        [re.compile("ankh.*once"), re.compile("wave.*once")]
    )
    expect(page.locator("#guess .guess")).to_have_text("ankh")
    note, guess = page.locator("#note").bounding_box(), page.locator("#guess").bounding_box()
    assert note["y"] + note["height"] <= guess["y"]  # the answer is to be seen
    expect(page.locator("#because")).to_contain_text("slot")
    shoot(page, "example")
    page.click("#clear")
    expect(page.locator("#note")).to_be_hidden()


def test_whoever_takes_the_pen_ends_the_example(page):
    page.goto(page.address)
    page.click("#example")
    page.wait_for_timeout(700)
    draw(page, "ring", 0)
    left, top, right, bottom, _ = ink(page)
    assert (right - left, bottom - top) == pytest.approx((0.6, 0.6), abs=0.1)  # nothing but the ring
    page.wait_for_timeout(2500)
    assert ink(page)[:4] == [left, top, right, bottom]
    expect(page.locator("#note")).to_be_hidden()
    expect(page.locator("#symbols tbody tr")).to_have_count(0)


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


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_of_a_large_memory_the_slots_that_matter_are_shown(page, serve):
    """4096 slots: 128 of them are drawn, with their own numbers, and the page says so."""
    trained = load_trained("omniglot-15-strings")
    large = OneShotLearner(with_neighbours(with_slots(trained, 4096), 8))
    with serve(learner=large) as running:
        page.goto(running.address)
        expect(page.locator("#strip-shown")).to_contain_text("128 of 4\u202f096 slots")
        for count, symbol in enumerate(("ring", "cross", "zigzag"), start=1):
            draw(page, symbol, 0)
            page.fill("#name", f"my {symbol}")
            page.press("#name", "Enter")
            expect(page.locator("#symbols tbody tr")).to_have_count(count)
        draw(page, "ring", 1)
        expect(page.locator("#guess .guess")).to_have_text("my ring")
        shoot(page, "large-play")
        page.click("nav a[href='#memory']")
        expect(page.locator("#slots-shown")).to_contain_text("of 4\u202f096 slots")
        read = re.search(r"slot (\d+)", page.locator("#step-reason").inner_text())
        expect(page.locator("#slot-text")).to_contain_text(f"Slot {read[1]} at step 3:")
        expect(page.locator("#stored")).to_contain_text("my ring (step 2)")
        shoot(page, "large-memory")


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_what_was_taught_can_be_mended_saved_and_opened(page, tmp_path):
    page.problems_expected = True  # a name that is taken is refused
    page.goto(page.address)
    mend(page, tmp_path)
    shoot(page, "mended")


def test_the_playground_in_firefox(firefox, running, tmp_path):
    page = firefox.new_page()
    page.set_default_timeout(60_000)
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.goto(running.address)
    mend(page, tmp_path, saves=False)  # nor does Firefox tell Playwright of downloads by this protocol
    for width in (390, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        for view in ("play", "versus", "memory"):
            page.click(f"nav a[href='#{view}']")
            expect(page.locator(f"#view-{view}")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, view)
    expect(page.locator("#step-title")).to_have_text("Step 2")
    page.close()
    assert not failures


def test_everything_fits_from_a_telephone_to_a_large_screen(chromium, running):
    """Nothing scrolls sideways, and what a finger is to hit has 44 pixels."""
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.screen = "wide"
    page.goto(running.address)
    for number, name in enumerate(("a ring of thirty letters, more", "cross", "zigzag")):
        for _ in range(5 if number == 0 else 1):
            teach(page, ("ring", "cross", "zigzag")[number], name, seed=number)
    draw(page, "ring", 5)
    page.click("#doubt summary")
    page.click("#unsure")
    page.click("#price summary")
    for width in (390, 600, 768, 1152, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        for view in ("play", "memory", "versus"):
            page.click(f"nav a[href='#{view}']")
            expect(page.locator(f"#view-{view}")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, view)
            small = page.evaluate(SMALL)
            assert not small, (width, view, small)
    page.click("nav a[href='#play']")
    page.set_viewport_size({"width": 390, "height": 700})
    page.click("[aria-label='Change a ring of thirty letters, more']")
    expect(page.locator("#edit-examples li")).to_have_count(5)
    inside = (
        "dialog => dialog.scrollWidth <= dialog.clientWidth && dialog.getBoundingClientRect().right <= 390"
    )
    assert page.locator("#edit-dialog").evaluate(inside)
    assert not page.evaluate(SMALL)
    context.close()


def long_names_fit(page) -> None:
    """Of names that are one long word nothing reaches beyond a telephone's screen; the page knows nothing yet."""
    page.screen = "wide"
    page.set_viewport_size({"width": 390, "height": 844})
    names = (30 * "W", "symbol_number_one_hundred_1234", 30 * "M")
    for number, (symbol, name) in enumerate(zip(("ring", "cross", "ring"), names, strict=True)):
        teach(page, symbol, name, seed=number)
    draw(page, "ring", 5)
    expect(page.locator("#because")).to_contain_text("was written at step")
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) <= 390
    page.click(f"[aria-label='Change {names[0]}']")
    page.fill("#new-name", names[1])
    page.press("#new-name", "Enter")
    expect(page.locator("#edit-problem")).to_contain_text("already")
    dialog = page.locator("#edit-dialog")
    assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
    box = dialog.bounding_box()
    assert 0 <= box["x"] < box["x"] + box["width"] <= 390
    page.click("#edit-done")
    page.click("nav a[href='#memory']")
    expect(page.locator("#step-title")).to_have_text("Step 3")
    expect(page.locator("#stored")).to_contain_text(names[0])
    assert page.evaluate(wide) <= 390
    assert page.locator(".stored").evaluate("card => card.scrollWidth <= card.clientWidth")


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_long_names_fit_a_telephone(page):
    page.problems_expected = True  # a name that is taken is refused
    page.goto(page.address)
    long_names_fit(page)


def test_another_view_begins_at_its_top(page):
    """Also by a link far down the page: that is gone, so the heading has the focus."""
    page.goto(page.address)
    page.locator(".strip a").scroll_into_view_if_needed()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    for link, view in ((".strip a", "memory"), ("#memory-empty a", "play")):
        expect(page.locator(link)).to_be_visible()  # what is hidden takes no focus
        page.locator(link).focus()
        page.keyboard.press("Enter")
        expect(page.locator(f"#view-{view} h1")).to_be_focused()
        expect(page.locator(f"#view-{view} h1")).to_be_in_viewport()
        assert page.evaluate("scrollY") == 0
    page.click("nav a[href='#memory']")
    expect(page.locator("nav a[href='#memory']")).to_be_focused()  # where it was


def test_sliders_say_what_they_set_and_in_which_unit(page):
    page.goto(page.address)
    page.click("#unsure")
    page.click("#doubt summary")
    page.click("#price summary")
    for slider, name in (
        ("#threshold", "It is something new from a probability of"),
        ("#cost", "It asks if it is wrong with a probability above"),
    ):
        expect(page.locator(slider)).to_have_accessible_name(name)
        for percent in (30, 80):
            page.locator(slider).fill(str(percent))
            expect(page.locator(slider)).to_have_attribute("aria-valuetext", f"{percent} %")


SMALL = """() => [...document.querySelectorAll("button, a, input, summary, select")].flatMap((one) => {
    const { width, height } = one.getBoundingClientRect();
    const inText = one.matches("p a:not(.strip a), .skip"); // links within a sentence are as high as its letters
    return one.checkVisibility() && !inText && (width < 44 || height < 44)
        ? [`${one.tagName} ${one.id || one.textContent.trim()} ${Math.round(width)}×${Math.round(height)}`] : [];
})"""


def test_it_asks_only_when_unsure(page, running):
    """As `ask_one` of the same learner decides about the same picture, whatever a question costs."""
    page.goto(page.address)
    sent: list[str] = []
    page.on(
        "request",
        lambda request: (
            sent.append(request.post_data_json["pixels"]) if request.url.endswith("/predict") else None
        ),
    )
    ask_when_unsure(page)
    shoot(page, "asking")
    (cookie,) = (one["value"] for one in page.context.cookies() if one["name"] == COOKIE)
    learner = running.playground.sessions.find(cookie).taught.now.learner
    picture = from_levels(base64.b64decode(sent[-1]), learner.format)
    sure = max(chance for label, chance in learner.predict_proba_one(picture).items() if label is not None)
    page.click("#price summary")
    between = [min(max(round(100 * (1 - sure)) + step, 0), 100) for step in (-2, 2)]
    for percent in (0, *between, 100):
        page.locator("#cost").fill(str(percent))
        expect(page.locator("#cost-text")).to_have_text(f"{percent} %")
        asks = learner.ask_one(picture, percent / 100)
        expect(page.locator("#guess .label")).to_have_text("What is this?" if asks else "This is")
    assert learner.ask_one(picture, 0.0) > learner.ask_one(picture, 1.0)
    page.reload()
    expect(page.locator("#unsure")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#cost-text")).to_have_text("100 %")
    page.click("#unsure")
    draw(page, "ring", 2)
    expect(page.locator("#guess .label")).to_have_text("I think this is")
    expect(page.locator("#price")).to_be_hidden()


@pytest.mark.parametrize("page", ["wide"], indirect=True)
def test_by_keyboard_alone_one_gets_everywhere(page):
    """Every control in turn, each with a name for a screen reader; a dialog keeps the focus and gives it back."""
    page.goto(page.address)
    teach(page, "ring", "ring")
    names = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(40):
        page.keyboard.press("Tab")
        names.append(page.evaluate("document.activeElement.id || document.activeElement.ariaLabel || ''"))
    for wanted in (
        "pad",
        "undo",
        "clear",
        "upload",
        "name",
        "unsure",
        "untaught",
        "forget",
        "save",
        "open",
        "Change ring",
    ):
        assert wanted in names, (wanted, names)
    page.locator("[aria-label='Change ring']").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#edit-done")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("[aria-label='Change ring']")).to_be_focused()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, canvas, video, dialog")].filter((one) => {
            const labelled = one.ariaLabel || one.ariaHidden || one.getAttribute("aria-labelledby") || one.title;
            return !(labelled || one.labels?.length || one.textContent.trim());
        }).map((one) => one.outerHTML)"""
    )
    assert not unnamed


def test_points_of_a_function_by_hand_and_by_keyboard(page, monkeypatch):
    """A click or a tap is a point; what is drawn is as large on a telephone, and nothing to be hit is small."""
    monkeypatch.setattr("mann.web.functions._trained", lambda: FUNCTIONS)
    page.goto(f"{page.address}/functions")
    count, dots = page.locator("#count"), page.locator("#points circle")
    box = page.locator("#plot").bounding_box()
    place = box["x"] + 0.25 * box["width"], box["y"] + 0.2 * box["height"]
    (page.touchscreen.tap if page.screen == "narrow" else page.mouse.click)(*place)
    expect(count).to_have_text("1 point")
    expect(page.locator("#bands path")).to_have_count(2)
    dot = dots.first.bounding_box()
    assert [dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2] == pytest.approx(place, abs=1.5)
    assert 8 <= dot["width"] <= 20
    page.locator("#x").fill("0.75")
    page.keyboard.press("Tab")
    page.keyboard.type("0.5")
    page.keyboard.press("Enter")
    expect(dots).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not page.evaluate(SMALL)
    shoot(page, "functions")
    page.click("#undo")
    expect(count).to_have_text("1 point")
    page.click("#clear")
    expect(count).to_have_text("No points yet")


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    shares = np.array(ImageColor.getrgb(colour)) / 255
    return float(
        np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        @ [0.2126, 0.7152, 0.0722]
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(scheme):
    """Text has 4.5 to 1 on whatever it may stand on; what is drawn has 3 to 1."""
    text = (STATIC / "style.css").read_text()
    parts = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part))
        for part in re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    ]
    colours = parts[0] if scheme == "light" else parts[0] | parts[1]

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(colours[one]), luminance(colours[other])))
        return (high + 0.05) / (low + 0.05)

    for ink_, grounds in {
        "ink": ("paper", "card", "tint", "error"),
        "soft": ("paper", "card", "tint"),
        "accent": ("paper", "card", "tint"),
        "on-accent": ("accent",),
        "right": ("card", "paper"),
        "wrong": ("card", "paper"),
    }.items():
        for ground in grounds:
            assert contrast(ink_, ground) >= 4.5, (ink_, ground)
    for drawn in ("read", "write", "soft", "accent"):
        assert contrast(drawn, "card") >= 3, drawn
