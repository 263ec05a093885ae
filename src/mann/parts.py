"""Configurations that can be exchanged for one another, by kind, and their way to JSON and back.

A *family* is a kind of part: memories, encoders, tasks … Each member is a frozen dataclass with a `kind`, the
word for it in `config.json` and on the command line. A member defined outside the package is as good as one
inside it: defining the class is all it takes.

Examples:
    >>> @dataclasses.dataclass(frozen=True)
    ... class Animal(Part):
    ...     '''A family: a direct subclass of Part.'''
    >>> @dataclasses.dataclass(frozen=True)
    ... class Cat(Animal, kind="cat"):
    ...     lives: int = 9
    >>> to_dict(Cat())
    {'kind': 'cat', 'lives': 9}
    >>> from_dict(Animal, {"kind": "cat", "lives": 7})
    Cat(lives=7)
"""

import abc
import dataclasses
import importlib.util
import math
import os
import sys
import traceback
import types
import typing
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from mann.errors import MannError

T = TypeVar("T")
ENTRY_POINTS = "mann.parts"  # installed packages name modules here that define parts of their own


class Part(abc.ABC):  # noqa: B024 (what its members must have is up to each family)
    """Base of all families. A direct subclass is a family; their subclasses are its members."""

    kind: ClassVar[str] = ""
    members: ClassVar[dict[str, type["Part"]]] = {}  # of the family, by kind

    def __init_subclass__(cls, *, kind: str = "", abstract: bool = False, **keywords: Any) -> None:
        """A member without a kind of its own is called by the name of its class; an abstract one is none."""
        super().__init_subclass__(**keywords)
        if Part in cls.__bases__:
            cls.members = {}
        if Part in cls.__bases__ or abstract:
            return
        cls.kind = kind or cls.__name__
        known = cls.members.get(cls.kind)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise MannError(
                f"There is already a part of kind {cls.kind!r}, {known.__module__}.{known.__qualname__}: choose "
                "another kind."
            )
        cls.members[cls.kind] = cls


def family_of(part: Part) -> type[Part]:
    """The family that a part is a member of."""
    return next(cls for cls in type(part).__mro__ if Part in cls.__bases__)


def member(family: type[T], kind: Any, where: str) -> type[T]:
    """The class of a kind; modules that installed packages announce are imported before it counts as unknown."""
    members: dict[str, type[T]] = family.members  # type: ignore[attr-defined]
    if isinstance(kind, str) and kind not in members:
        for point in metadata.entry_points(group=ENTRY_POINTS):
            point.load()
    if not isinstance(kind, str) or kind not in members:
        raise MannError(
            f"{where} is of kind {kind!r}, which is not known here: choose one of {', '.join(members)}, or name "
            "the file that defines it with --use FILE.py (in Python: import it first)."
        )
    if not issubclass(members[kind], family):
        raise MannError(f"{where} is of kind {kind!r}, which does not belong here.")
    return members[kind]


def use_file(path: str | Path) -> types.ModuleType:
    """Run a Python file of one's own, so that the parts that it defines are known.

    Args:
        path: the file; the same one is run once.

    Returns:
        The module.

    Raises:
        MannError: if there is no such file, or if its name is that of a module that is loaded already.
    """
    file = Path(path)
    if not file.is_file():
        raise MannError(f"There is no file {file}: give a Python file that defines parts.")
    name = file.stem
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file.resolve()):
        return loaded
    if loaded is not None:
        raise MannError(f"{file} has the name of another module, {name}: rename the file.")
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise MannError(f"{file} is not a Python file: give one whose name ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, MannError | KeyboardInterrupt) or os.environ.get("MANN_TRACEBACK"):
            raise
        raise MannError(f"{file} cannot be run: {_place_of(error, file)}.") from error
    _used.append(str(path))
    return module


_used: list[str] = []


def used_files() -> list[str]:
    """The files that `use_file` has run, in that order."""
    return list(_used)


def _place_of(error: BaseException, file: Path) -> str:
    """What went wrong, and in which line of a file of one's own."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(file.resolve())
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    what = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    return f"{what} (line {line})" if line else what


def to_dict(value: Any) -> Any:
    """Plain dictionaries, lists and numbers for JSON; a part is tagged with its kind."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag = {"kind": value.kind} if isinstance(value, Part) else {}
        return tag | {field.name: to_dict(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_dict(item) for item in value]
    return value


def from_dict(hint: type[T], content: Any, where: str = "config") -> T:
    """The inverse of `to_dict`. Unknown fields, wrong types and numbers that are not finite are refused."""
    value: T = _convert(hint, content, where)
    return value


def _build(cls: type[T], content: Any, where: str) -> T:
    if not isinstance(content, dict):
        raise MannError(f"{where} should hold named fields, not {content!r}.")
    hints = typing.get_type_hints(cls)
    fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in content.items():
        if name not in fields:
            raise MannError(f"{where} has an unknown field {name!r}: remove it or check its spelling.")
        values[name] = _convert(hints[name], value, f"{where}.{name}")
    try:
        return cls(**values)
    except TypeError as error:
        raise MannError(f"{where} is incomplete: {error}.") from None


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Part):
        if not isinstance(value, dict):
            raise MannError(f"{where} should hold named fields, not {value!r}.")
        cls = member(hint, value.get("kind"), where)
        return _build(cls, {name: v for name, v in value.items() if name != "kind"}, where)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _build(hint, value, where)
    if origin is Literal:
        if value not in arguments:
            raise MannError(f"{where} is {value!r}: choose one of {', '.join(map(repr, arguments))}.")
        return value
    if origin in (types.UnionType, typing.Union):
        return _convert_union(arguments, value, where)
    if origin in (tuple, list) and isinstance(value, list):
        inner = arguments[:1] * len(value) if origin is list or arguments[-1] is Ellipsis else arguments
        if len(inner) != len(value):
            raise MannError(f"{where} should hold {len(inner)} values, not {len(value)}.")
        return origin(
            _convert(h, v, f"{where}[{i}]") for i, (h, v) in enumerate(zip(inner, value, strict=True))
        )
    if hint is float and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    if hint is not Any and type(value) is not hint:
        raise MannError(f"{where} should be {_described(hint)}, not {value!r}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise MannError(f"{where} should be a finite number, not {value}.")
    return value


def _convert_union(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in options:
        return None
    problems = []
    for option in options:
        try:
            return _convert(option, value, where)
        except MannError as error:
            problems.append(error)
    raise problems[0]


def _described(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))
