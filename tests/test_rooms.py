"""Imports go one way: a room of the package may import those below it, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src"

# From bottom to top. Rooms on the same line do not know of each other.
LAYERS = """
errors
files installation labels paper parts statistics text
data kernel runtime
episodes layers
outputs
metrics
tasks
baselines controllers encoders memory
cell
native
recurrences
models
training
trained
evaluation online
export sklearn store teaching
figures
experiments
benchmark client web
commands
cli
mann
"""
LEVELS = {room: level for level, line in enumerate(LAYERS.split("\n")) for room in line.split()}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in ROOT.rglob("*.py")}


def room_of(module: str) -> str:
    """mann.data.render → data; the package itself and `python -m mann` stand above all."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] != "__main__" else "mann"


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and module of every import of the package: at the top, in functions, and for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (
                (node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "mann"
            )
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}:{node.lineno}: a relative import hides where it goes")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mann":
            for alias in node.names:  # `from mann import data` is of the module, not of the package
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in MODULES else str(node.module)


def test_every_room_has_a_place_and_is_explained():
    assert {room_of(module) for module in MODULES} <= set(LEVELS), "give the new room a place in LAYERS"
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    explained = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert [*explained, "mann"] == list(LEVELS)


def test_imports_never_go_back():
    backward = [
        f"{path.relative_to(ROOT)}:{line}: {room_of(module)} imports {target}"
        for module, path in MODULES.items()
        for line, target in imports(path)
        if room_of(target) != room_of(module) and LEVELS[room_of(target)] >= LEVELS[room_of(module)]
    ]
    assert not backward, "\n".join(backward)
