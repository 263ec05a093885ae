"""`mann eval MODEL`: how well a trained model does on classes that it never saw."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import tyro

from mann.commands import parse, prepare_jax
from mann.data.cache import write_atomically


@dataclasses.dataclass(frozen=True)
class Arguments:
    model: tyro.conf.Positional[str]
    """A shipped name (such as omniglot-5), a run folder, or a .safetensors file."""
    episodes: int = 2000
    """Test episodes; more make the intervals narrower."""
    dataset: str = ""
    """omniglot, glyphs, or the path of a folder with one folder a class; empty: what it was trained on."""
    classes: int = 0
    """Classes in an episode; 0: as trained. Only models with string labels take another number."""
    length: int = 0
    """Samples in an episode; 0: as trained, or 10 a class if --classes is given."""
    devices: int = 0
    """CPU devices to use; 0 means one for each core."""
    json: str = ""
    """Write the result to this file as JSON."""


def main(arguments: list[str]) -> int:
    options = parse(
        Arguments,
        "eval",
        "Accuracy by instance on test classes, or likelihood by step on test functions, without learning.",
        arguments,
    )
    prepare_jax(options.devices)
    from rich.progress import Progress

    from mann.evaluation import choose_task, evaluate, test_drawings
    from mann.report import print_evaluation
    from mann.weights import load_trained

    trained = load_trained(options.model)
    task = choose_task(trained, options.classes, options.length)
    context: dict[str, Any] = {}
    drawings = None
    if task.output != "gaussian":
        name = options.dataset if options.dataset in ("", "omniglot", "glyphs") else "folder"
        path = options.dataset if name == "folder" else ""
        drawings, dataset, class_range = test_drawings(trained, name, path)
        context = {"dataset": dataset, "class_range": class_range}
    with Progress(transient=True) as bar:
        shown = bar.add_task("test episodes", total=options.episodes)
        result = evaluate(
            trained,
            task,
            drawings,
            episodes=options.episodes,
            progress=lambda done, total: bar.update(shown, completed=done),
            **context,
        )
    print_evaluation(result, trained)
    if options.json:
        write_atomically(Path(options.json), (json.dumps(result.to_json(), indent=2) + "\n").encode())
    return 0
