"""The command line. JAX is imported only by the commands that need it: `mann --help` answers at once."""

import contextlib
import difflib
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from mann.errors import MannError
from mann.text import listing


class Command(NamedTuple):
    module: str  # imported when the command is used; its `main(arguments)` runs it
    summary: str


COMMANDS = {
    "quickstart": Command("mann.commands.quickstart", "train a small MANN on built-in glyphs, in minutes"),
    "train": Command("mann.commands.train", "train a model from a preset, or resume a run"),
    "eval": Command("mann.commands.eval", "accuracy by instance on classes never trained on"),
    "reproduce": Command("mann.commands.reproduce", "the paper's tables and figures, one experiment each"),
    "report": Command("mann.commands.report", "a page of results with figures, from what was reproduced"),
    "learn": Command("mann.commands.learn", "show it one picture of each thing, then ask about others"),
    "serve": Command("mann.commands.serve", "the playground in your browser: draw, teach, play against it"),
    "trials": Command("mann.commands.trials", "what people did against the machine: CSV, or a summary"),
    "export": Command("mann.commands.export", "a network without Python: as ONNX, or as a page"),
    "data": Command("mann.commands.data", "look at a data set: counts, split, a sheet of drawings"),
    "bench": Command("mann.commands.bench", "speed on this machine, against its peak and against PyTorch"),
}

HELP = """usage: mann COMMAND [OPTIONS]

One-shot learning with memory-augmented neural networks (Santoro et al. 2016).

commands:
{commands}

`mann COMMAND --help` explains a command. With `--use FILE.py` it knows the
memories, tasks, encoders and data sets that you define in that file.
New here? Start with: mann quickstart
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command. A mistake of the user is one sentence on standard error, and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as in `mann … >&-`
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (for the life of the process)
    try:
        code = _run(words)
        sys.stdout.flush()  # here, where an error still becomes a sentence
        return code
    except KeyboardInterrupt:
        print("mann: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as in `mann … | head`
        _discard_output()
        return 1
    except Exception as error:
        problem = explain(error)
        if problem is None or os.environ.get("MANN_TRACEBACK"):
            raise
        if isinstance(error, OSError):
            _discard_output()  # if it cannot be written, it cannot be written at the end either
        print(f"mann: {problem}", file=sys.stderr)
        return 2


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(
            HELP.format(commands=listing({name: about.summary for name, about in COMMANDS.items()})), end=""
        )
        return 0 if words else 2
    if words[0] == "--version":
        from mann.installation import version

        print(version())
        return 0
    if words[0] not in COMMANDS:
        close = difflib.get_close_matches(words[0], COMMANDS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"try {', '.join(COMMANDS)}."
        raise MannError(f"there is no command {words[0]!r}: {hint}")
    try:
        run: Callable[[list[str]], int] = import_module(COMMANDS[words[0]].module).main
        return run(_use_files(words[1:]))
    except SystemExit as stop:  # the argument parser: 0 after --help, 2 after a mistake
        return stop.code if isinstance(stop.code, int) else 2


def _use_files(words: list[str]) -> list[str]:
    """Run the files named by `--use FILE.py`, which define parts of one's own; returns the other words."""
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--use" or word.startswith("--use="):
            file = word.partition("=")[2] if "=" in word else next(rest, "")
            if not file:
                raise MannError("--use needs a Python file that defines parts of your own.")
            from mann.parts import use_file

            use_file(file)
        else:
            others.append(word)
    return others


def explain(error: Exception) -> str | None:
    """What a user can do about an error, in a sentence or two; None if it is a bug of ours.

    Errors of the operating system and of memory can come from anywhere, so they are put into words here alone.
    """
    match error:
        case MannError():
            return str(error)
        case OSError():
            names = " and ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
            reason = error.strerror or str(error) or type(error).__name__
            return f"{reason[:1].upper()}{reason[1:]}{f': {names}' if names else ''}."
        case RecursionError():
            return "A file is nested too deeply to be read: it is not one that mann wrote."
        case UnicodeError():
            return f"A file or a name is not valid UTF-8 text ({error})."
        case MemoryError():
            return f"{OUT_OF_MEMORY}."
    if type(error).__name__ == "JaxRuntimeError" and "RESOURCE_EXHAUSTED" in str(error):
        return f"{OUT_OF_MEMORY}."
    return None


OUT_OF_MEMORY = "There is not enough memory: use a smaller model, shorter episodes or fewer at a time"


def _discard_output() -> None:
    """Python writes what is left at its end; where nobody can take it, that would be one more error."""
    with contextlib.suppress(OSError, ValueError):  # not a real file, in a test
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
