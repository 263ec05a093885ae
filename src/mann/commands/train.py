"""`mann train PRESET`: train a model in a run folder, or resume one."""

import dataclasses
import itertools
import shlex
import sys
import textwrap
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mann.commands import parse
from mann.errors import MannError
from mann.runtime import prepare_jax

if TYPE_CHECKING:
    from mann.training.config import Config

WAIT = 300  # seconds


@dataclasses.dataclass(frozen=True)
class Options:
    """What is not part of the configuration: where and on what to run."""

    run: str = ""
    """Folder of the run; empty means runs/PRESET. An existing run is never overwritten."""
    resume: str = ""
    """Continue the run in this folder from its newest valid checkpoint."""
    start: str = ""
    """Start from the weights of this model, wherever they fit; empty: as the preset says; none: random ones."""
    devices: int = 0
    """CPU devices to split the batch over; 0 means one for each core. Ignored on an accelerator."""
    tensorboard: bool = False
    """Also write TensorBoard events; needs the extra tensorboard."""
    distributed: bool = False
    """Join other processes, found from SLURM, Open MPI or Kubernetes."""
    coordinator: str = ""
    """Join other processes through this address, host:port; needs --processes and --process."""
    processes: int = 0
    process: int = -1
    wait: int = WAIT
    """Seconds to wait for the other processes to join."""


def main(arguments: list[str]) -> int:
    from mann.training.config import Config
    from mann.training.presets import PRESETS, STARTS, describe

    words = list(arguments)
    name, preset = take_preset(words)
    if preset is None:
        if any(word in ("-h", "--help") for word in words):
            print(USAGE.format(presets=describe()), end="")
            return 0
        if not any(word == "--resume" or word.startswith("--resume=") for word in words):
            values = {after for word, after in itertools.pairwise(words) if word.startswith("-")}
            wrong = next((word for word in words if not word.startswith("-") and word not in values), "")
            problem = f"There is no preset {wrong!r}" if wrong else "Say which preset to train"
            raise MannError(f"{problem}: choose one of {', '.join(PRESETS)}, or FILE.py:NAME.")
    asked_for = list(words)
    start = choose_parts(preset or next(iter(PRESETS.values())), words)

    @dataclasses.dataclass(frozen=True)
    class Arguments(Options):
        config: Annotated[Config, tyro.conf.arg(name="")] = start

    options = parse(Arguments, f"train {name}".strip(), _description(start), words)
    if preset is None or options.resume:
        _check_resume(options.resume, name, asked_for)
    if not options.coordinator and (options.processes or options.process != -1):
        raise MannError("--processes and --process need --coordinator: add it, or leave them out.")
    if options.wait != WAIT and not options.coordinator and not options.distributed:
        raise MannError("--wait is for runs of several processes: add --coordinator, or leave it out.")
    if options.coordinator and options.distributed:
        raise MannError(
            "--coordinator and --distributed are two ways to find the others: leave out one of them."
        )
    if not options.start:
        options = dataclasses.replace(options, start=STARTS.get(name, ""))
    prepare_jax(options.devices)
    folder = Path(options.resume or options.run or f"runs/{Path(name).stem}")
    if not options.distributed and not options.coordinator:
        return _train(options, options.config, folder)
    from mann.training.partners import joined

    with joined(options.coordinator, options.processes, options.process, options.wait):
        return _train(options, options.config, folder)


def _train(options: Options, config: "Config", folder: Path) -> int:
    from mann.figures.run import save_curves
    from mann.parts import used_files
    from mann.trained import load_trained
    from mann.training import distributed
    from mann.training.display import make_display
    from mann.training.loop import resume, train

    observers = [make_display()] if distributed.is_main() else []
    if options.resume:
        result = resume(folder, observers=observers, tensorboard=options.tensorboard)
    else:
        start = load_trained(options.start) if options.start not in ("", "none") else None
        result = train(config, folder, start=start, observers=observers, tensorboard=options.tensorboard)
    if not distributed.is_main():
        return 0
    save_curves(folder)
    use = "".join(f" --use {shlex.quote(file)}" for file in used_files())
    if not result.finished:
        print(f"Stopped at update {result.update} and saved. Go on with: mann train --resume {folder}{use}")
        return 130
    print(f"Finished. Curves: {folder}/figures/curves.png. Test it with: mann eval {folder}{use}")
    sys.stdout.flush()
    return 0


def _check_resume(folder: str, preset: str, words: list[str]) -> None:
    """A resumed run is all that its folder says: refuse what would be ignored."""
    if not folder:
        raise MannError("--resume needs the folder of a run.")
    others = {f"--{field.name}" for field in dataclasses.fields(Options)} - {"--run", "--start"}
    names = {word.partition("=")[0].replace("--no-", "--") for word in words if word.startswith("--")}
    if preset or names - others:
        raise MannError("A resumed run keeps its configuration: give --resume and the folder alone.")


def take_preset(words: list[str]) -> tuple[str, "Config | None"]:
    """The preset, or the configuration in a file of one's own, wherever it stands; it is taken out of the words."""
    from mann.training.presets import PRESETS

    for place, word in enumerate(words):
        if place and words[place - 1].replace("_", "-") in _text_options():
            continue
        if (config := PRESETS.get(word) or _load_config(word)) is not None:
            del words[place]
            return word.split(":")[0], config
    return "", None


