"""The Python that README and docs print runs as it is printed, and what they list is what there is.

The stand-ins: every picture that a block names is a sketch, the folder my-pictures has a few of them, the glyphs
are few, and presets train a tiny network.
"""

import ast
import re
import shlex
import textwrap
from importlib import import_module
from pathlib import Path

import pytest

import mann
from mann.cli import COMMANDS, main
from mann.controllers import ControllerConfig
from mann.data import DataConfig, glyphs
from mann.encoders import EncoderConfig
from mann.experiments import EXPERIMENTS
from mann.memory import MemoryConfig
from mann.parts import Part
from mann.tasks import Task
from mann.training.optimisers import OptimiserConfig
from mann.training.presets import PRESETS
from tests.sketches import SYMBOLS, sketch
from tests.training.tiny import TINY

FAMILIES = {
    "task": Task,
    "model.encoder": EncoderConfig,
    "model.controller": ControllerConfig,
    "model.memory": MemoryConfig,
    "data": DataConfig,
    "optimiser": OptimiserConfig,
}
ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VALUE = re.compile(
    r"^(?P<code>\S.*?)  # (?P<value>\(.*?\)):", re.MULTILINE
)  # trace.shape  # (50, 4): steps, heads


def blocks_of(page: Path) -> list[str]:
    return [textwrap.dedent(block) for block in BLOCK.findall(page.read_text())]


PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if blocks_of(page)]


def test_there_is_python_to_try():
    assert ROOT / "README.md" in PAGES
    assert len(PAGES) >= 2


def members(family: type[Part]) -> dict[str, type[Part]]:
    """Those of the package alone: other tests define some, too."""
    return {kind: cls for kind, cls in family.members.items() if cls.__module__.startswith("mann.")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_runs_as_printed(page, tmp_path, shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.chdir(tmp_path)
    load = glyphs.load_glyphs
    monkeypatch.setattr(
        glyphs, "load_glyphs", lambda classes=1623, **options: load(min(classes, 40), **options)
    )
    for name in PRESETS:
        monkeypatch.setitem(PRESETS, name, TINY)
    for family in FAMILIES.values():
        monkeypatch.setattr(family, "members", members(family))
    for seed in range(24):
        path = Path(f"my-pictures/class {seed // 2:02}/{seed}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        sketch("zigzag", seed).save(path)
    namespace: dict[str, object] = {}
    for number, block in enumerate(blocks_of(page), start=1):
        for seed, name in enumerate(dict.fromkeys(re.findall(r"\"([\w/.-]+\.(?:png|jpg))\"", block))):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            symbol = next((symbol for symbol in SYMBOLS if symbol in name), "ring")
            sketch(symbol, seed).save(name)
        exec(compile(block, f"{page.name}, block {number}", "exec"), namespace)
        for shown in VALUE.finditer(block):
            assert eval(shown["code"], namespace) == ast.literal_eval(shown["value"]), shown[0]


class Accepted(Exception):
    """A command would now begin to work."""


def commands_of(page: Path) -> list[list[str]]:
    """The words of every `mann …` that a page tells people to type."""
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^(?:\$ )?mann (.+)$", "".join(blocks), re.MULTILINE)
    return [shlex.split(line.partition(" > ")[0], comments=True) for line in lines]


TYPED = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if commands_of(page)]


@pytest.mark.parametrize("page", TYPED, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_accepted_as_printed(page, monkeypatch):
    """Up to where they begin to work: their options are known, and so are their parts and presets."""
    monkeypatch.chdir(ROOT)
    for command in COMMANDS.values():
        module = import_module(command.module)

        def parse(*arguments, parse=module.parse):
            parse(*arguments)
            raise Accepted

        monkeypatch.setattr(module, "parse", parse)
    for words in commands_of(page):
        if "--help" in words:
            assert main(words) == 0, words
        else:
            with pytest.raises(Accepted):
                main(words)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_the_pages_print_the_examples_whole(example):
    """But for the sentences at the top of the file."""
    text = example.read_text()
    first = ast.parse(text).body[1]  # after the docstring
    code = [line for line in text.splitlines()[first.lineno - 1 :] if line]
    printed = [line for page in PAGES for block in blocks_of(page) for line in block.splitlines() if line]
    assert any(printed[start : start + len(code)] == code for start in range(len(printed)))


def test_the_navigation_names_every_page_and_no_other():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]
    named = re.findall(r": ([\w/-]+\.md)$", navigation, re.MULTILINE)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert len(named) == len(set(named))
    assert set(named) == pages | {"changelog.md", "contributing.md"}  # which stand at the root: tools/site.py
    assert (ROOT / "CHANGELOG.md").exists()
    assert (ROOT / "CONTRIBUTING.md").exists()


def test_readme_is_short_and_its_links_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 150
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_reference_has_every_public_name():
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    named = set(re.findall(r"^::: mann\.(\w+)$", pages, re.MULTILINE))
    assert set(mann.__all__) - {"__version__"} <= named


def column(page: str, pattern: str) -> list[str]:
    """The first cells of a page's tables, where they match."""
    return re.findall(rf"^\| `{pattern}` \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)


def test_the_tables_list_every_command_experiment_and_kind():
    assert set(column("how-to/commands.md", r"mann (\w+)[ A-Z]*")) == set(COMMANDS)
    assert column("how-to/reproduce.md", r"([a-z]\w+)") == list(EXPERIMENTS)
    page = (ROOT / "docs/how-to/exchange.md").read_text()
    for option, family in FAMILIES.items():
        kinds = re.search(rf"^\| `--{option}` \| (.+) \|$", page, re.MULTILINE)
        assert kinds, option
        assert set(re.findall(r"`([\w-]+)`", kinds[1])) == set(members(family)), option
