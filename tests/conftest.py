"""Tests run strictly: two CPU devices, no silent rank or dtype promotion, warnings are errors.

What XLA compiles is kept for the whole session, also for the processes that tests start and for the workers among
which `make test` shares out the files.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not WORKER:  # the workers are started with this environment
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="mann-tests-")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
# Tests spend their time compiling, not computing.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()

import jax  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_sessionfinish() -> None:
    """Forget what was compiled."""
    if not WORKER:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for data sets that several tests use (set MANN_CACHE to it)."""
    return tmp_path_factory.mktemp("cache")
