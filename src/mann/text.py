"""Words for people."""

import shutil
import textwrap


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, …"""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def listing(entries: dict[str, str]) -> str:
    """Names with a few words on each, wrapped to the terminal."""
    width = max(40, shutil.get_terminal_size().columns)
    column = 4 + max(map(len, entries))
    return "\n".join(
        textwrap.fill(about, width, initial_indent=f"  {name:<{column - 2}}", subsequent_indent=" " * column)
        for name, about in entries.items()
    )
