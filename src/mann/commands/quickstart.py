"""`mann quickstart`: the whole story in a few minutes, with no network and no data."""

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from mann.commands import parse
from mann.errors import MannError, check_range
from mann.runtime import prepare_jax

if TYPE_CHECKING:
    from mann.trained import Trained

EPISODES = 500  # for the final test


@dataclasses.dataclass(frozen=True)
class Arguments:
    run: str = "runs/quickstart"
    """Folder of the run: model, metrics and pictures. A finished quickstart there is replaced with --force."""
    force: bool = False
    """Delete the run in that folder first."""
    updates: int = 0
    """Shorten the training (0: the full length); accuracy falls with it."""
    devices: int = 0
    """CPU devices to split the batch over; 0 means one for each core."""


def main(arguments: list[str]) -> int:
    options = parse(
        Arguments,
        "quickstart",
        "Train a small MANN on built-in glyphs and test it on glyphs never seen.",
        arguments,
    )
    prepare_jax(options.devices)
    from mann.figures.run import save_curves
    from mann.training.config import MOST
    from mann.training.display import make_display
    from mann.training.loop import resume, train
    from mann.training.presets import QUICKSTART
    from mann.training.run import Run

    folder = Path(options.run)
    config = QUICKSTART
    if options.updates:
        check_range("--updates", options.updates, 1, MOST)
        config = dataclasses.replace(
            config,
            updates=options.updates,
            optimiser=dataclasses.replace(
                config.optimiser, warmup=min(config.optimiser.warmup, options.updates // 2)
            ),
        )
    is_there = False
    if Run.exists(folder):
        if options.force:
            shutil.rmtree(folder)
        elif Run(folder).read_config() == config:
            is_there = True
        else:
            raise MannError(
                f"{folder} holds another run: choose a folder with --run, or replace it with --force."
            )
    display = [make_display()]
    result = resume(folder, observers=display) if is_there else train(config, folder, observers=display)
    save_curves(folder)
    if not result.finished:
        print(f"Stopped at update {result.update} and saved; `mann quickstart` goes on from there.")
        return 130

    from mann.commands.console import print_evaluation
    from mann.evaluation import evaluate
    from mann.trained import load_trained

    trained = load_trained(folder)
    print()
    print_evaluation(evaluate(trained, episodes=EPISODES), trained)
    pictures = draw_example(trained, folder / "figures")
    print("\nPictures:")
    for path, about in [
        (folder / "figures" / "curves.png", "accuracy by instance while training"),
        (pictures[0], "a test episode with the network's guesses"),
        (pictures[1], "the memory being written and read in that episode"),
    ]:
        print(f"  {path}: {about}")
    print("\nNext:\n  mann train omniglot-5      the paper's task on real handwriting")
    print(
        f"  mann eval {folder} --dataset omniglot      the model you just trained, on characters it never saw"
    )
    return 0


def draw_example(trained: "Trained", folder: Path) -> list[Path]:
    """One test episode as pictures: the guesses, and the memory at work."""
    import jax
    import numpy as np

    from mann.episodes import time_offset
    from mann.evaluation import SEED
    from mann.figures.episode import draw_episode, draw_memory
    from mann.figures.style import save

    task, data = trained.config.task, trained.config.data
    unseen = task.load_unseen(data, data, trained.seen, trained.name)
    episode = task.draw(jax.random.key(SEED), unseen.source)
    outputs, _, trace = trained.model.unroll(episode.inputs, time_offset(episode.targets), trace=True)
    assert trace is not None
    guesses, labels = (task.label_code.decode(values) for values in (outputs, episode.targets))
    drawn = draw_episode(
        np.asarray(episode.inputs).reshape(-1, data.side, data.side),
        np.asarray(episode.instances),
        guesses == labels,
        [task.label_code.name(int(code)) for code in guesses],
        [task.label_code.name(int(code)) for code in labels],
    )
    memory = draw_memory(np.asarray(episode.classes), trace)
    return [save(drawn, folder, "episode")[0], save(memory, folder, "memory")[0]]
