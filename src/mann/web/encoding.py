"""Pictures and memories as the page reads them: small JSON, numbers as bytes in base64."""

import base64
import io
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from mann.data.images import SIDE
from mann.memory import MemoryTrace
from mann.online import Label
from mann.online.sight import Sight, see_one

MOST_SLOTS = 128  # that the page is told of at a step
NOTICED = 0.01  # of reading and writing, for a slot to count as touched at this step


def encode_png(picture: Image.Image) -> str:
    assert picture.size == (SIDE, SIDE)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def encode_levels(values: Float[np.ndarray, "..."], largest: float = 1.0) -> str:
    """Numbers from 0 to `largest` as bytes in base64, a fraction of the size of JSON."""
    scaled = np.rint(values * (255 / max(largest, 1e-9)))
    return _encode(np.minimum(np.maximum(scaled, 0), 255).astype(np.uint8))


def _encode(levels: UInt8[np.ndarray, "..."]) -> str:
    return base64.b64encode(levels.tobytes()).decode()


def shown_slots(sight: Sight) -> Int[np.ndarray, "shown"]:
    """All slots, or those of a larger memory that matter most: read or written now, then the most used."""
    read, write, used = sight.shares
    if len(used) <= MOST_SLOTS:
        return np.arange(len(used))
    now = read + write
    importance = used + np.where(now > NOTICED, 1 + now, 0)
    return np.sort(np.argsort(-importance, kind="stable")[:MOST_SLOTS])


def encode_weights(sight: Sight, total: int = 0) -> dict[str, Any]:
    """Where one step read (mean over heads) and wrote (sum over heads), and the usage relative to its largest.

    Of a large memory only some slots: `shown` has their numbers, from 0, and is null for the first ones, as many as
    there are. What was seen may lack the last slots of the total, where nothing was read or written.
    """
    held = sight.levels.shape[1]
    total = max(total, held)
    if held <= MOST_SLOTS:
        slots, levels = None, sight.levels
    else:
        shown = shown_slots(sight)
        slots, levels = shown.tolist(), sight.levels[:, shown]
    size = min(total, MOST_SLOTS)
    read, write, used = (base64.b64encode(row.tobytes().ljust(size, b"\0")).decode() for row in levels)
    return {"slots": total, "shown": slots, "read": read, "write": write, "usage": used}


def encode_step(
    number: int, label: str, guess: Label | None, picture: Float[np.ndarray, "pixels"], trace: MemoryTrace
) -> dict[str, Any]:
    """What happened in the memory when an example was shown; `guess` is what the learner took it for."""
    sight = see_one(trace)
    slots = shown_slots(sight)
    return {
        "step": number,
        "label": label,
        "guess": None if guess is None else str(guess),
        "picture": encode_levels(picture),
        **encode_weights(sight),
        "head_reads": encode_levels(np.asarray(trace.read_weights)[:, slots]),
        "head_writes": encode_levels(np.asarray(trace.write_weights)[:, slots]),
        "contents": _encode_contents(np.abs(np.asarray(trace.memory)[slots])),
    }


def _encode_contents(memory: Float[np.ndarray, "shown width"]) -> dict[str, Any]:
    """What the slots hold, down to the last that was ever written to: magnitudes, relative to the largest."""
    slots = 1 + int(np.flatnonzero(memory.max(axis=1) > 0.05 * memory.max()).max(initial=0))
    return {
        "slots": slots,
        "width": memory.shape[1],
        "values": encode_levels(memory[:slots], float(memory.max())),
    }
