"""`mann export MODEL`: a trained network for others to run."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from mann.commands import parse
from mann.errors import MannError
from mann.runtime import prepare_jax

DESCRIPTION = """Export a trained network, to run it without Python.

--onnx DIR writes one step of the network as an ONNX model: picture, label of the picture before and state in;
outputs and state out. First an episode is run through it with onnxruntime, and nothing is written unless all
numbers agree with JAX to 1e-4. DIR must be new or empty.

    mann export omniglot-15-strings --onnx exported
    mann export runs/mine --onnx exported               a model of your own
"""


@dataclasses.dataclass(frozen=True)
class Arguments:
    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A shipped name, a run folder, or a .safetensors file."""
    onnx: str = ""
    """The folder for step.onnx, start.onnx (the first state) and model.json (what the numbers mean)."""


def main(arguments: list[str]) -> int:
    options = parse(Arguments, "export", DESCRIPTION, arguments)
    if not options.onnx:
        raise MannError("Say what to export: --onnx DIR.")
    folder = _new_folder(options.onnx)
    prepare_jax(1)
    from mann.export.onnx import export_onnx
    from mann.trained import load_trained

    trained = load_trained(options.model)
    difference = export_onnx(trained, folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(
        f"{folder}: {trained.name} as ONNX, {size / 1e6:.1f} MB. Over an episode it differs from JAX by at most "
        f"{difference:.0e}."
    )
    return 0


def _new_folder(path: str) -> Path:
    folder = Path(path).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MannError(f"{folder} is there already: choose a folder that is new or empty.")
    return folder
