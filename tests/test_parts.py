"""Parts by kind: to JSON and back, what is refused and in which words, and parts from outside the package."""

import dataclasses
import json
import re
import sys
from typing import Any, Literal

import jax
import pytest

from mann import parts
from mann.cli import main
from mann.data import Glyphs
from mann.errors import MannError
from mann.memory import MemoryConfig
from mann.parts import Part, from_dict, to_dict, use_file
from mann.tasks import Classification, Task
from mann.training import config as training


@dataclasses.dataclass(frozen=True)
class Animal(Part):
    """A family for these tests."""


@dataclasses.dataclass(frozen=True)
class Cat(Animal, kind="cat"):
    lives: int = 9
    weight: float = 4.0
    fur: Literal["short", "long"] = "short"
    tame: bool = True


@dataclasses.dataclass(frozen=True)
class Litter(Animal, abstract=True):
    """What several members share."""

    young: tuple[Animal, ...] = ()


@dataclasses.dataclass(frozen=True)
class Herd(Litter):
    """A member that is called by the name of its class."""

    leader: Animal | None = None
    place: tuple[float, str] = (0.0, "meadow")
    bells: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Shed:
    """An ordinary dataclass: it has no kind."""

    width: float
    owner: str | None = None


@dataclasses.dataclass(frozen=True)
class Farm:
    animal: Animal
    shed: Shed = Shed(2.0)
    sheds: tuple[Shed, ...] = ()
    note: Any = None


FARMS = [
    Farm(Cat()),
    Farm(Cat(lives=1, weight=2.5, fur="long", tame=False), Shed(3.0, "Ada"), (Shed(1.0), Shed(1.5, "Bob"))),
    Farm(Herd()),
    Farm(Herd((Cat(), Herd((Cat(lives=2),))), leader=Cat(lives=3), place=(1.5, "hill"), bells=[1, 2])),
]


# To JSON and back


@pytest.mark.parametrize("farm", FARMS)
def test_json_round_trip_gives_the_same_parts(farm):
    assert from_dict(Farm, json.loads(json.dumps(to_dict(farm)))) == farm


def test_parts_are_tagged_with_their_kind_and_nothing_else_is():
    assert to_dict(Farm(Herd((Cat(),), leader=None), Shed(1.0))) == {
        "animal": {
            "kind": "Herd",
            "young": [{"kind": "cat", "lives": 9, "weight": 4.0, "fur": "short", "tame": True}],
            "leader": None,
            "place": [0.0, "meadow"],
            "bells": [],
        },
        "shed": {"width": 1.0, "owner": None},
        "sheds": [],
        "note": None,
    }


def test_fields_that_are_left_out_have_their_defaults_and_whole_numbers_become_floats():
    cat = from_dict(Animal, {"kind": "cat", "weight": 3})
    assert cat == Cat(weight=3.0)
    assert type(cat.weight) is float


def test_members_of_a_family_are_known_by_kind_but_for_abstract_ones():
    assert Animal.members == {"cat": Cat, "Herd": Herd}
    assert "cat" not in MemoryConfig.members  # a family knows nothing of another


