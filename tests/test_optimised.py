"""Some oracles once more, with the programs that users run: other tests compile without XLA's optimisations."""

import os
import subprocess
import sys
from pathlib import Path

import jax

GRADIENT = (
    "test_gradient_of_the_whole_network_reaches_every_parameter_and_equals_finite_differences[lstm-lrua]"
)
ORACLES = (
    "tests/test_optimised.py::test_optimisations_are",
    "tests/memory/test_addressing.py::test_cosine_similarity_equals_the_loop_also_for_empty_slots",
    "tests/memory/test_addressing.py::test_content_weights_equal_the_loop",
    "tests/memory/test_addressing.py::test_read_weights_are_distributions",
    "tests/memory/test_addressing.py::test_ntm_sharpening_equals_the_loop",
    "tests/memory/test_lrua.py::test_very_large_key_strength_reads_one_slot_when_compiled",
    "tests/test_models.py::test_whole_network_equals_the_oracle",
    f"tests/test_models.py::{GRADIENT}",
    "tests/test_models.py::test_convolutional_encoder_equals_scipy[9-3-2]",
    "tests/test_native.py::test_results_and_gradients_are_those_of_the_scan[default]",
)
IN_ONE_PIECE = "--xla_cpu_parallel_codegen_split_count=1"  # the same programs, for less work of the compiler
ON = os.environ.get("MANN_OPTIMISED") == "1"


def test_optimisations_are():
    """On in the process that the test below starts, off in all others."""
    assert jax.config.read("jax_disable_most_optimizations") is not ON
    assert ("fusion_emitters" in os.environ.get("XLA_FLAGS", "")) is not ON


def test_oracles_hold_with_optimisations():
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS", "MANN_REQUIRE_BROWSER")
        and not name.startswith("PYTEST_")  # it is not a worker of this session
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", *ORACLES],
        cwd=Path(__file__).parents[1],
        env=environment | {"MANN_OPTIMISED": "1", "XLA_FLAGS": IN_ONE_PIECE},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
