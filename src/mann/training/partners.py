"""The other processes of a run: joining them, and one sentence when one of them is gone.

On a CPU a lost partner usually shows as an exception of the collective that waited for it. But when the
coordinator dies, when heartbeats stay away or when nobody joins in time, JAX logs a fatal error with pages of stack
from a thread of its own and aborts. It has no hook for that which Python can use (in jaxlib 0.10 a
`missed_heartbeat_callback` ends in `std::bad_cast`). So standard error is read on its way out, and the abort is
held up for the moments that saving and a sentence take.
"""

import atexit
import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import jax

from mann.errors import MannError, check_range

HEARTBEAT = 100  # seconds without a sign of life until a process counts as lost, unless told to wait for less
LONGEST_WAIT = 7 * 24 * 3600
FATAL = re.compile(rb"F\d{4} \d\d:\d\d:\d\d")  # these three: how a line begins
NOISE = re.compile(rb"F\d{4} |[EW]\d{4} \S+ +\d+ (coordination_service|preemption_sync_manager)")
OURS = re.compile(rb"mann: |Traceback ")
LOSS = re.compile(
    r"Gloo|Connection (closed|reset)|coordination service|heartbeat|NCCL|Broken pipe", re.IGNORECASE
)


@contextlib.contextmanager
def joined(coordinator: str = "", processes: int = 0, process: int = -1, wait: int = 300) -> Iterator[None]:
    """Join the other processes of a run and stay with them until the end of the block.

    With a coordinator ("host:port"), the number of processes and this one's index; or without any of them,
    from what SLURM, Open MPI or Kubernetes say in the environment, as JAX detects it. A process that has not joined
    after `wait` seconds ends the others.
    """
    check_range("The seconds to wait", wait, 1, LONGEST_WAIT)
    if coordinator and (processes < 1 or not 0 <= process < processes):
        raise MannError(
            "With a coordinator, say also how many processes there are and which one (from 0) this is."
        )
    if coordinator and not re.fullmatch(r".+:\d{1,5}", coordinator):
        raise MannError(f"The coordinator is given as host:port, not {coordinator!r}.")
    who = _awaited(coordinator, processes, process)
    watch.start(
        f"Not everybody joined within {wait} s (awaited: {who}). Start all processes of the run with the same "
        "coordinator, or let them wait for longer with --wait."
    )
    try:
        with _announcing(who, wait):
            _connect(coordinator, processes, process, wait)
        watch.sentence = (
            "Another process of this run has ended or cannot be reached. What was saved is whole: start all "
            "processes again, with --resume."
        )
        yield
        jax.distributed.shutdown()  # waits for the others
    except BaseException as error:
        # JAX would wait at exit for those that are gone, or make the others wait for us.
        atexit.register(_leave, _exit_code(error))
        if is_loss(error):
            watch.lost()
            raise MannError(watch.sentence) from None
        raise
    watch.stop()


def _exit_code(error: BaseException) -> int:
    """As the command line has it."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, MannError | OSError) or is_loss(error) else 1


def is_loss(error: BaseException) -> bool:
    """Whether it is the error of a collective whose partner is gone."""
    return isinstance(error, ValueError | RuntimeError) and bool(LOSS.search(str(error)))


def _connect(coordinator: str, processes: int, process: int, wait: int) -> None:
    try:
        jax.distributed.initialize(
            coordinator or None,
            processes if coordinator else None,
            process if coordinator else None,
            initialization_timeout=wait,
            heartbeat_timeout_seconds=min(HEARTBEAT, max(wait, 10)),
        )
    except (RuntimeError, ValueError) as error:
        raise MannError(f"Could not join the other processes: {error}") from None


def _awaited(coordinator: str, processes: int, process: int) -> str:
    if not coordinator:
        return "the other processes"
    if process:
        return f"process 0 at {coordinator}" + (" and the others" if processes > 2 else "")
    return "process 1" if processes == 2 else f"processes 1 to {processes - 1}"


@contextlib.contextmanager
def _announcing(who: str, wait: int) -> Iterator[None]:
    """Say who is awaited and for how long, as soon as it takes more than a moment, and again now and then."""
    arrived = threading.Event()
    start = time.monotonic()

    def announce() -> None:
        pause = 2
        while not arrived.wait(pause):
            rest = wait - (time.monotonic() - start)
            print(f"Waiting for {who} to join, for {rest:.0f} s at most.", file=sys.stderr, flush=True)
            pause = 30

    threading.Thread(target=announce, daemon=True).start()
    try:
        yield
    finally:
        arrived.set()


def _leave(code: int) -> NoReturn:
    """End without waiting for anybody."""
    sys.stdout.flush()
    watch.silence()
    os._exit(code)


class _Watch:
    """Reads standard error on its way out, so that a fatal error of JAX becomes a sentence."""

    def __init__(self) -> None:
        self.sentence = ""
        self.rescue: Callable[[], None] | None = None  # saves what can be saved
        self._lost = threading.Lock()  # held from the moment that a partner is lost
        self._stderr: int | None = None
        self._reader: threading.Thread | None = None

    def start(self, sentence: str) -> None:
        self.sentence = sentence
        if os.name != "posix" or self._stderr is not None:
            return
        sys.stderr.flush()
        self._stderr = os.dup(2)
        reading, writing = os.pipe()
        os.dup2(writing, 2)
        os.close(writing)
        # The C function sleep as the handler of SIGABRT: 6 s, its number, for the thread that aborts.
        _set_handler(signal.SIGABRT, ctypes.cast(ctypes.CDLL(None).sleep, ctypes.c_void_p).value)
        self._reader = threading.Thread(target=self._read, args=(reading, self._stderr), daemon=True)
        self._reader.start()

    def stop(self) -> None:
        if self._stderr is None or self._reader is None:
            return
        self._close_pipe(self._stderr)
        _set_handler(signal.SIGABRT, None)
        os.close(self._stderr)
        self._stderr = None
        self.rescue = None

    def silence(self) -> None:
        """What Python wrote comes out, but nothing that threads of JAX write from now on; aborts stay held up."""
        if self._stderr is not None:
            with Path(os.devnull).open("wb") as nowhere:
                self._close_pipe(nowhere.fileno())

    def _close_pipe(self, instead: int) -> None:
        """Standard error goes elsewhere, so that the reader comes to its end; what it has read is written first."""
        assert self._reader is not None
        sys.stderr.flush()
        os.dup2(instead, 2)
        self._reader.join(timeout=2)

    def lost(self) -> bool:
        """A partner is gone: save what can be saved. Whether this is news."""
        if not self._lost.acquire(blocking=False):
            return False
        if self.rescue is not None:
            with contextlib.suppress(Exception):
                self.rescue()
        return True

    def _read(self, reading: int, stderr: int) -> None:
        """Line by line: what came in one piece may have been written by several threads."""
        silent = False
        with contextlib.closing(os.fdopen(reading, "rb", buffering=0)) as pipe:
            while text := pipe.read(65536):
                for line in text.splitlines(keepends=True):
                    if FATAL.match(line) and self.lost():
                        # A live display may have hidden the cursor.
                        show_cursor = b"\x1b[?25h" if os.isatty(stderr) else b""
                        os.write(stderr, f"mann: {self.sentence}\n".encode() + show_cursor)
                        os._exit(2)
                    if NOISE.match(line):
                        silent = True  # until we write again: a message has many lines
                    elif OURS.match(line):
                        silent = False
                    if not silent:
                        os.write(stderr, line)


def _set_handler(number: int, address: int | None) -> None:
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    libc.signal(number, address)


watch = _Watch()
