"""Files: written atomically, arrays verified by digest, and where the user's cache and data are kept.

There is no pickle anywhere: arrays and their description are one safetensors file, which is valid if and only if
its digest is. JAX is imported only where it is needed, since commands that need none of it write files too.
"""

import base64
import contextlib
import errno
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import platformdirs

from mann.errors import MannError

T = TypeVar("T")


class Damaged(MannError):
    """The file is truncated or altered."""


def cache_dir() -> Path:
    """What can be made or fetched again: `$MANN_CACHE`, else the system's place (`~/.cache/mann` on Linux)."""
    if explicit := os.environ.get("MANN_CACHE"):
        return Path(explicit)
    return _existing(platformdirs.user_cache_path("mann", appauthor=False), "~/.cache/mann")


def data_dir() -> Path:
    """What cannot be made again: the system's place for a user's data (`~/.local/share/mann` on Linux)."""
    return _existing(platformdirs.user_data_path("mann", appauthor=False), "~/.local/share/mann")


def _existing(path: Path, earlier: str) -> Path:
    """The system's place, unless there is a folder only where every system had it before."""
    before = Path(earlier).expanduser()
    return before if before.is_dir() and not path.exists() else path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a file into what the user can do."""
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise MannError(
            f"Could not write {path}: {reason}. What was saved before is intact: make room or choose another "
            "place."
        ) from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name in the same folder and rename, so that no reader ever sees half a file.

    Links are followed. What is no regular file, such as a pipe or a terminal, is written through instead: a
    rename would put a file in its place. So is the file that standard output was redirected to.
    """
    if path.exists() and (not path.is_file() or _is_standard_output(path)):
        _write_through(path, content)
        return
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name[:100]}.{secrets.token_hex(4)}.tmp"
    try:
        # An ordinary file of the user's, not a private one as `tempfile` makes.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any, indent: int = 2) -> None:
    """Plain dictionaries, lists and numbers as a JSON file; raises `MannError` if it cannot be written."""
    with writing(path):
        write_atomically(path, (json.dumps(content, indent=indent) + "\n").encode())


def check_writable(path: Path) -> None:
    """Refuse a file that `write_atomically` could not write: before minutes of work, not after them."""
    if path.exists() and (not path.is_file() or _is_standard_output(path)):
        writable = not path.is_dir() and os.access(path, os.W_OK)
    else:
        folder = Path(os.path.realpath(path)).parent
        while not folder.exists():
            folder = folder.parent
        writable = folder.is_dir() and os.access(folder, os.W_OK)
    if not writable:
        raise MannError(f"Cannot write {path}: name a file in a folder that can be written to.")


