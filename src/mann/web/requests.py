"""What a request may hold: parsed, checked and bounded before anything else sees it."""

import asyncio
import base64
import io
import json
from typing import Any

from PIL import Image
from starlette.exceptions import HTTPException
from starlette.requests import Request

from mann.errors import MannError

MOST_BYTES = 200_000  # of a request
MOST_PIXELS = 1_000_000  # of a drawing
MOST_LETTERS = 30  # of a label
BODY_SECONDS = 10  # for a request to arrive
REPLAY_EPISODES = 1000  # which test episodes can be replayed


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object, bounded in size and time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "Send JSON, with the content type application/json.")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > MOST_BYTES:
        raise HTTPException(413, f"A request may have {MOST_BYTES // 1000} kB at most.")
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise HTTPException(413, f"A request may have {MOST_BYTES // 1000} kB at most.")
    except TimeoutError:
        raise HTTPException(408, "The request took too long to arrive: send it again.") from None
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise HTTPException(400, "The request is not valid JSON.") from None
    if not isinstance(body, dict):
        raise HTTPException(400, "The request must be a JSON object.")
    return body


def read_picture(body: dict[str, Any]) -> Image.Image:
    """The drawing of a request."""
    text = body.get("image")
    if not isinstance(text, str):
        raise MannError("There is no drawing in the request.")
    try:
        picture = Image.open(io.BytesIO(base64.b64decode(text, validate=True)), formats=("PNG",))
    except Exception:  # a decoder may raise anything at all on a damaged file
        raise MannError("The drawing is not a readable PNG picture.") from None
    if picture.width * picture.height > MOST_PIXELS:
        raise MannError("The drawing is too large: send one of at most a million pixels.")
    return picture


def read_label(body: dict[str, Any]) -> str:
    label = body.get("label")
    label = " ".join(label.split()) if isinstance(label, str) else ""
    if not 1 <= len(label) <= MOST_LETTERS or not label.isprintable():
        raise MannError(f"Give the symbol a name of 1 to {MOST_LETTERS} letters.")
    return label


def read_whole(body: dict[str, Any], name: str, low: int, high: int) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MannError(f"The {name} must be a whole number from {low} to {high}.")
    return value


def read_seconds(body: dict[str, Any]) -> float:
    seconds = body.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 1e6:
        raise MannError("The time of an answer is a number of seconds.")
    return float(seconds)


def read_episode(request: Request) -> int:
    """The number of a replay, from the query."""
    text = request.query_params.get("episode", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < REPLAY_EPISODES):
        raise MannError(f"An episode is a number from 0 to {REPLAY_EPISODES - 1}.")
    return int(text)
