"""What a request may hold: parsed, checked and bounded before anything else sees it."""

import base64
import io
import json
from typing import Any

from PIL import Image
from starlette.exceptions import HTTPException
from starlette.requests import Request

from mann.data.images import PictureFormat
from mann.errors import MannError
from mann.online import Prepared
from mann.online.page import MOST_LETTERS, from_levels

MOST_BYTES = 200_000  # of a request
MOST_FILE_BYTES = 4_000_000  # of one with a file of what was taught
MOST_PIXELS = 1_000_000  # of a drawing
SMALL_BYTES, SMALL_PIXELS = 30_000, 200 * 200  # of a picture that is read among others
REPLAY_EPISODES = 1000  # which test episodes can be replayed


async def read_json(request: Request, most: int = MOST_BYTES) -> dict[str, Any]:
    """The body as a JSON object, bounded in size."""
    if content_type(request) != "application/json":
        raise HTTPException(415, "Send JSON, with the content type application/json.")
    return parse_json(await read_body(request, most))


def content_type(request: Request) -> str:
    return _header(request, b"content-type").partition(";")[0].strip().lower()


async def read_body(request: Request, most: int) -> bytes:
    """The body, bounded in size; the server bounds it in time."""
    declared = _header(request, b"content-length")
    too_long = HTTPException(413, f"This request may have {most // 1000} kB at most.")
    if declared.isdigit() and int(declared[:20]) > most:
        raise too_long
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > most:
            raise too_long
    return bytes(content)


def _header(request: Request, name: bytes) -> str:
    """The first of this name, or nothing; `request.headers` takes several times as long."""
    return next((value for key, value in request.scope["headers"] if key == name), b"").decode("latin-1")


def parse_json(content: bytes) -> dict[str, Any]:
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


def read_pixels(body: dict[str, Any], pictures: PictureFormat) -> Prepared:
    """A drawing as the network sees it: levels of ink, one byte per pixel."""
    try:
        levels = base64.b64decode(body.get("pixels", ""), validate=True)
    except (TypeError, ValueError):
        raise MannError("The pixels of the drawing are not bytes in base64.") from None
    if not levels.strip(b"\0"):
        raise MannError("The drawing is blank: draw something first.")
    return from_levels(levels, pictures)


def is_small(picture: bytes) -> bool:
    """Whether this is a PNG of few pixels, which is quick to read: what a page draws."""
    if len(picture) > SMALL_BYTES or picture[:8] != b"\x89PNG\r\n\x1a\n" or len(picture) < 24:
        return False
    width, height = int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])
    return width * height <= SMALL_PIXELS


def is_small_text(text: Any) -> bool:
    """`is_small` of base64: the header is enough."""
    if not isinstance(text, str) or len(text) > 4 * SMALL_BYTES // 3:
        return False
    try:
        return is_small(base64.b64decode(text[:32]))
    except ValueError:
        return False


def read_label(body: dict[str, Any], name: str = "label") -> str:
    return check_label(body.get(name))


def check_label(label: Any) -> str:
    label = " ".join(label.split()) if isinstance(label, str) else ""
    if not 1 <= len(label) <= MOST_LETTERS or not label.isprintable():
        raise MannError(f"Give the symbol a name of 1 to {MOST_LETTERS} letters.")
    return label


def read_whole(body: dict[str, Any], name: str, low: int, high: int) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MannError(f"The {name} must be a whole number from {low} to {high}.")
    return value


def read_version(body: dict[str, Any]) -> str | None:
    """The version of what was taught that a change is meant for; None if that was left out."""
    version = body.get("version")
    if version is not None and not isinstance(version, str):
        raise MannError("The version is the text that came with what was taught.")
    return version


def read_threshold(body: dict[str, Any]) -> float | None:
    """A probability; None, which must be stated, for what the model says."""
    threshold = body.get("threshold", "")
    if threshold is None:
        return None
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise MannError("The threshold is a probability from 0 to 1, or null for what the model says.")
    return float(threshold)


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
