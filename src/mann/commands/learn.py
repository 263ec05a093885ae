"""`mann learn DIR`: one picture of each thing in DIR/show, questions in DIR/ask."""

import dataclasses
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mann.commands import parse
from mann.errors import MannError
from mann.files import check_writable, write_atomically, writing
from mann.runtime import prepare_jax

if TYPE_CHECKING:
    from mann.figures.seen import Seen
    from mann.online import OneShotLearner, Prepared

DESCRIPTION = """Learn from one picture of each thing, then name others.

The folder holds show/ with one picture per thing, named after it (show/ankh.png is shown with the label "ankh"),
and ask/ with the pictures to name: drawings, scans or photographs, of any size, colour and polarity (PNG, JPEG,
BMP, WebP, GIF, TIFF; HEIC with the extra photos). Nothing is trained: the network sees each example once, in the
order of their names, and answers "something new" for what it does not know. The exit code is 1 if a question
could not be used.

    mann learn symbols                      a table
    mann learn symbols --json -             the same as JSON, on standard output
    mann learn symbols --show-seen seen.png what the network saw of each picture
    mann learn symbols --model runs/mine    a model of your own
    mann learn symbols --unsure             asks where it is unsure, and learns

With --unsure the pictures of ask/ are gone through in order, show/ may be missing, and each name that you type goes
in at once, so that the next picture of the same thing is known; an empty line means that you do not know either.
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
    unsure: bool = False
    """Ask for the name of a picture, one line of standard input, where its answer is likely to be wrong."""
    cost: float = 0.5
    """With --unsure: of a question, where a wrong answer costs 1. It asks if a mistake is more probable."""
    show_seen: str = ""
    """Draw what the network saw of each picture, beside it, in this file (PNG)."""


def main(arguments: list[str]) -> int:
    options = parse(Arguments, "learn", DESCRIPTION, arguments)
    for name in (options.json, options.save, options.show_seen):
        if name not in ("", "-"):
            check_writable(Path(name))
    from mann.data.folder import list_images

    folder = Path(options.folder).expanduser()
    examples, left_out = ([], {}) if _may_miss(folder / "show", options) else list_images(folder / "show")
    questions, others = list_images(folder / "ask")
    left_out |= others
    for path, reason in left_out.items():
        print(f"mann: left out {path}: {reason}.", file=sys.stderr)
    _check_labels(folder, examples)
    prepare_jax(1)
    from mann.figures.seen import draw_seen
    from mann.online import OneShotLearner
    from mann.online.answers import check_cost

    learner = OneShotLearner.from_pretrained(options.model, seed=options.seed)
    if options.unsure:
        check_cost(options.cost)
    seen = [_teach(learner, path, path.stem) for path in examples]
    answers = []
    for path in questions:
        told = _be_told(learner, path, options.cost) if options.unsure else ""
        if told:
            answer, picture = {"file": path.name, "told": told}, _teach(learner, path, told)
        else:
            answer, picture = _ask(learner, path)
        answers.append(answer)
        seen.append(picture)
    if options.save:
        learner.save(options.save)
    for picture in seen:
        if picture.seen is not None and picture.warning:
            print(
                f"mann: {picture.file} looks like nothing the network was trained on: {picture.warning}.",
                file=sys.stderr,
            )
    result = {
        "model": learner.model,
        "shown": [path.stem for path in examples],
        "predictions": answers,
        "left_out": [{"file": str(path), "reason": reason} for path, reason in left_out.items()],
    }
    _write(result, options.json)
    if options.show_seen:
        content = io.BytesIO()
        draw_seen(seen).save(content, "PNG")
        with writing(path := Path(options.show_seen)):
            write_atomically(path, content.getvalue())
    return int(any("error" in answer for answer in answers))


def _check_labels(folder: Path, examples: list[Path]) -> None:
    labels = [path.stem for path in examples]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise MannError(
            f"{folder / 'show'} has more than one picture of {', '.join(twice)}: keep one of each."
        )


def _may_miss(folder: Path, options: Arguments) -> bool:
    """With --unsure, all names can be asked for."""
    return options.unsure and not folder.exists()


def _be_told(learner: "OneShotLearner", path: Path, cost: float) -> str:
    """The name of a picture, from standard input, if it is worth asking for; else nothing."""
    try:
        picture = learner.prepare(path)
    except MannError:  # which `_ask` will state
        return ""
    if not learner.ask_one(picture, cost):
        return ""
    guess = learner.predict_one(picture)
    hint = "something new" if guess is None else f"perhaps {guess}"
    print(f"What is {path.name} ({hint})? ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def _teach(learner: "OneShotLearner", path: Path, label: str) -> "Seen":
    from mann.figures.seen import Seen

    picture = learner.prepare(path)
    learner.learn_one(picture, label)
    return Seen(path, f"shown: {label}", picture, _warning(picture))


def _ask(learner: "OneShotLearner", path: Path) -> tuple[dict[str, Any], "Seen"]:
    """The answer, or why there is none, and what the network saw."""
    from mann.figures.seen import Seen

    try:
        picture = learner.prepare(path)
    except MannError as error:
        reason = str(error).removeprefix(f"Cannot use {path}: ")
        return {"file": path.name, "error": reason}, Seen(path, path.name, None, reason)
    chances = learner.predict_proba_one(picture)
    best = learner.choose(chances)
    chance, new = chances[best], chances.pop(None)
    answer = {
        "file": path.name,
        "prediction": best,
        "probabilities": dict(sorted(chances.items(), key=lambda item: -item[1])),
        "something_new": new,
    }
    warning = _warning(picture)
    if warning:
        answer["warning"] = warning
    caption = f"{path.name}: {'something new' if best is None else best}, {100 * chance:.0f} %"
    return answer, Seen(path, caption, picture, warning)


def _warning(picture: "Prepared") -> str:
    """Why ink looks unlike what networks are trained on; nothing is known of colours."""
    from mann.data.familiarity import why_unfamiliar

    return why_unfamiliar(picture.picture) if picture.picture.ndim == 2 else ""


def _write(result: dict[str, Any], file: str) -> None:
    """As a table, and as JSON if `file` names one; - is standard output, in place of the table."""
    text = json.dumps(result, indent=2, ensure_ascii=False)
    if file == "-":
        print(text)
        return
    _print_table(result)
    if file:
        with writing(path := Path(file)):
            write_atomically(path, (text + "\n").encode())


def _print_table(result: dict[str, Any]) -> None:
    from rich.text import Text

    from mann.commands.console import plain_console, plain_table

    console = plain_console()
    shown = ", ".join(result["shown"]) or "nothing"
    console.print(Text(f"{result['model']} was shown once: {shown}"))
    table = plain_table(left=("picture", "prediction"), right=("probability", "something new"))
    for answer in result["predictions"]:
        if "error" in answer:
            table.add_row(Text(answer["file"]), Text(answer["error"], style="red"), "", "")
            continue
        if "told" in answer:
            table.add_row(Text(answer["file"]), Text(answer["told"]), "told", "")
            continue
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
