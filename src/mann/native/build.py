"""Compile the kernel at first use and keep it in the user's cache; without a compiler there is no kernel."""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import jaxlib

from mann.files import cache_dir, write_atomically

FOLDER = Path(__file__).parent
KERNEL = FOLDER / "kernel.cpp"
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp-simd"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]  # what loops need to be vectorised
NETWORKS = ("lstm_lrua", "lstm_ntm", "lstm_none", "feedforward_lrua", "feedforward_ntm")  # as in kernel.cpp
TARGETS = [f"mann_{what}_{way}" for what in (*NETWORKS, "convolutions") for way in ("forward", "backward")]
TARGETS += ["mann_orthogonalise"]
SPARSE = ("lstm", "feedforward")  # controllers with sparse access
TARGETS += [f"mann_{controller}_sparse_{way}" for controller in SPARSE for way in ("forward", "backward")]

SLOWER = (  # at the paper's sizes with Adam, 2 cores: 47 against 23 ms per update
    "mann: without its native kernel everything is about twice as slow (%s). To have it, install a C++ "
    "compiler: `apt-get install g++` on Debian and Ubuntu, `xcode-select --install` on macOS."
)

log = logging.getLogger(__name__)


@functools.cache
def load() -> bool:
    """Build the kernel if the cache has none for this machine, and register it with XLA: whether that worked."""
    try:
        library = ctypes.CDLL(str(build()))
    except (OSError, subprocess.SubprocessError) as error:
        log.warning(SLOWER, str(error).replace("\n", " "))
        return False
    for target in TARGETS:
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, target)), platform="cpu")
    return True


def build() -> Path:
    """The compiled library. Raises `OSError` or `subprocess.SubprocessError` if it cannot be had."""
    compiler = _compiler()
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=60).stdout
    key = hashlib.sha256(version)
    sources = [path.read_text() for path in (KERNEL, *sorted(FOLDER.glob("*.h")))]
    for part in (compiler, *FLAGS, jaxlib.__version__, _processor(), *sources):
        key.update(part.encode() + b"\0")
    return _cached(key.hexdigest()[:20]) or _compile(compiler, key.hexdigest()[:20])


def _cached(key: str) -> Path | None:
    """The library in the cache. Its name holds its digest: an altered one could crash the process, so it goes."""
    for library in (cache_dir() / "native").glob(f"kernel-{key}*.so"):
        if library.name == _file_name(key, library.read_bytes()):
            return library
        library.unlink()
    return None


def _file_name(key: str, content: bytes) -> str:
    return f"kernel-{key}-{hashlib.sha256(content).hexdigest()}.so"


def _compile(compiler: str, key: str) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.so"
        include = ["-isystem", jax.ffi.include_dir()]
        command = [compiler, *FLAGS, *include, str(KERNEL), "-o", str(output)]
        for native in (["-march=native"], ["-mcpu=native"], []):  # each compiler takes the ones it knows
            result = subprocess.run([*command, *native], capture_output=True, text=True, timeout=300)
            if result.returncode == 0:
                content = output.read_bytes()
                library = cache_dir() / "native" / _file_name(key, content)
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