# What is refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"animal": {"kind": "dog"}},
            "config.animal is of kind 'dog', which is not known here: choose one of cat, Herd, or name the file "
            "that defines it with --use FILE.py (in Python: import it first).",
        ),
        (
            {"animal": {"kind": "Litter"}},
            "config.animal is of kind 'Litter', which is not known here: choose one of cat, Herd, or name the file "
            "that defines it with --use FILE.py (in Python: import it first).",
        ),
        (
            {"animal": {"lives": 3}},
            "config.animal is of kind None, which is not known here: choose one of cat, Herd, or name the file "
            "that defines it with --use FILE.py (in Python: import it first).",
        ),
        ({"animal": "cat"}, "config.animal should hold named fields, not 'cat'."),
        ({"animal": {"kind": "cat"}, "shed": 3}, "config.shed should hold named fields, not 3."),
        ([], "config should hold named fields, not []."),
        (
            {"animal": {"kind": "cat", "lifes": 3}},
            "config.animal has an unknown field 'lifes': remove it or check its spelling.",
        ),
        (
            {"animal": {"kind": "cat"}, "barn": 3},
            "config has an unknown field 'barn': remove it or check its spelling.",
        ),
        ({"animal": {"kind": "cat", "lives": "9"}}, "config.animal.lives should be a whole number, not '9'."),
        ({"animal": {"kind": "cat", "lives": 9.0}}, "config.animal.lives should be a whole number, not 9.0."),
        (
            {"animal": {"kind": "cat", "lives": True}},
            "config.animal.lives should be a whole number, not True.",
        ),
        (
            {"animal": {"kind": "cat", "lives": None}},
            "config.animal.lives should be a whole number, not None.",
        ),
        ({"animal": {"kind": "cat", "weight": "4"}}, "config.animal.weight should be a number, not '4'."),
        ({"animal": {"kind": "cat", "weight": True}}, "config.animal.weight should be a number, not True."),
        ({"animal": {"kind": "cat", "tame": 1}}, "config.animal.tame should be true or false, not 1."),
        (
            {"animal": {"kind": "cat", "fur": "blue"}},
            "config.animal.fur is 'blue': choose one of 'short', 'long'.",
        ),
        (
            {"animal": {"kind": "cat", "weight": float("nan")}},
            "config.animal.weight should be a finite number, not nan.",
        ),
        (
            {"animal": {"kind": "cat", "weight": float("-inf")}},
            "config.animal.weight should be a finite number, not -inf.",
        ),
        (
            {"animal": {"kind": "cat"}, "note": float("inf")},
            "config.note should be a finite number, not inf.",
        ),
        (
            {"animal": {"kind": "Herd", "place": [1.0]}},
            "config.animal.place should hold 2 values, not 1.",
        ),
        (
            {"animal": {"kind": "Herd", "place": [float("inf"), "hill"]}},
            "config.animal.place[0] should be a finite number, not inf.",
        ),
        (
            {"animal": {"kind": "Herd", "bells": [1, 2.5]}},
            "config.animal.bells[1] should be a whole number, not 2.5.",
        ),
        ({"animal": {"kind": "Herd", "bells": 3}}, "config.animal.bells should be list, not 3."),
        (
            {"animal": {"kind": "Herd", "young": [{"kind": "cat", "lives": "x"}]}},
            "config.animal.young[0].lives should be a whole number, not 'x'.",
        ),
        (
            {"animal": {"kind": "Herd", "leader": {"kind": "cat", "tails": 1}}},
            "config.animal.leader has an unknown field 'tails': remove it or check its spelling.",
        ),
        (
            {"animal": {"kind": "cat"}, "sheds": [{"width": 1.0, "owner": 3}]},
            "config.sheds[0].owner should be text, not 3.",
        ),
    ],
)
def test_wrong_content_is_refused_in_one_sentence_that_says_where(content, message):
    with pytest.raises(MannError) as error:
        from_dict(Farm, content)
    assert str(error.value) == message


def test_missing_fields_are_refused_by_name():
    with pytest.raises(MannError, match=r"config.shed is incomplete: .*'width'\.$"):
        from_dict(Farm, {"animal": {"kind": "cat"}, "shed": {}})
    with pytest.raises(MannError, match=r"the farm is incomplete: .*'animal'\.$"):
        from_dict(Farm, {}, "the farm")


def test_two_parts_of_one_kind_are_refused_and_the_first_stays():
    with pytest.raises(
        MannError, match=r"already a part of kind 'cat', tests\.test_parts\.Cat: choose another"
    ):

        class Lion(Animal, kind="cat"):
            pass

    assert Animal.members["cat"] is Cat


def test_the_same_class_may_be_defined_again(monkeypatch):
    """As in a notebook, where a cell is run twice: the newer one counts."""
    monkeypatch.setattr(Animal, "members", dict(Animal.members))

    def define():
        @dataclasses.dataclass(frozen=True)
        class Goat(Animal, kind="goat"):
            horns: int = 2

        return Goat

    define()
    again = define()
    assert type(from_dict(Animal, {"kind": "goat"})) is again


# From outside the package


@pytest.fixture
def own_tasks(monkeypatch):
    """What a test defines is gone after it."""
    monkeypatch.setattr(Task, "members", dict(Task.members))


@pytest.mark.usefixtures("own_tasks")
def test_a_subclass_of_classification_keeps_its_own_kind_and_fields():
    """It was once written as a plain classification, and read back as one."""

    @dataclasses.dataclass(frozen=True)
    class Noisy(Classification, kind="noisy"):
        noise: float = 0.1

    @dataclasses.dataclass(frozen=True)
    class Unnamed(Classification):
        pass

    for task, kind in ((Noisy(classes=3, noise=0.5), "noisy"), (Unnamed(classes=3), "Unnamed")):
        content = json.loads(json.dumps(to_dict(task)))
        assert content["kind"] == kind
        assert content["classes"] == 3
        again = from_dict(Task, content)
        assert type(again) is type(task)
        assert again == task
        config = training.Config(task=task, data=Glyphs())
        whole = training.from_dict(json.loads(json.dumps(training.to_dict(config))))
        assert whole == config
        assert type(whole.task) is type(task)
    assert to_dict(Classification())["kind"] == "classification"
    assert "noise" not in to_dict(Classification())


MEMORY = """
import dataclasses
from mann.memory import SlotConfig

@dataclasses.dataclass(frozen=True)
class {name}(SlotConfig, kind="{kind}"):
    rate: float = 0.5

    def build(self, query, inputs, *, key):
        raise NotImplementedError
"""


@pytest.fixture
def own_memories(monkeypatch):
    """What a test defines is gone after it, modules included."""
    monkeypatch.setattr(MemoryConfig, "members", dict(MemoryConfig.members))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


