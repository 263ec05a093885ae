"""How long a prediction of the playground takes with many browsers at once, on this machine.

    python benchmarks/load.py [BROWSERS] [MODEL]

Starts `mann serve` on a free loopback port. Every browser teaches three symbols under names of its own, all at the
same time; then it asks for 20 predictions, four per second as the page does while one draws, and once more without
any pause between them, 100 times. Each answer must hold the browser's own names and no others. Client and server
share the cores; what each prediction takes of their processor time is told as well.
"""

import asyncio
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import uvloop

from mann.data.glyphs import make_glyphs
from mann.data.render import downscale
from mann.online.page import to_levels
from mann.web.server import MOST_PER_ADDRESS

PACE = 0.25  # seconds
ROUNDS = (("four per second", PACE, 20), ("without pause", 0.0, 100))  # name, pause, predictions of a browser


def drawings_for(port: int) -> list[str]:
    """Drawings as the page sends them: what the network sees of them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/session") as answer:
        side = json.load(answer)["side"]
    seen = (downscale(255 * drawing, side) for drawing in make_glyphs(3, 2, seed=2)[:, 0])
    return [base64.b64encode(to_levels(pixels)).decode() for pixels in seen]


class Browser(asyncio.Protocol):
    """A keep-alive connection with a cookie; as little work as possible, for the server's sake."""

    def __init__(self, port: int) -> None:
        self.port, self.cookie = port, b""
        self._received, self._answer = b"", None

    async def open(self) -> "Browser":
        self._transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: self, "127.0.0.1", self.port
        )
        return self

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if found and len(body) >= int(_value(head, b"content-length")):
            self._received = b""
            self._answer.set_result((head, body))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("The server closed the connection."))

    async def ask(self, path: bytes, content: bytes) -> dict:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(
            b"POST %b HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
            b"cookie: %b\r\ncontent-length: %d\r\n\r\n%b"
            % (path, self.port, self.cookie, len(content), content)
        )
        head, body = await self._answer
        assert head[9:12] == b"200", body
        self.cookie = _value(head, b"set-cookie").partition(b";")[0] or self.cookie
        return json.loads(body)


def _value(head: bytes, name: bytes) -> bytes:
    """Of a header, in small letters as the server writes them; empty if it is not there."""
    return head.partition(b"\r\n%b: " % name)[2].partition(b"\r\n")[0]


async def teach(port: int, number: int, drawings: list[str]) -> Browser:
    browser = await Browser(port).open()
    for i, drawing in enumerate(drawings):
        await browser.ask(b"/api/learn", json.dumps({"pixels": drawing, "label": f"{number}-{i}"}).encode())
    browser.close()
    return browser


async def play(
    browser: Browser, number: int, drawings: list[str], pause: float, predictions: int
) -> list[float]:
    names = {f"{number}-{i}" for i in range(len(drawings))}
    contents = [json.dumps({"pixels": drawing}).encode() for drawing in drawings]
    await browser.open()
    await asyncio.sleep(pause * (number % 10) / 10)
    seconds = []
    for turn in range(predictions):
        began = time.perf_counter()
        answer = await browser.ask(b"/api/predict", contents[turn % len(contents)])
        seconds.append(time.perf_counter() - began)
        assert {row["label"] for row in answer["ranked"]} == names
        if pause:
            await asyncio.sleep(max(0, pause - seconds[-1]))
    browser.close()
    return seconds


async def everyone(server: subprocess.Popen, port: int, count: int) -> None:
    drawings = drawings_for(port)
    browsers = await asyncio.gather(*(teach(port, number, drawings) for number in range(count)))
    for name, pause, predictions in ROUNDS:
        began, client, served = time.perf_counter(), time.process_time(), processor_seconds(server.pid)
        asked = (play(one, number, drawings, pause, predictions) for number, one in enumerate(browsers))
        seconds = np.concatenate(await asyncio.gather(*asked))
        rate = len(seconds) / (time.perf_counter() - began)
        client, served = time.process_time() - client, processor_seconds(server.pid) - served
        p50, p99 = 1e3 * np.percentile(seconds, [50, 99])
        print(f"{count} browsers, {name}: p50 {p50:.0f} ms, p99 {p99:.0f} ms, {rate:.0f} predictions/s")
        both = [
            f"{who} {1e3 * used / len(seconds):.2f} ms"
            for who, used in (("server", served), ("client", client))
        ]
        print(f"  processor time per prediction: {', '.join(both)}")


def processor_seconds(process: int) -> float:
    """That a process has used so far; NaN where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(browsers: int, model: str) -> None:
    if browsers > MOST_PER_ADDRESS:
        sys.exit(f"All browsers share one address, which may have {MOST_PER_ADDRESS} connections.")
    command = [sys.executable, "-m", "mann", "serve", "--port", "0", "--no-browser", "--model", model]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--store", f"{folder}/learners.sqlite", "--trials", f"{folder}/trials.sqlite"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            address = next(line for line in server.stdout if "http://" in line)
            port = int(address.split("127.0.0.1:")[1].split("/")[0])
            uvloop.run(everyone(server, port, browsers))
        finally:
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, sys.argv[2] if len(sys.argv) > 2 else "")
