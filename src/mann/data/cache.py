"""Bitmaps in the user's cache, packed to one bit per pixel and verified by digest."""

import hashlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from mann.data.images import SIDE
from mann.errors import MannError
from mann.files import write_atomically


def digest(bitmaps: UInt8[np.ndarray, "..."]) -> str:
    """SHA-256 of the raw bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(bitmaps).data).hexdigest()


def store_bitmaps(path: Path, bitmaps: UInt8[np.ndarray, "classes drawings 105 105"]) -> None:
    """Cache 0/1 bitmaps at eight pixels per byte. A cache that cannot be written is no error: it is only slower."""
    try:
        write_atomically(path, np.packbits(bitmaps, axis=None).tobytes())
    except OSError:
        return


def load_bitmaps(
    path: Path, classes: int, drawings: int, sha256: str | None = None
) -> UInt8[np.ndarray, "classes drawings 105 105"]:
    """Read what `store_bitmaps` wrote; refuse a file of the wrong size or, if given, the wrong digest."""
    packed = np.frombuffer(path.read_bytes(), np.uint8)
    pixels = classes * drawings * SIDE * SIDE
    if len(packed) != -(-pixels // 8):
        raise MannError(f"The cached file {path} is truncated: delete it and run the command again.")
    bitmaps = np.unpackbits(packed, count=pixels).reshape(classes, drawings, SIDE, SIDE)
    if sha256 is not None and digest(bitmaps) != sha256:
        raise MannError(f"The cached file {path} is damaged (wrong SHA-256): delete it and run again.")
    return bitmaps
