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
use_devices(2)
print(len(jax.devices()))
"""


def test_devices_and_cache_of_a_new_process(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {"MANN_CACHE": str(tmp_path), "XLA_FLAGS": "--xla_cpu_enable_fast_min_max=true"}
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    first, second = process.stdout.splitlines()
    assert first == f"3 {tmp_path / 'xla'} {['--xla_cpu_enable_fast_min_max=true', ONE_THREAD]}"
    assert second == "3"  # JAX has computed: it keeps its devices


def test_a_machine_has_cores_and_needs_a_device():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    with pytest.raises(MannError, match="number of devices"):
        use_devices(0)
