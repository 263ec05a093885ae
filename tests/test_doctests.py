"""Docstrings of the public names: examples run and print what they say, arguments are all explained."""

import ast
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import pytest

import mann

SOURCE = Path(__file__).parents[1] / "src"
MAIN = {
    *("mann", "parts", "Config", "train", "Observer", "OptimiserConfig", "evaluate", "load_trained"),
    *(
        "Model",
        "ModelConfig",
        "build_model",
        "Linear",
        "Memory",
        "EncoderConfig",
        "ControllerConfig",
        "LabelCode",
    ),
    *("Output", "Task", "Classification", "Regression", "time_offset", "ImageSet", "PictureFormat", "Glyphs"),
    *("save_trained", "divide", "prepare", "online", "OneShotLearner", "pretrained_names"),
}


class Docstring(NamedTuple):
    module: str
    name: str
    text: str
    line: int


def docstrings(path: Path) -> Iterator[Docstring]:
    """All of a file. From its source: the decorators of the tests hide functions from doctest."""
    module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            text := ast.get_docstring(node)
        ):
            name = module.rpartition(".")[2] if isinstance(node, ast.Module) else node.name
            yield Docstring(module, name, text, node.body[0].lineno)


EXAMPLES = [
    docstring
    for path in sorted((SOURCE / "mann").rglob("*.py"))
    for docstring in docstrings(path)
    if ">>>" in docstring.text
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.module}:{example.name}")
def test_examples_print_what_they_say(example, shared_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(example.module)
    test = doctest.DocTestParser().get_doctest(
        example.text, dict(vars(module)), example.name, module.__file__, example.line
    )
    output: list[str] = []
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # as for a user
        result = doctest.DocTestRunner().run(test, out=output.append)
    assert result.attempted
    assert not result.failed, "".join(output)


def test_the_main_names_have_an_example():
    assert {example.name for example in EXAMPLES} >= MAIN


def public_callables() -> Iterator[tuple[str, Any]]:
    """Exported functions and classes, and the methods that these define themselves."""
    for name in mann.__all__:
        value = getattr(mann, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            yield name, value
        for method in vars(value) if inspect.isclass(value) else ():
            if not method.startswith("_") and inspect.isroutine(member := getattr(value, method)):
                yield f"{name}.{method}", member


def test_every_public_name_has_a_docstring():
    texts = {name: inspect.getdoc(value) or "" for name, value in public_callables()}
    assert len(texts) > 100
    # A dataclass without one describes itself by its signature.
    assert not [name for name, text in texts.items() if not text or text.startswith(f"{name}(")]


def section(text: str, title: str) -> list[str]:
    """The names that a section of a docstring explains."""
    body = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
    return re.findall(r"^    (\w+):", body, re.MULTILINE)


def test_arguments_are_explained_one_by_one_and_in_order():
    wrong = []
    for name, value in public_callables():
        if value is mann.MannError:
            continue
        arguments = [n for n in inspect.signature(value).parameters if n not in ("self", "cls")]
        explained = section(inspect.getdoc(value) or "", "Args")
        owner, _, method = name.partition(".")
        inherits = bool(method) and issubclass(getattr(mann, owner), mann.Task)  # explained in Task
        needed = inspect.isroutine(value) and len(arguments) > (2 if "." in name else 1) and not inherits
        if (explained or needed) and explained != arguments:
            wrong.append(f"{name}{tuple(arguments)} explains {explained}")
    assert not wrong, "\n".join(wrong)


def test_no_other_error_is_promised_than_the_one_of_the_package():
    promised = {n: section(inspect.getdoc(value) or "", "Raises") for n, value in public_callables()}
    assert {error for errors in promised.values() for error in errors} == {"MannError"}


def test_lazy_names_and_those_for_type_checkers_are_the_same():
    """`mann.__init__` lists every name twice: for `__getattr__`, and for type checkers and editors."""
    tree = ast.parse((SOURCE / "mann" / "__init__.py").read_text())
    [block] = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imported = [
        (node.module, alias.name, alias.asname)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(imported) == sorted((home, name, name) for name, home in mann._HOMES.items())


def test_every_exported_name_can_be_imported():
    scope: dict[str, object] = {}
    for name in mann.__all__:
        exec(f"from mann import {name}", scope)
        assert name in dir(mann)
    with pytest.raises(AttributeError, match="no attribute 'load_dreams'"):
        mann.load_dreams  # noqa: B018
