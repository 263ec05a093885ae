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

from mann.data.cache import cache_dir

FOLDER = Path(__file__).parent
KERNEL = FOLDER / "kernel.cpp"
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-fopenmp-simd"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]  # what loops need to be vectorised
NETWORKS = ("lstm_lrua", "lstm_ntm", "lstm_none", "feedforward_lrua", "feedforward_ntm")  # as in kernel.cpp
TARGETS = [f"mann_{network}_{way}" for network in NETWORKS for way in ("forward", "backward")]

log = logging.getLogger(__name__)


@functools.cache
def load() -> bool:
    """Build the kernel if the cache has none for this machine, and register it with XLA: whether that worked."""
    try:
        library = ctypes.CDLL(str(build()))
    except (OSError, subprocess.SubprocessError) as error:
        log.info("No native kernel, the JAX path is used instead: %s", str(error).replace("\n", " "))
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
    library = cache_dir() / "native" / f"kernel-{key.hexdigest()[:20]}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:  # another process may be building it too
        unfinished = Path(folder) / library.name
        include = ["-isystem", jax.ffi.include_dir()]
        command = [compiler, *FLAGS, *include, str(KERNEL), "-o", str(unfinished)]
        for native in (["-march=native"], ["-mcpu=native"], []):  # each compiler takes the ones it knows
            result = subprocess.run([*command, *native], capture_output=True, text=True, timeout=300)
            if result.returncode == 0:
                unfinished.replace(library)
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
    found = {line.split(":")[0].strip(): line for line in lines}
    return "\n".join(
        [platform.machine(), platform.processor(), *(found.get(k, "") for k in ("model name", "flags"))]
    )
