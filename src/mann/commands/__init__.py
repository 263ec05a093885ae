"""One file for each command of `mann`."""

import contextlib
import io
import re
import shutil
import sys
import textwrap
from typing import TypeVar

import tyro

T = TypeVar("T")


def parse(options: type[T], command: str, description: str, arguments: list[str]) -> T:
    """Parse arguments into a dataclass: its fields are the options, their docstrings the help."""
    help_text = _Capture()
    try:
        with contextlib.redirect_stdout(help_text):
            return tyro.cli(
                options,
                prog=f"mann {command}",
                description=PLACE,
                args=arguments,
                config=(tyro.conf.AvoidSubcommands,),
            )
    finally:
        sys.stdout.write(_tidy(help_text.getvalue(), description))


PLACE = "@description@"
COLOUR = r"\x1b\[[0-9;]*m"
# An empty default, '' or no values; it may be broken over two lines of a box.
EMPTY_DEFAULT = re.compile(rf"\(default:(?:\s|│|{COLOUR})*(?:'')?\)")
EMPTY_LINE = re.compile(rf"^(?:{COLOUR})*│(?: |{COLOUR})*│(?:{COLOUR})*\n", re.MULTILINE)


class _Capture(io.StringIO):
    """Looks like the standard output that it stands in for: that decides on colours and boxes."""

    def __init__(self) -> None:
        super().__init__()
        self._terminal = sys.stdout

    def isatty(self) -> bool:
        return self._terminal.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding


def _tidy(help_text: str, description: str) -> str:
    """The parser's help, with usage and description wrapped to the terminal and without empty defaults."""
    if not help_text:
        return ""
    width = shutil.get_terminal_size().columns
    usage, help_text = help_text.split("\n", 1)
    if len(plain := re.sub(COLOUR, "", usage)) > width:
        usage = textwrap.fill(plain, width, subsequent_indent=" " * len("usage: "), break_on_hyphens=False)
    paragraphs = description.strip("\n").split("\n\n")
    wrapped = (text if text.startswith(" ") else textwrap.fill(text, width) for text in paragraphs)
    help_text = f"{usage}\n{help_text}".replace(PLACE, "\n\n".join(wrapped))
    help_text, count = EMPTY_DEFAULT.subn(
        lambda hint: re.sub(r"[^\s│]", " ", re.sub(COLOUR, "", hint[0])), help_text
    )
    return EMPTY_LINE.sub("", help_text) if count else help_text
