"""`train`: the loop around the compiled updates. Records, evaluates, saves, resumes and stops cleanly."""

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from mann import data
from mann.data.render import Drawings, prepare
from mann.episodes import Classification
from mann.errors import MannError
from mann.room import check_room
from mann.training import checkpoint as files
from mann.training import distributed
from mann.training.config import Config, to_dict
from mann.training.curriculum import stage_at
from mann.training.display import Display, PlainDisplay
from mann.training.run import Run
from mann.training.trainer import Trainer, TrainState, accuracy


class Pictures(NamedTuple):
    """The pictures of a run on the device; None for regression, which draws its functions."""

    train: Drawings | None
    validation: Drawings | None
    classes: dict[str, Any] | None  # data set and ranges of class ids, from 1; kept with every checkpoint

    def __str__(self) -> str:
        if self.classes is None:
            return "functions of a Gaussian process, a new one in every episode"
        (first, last), held_out = self.classes["trained"], self.classes["held_out"]
        text = f"{self.classes['dataset']}: trained on classes {first}–{last}"
        if held_out is None:
            return f"{text}, and watched on the same"
        return f"{text}, watched on held-out classes {held_out[0]}–{held_out[1]}"


class Result(NamedTuple):
    """How a call to `train` ended."""

    folder: Path
    update: int
    finished: bool  # False if it was interrupted
    metrics: list[dict[str, Any]]


def load_pictures(config: Config) -> Pictures:
    """The training classes of the configured data set, and those held out of them. Never the test classes."""
    if not isinstance(config.task, Classification):
        return Pictures(None, None, None)
    images = data.load(config.data.name, config.data.path, config.data.classes)
    parts = data.split(len(images), config.data.validation, config.task.classes)
    seen = images.subset(0, parts.train)
    train = prepare(seen.with_mirror_images() if config.data.mirror else seen)
    classes: dict[str, Any] = {"dataset": images.name, "trained": [1, parts.train], "held_out": None}
    if parts.validation == parts.train:
        return Pictures(train, train, classes)
    classes["held_out"] = [parts.train + 1, parts.validation]
    return Pictures(train, prepare(images.subset(parts.train, parts.validation)), classes)


def train(
    config: Config | None,
    folder: str | Path,
    *,
    resume: bool = False,
    display: Display | None = None,
    tensorboard: bool = False,
) -> Result:
    """Train a model in a run folder, or go on with one (`resume`; the configuration is then the folder's).

    Stops early, with a checkpoint, on SIGINT or SIGTERM. Raises `MannError` if the loss is no longer finite.
    """
    display = display or PlainDisplay()
    run = Run(Path(folder), writable=distributed.is_main())
    if resume:
        config = run.read_config()
    elif config is None:
        raise MannError("A new run needs a configuration.")
    mesh = distributed.make_mesh(config.batch)
    local_batch = config.batch * len(mesh.local_devices) // mesh.size
    check_room(config.task, config.model, max(local_batch, config.evaluate_episodes))
    pictures = load_pictures(config)
    trainer = Trainer(config, pictures.train, pictures.validation, mesh)
    if not resume:
        with distributed.together():
            run.create(config)
    progress = _Progress(config, run, trainer, display, pictures.classes)
    progress.start(resume)
    run.note_environment(mesh.size)
    writer = _tensorboard(run) if tensorboard and run.writable else None
    display.start(config, run.folder, str(pictures), mesh.size, progress.update)
    try:
        with _signals() as stopping:
            while progress.update < config.updates:
                progress.step(writer)
                if distributed.anywhere(stopping()):
                    break
        finished = progress.update >= config.updates
        if not finished and not progress.saved:
            progress.save()
    finally:
        display.stop()
        if writer is not None:
            writer.close()
    records = run.read("metrics.jsonl")
    if run.writable and records:
        from mann.figures import draw_curves

        draw_curves(records, config.batch, run.figures)
    return Result(run.folder, progress.update, finished, records)


