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


LEAVES = """
import os, threading, time
from mann.training.partners import _leave, watch

def chatter():
    while True:
        os.write(2, b"W1117 04:42:27.600551   15317 preemption_sync_manager.cc:147] Failed to retrieve\\n")
        time.sleep(0.0001)

watch.start("One sentence.")
threading.Thread(target=chatter, daemon=True).start()
time.sleep(0.1)
os.write(2, b"mann: Ours.\\n")
_leave(2)
"""


def test_who_leaves_is_not_followed_by_what_jax_still_writes():
    """Threads of JAX write on for as long as the process lives, and our sentence must be the last."""
    done = run(LEAVES)
    assert done.returncode == 2
    assert done.stderr == "mann: Ours.\n"


PIECES = """
import os, time
from mann.training.partners import watch
noise = b"W1117 04:42:27.600551   15317 preemption_sync_manager.cc:147] Failed to retrieve\\n of many lines\\n"
watch.start("One sentence.")
os.write(2, noise)
time.sleep(0.2)
os.write(2, b"mann: First.\\n" + noise + b"mann: Second.\\n" + noise)
watch.stop()
"""


def test_a_sentence_between_messages_of_jax_comes_out_alone():
    """On a busy machine the reader gets in one piece what several threads wrote."""
    done = run(PIECES)
    assert done.returncode == 0
    assert done.stderr == "mann: First.\nmann: Second.\n"


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
