"""`mann export MODEL`: a trained network for others to run."""

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mann.commands import parse
from mann.errors import MannError
from mann.runtime import prepare_jax

if TYPE_CHECKING:
    from mann.trained import Trained

DESCRIPTION = """Export a trained network, to run it without Python.

--onnx DIR writes one step of the network as an ONNX model: picture, label of the picture before and state in;
outputs and state out. First an episode is run through it with onnxruntime, and nothing is written unless all
numbers agree with JAX to 1e-4.

--web DIR writes the playground as a folder of files for any web server: the network runs in the browser, also
without a connection, and what is taught stays there. Weights are in half precision.

DIR must be new or empty.

    mann export omniglot-15-strings --onnx exported
    mann export omniglot-15-strings --web site
    mann export runs/mine --onnx exported               a model of your own
"""


@dataclasses.dataclass(frozen=True)
class Arguments:
    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A shipped name, a run folder, or a .safetensors file."""
    onnx: str = ""
    """The folder for step.onnx, start.onnx (the first state) and model.json (what the numbers mean)."""
    web: str = ""
    """The folder for the page: index.html and what it needs."""


def main(arguments: list[str]) -> int:
    options = parse(Arguments, "export", DESCRIPTION, arguments)
    if not options.onnx and not options.web:
        raise MannError("Say what to export: --onnx DIR, or --web DIR.")
    folders = {name: _new_folder(path) for name in ("onnx", "web") if (path := getattr(options, name))}
    if len(set(folders.values())) < len(folders):
        raise MannError("Give the page and the ONNX model a folder each.")
    prepare_jax(1)
    from mann.trained import load_trained

    trained = load_trained(options.model)
    for name, folder in folders.items():
        print(f"{folder}: {_EXPORTS[name](trained, folder)}")
    return 0


def _export_onnx(trained: "Trained", folder: Path) -> str:
    from mann.export.onnx import export_onnx

    difference = export_onnx(trained, folder)
    return f"{trained.name} as ONNX. Over an episode it differs from JAX by at most {difference:.0e}."


def _export_web(trained: "Trained", folder: Path) -> str:
    from mann.web.site import write_site

    size = write_site(trained, folder)
    return (
        f"the playground with {trained.name}, {size / 1e6:.1f} MB. Put it on any web server, or look at it here: "
        f"python -m http.server --directory {shlex.quote(str(folder))}"
    )


_EXPORTS = {"onnx": _export_onnx, "web": _export_web}


def _new_folder(path: str) -> Path:
    folder = Path(path).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MannError(f"{folder} is there already: choose a folder that is new or empty.")
    return folder
