"""The C++ of `native/`, compiled at first use and kept in the cache. Without a compiler there is no kernel."""

import contextlib
import contextvars
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jaxtyping import Array, Float

from mann.files import cache_dir, write_atomically

FOLDER = Path(__file__).parent / "native"
KERNEL = FOLDER / "kernel.cpp"
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp-simd"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]  # what loops need to be vectorised
NETWORKS = ("lstm_lrua", "lstm_ntm", "lstm_none", "feedforward_lrua", "feedforward_ntm")  # as in kernel.cpp
TARGETS = [f"mann_{what}_{way}" for what in (*NETWORKS, "convolutions") for way in ("forward", "backward")]
TARGETS += ["mann_product", "mann_orthogonalise"]
SPARSE = ("lstm", "feedforward")  # controllers with sparse access
TARGETS += [f"mann_{controller}_sparse_{way}" for controller in SPARSE for way in ("forward", "backward")]

SLOWER = (  # at the paper's sizes with Adam, 2 cores: 47 against 23 ms per update
    "mann: without its native kernel everything is about twice as slow (%s). To have it, install a C++ "
    "compiler: `apt-get install g++` on Debian and Ubuntu, `xcode-select --install` on macOS."
)

log = logging.getLogger(__name__)


def available() -> bool:
    """Whether it can be used here; MANN_NATIVE=0 turns it off."""
    return _wanted() and load()


def host_function(source: str, name: str) -> Any | None:
    """A function of the host's, called without XLA, from a library of its own; None where `available` is not.

    Args:
        source: its file in `native/`, without the suffix.
        name: in that file.
    """
    library = _load_host(source) if _wanted() else None
    return None if library is None else getattr(library, name)


def _wanted() -> bool:
    return not _avoided.get() and os.environ.get("MANN_NATIVE") != "0" and jax.default_backend() == "cpu"


@contextlib.contextmanager
def avoided() -> Iterator[None]:
    """Whatever is traced inside is made of JAX's own operations alone, so that others can read it."""
    token = _avoided.set(True)
    try:
        yield
    finally:
        _avoided.reset(token)


_avoided = contextvars.ContextVar("avoided", default=False)


def varying(arrays: list[Array]) -> list[Array]:
    """Inside `shard_map`: what all devices share becomes one copy each, whose gradients are then summed."""
    axes = [jax.typeof(array).manual_axis_type.varying for array in arrays]
    return [
        jax.lax.pcast(array, tuple(frozenset().union(*axes) - own), to="varying")
        for array, own in zip(arrays, axes, strict=True)
    ]


def call(
    name: str, results: list[tuple[tuple[int, ...], Any]], *arrays: Array, **attributes: Any
) -> list[Array]:
    """Call a function of the kernel.

    Args:
        name: one of `TARGETS`.
        results: shape and type of each.
        arrays: what it takes.
        attributes: sizes and so on, by name: NumPy's numbers, or arrays of them.
    """
    like = jax.typeof(arrays[0])
    sharding = jax.NamedSharding(like.sharding.mesh, jax.P())
    structs = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding, manual_axis_type=like.manual_axis_type)
        for shape, dtype in results
    ]
    return list(jax.ffi.ffi_call(name, structs, vmap_method="sequential")(*arrays, **attributes))


def product(
    left: Float[Array, "_ _"], right: Float[Array, "_ _"], *, left_transposed: bool, right_transposed: bool
) -> Float[Array, "rows columns"]:
    """A product of two matrices in bfloat16, each of them transposed or not; the sums are in float32."""
    rows, depth = left.shape[::-1] if left_transposed else left.shape
    columns = right.shape[0] if right_transposed else right.shape[1]
    sizes = {"rows": rows, "depth": depth, "columns": columns}
    sizes |= {"left_transposed": left_transposed, "right_transposed": right_transposed}
    attributes = {name: np.int64(size) for name, size in sizes.items()}
    [result] = call("mann_product", [((rows, columns), jnp.float32)], left, right, **attributes)
    return result


@functools.cache
def load() -> bool:
    """Build the kernel if the cache has none for this machine, and register it with XLA: whether that worked."""
    library = _library(KERNEL)
    if library is None:
        return False
    for target in TARGETS:
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, target)), platform="cpu")
    return True


@functools.cache
def _load_host(source: str) -> ctypes.CDLL | None:
    return _library(FOLDER / f"{source}.cpp")


def _library(source: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(build(source)))
    except (OSError, subprocess.SubprocessError) as error:
        log.warning(SLOWER, str(error).replace("\n", " "))
        return None


def build(source: Path = KERNEL) -> Path:
    """The compiled library. Raises `OSError` or `subprocess.SubprocessError` if it cannot be had."""
    compiler = _compiler()
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=60).stdout
    key = hashlib.sha256(version)
    sources = [path.read_text() for path in (source, *sorted(FOLDER.glob("*.h")))]
    for part in (compiler, *FLAGS, jaxlib.__version__, _processor(), *sources):
        key.update(part.encode() + b"\0")
    name = f"{source.stem}-{key.hexdigest()[:20]}"
    return _cached(name) or _compile(compiler, source, name)


def _cached(name: str) -> Path | None:
    """The library in the cache. Its name holds its digest: an altered one could crash the process, so it goes."""
    for library in (cache_dir() / "native").glob(f"{name}*.so"):
        if library.name == _file_name(name, library.read_bytes()):
            return library
        library.unlink()
    return None


def _file_name(name: str, content: bytes) -> str:
    return f"{name}-{hashlib.sha256(content).hexdigest()}.so"


def _compile(compiler: str, source: Path, name: str) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.so"
        include = ["-isystem", jax.ffi.include_dir()]
        command = [compiler, *FLAGS, *include, str(source), "-o", str(output)]
        for native in (["-march=native"], ["-mcpu=native"], []):  # each compiler takes the ones it knows
            result = subprocess.run([*command, *native], capture_output=True, text=True, timeout=900)
            if result.returncode == 0:
                content = output.read_bytes()
                library = cache_dir() / "native" / _file_name(name, content)
                write_atomically(library, content)  # another process may be building it too
                return library
    raise OSError(f"{compiler} failed: {result.stderr.strip()[:300]}")


def _compiler() -> str:
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if path := shutil.which(name):
            return path
    raise OSError("no C++ compiler found (c++, g++, clang++ or $CXX)")


def _processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    fields = {line.split(":")[0].strip(): line for line in lines}
    return "\n".join(
        [platform.machine(), platform.processor(), *(fields.get(k, "") for k in ("model name", "flags"))]
    )