def _text_options() -> set[str]:
    """Options whose value could be the name of a preset: those of text, of any part that could be chosen."""
    from mann.training.config import Config

    return _text_fields(Options, "--") | _text_fields(Config, "--")


def _text_fields(owner: type, prefix: str) -> set[str]:
    from mann.parts import Part

    names: set[str] = set()
    for name, hint in typing.get_type_hints(owner).items():
        option = prefix + name.replace("_", "-")
        if hint is str:
            names.add(option)
        elif isinstance(hint, type) and issubclass(hint, Part):
            names |= set().union(*(_text_fields(member, f"{option}.") for member in hint.members.values()))
        elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
            names |= _text_fields(hint, f"{option}.")
    return names


def _load_config(word: str) -> "Config | None":
    """`FILE.py:NAME`: a configuration that a file of one's own defines."""
    file, colon, name = word.rpartition(":")
    if not colon or not file.endswith(".py") or word.startswith("-"):
        return None
    from mann.parts import use_file
    from mann.training.config import Config

    config = getattr(use_file(file), name, None)
    if not isinstance(config, Config):
        raise MannError(f"{file} has no configuration {name!r}: define it there as a mann.Config.")
    return config


def choose_parts(config: "Config", words: list[str]) -> "Config":
    """Exchange parts as `--model.memory ntm` asks for, which is taken out of the words.

    What the old part has otherwise than by default, such as its number of slots, is kept if the new one has it too.
    """
    from mann.parts import family_of, member, to_dict
    from mann.training.config import from_dict

    content = to_dict(config)
    for path, part in _parts(config).items():
        option = "--" + path.replace("_", "-")
        kind = _take_value(option, words, f"choose one of {', '.join(type(part).members)}")
        if kind is None or kind == part.kind:
            continue
        chosen = member(family_of(part), kind, option)
        *parents, last = path.split(".")
        holder = content
        for parent in parents:
            holder = holder[parent]
        kept = _common_fields(type(part), chosen) & _changed_fields(part)
        holder[last] = {"kind": kind} | {field: holder[last][field] for field in kept}
    return from_dict(content)


def _take_value(option: str, words: list[str], hint: str) -> str | None:
    """The last value that is given for an option, which is taken out of the words; None if there is none."""
    value = None
    for place in reversed(range(len(words))):  # from behind, since words are removed
        name, equals, text = words[place].partition("=")
        if name != option:
            continue
        if not equals and (place + 1 == len(words) or words[place + 1].startswith("-")):
            raise MannError(f"{option} needs a name: {hint}.")
        text = text if equals else words[place + 1]
        value = text if value is None else value
        del words[place : place + (1 if equals else 2)]
    return value


def _parts(value: Any, prefix: str = "") -> dict[str, Any]:
    """The exchangeable parts of a configuration by their dotted names."""
    from mann.parts import Part

    parts: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if isinstance(inner, Part):
            parts[f"{prefix}{field.name}"] = inner
        elif dataclasses.is_dataclass(inner):
            parts |= _parts(inner, f"{prefix}{field.name}.")
    return parts


def _common_fields(one: type, other: type) -> set[str]:
    """Fields that two parts have from a common base."""
    base = next(cls for cls in one.__mro__ if cls in other.__mro__)
    return {field.name for field in dataclasses.fields(base)}


def _changed_fields(part: Any) -> set[str]:
    """Fields that are not as they are by default."""
    default = type(part)()
    return {
        field.name
        for field in dataclasses.fields(part)
        if getattr(part, field.name) != getattr(default, field.name)
    }


def _description(config: "Config") -> str:
    choices = [
        textwrap.fill(
            f"--{path.replace('_', '-'):<18} {' | '.join(type(part).members)} ({part.kind})",
            width=79,
            initial_indent="    ",
            subsequent_indent=" " * 25,
        )
        for path, part in _parts(config).items()
    ]
    return (
        "Train a model; every field of the configuration is an option.\n\n"
        "Parts can be exchanged, and each has options of its own, listed below for the ones in brackets:\n\n"
        + "\n".join(choices)
    )


USAGE = """usage: mann train PRESET [--run DIR] [--FIELD VALUE …]
       mann train FILE.py:NAME [--run DIR] [--FIELD VALUE …]
       mann train --resume DIR

Train a model in a run folder: configuration, metrics, checkpoints and curves.
Stop it at any time (Ctrl-C saves first); --resume goes on as if nothing had
happened. FILE.py:NAME is a configuration of your own, with parts of your own.

presets (time on 2 cores, from that of one update; then accuracy in % on test
classes for the 1st, 2nd, 5th and 10th instance, or for functions the mean gap
to the exact process from step 20 on, in nats per point):
{presets}

`mann train PRESET --help` lists every field with the preset's values. Examples:
  mann train omniglot-5 --updates 6250 --model.memory.decay 0.95 --run runs/mine
  mann train omniglot-5 --model.memory ntm --model.memory.initial-strength 10
  mann train omniglot-many --start omniglot-many --data folder --data.path pics
"""
