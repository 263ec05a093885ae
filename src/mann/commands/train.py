"""`mann train PRESET`: train a model in a run folder, or resume one."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro

from mann.commands import parse, prepare_jax
from mann.errors import MannError


@dataclasses.dataclass(frozen=True)
class Options:
    """What is not part of the configuration: where and on what to run."""

    run: str = ""
    """Folder of the run; empty means runs/PRESET. An existing run is never overwritten."""
    resume: str = ""
    """Continue the run in this folder from its newest valid checkpoint."""
    devices: int = 0
    """CPU devices to split the batch over; 0 means one for each core. Ignored on an accelerator."""
    tensorboard: bool = False
    """Also write TensorBoard events (pip install 'mann[tensorboard]')."""
    distributed: bool = False
    """Join other processes, found from SLURM, Open MPI or Kubernetes."""
    coordinator: str = ""
    """Join other processes through this address, host:port; needs --processes and --process."""
    processes: int = 0
    process: int = -1


def main(arguments: list[str]) -> int:
    from mann.training.config import Config
    from mann.training.presets import PRESETS, describe

    help_wanted = any(word in ("-h", "--help") for word in arguments)
    name = next((word for word in arguments if not word.startswith("-")), "")
    if name not in PRESETS:
        name = ""
    if help_wanted and not name:
        print(USAGE.format(presets=describe()), end="")
        return 0
    preset = PRESETS[name] if name else next(iter(PRESETS.values()))

    @dataclasses.dataclass(frozen=True)
    class Arguments(Options):
        config: Annotated[Config, tyro.conf.arg(name="")] = preset

    rest = [word for word in arguments if word != name] if name else arguments
    if not name and not any(word == "--resume" or word.startswith("--resume=") for word in rest):
        wrong = next((word for word in arguments if not word.startswith("-")), "")
        problem = f"there is no preset {wrong!r}" if wrong else "say which preset to train"
        raise MannError(f"{problem[0].upper()}{problem[1:]}: choose one of {', '.join(PRESETS)}.")
    options = parse(
        Arguments,
        f"train {name}".strip(),
        "Train a model; every field of the configuration is an option.",
        rest,
    )
    if options.resume and (name or options.config != preset):
        raise MannError("A resumed run keeps its configuration: give --resume and the folder alone.")

    prepare_jax(options.devices)
    from mann.training import distributed

    if options.distributed or options.coordinator:
        distributed.connect(options.coordinator, options.processes, options.process)
    from mann.training.display import Display, make_display
    from mann.training.loop import train

    folder = Path(options.resume or options.run or f"runs/{name}")
    result = train(
        None if options.resume else options.config,
        folder,
        resume=bool(options.resume),
        display=make_display() if distributed.is_main() else Display(),
        tensorboard=options.tensorboard,
    )
    if not distributed.is_main():
        return 0
    if not result.finished:
        print(f"Stopped at update {result.update} and saved. Go on with: mann train --resume {folder}")
        return 130
    print(f"Finished. Curves: {folder}/figures/curves.png. Test it with: mann eval {folder}")
    sys.stdout.flush()
    return 0


USAGE = """usage: mann train PRESET [--run DIR] [--FIELD VALUE …]
       mann train --resume DIR

Train a model in a run folder: configuration, metrics, checkpoints and curves.
Stop it at any time (Ctrl-C saves first); --resume goes on as if nothing had happened.

presets (time on 2 cores, from that of one update; then accuracy in % on test classes
for the 1st, 2nd, 5th and 10th instance, or for functions the mean gap to the exact
process from step 20 on, in nats per point):
{presets}

`mann train PRESET --help` lists every field with the preset's values, for example:
  mann train omniglot-5 --updates 6250 --model.lrua.decay 0.99 --run runs/mine
"""
