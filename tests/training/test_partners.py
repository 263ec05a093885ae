import subprocess
import sys

import pytest

from mann.training.partners import is_loss

ABORTS = """
import os, sys, time
from mann.training.partners import watch
watch.start("One sentence.")
watch.rescue = lambda: print("rescued", flush=True)
for text in (
    "ordinary\\n",
    "E1117 02:06:37.872507   22704 coordination_service.cc:1520] [69761] Shutdown barrier has failed:\\n",
    "This suggests that the workers are out of sync.\\n",
    "and so on\\nTraceback (most recent call last):\\n",
    "  of our own\\n",
    "F1117 02:08:28.976080   24406 client.h:80] Terminating process because another task died\\n*** stack ***\\n",
):
    os.write(2, text.encode())
    time.sleep(0.2)
os.abort()
"""


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_a_fatal_error_of_jax_becomes_a_sentence():
    """As JAX writes it to standard error before it aborts, from C++."""
    done = run(ABORTS)
    assert done.returncode == 2
    assert done.stdout == "rescued\n"
    assert done.stderr == "ordinary\nTraceback (most recent call last):\n  of our own\nmann: One sentence.\n"


def test_afterwards_standard_error_and_aborts_are_what_they_were():
    done = run(
        "import os, sys; from mann.training.partners import watch; watch.start('x'); print('a', file=sys.stderr); "
        "watch.stop(); print('b', file=sys.stderr, flush=True); os.abort()"
    )
    assert done.returncode == -6
    assert done.stderr == "a\nb\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: pair.cc:547] Connection closed by peer [::1]:13"), True),
        (RuntimeError("UNAVAILABLE: Task 1 heartbeat timeout"), True),
        (ValueError("operands could not be broadcast together"), False),
        (KeyError("Gloo"), False),
    ],
)
def test_the_error_of_a_lost_partner_is_recognised(error, expected):
    assert is_loss(error) == expected
