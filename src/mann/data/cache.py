"""The user's cache folder: bitmaps packed to one bit a pixel, written atomically, verified by digest."""

import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from mann.data.images import SIDE
from mann.errors import MannError


def cache_dir() -> Path:
    """`$MANN_CACHE`, else `$XDG_CACHE_HOME/mann`, else `~/.cache/mann`."""
    if explicit := os.environ.get("MANN_CACHE"):
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mann"


def digest(bitmaps: UInt8[np.ndarray, "..."]) -> str:
    """SHA-256 of the raw bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(bitmaps).data).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name in the same folder and rename, so that no reader ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())  # a temporary file is private; ours are ordinary files
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """What the user's processes leave out of a new file's mode; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def store_bitmaps(path: Path, bitmaps: UInt8[np.ndarray, "classes drawings 105 105"]) -> None:
    """Cache 0/1 bitmaps at eight pixels a byte. A cache that cannot be written is no error: it is only slower."""
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
