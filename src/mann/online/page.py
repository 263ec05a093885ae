"""What a learner was taught as small JSON without weights: the files of the playground."""

import base64
import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from mann.data.images import PictureFormat
from mann.data.render import downscale
from mann.errors import MannError
from mann.online.answers import check_novelty
from mann.online.examples import Prepared
from mann.online.learner import OneShotLearner

FORMAT = "mann page 1"
MOST_SYMBOLS = 100  # of a page; the memory has 128 slots or more
MOST_EXAMPLES = 1000  # of a page
MOST_LETTERS = 30  # of a symbol's name on a page


def to_levels(pixels: Float32[np.ndarray, "pixels"]) -> bytes:
    """Pixels as bytes: exact, since every picture is rounded to 255 levels before a network sees it."""
    levels = np.rint(255 * pixels).astype(np.uint8)
    if not np.array_equal(_pixels(levels), pixels):
        raise MannError("These pixels are not those of a picture: give what `prepare` returned.")
    return levels.tobytes()


def from_levels(levels: bytes, pictures: PictureFormat) -> Prepared:
    """What `to_levels` was given, as a picture for a learner of that format.

    What was kept for a network that sees squares of another size is scaled, so that it survives a newer network.

    Raises:
        MannError: for what is no square with so many channels.
    """
    side = math.isqrt(len(levels) // pictures.channels)
    if not levels or side * side * pictures.channels != len(levels):
        raise MannError(
            f"A picture of {len(levels)} numbers was given where the network sees {pictures.size}: take one of the "
            "same network."
        )
    array = np.frombuffer(levels, np.uint8)
    picture = array.reshape((side, side, pictures.channels) if pictures.channels > 1 else (side, side))
    pixels = _pixels(array) if side == pictures.side else downscale(picture, pictures.side)
    return Prepared(pixels, picture)


def _pixels(levels: UInt8[np.ndarray, "pixels"]) -> Float32[np.ndarray, "pixels"]:
    return levels / np.float32(255)


def to_page(learner: OneShotLearner) -> dict[str, Any]:
    """What was taught, as the page saves it: for JSON.

    Raises:
        MannError: if nothing is kept of the examples, a label is not text, or the page has no room for it.
    """
    labels = [label for label in learner.labels if isinstance(label, str)]
    if len(labels) < len(learner.labels):
        raise MannError("The page has names alone: rename labels that are not text.")
    check_room("This learner", labels, len(learner.examples))
    return {
        "format": FORMAT,
        "id": f"{learner.seed:08x}",
        "model": Path(learner.model).name,
        "novelty": None if isinstance(learner.novelty, bool) else learner.novelty,
        "codes": [list(pair) for pair in learner.codes.items()],
        "examples": [
            {"label": example.label, "pixels": base64.b64encode(to_levels(example.pixels)).decode()}
            for example in learner.examples
        ],
    }


def check_room(owner: str, labels: Collection[str], examples: int) -> None:
    """Refuse what the page cannot open.

    Args:
        owner: whose they are, as the first words of the sentence.
        labels: all names, each any number of times.
        examples: how many.

    Raises:
        MannError: for a name that is too long, too many symbols or too many examples.
    """
    for label in labels:
        if not 1 <= (letters := len(" ".join(label.split()))) <= MOST_LETTERS:
            name = label if len(label) <= MOST_LETTERS else f"{label[:MOST_LETTERS]}…"
            raise MannError(
                f"{owner} has a name of {letters} letters, “{name}”: the page takes 1 to {MOST_LETTERS}."
            )
    if (symbols := len(set(labels))) > MOST_SYMBOLS:
        raise MannError(f"{owner} has {symbols} symbols: the page keeps {MOST_SYMBOLS} at most.")
    if examples > MOST_EXAMPLES:
        raise MannError(f"{owner} has {examples} examples: the page keeps {MOST_EXAMPLES} at most.")


def read_page(text: str | bytes, most: int) -> tuple[list[tuple[str, bytes]], bool | float]:
    """The examples of a file of the page, as labels and levels, and its threshold of novelty.

    Args:
        text: what the page saved, or `to_page` as JSON.
        most: examples.

    Raises:
        MannError: if it is something else.
    """
    wrong = MannError("This file was not saved by the playground.")
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise wrong
        examples = [
            (one["label"], base64.b64decode(one["pixels"], validate=True)) for one in content["examples"]
        ]
        novelty = content.get("novelty")
        novelty = True if novelty is None else novelty
        if not isinstance(novelty, bool | float | int):
            raise wrong
        check_novelty(novelty)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise wrong from None
    if not all(isinstance(label, str) for label, _ in examples):
        raise wrong
    if len(examples) > most:
        raise MannError(f"This file has {len(examples)} examples: there is room for {most}.")
    return examples, novelty