class _Progress:
    """Where a run stands."""

    def __init__(
        self,
        config: Config,
        run: Run,
        trainer: Trainer,
        display: Display,
        classes: dict[str, Any] | None,
    ) -> None:
        self.config, self.run, self.trainer, self.display = config, run, trainer, display
        self.classes = classes
        self.state: TrainState = trainer.initial_state()
        self.update = 0
        self.losses: list[float] = []  # since the last record
        self.best: dict[str, Any] = {"update": -1, "score": -math.inf}
        self.saved = False

    def start(self, resume: bool) -> None:
        """From the newest valid checkpoint, or from the beginning."""
        found = files.newest_checkpoint(self.run.checkpoints, self.display.warn) if resume else None
        if found is None:
            self.run.rewind(0)
            return
        like = distributed.to_host(self.state)
        self.state = self.trainer.place(files.from_arrays(like, found.arrays, str(found.path)))
        self.update = int(found.description["update"])
        self.losses = list(found.description["losses"])
        self.best = found.description["best"]
        self.run.rewind(self.update)
        if self.best["update"] == self.update and self.run.writable:
            self.run.keep_best(found.path)  # the run may have been killed between the two

    def step(self, writer: Any) -> None:
        """One dispatch, then whatever is due at this update."""
        config = self.config
        due = min(
            config.dispatch - self.update % config.dispatch,
            config.updates - self.update,
        )
        stage = stage_at(config, self.update)
        self.state, losses = self.trainer.advance(self.state, due)
        if not np.all(np.isfinite(losses)):
            bad = self.update + int(np.argmin(np.isfinite(losses))) + 1
            kept = files.list_checkpoints(self.run.checkpoints)
            where = f"The last good checkpoint is {kept[0]}" if kept else "No checkpoint was written yet"
            raise MannError(
                f"The loss is no longer finite at update {bad}. {where}: "
                "try a lower learning rate or stronger clipping."
            )
        self.update += due
        self.saved = False
        self.losses.extend(float(loss) for loss in losses)
        self.display.progress(self.update, float(losses[-1]))
        if self.update % config.evaluate_every == 0 or self.update == config.updates:
            self.evaluate(stage.classes if stage else None, writer)
            self.save()

    def evaluate(self, classes: int | None, writer: Any) -> None:
        config = self.config
        tally = self.trainer.validate(self.state)
        record: dict[str, Any] = {
            "update": self.update,
            "episodes": self.update * config.batch,
            "loss": sum(self.losses) / len(self.losses),
            "held_out_loss": float(np.mean(np.asarray(tally.nll, np.float64))),
        }
        score = -record["held_out_loss"]
        if isinstance(config.task, Classification):
            by_instance = accuracy(tally.counts)
            record["accuracy"] = [None if math.isnan(a) else round(float(a), 6) for a in by_instance]
            score = float(np.nanmean(by_instance[1:]))  # the first instance is a guess
        if classes is not None:
            record["classes"] = classes
        self.losses = []
        if score > self.best["score"]:
            self.best = {"update": self.update, "score": score}
        self.run.record(record)
        self.display.evaluated(record)
        if writer is not None:
            writer.add_scalar("loss/training", record["loss"], self.update)
            writer.add_scalar("loss/held out", record["held_out_loss"], self.update)
            for i, value in enumerate(record.get("accuracy", []), start=1):
                if value is not None:
                    writer.add_scalar(f"accuracy/instance {i:02d}", value, self.update)

    def save(self) -> None:
        """Metrics are on disk before the checkpoint that they belong to: see `Run.rewind`."""
        arrays = files.to_arrays(distributed.to_host(self.state))
        if self.run.writable:
            path = files.checkpoint_path(self.run.checkpoints, self.update)
            description = {
                "update": self.update,
                "losses": self.losses,
                "best": self.best,
                "classes": self.classes,
                "config": to_dict(self.config),
            }
            files.save_arrays(path, arrays, description)
            if self.best["update"] == self.update:
                self.run.keep_best(path)
            files.prune_checkpoints(self.run.checkpoints)
        self.saved = True


@contextmanager
def _signals() -> Iterator[Any]:
    """SIGINT and SIGTERM ask the loop to save and stop; a second one ends it at once."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            before[number] = signal.signal(number, note)
        except ValueError:  # not in the main thread: the caller handles signals
            break
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tensorboard(run: Run) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise MannError("TensorBoard events need an extra: pip install 'mann[tensorboard]'.") from None
    return SummaryWriter(str(run.folder / "tensorboard"))
