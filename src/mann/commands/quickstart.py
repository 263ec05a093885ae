"""`mann quickstart`: the whole story in a few minutes, with no network and no data."""

import dataclasses
import shutil
from pathlib import Path

from mann.commands import parse, prepare_jax
from mann.errors import MannError

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
    from mann.training.display import make_display
    from mann.training.loop import train
    from mann.training.presets import QUICKSTART
    from mann.training.run import Run

    folder = Path(options.run)
    config = QUICKSTART
    if options.updates:
        config = dataclasses.replace(
            config,
            updates=options.updates,
            optimiser=dataclasses.replace(
                config.optimiser, warmup=min(config.optimiser.warmup, options.updates // 2)
            ),
        )
    resume = False
    if Run.exists(folder):
        if options.force:
            shutil.rmtree(folder)
        elif Run(folder).read_config() == config:
            resume = True
        else:
            raise MannError(
                f"{folder} holds another run: choose a folder with --run, or replace it with --force."
            )
    result = train(None if resume else config, folder, resume=resume, display=make_display())
    if not result.finished:
        print(f"Stopped at update {result.update} and saved; `mann quickstart` goes on from there.")
        return 130

    from mann.evaluation import evaluate, test_drawings
    from mann.report import print_evaluation
    from mann.weights import load_trained

    trained = load_trained(folder)
    drawings, dataset, class_range = test_drawings(trained)
    tested = evaluate(
        trained, config.task, drawings, dataset=dataset, class_range=class_range, episodes=EPISODES
    )
    print()
    print_evaluation(tested, trained)
    pictures = draw_example(trained, drawings, folder / "figures")
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


def draw_example(trained: object, drawings: object, folder: Path) -> list[Path]:
    """One test episode as pictures: the guesses, and the memory at work."""
    import jax
    import numpy as np

    from mann.data.render import Drawings
    from mann.episodes import Classification, time_offset
    from mann.evaluation import SEED
    from mann.figures import draw_episode, draw_memory
    from mann.outputs import output_of
    from mann.weights import Trained

    assert isinstance(trained, Trained) and isinstance(drawings, Drawings)
    task = trained.config.task
    assert isinstance(task, Classification)
    episode = task.draw(jax.random.key(SEED), drawings)
    outputs, _, trace = trained.model.unroll(episode.inputs, time_offset(episode.targets), trace=True)
    output = output_of(task)
    correct = np.asarray(output.correct(outputs, episode.targets))
    first = draw_episode(episode, np.asarray(output.predict(outputs)), correct, folder)
    second = draw_memory(episode, trace, folder)
    return [first[0], second[0]]