def _is_standard_output(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(path.stat(), os.fstat(1))
    return False


def _write_through(path: Path, content: bytes) -> None:
    if _is_standard_output(path):
        sys.stdout.flush()
        with os.fdopen(os.dup(1), "wb") as file:  # opened anew it would start at its beginning
            file.write(content)
    else:
        with path.open("wb") as file:
            file.write(content)


def read_json(path: Path) -> Any:
    """The content of a JSON file; raises `Damaged` if it is none, and `OSError` if it cannot be read."""
    content = path.read_bytes()
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or nested too deeply
        raise Damaged(f"{path} is damaged: it is not valid JSON ({error}).") from None


def set_aside(path: Path) -> Path:
    """Rename a damaged file so that it is in nobody's way but not lost: the new name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return path.rename(aside)


class Lock:
    """A file that one process at a time can hold; the operating system lets go of it when the process ends."""

    def __init__(self, path: Path) -> None:
        """Raises `BlockingIOError` if another process holds it."""
        self.path = path
        while True:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                _lock(self._handle)
            except BaseException:
                os.close(self._handle)
                raise
            if self.is_in_place():
                return
            os.close(self._handle)  # whoever held it has just removed it: the next one is a new file

    def is_in_place(self) -> bool:
        """Whether the file is still where it was made."""
        try:
            return os.path.samestat(os.fstat(self._handle), self.path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """Remove the file and let go of it."""
        with contextlib.suppress(OSError):  # Windows removes no open file: an empty one stays, no harm
            if self.is_in_place():
                self.path.unlink()
        os.close(self._handle)


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(*error.args) from None
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def save_arrays(path: Path, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> None:
    """Write arrays with a JSON description; the previous file of that name stays intact on failure."""
    from safetensors.numpy import save

    text = json.dumps(description, sort_keys=True)
    content = save(arrays, metadata={"description": text, "sha256": digest(arrays, text)})
    with writing(path):
        write_atomically(path, _in_order(content))


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_arrays` wrote; raises `Damaged` if the digest does not match."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = path.read_bytes()
    except OSError as error:
        raise MannError(f"Could not read {path}: {error.strerror}.") from None
    try:
        arrays = load(content)
        metadata = _header(content)["__metadata__"]
        text, expected = metadata["description"], metadata["sha256"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise Damaged(f"{path} is damaged or not a file of mann: {error}.") from None
    if digest(arrays, text) != expected:
        raise Damaged(f"{path} is damaged: its content does not match its digest.")
    return arrays, json.loads(text)


MOST_JSON = 2**30  # characters of JSON that `parse_arrays` reads


def dump_arrays(arrays: dict[str, np.ndarray], description: dict[str, Any]) -> str:
    """The content of `save_arrays` as JSON text.

    The description is a string of JSON by itself: whatever a database does to numbers and to the order of keys, its
    digest holds.
    """
    text = json.dumps(description, sort_keys=True)
    content = {
        "format": JSON_FORMAT,
        "sha256": digest(arrays, text),
        "description": text,
        "arrays": {
            name: {
                "dtype": str(array.dtype),
                "shape": list(array.shape),
                "base64": base64.b64encode(np.ascontiguousarray(array).data).decode(),
            }
            for name, array in arrays.items()
        },
    }
    return json.dumps(content)


def parse_arrays(text: str | bytes, source: str = "The JSON") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `dump_arrays` gave; raises `Damaged` if the digest does not match."""
    if len(text) > MOST_JSON:
        raise MannError(f"{source} is too long: at most {MOST_JSON // 2**20} MiB are read.")
    try:
        content = json.loads(text)
        if content["format"] != JSON_FORMAT:
            raise MannError(
                f"{source} is of the format {str(content['format'])[:40]!r}, not {JSON_FORMAT!r}: it is of another "
                "program, or a newer version of mann wrote it."
            )
        arrays = {
            str(name): _array(item["dtype"], item["shape"], item["base64"])
            for name, item in content["arrays"].items()
        }
        description, expected = content["description"], content["sha256"]
        if digest(arrays, description) != expected:
            raise Damaged(f"{source} is damaged: its content does not match its digest.")
        return arrays, json.loads(description)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Damaged(f"{source} is damaged, or was not written by mann.") from None


JSON_FORMAT = "mann arrays 1"
JSON_TYPES = ("float32", "float16", "float64", "int32", "int64", "uint8", "uint32", "uint64", "bool")


def _array(dtype: str, shape: list[int], text: str) -> np.ndarray:
    if dtype not in JSON_TYPES or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("no array")
    content = base64.b64decode(text, validate=True)
    return np.frombuffer(content, dtype).reshape(shape)  # the sizes must agree


def digest(arrays: dict[str, np.ndarray], description: str = "") -> str:
    """SHA-256 of arrays with their names, types and shapes, and of a description."""
    hasher = hashlib.sha256(description.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        hasher.update(f"{name} {array.dtype} {array.shape}".encode())
        hasher.update(array.data)
    return hasher.hexdigest()


def _header_end(content: bytes) -> int:
    """A safetensors file is the length of its header in eight bytes, the header in JSON, and the arrays."""
    return 8 + int.from_bytes(content[:8], "little")


def _header(content: bytes) -> dict[str, Any]:
    return json.loads(content[8 : _header_end(content)])


def _in_order(content: bytes) -> bytes:
    """The same file with its header in alphabetical order: safetensors writes the metadata in a random one."""
    header = json.dumps(_header(content), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # the arrays stay aligned
    return len(header).to_bytes(8, "little") + header + content[_header_end(content) :]


def is_array(leaf: Any) -> bool:
    """An array on a device or on the host, or the shape of one."""
    import jax

    return isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree, named by their place in it (`model.controller.recurrent`)."""
    import equinox as eqx
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, is_array))
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def array_names(tree: T) -> T:
    """The same tree with the name of each array (as `to_arrays` has it) in its place."""
    import jax

    return jax.tree_util.tree_map_with_path(lambda path, _: _name(path), tree)


def from_arrays(like: T, arrays: dict[str, np.ndarray], source: str = "the file") -> T:
    """A tree of the same structure as `like`, with the arrays by name."""
    import equinox as eqx
    import jax

    dynamic, static = eqx.partition(like, is_array)

    def pick(path: Any, leaf: Any) -> jax.Array:
        name = _name(path)
        if name not in arrays:
            raise MannError(f"{source} has no array {name}: it belongs to another model.")
        if arrays[name].shape != leaf.shape:
            raise MannError(f"{name} in {source} has shape {arrays[name].shape}, expected {leaf.shape}.")
        return jax.numpy.asarray(arrays[name], dtype=leaf.dtype)

    return eqx.combine(jax.tree_util.tree_map_with_path(pick, dynamic), static)


def _name(path: Any) -> str:
    parts = (getattr(p, "name", getattr(p, "key", getattr(p, "idx", None))) for p in path)
    return ".".join(str(part) for part in parts)