@pytest.mark.usefixtures("own_memories")
def test_a_file_of_ones_own_makes_its_parts_known(tmp_path):
    file = tmp_path / "own_tape.py"
    file.write_text(MEMORY.format(name="Tape", kind="tape"))
    with pytest.raises(MannError, match="is of kind 'tape', which is not known here"):
        from_dict(MemoryConfig, {"kind": "tape"})
    module = use_file(file)
    memory = from_dict(MemoryConfig, {"kind": "tape", "slots": 7, "rate": 0.25})
    assert memory == module.Tape(slots=7, rate=0.25)
    assert from_dict(MemoryConfig, to_dict(memory)) == memory
    assert sys.modules["own_tape"] is module
    assert use_file(str(file)) is module  # it is run once
    with pytest.raises(MannError, match="slots must be at least 1"):
        from_dict(MemoryConfig, {"kind": "tape", "slots": 0})


@pytest.mark.usefixtures("own_memories")
def test_a_file_that_cannot_be_used_is_refused_and_leaves_nothing_behind(tmp_path):
    with pytest.raises(MannError, match=r"There is no file .*missing\.py"):
        use_file(tmp_path / "missing.py")
    with pytest.raises(MannError, match="There is no file"):
        use_file(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit")
    with pytest.raises(MannError, match="has the name of another module, json: rename the file"):
        use_file(tmp_path / "json.py")
    assert sys.modules["json"] is json
    (tmp_path / "own_notes.txt").write_text("")
    with pytest.raises(MannError, match="not a Python file"):
        use_file(tmp_path / "own_notes.txt")
    (tmp_path / "own_broken.py").write_text(MEMORY.format(name="Again", kind="lrua"))
    with pytest.raises(MannError, match="already a part of kind 'lrua'"):
        use_file(tmp_path / "own_broken.py")
    assert "own_broken" not in sys.modules
    assert type(from_dict(MemoryConfig, {"kind": "lrua"})).__module__ == "mann.memory.lrua"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("import mann\n\ndef (", r"SyntaxError: invalid syntax \(line 3\)"),
        ("import mann\n1 / 0", r"ZeroDivisionError: division by zero \(line 2\)"),
        ("import own_nothing", r"ModuleNotFoundError: No module named 'own_nothing' \(line 1\)"),
        ("raise SystemExit(3)", r"SystemExit: 3 \(line 1\)"),
        ("\0", "SyntaxError: .*null bytes"),
        (
            "import dataclasses, mann\n\n@dataclasses.dataclass(frozen=True)\n"
            "class Wheel(mann.MemoryConfig, kind='wheel'):\n    slots: int = 3\n\nwheel = Wheel()",
            r"Can't instantiate abstract class Wheel .*build.* \(line 7\)",
        ),
    ],
)
@pytest.mark.usefixtures("own_memories")
def test_a_mistake_in_a_file_of_ones_own_names_its_line(content, problem, tmp_path, monkeypatch, capsys):
    file = tmp_path / "own_mistake.py"
    file.write_text(content)
    assert main(["eval", "gp-1d", "--use", str(file)]) == 2
    shown = capsys.readouterr().err
    assert re.search(rf"own_mistake\.py cannot be run: .*{problem}", shown)
    assert shown.count("\n") == 1
    assert str(file) not in parts.used_files()
    monkeypatch.setenv("MANN_TRACEBACK", "1")
    with pytest.raises((Exception, SystemExit)) as raised:
        use_file(file)
    assert not isinstance(raised.value, MannError)


@pytest.mark.usefixtures("own_memories")
def test_installed_packages_announce_parts_which_are_loaded_when_asked_for(monkeypatch, tmp_path):
    (tmp_path / "own_package.py").write_text(MEMORY.format(name="Drum", kind="drum"))
    asked = []

    class Announced:
        def load(self):
            return use_file(tmp_path / "own_package.py")

    def entry_points(group):
        asked.append(group)
        return [Announced()]

    monkeypatch.setattr(parts.metadata, "entry_points", entry_points)
    assert from_dict(MemoryConfig, {"kind": "lrua"}).slots == 128
    assert not asked
    assert from_dict(MemoryConfig, {"kind": "drum", "rate": 1}).rate == 1.0
    assert asked == ["mann.parts"]


def test_every_member_of_the_package_is_written_and_read_as_itself():
    from mann.controllers import ControllerConfig
    from mann.data import DataConfig
    from mann.encoders import EncoderConfig
    from mann.training.optimisers import OptimiserConfig

    for family in (EncoderConfig, ControllerConfig, MemoryConfig, Task, DataConfig, OptimiserConfig):
        assert family.members
        for kind, cls in family.members.items():
            if cls.__module__.startswith("mann."):
                part = cls()
                assert to_dict(part)["kind"] == kind
                assert from_dict(family, json.loads(json.dumps(to_dict(part)))) == part
                assert hash(part) == hash(cls())


def test_a_part_is_a_static_argument():
    """Compiled once for equal parts: they are compared by value."""
    compiled = jax.jit(lambda part, x: x * part.weight, static_argnums=0)
    for _ in range(2):
        assert float(compiled(Cat(weight=2.0), 3.0)) == 6.0
    assert compiled._cache_size() == 1
