"""One file for each command of `mann`."""

import os
from typing import TypeVar

import tyro

T = TypeVar("T")


def parse(options: type[T], command: str, description: str, arguments: list[str]) -> T:
    """Parse arguments into a dataclass: its fields are the options, their docstrings the help."""
    return tyro.cli(
        options,
        prog=f"mann {command}",
        description=description,
        args=arguments,
        config=(tyro.conf.AvoidSubcommands,),
    )


def prepare_jax(devices: int = 0) -> None:
    """Before JAX computes: as many CPU devices as cores (or as asked), and a cache of compiled programs."""
    if devices > 1 or (devices == 0 and _cores() > 1):
        # The batch is split over the devices: threads inside small matrix products would only compete.
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    import jax

    from mann.data.cache import cache_dir
    from mann.training import distributed

    distributed.use_devices(devices or distributed.usable_cores())
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _cores() -> int:
    from mann.training.distributed import usable_cores

    return usable_cores()
