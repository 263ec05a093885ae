"""Take the pictures of the playground that the documentation shows, with the shipped weights.

    python tools/screenshots.py [FOLDER]          docs/images if none is given
    python tools/screenshots.py --survey FOLDER   every view in both colour schemes and four widths, to look at

Starts `mann serve` and drives it with Debian's chromium: five symbols are taught twice, and the first is drawn once
more. Then a robot, which gives the digit of the most similar earlier picture, plays the human experiment (a new one
every time).
"""

import base64
import io
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

SIZE = {"width": 1280, "height": 840}
TURN = np.linspace(0, 2 * np.pi, 24)


def arc(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    return list(zip((x + width * np.cos(TURN)).tolist(), (y + height * np.sin(TURN)).tolist(), strict=True))


SYMBOLS = {
    "ankh": [
        arc(0.5, 0.32, 0.13, 0.15),
        [(0.28, 0.58), (0.74, 0.55)],
        [(0.49, 0.45), (0.52, 0.66), (0.53, 0.86)],
    ],
    "eye": [arc(0.5, 0.5, 0.32, 0.17), arc(0.5, 0.5, 0.08, 0.09)],
    "wave": [[(0.15, 0.55), (0.27, 0.38), (0.4, 0.6), (0.53, 0.37), (0.66, 0.6), (0.84, 0.4)]],
    "key": [arc(0.28, 0.5, 0.12, 0.12), [(0.4, 0.5), (0.82, 0.5)], [(0.78, 0.5), (0.78, 0.6)]],
    "house": [[(0.3, 0.8), (0.3, 0.45), (0.5, 0.22), (0.7, 0.45), (0.7, 0.8), (0.3, 0.8)]],
}


def draw(page: Page, symbol: str, random: np.random.Generator) -> None:
    """With the mouse, a little different every time."""
    box = page.locator("#pad").bounding_box()
    assert box is not None
    scale, shift = random.uniform(0.9, 1.1), random.uniform(-0.04, 0.04, 2)
    for stroke in SYMBOLS[symbol]:
        points = (np.array(stroke) - 0.5) * scale + 0.5 + shift + random.normal(0, 0.008, (len(stroke), 2))
        places = points * [box["width"], box["height"]] + [box["x"], box["y"]]
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place, steps=3)
        page.mouse.up()


def play(page: Page, address: str) -> None:
    """Five symbols are taught twice, and the first is drawn once more."""
    page.goto(address)
    random = np.random.default_rng(0)
    for turn in range(2):
        for symbol in SYMBOLS:
            draw(page, symbol, random)
            expect(page.locator("#guess .remark")).not_to_be_empty()
            page.fill("#name", symbol)
            page.press("#name", "Enter")
            row = page.locator("#symbols tbody tr", has_text=symbol)
            expect(row).to_contain_text("2 times" if turn else "once")
    draw(page, "ankh", random)
    expect(page.locator("#ranking li").first).to_be_visible()
    page.wait_for_timeout(1500)  # the answer to the last stroke


def survey(page: Page, address: str, folder: Path) -> None:
    play(page, address)
    page.click("#doubt summary")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (390, 768, 1440, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            for view in ("play", "memory", "versus", "results"):
                page.click(f"nav a[href='#{view}']")
                page.wait_for_timeout(600)
                page.screenshot(path=folder / f"{view}-{width}-{scheme}.png", full_page=view != "results")
            page.click("nav a[href='#play']")
            page.click("[aria-label='Change ankh']")
            expect(page.locator("#edit-dialog")).to_be_visible()
            page.screenshot(path=folder / f"change-{width}-{scheme}.png")
            page.click("#edit-done")


def compete(browser: Browser, address: str, path: Path) -> None:
    """Two seconds between pictures, by the page's clock, which moves on faster here."""
    page = browser.new_page(viewport=SIZE)
    page.clock.install(time=datetime(2026, 1, 1))
    page.goto(f"{address}#versus")
    page.clock.pause_at(datetime(2026, 1, 2))
    page.click("#begin")
    for trial in ("trial run", "scored"):
        seen: list[tuple[np.ndarray, int]] = []
        while True:
            picture = page.locator("#trial-picture[src]")
            expect(picture.or_(page.locator("#outcome-title")).first).to_be_visible()
            if page.locator("#outcome-title").is_visible():
                break
            encoded = picture.get_attribute("src").split(",")[1]
            ink = np.asarray(
                Image.open(io.BytesIO(base64.b64decode(encoded))).convert("L").resize((8, 8)), float
            )
            answer = min(seen, key=lambda old: np.sum((ink - old[0]) ** 2))[1] if seen else 1
            page.keyboard.press(str(answer))
            feedback = page.locator("#feedback")
            expect(feedback).to_be_visible()
            right = re.search(r"it was\D*(\d)", feedback.inner_text())
            seen.append((ink, int(right[1]) if right else answer))
            page.clock.run_for(2100)
            expect(feedback).to_be_hidden()
        if trial == "trial run":
            page.click("#again")
            expect(page.locator("#outcome-title")).to_be_hidden()
    page.screenshot(path=path)


def main(folder: Path, *, everything: bool) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        arguments = ["--port", "0", "--no-browser", "--trials", f"{scratch}/trials.sqlite"]
        arguments += ["--store", f"{scratch}/learners.sqlite"]
        with subprocess.Popen(
            [sys.executable, "-m", "mann", "serve", *arguments], stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                line = next(line for line in server.stdout if "http://" in line)
                address = re.search(r"http://\S+", line)[0]
                browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_page(viewport=SIZE)
                if everything:
                    survey(page, address, folder)
                else:
                    play(page, address)
                    page.screenshot(path=folder / "playground.png")
                    compete(browser, address, folder / "human.png")
                browser.close()
            finally:
                server.terminate()


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--survey"]
    target = Path(given[0]) if given else Path(__file__).parents[1] / "docs" / "images"
    main(target, everything="--survey" in sys.argv)
