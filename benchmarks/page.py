"""How long a prediction takes on the page without a server, in Chromium.

    python benchmarks/page.py [MODEL [PREDICTIONS]]

Exports the page, opens it, teaches 20 things, and asks about as many pictures as wanted: from pixels to everything
that the page shows of the answer. On a machine that does other work as well, the processor time of the page says
more than the clock.
"""

import functools
import http.server
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from mann.runtime import prepare_jax

WAIT = 600_000  # milliseconds: a busy machine is no failure

TEACH = """async () => {
  const { Learner } = await import("./learner.js");
  const { Network } = await import("./network.js");
  const files = await Promise.all(["./network.json", "./weights.bin"].map((name) => fetch(name)));
  const learner = new Learner(new Network(await files[0].json(), await files[1].arrayBuffer()));
  const area = learner.about.side ** 2;
  const picture = (seed) => Uint8Array.from({ length: area }, (_, i) => ((i * (seed + 3)) % 7 === 0 ? 255 : 0));
  for (let i = 0; i < 20; i++) learner.teach(picture(i), `thing ${i}`);
  window.times = (count) => Array.from({ length: count }, (_, i) => {
    const began = performance.now();
    learner.predict(picture(i));
    return performance.now() - began;
  });
}"""


def processor_seconds(browser: Browser) -> float:
    """That all pages of a browser have taken so far."""
    told = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return sum(process["cpuTime"] for process in told if process["type"] == "renderer")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def main(model: str = "omniglot-many", count: int = 200) -> None:
    prepare_jax()
    from mann.trained import load_trained
    from mann.web.site import write_site

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        size = write_site(load_trained(model), Path(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=WAIT)
        page = browser.new_page()
        page.set_default_timeout(WAIT)
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        page.evaluate(TEACH)
        before = processor_seconds(browser)
        times = sorted(page.evaluate("window.times", count))
        taken = 1e3 * (processor_seconds(browser) - before) / count
        browser.close()
        server.shutdown()
    print(f"{model}: {size / 1e6:.1f} MB; a prediction in ms, of {count}:")
    print(
        f"least {times[0]:.1f}, median {times[count // 2]:.1f}, 99th percentile {times[int(0.99 * count)]:.1f}; "
        f"of processor time {taken:.1f}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
