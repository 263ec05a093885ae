import os
import subprocess
import sys

import pytest

from mann.errors import MannError
from mann.runtime import ONE_THREAD, usable_cores, use_devices

SCRIPT = """
import os
from mann.runtime import prepare_jax, use_devices
prepare_jax(3)
use_devices(3)
import jax
print(len(jax.devices()), jax.config.jax_compilation_cache_dir, os.environ["XLA_FLAGS"].split())
print(jax.config.jax_persistent_cache_min_compile_time_secs)
use_devices(2)
print(len(jax.devices()))
"""
PLACE, SHORTEST = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


@pytest.mark.parametrize("told", [False, True])
def test_devices_and_cache_of_a_new_process(told, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in (PLACE, SHORTEST)}
    environment |= {"MANN_CACHE": str(tmp_path), "XLA_FLAGS": "--xla_cpu_enable_fast_min_max=true"}
    if told:  # JAX's own variables win
        environment |= {PLACE: str(tmp_path / "elsewhere"), SHORTEST: "0.125"}
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    devices, shortest, later = process.stdout.splitlines()
    place = tmp_path / ("elsewhere" if told else "xla")
    assert devices == f"3 {place} {['--xla_cpu_enable_fast_min_max=true', ONE_THREAD]}"
    assert float(shortest) == (0.125 if told else 0.5)
    assert later == "3"  # JAX has computed: it keeps its devices


def test_a_machine_has_cores_and_needs_a_device():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    with pytest.raises(MannError, match="number of devices"):
        use_devices(0)
