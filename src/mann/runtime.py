"""JAX on this machine: its devices, and where compiled programs are kept. Call before JAX computes anything."""

import ctypes
import functools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mann.errors import check_range
from mann.files import cache_dir

MOST_DEVICES = 256  # that a CPU is split into: thousands take minutes to start
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"  # inside one device


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def has_fast_bfloat16() -> bool:
    """Whether products in bfloat16 are faster than in float32: AVX512-BF16 on a CPU, any accelerator."""
    import jax

    return jax.default_backend() != "cpu" or "avx512_bf16" in _processor_flags()


def _processor_flags() -> set[str]:
    """What the processor can do, in Linux's words; empty where nobody tells."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    return set()


def prepare_jax(devices: int = 0) -> None:
    """What every command of `mann` does first: CPU devices, and a cache of compiled programs.

    Args:
        devices: how many to split the CPU into; 0 for one per core.
    """
    use_devices(devices or usable_cores())
    cache_programs()
    keep_memory()


def keep_memory() -> None:
    """Let the C library keep what is freed, for the next call of a compiled program.

    By default glibc gives every block of more than 32 MB back to the system, and the next call waits for
    thousands of empty pages: of a batch of convolutions that was a third of the forward pass (58 against 38 ms).
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def use_devices(count: int) -> None:
    """Split the CPU into devices, over which training and evaluation split their episodes.

    Once JAX has computed anything, it keeps the devices it has.

    Args:
        count: of devices, at most 256.

    Raises:
        MannError: for less than 1 or more than 256.
    """
    check_range("The number of devices", count, 1, MOST_DEVICES)
    if count > 1:
        # The batch is split over the devices: threads inside small matrix products would only compete.
        flags = os.environ.get("XLA_FLAGS", "")
        if ONE_THREAD not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} {ONE_THREAD}".strip()
    import jax

    with suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", count)


def cache_programs() -> None:
    """Keep compiled programs in the user's cache, unless JAX's own variables say where, or which of them."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "xla"))
    if not os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def peak_memory(run: Callable[[], object]) -> int | None:
    """Bytes of main memory that a run needs on top of what the process holds before it; None without Linux.

    This is the high-water mark of the resident set, as in `ru_maxrss`, but reset after compilation, which needs
    more memory than a small update; and with freed memory handed back to the system first.
    """
    time.sleep(0.2)  # the devices' threads may still be cleaning up
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return None
    before = _resident("VmRSS")
    run()
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))
