"""Pictures and memories as the page reads them: small JSON, numbers as bytes in base64."""

import base64
import io
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from mann.data.images import SIDE
from mann.memory import MemoryTrace
from mann.online import Label


def encode_png(picture: Image.Image) -> str:
    assert picture.size == (SIDE, SIDE)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def encode_levels(values: Float[np.ndarray, "..."], largest: float = 1.0) -> str:
    """Numbers from 0 to `largest` as bytes in base64: a fraction of the size of JSON."""
    scaled = np.clip(255 * values / max(largest, 1e-9), 0, 255)
    return base64.b64encode(np.round(scaled).astype(np.uint8).tobytes()).decode()


def encode_weights(trace: MemoryTrace | None) -> dict[str, str] | None:
    """Where one step read (mean over heads) and wrote (sum over heads), and the usage relative to its largest."""
    if trace is None:
        return None
    usage = np.zeros(trace.memory.shape[0]) if trace.usage is None else np.asarray(trace.usage)
    return {
        "read": encode_levels(np.asarray(trace.read_weights).mean(axis=0)),
        "write": encode_levels(np.asarray(trace.write_weights).sum(axis=0)),
        "usage": encode_levels(usage, float(usage.max())),
    }


def encode_step(
    number: int, label: str, guess: Label | None, picture: Float[np.ndarray, "pixels"], trace: MemoryTrace
) -> dict[str, Any]:
    """What happened in the memory when an example was shown; `guess` is what the learner took it for."""
    return {
        "step": number,
        "label": label,
        "guess": None if guess is None else str(guess),
        "picture": encode_levels(picture),
        **(encode_weights(trace) or {}),
        "head_reads": encode_levels(np.asarray(trace.read_weights)),
        "head_writes": encode_levels(np.asarray(trace.write_weights)),
        "contents": _encode_contents(trace),
    }


def _encode_contents(trace: MemoryTrace) -> dict[str, Any]:
    """What the slots hold, down to the last that was ever written to: magnitudes, relative to the largest."""
    memory = np.abs(np.asarray(trace.memory))
    slots = 1 + int(np.flatnonzero(memory.max(axis=1) > 0.05 * memory.max()).max(initial=0))
    return {
        "slots": slots,
        "width": memory.shape[1],
        "values": encode_levels(memory[:slots], float(memory.max())),
    }
