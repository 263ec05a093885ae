"""`mann learn DIR`: one picture of each thing in DIR/show, questions in DIR/ask."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import tyro

from mann.commands import parse, prepare_jax
from mann.data.cache import write_atomically
from mann.errors import MannError

DESCRIPTION = """Learn from one picture of each thing, then name others.

The folder holds show/ with one picture a thing, named after it (show/ankh.png is shown with the label "ankh"), and
ask/ with the pictures to name. Any size, colour and polarity: PNG, JPEG, BMP or WebP. Nothing is trained: the
network sees each example once, in the order of their names, and answers "something new" for what it does not know.

    mann learn symbols                      a table
    mann learn symbols --json -             the same as JSON, on standard output
    mann learn symbols --model runs/mine    a model of your own
"""


@dataclasses.dataclass(frozen=True)
class Arguments:
    folder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR")]
    """The folder with show/ and ask/."""
    model: str = ""
    """A shipped name, a run folder, or a .safetensors file; empty: the shipped model with string labels."""
    json: str = ""
    """Also write the predictions to this file as JSON; - writes them to standard output in place of the table."""
    seed: int = 0
    """Which random codes the labels get."""
    save: str = ""
    """Keep the learner, after all examples, in this file; OneShotLearner.load reads it."""


def main(arguments: list[str]) -> int:
    options = parse(Arguments, "learn", DESCRIPTION, arguments)
    from mann.data.folder import list_images

    folder = Path(options.folder).expanduser()
    examples, questions = list_images(folder / "show"), list_images(folder / "ask")
    labels = [path.stem for path in examples]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise MannError(
            f"{folder / 'show'} has more than one picture of {', '.join(twice)}: keep one of each."
        )
    prepare_jax(1)
    from mann.online import OneShotLearner

    learner = OneShotLearner.from_pretrained(options.model, seed=options.seed)
    for path, label in zip(examples, labels, strict=True):
        learner.learn_one(path, label)
    if options.save:
        learner.save(options.save)
    answers: list[dict[str, Any]] = []
    for path in questions:
        chances = learner.predict_proba_one(path)
        new = chances.pop(None)
        ranked = sorted(chances.items(), key=lambda item: -item[1])
        answers.append(
            {
                "file": path.name,
                "prediction": ranked[0][0] if ranked[0][1] >= new else None,
                "probabilities": dict(ranked),
                "something_new": new,
            }
        )
    result = {"model": learner.model, "shown": labels, "predictions": answers}
    if options.json == "-":
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return 0
    _print_table(result)
    if options.json:
        write_atomically(
            Path(options.json), (json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode()
        )
    return 0


def _print_table(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    shown = ", ".join(result["shown"])
    console.print(Text(f"{result['model']} was shown once: {shown}"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("picture", "prediction"):
        table.add_column(name)
    for name in ("probability", "something new"):
        table.add_column(name, justify="right")
    for answer in result["predictions"]:
        known = answer["prediction"] is not None
        new = answer["something_new"]
        chance = answer["probabilities"][answer["prediction"]] if known else new
        table.add_row(
            Text(answer["file"]),
            Text(answer["prediction"]) if known else Text("something new", style="italic"),
            f"{100 * chance:.0f} %",
            f"{100 * new:.0f} %",
        )
    console.print(table)
