"""The command line. JAX is imported only by the commands that need it: `mann --help` answers at once."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from mann.errors import MannError


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
    "data": Command("mann.commands.data", "look at a data set: counts, split, a sheet of drawings"),
    "bench": Command("mann.commands.bench", "speed on this machine, against its peak and against PyTorch"),
}

HELP = """usage: mann COMMAND [OPTIONS]

One-shot learning with memory-augmented neural networks (Santoro et al. 2016).

commands:
{commands}

`mann COMMAND --help` explains a command. New here? Start with: mann quickstart
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command. A mistake of the user is one sentence on standard error, and exit code 2."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help", "help"):
        listing = "\n".join(f"  {name:<12}{command.summary}" for name, command in COMMANDS.items())
        print(HELP.format(commands=listing), end="")
        return 0 if words else 2
    if words[0] == "--version":
        from importlib.metadata import version

        print(version("mann"))
        return 0
    if words[0] not in COMMANDS:
        print(f"mann: there is no command {words[0]!r}: try {', '.join(COMMANDS)}.", file=sys.stderr)
        return 2
    try:
        run: Callable[[list[str]], int] = import_module(COMMANDS[words[0]].module).main
        return run(words[1:])
    except MannError as error:
        print(f"mann: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mann: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as in `mann … | head`
        sys.stderr.close()
        return 1
    except SystemExit as stop:  # the argument parser: 0 after --help, 2 after a mistake
        return stop.code if isinstance(stop.code, int) else 2
