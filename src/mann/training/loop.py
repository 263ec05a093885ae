"""`train` and `resume`: the loop around the compiled updates. Records, evaluates, saves and stops cleanly."""

import importlib.util
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mann.data.seen import Fingerprints
from mann.errors import MannError
from mann.files import from_arrays, to_arrays
from mann.installation import install_command
from mann.tasks import Sources
from mann.training import distributed
from mann.training.budget import check_memory
from mann.training.checkpoint import Checkpoint, list_checkpoints
from mann.training.config import Config, to_dict
from mann.training.curriculum import stage_at
from mann.training.display import Observer, PlainDisplay
from mann.training.legacy import upgrade_arrays
from mann.training.partners import is_loss, watch
from mann.training.run import NO_BEST, SEEN, Run
from mann.training.start import Started, Weights, start_from
from mann.training.trainer import Trainer, TrainState


class Result(NamedTuple):
    """How a call to `train` or `resume` ended."""

    folder: Path
    """The run folder, which `evaluate`, `load_trained` and `resume` take."""
    update: int
    """The last update."""
    finished: bool
    """False if it was interrupted."""
    metrics: list[dict[str, Any]]
    """The records of all evaluations, from metrics.jsonl."""


def train(
    config: Config,
    folder: str | Path,
    *,
    start: Weights | None = None,
    observers: Sequence[Observer] | None = None,
    tensorboard: bool = False,
) -> Result:
    """Train a model in a new run folder.

    Stops early, with a checkpoint, on SIGINT or SIGTERM.

    Args:
        config: everything that decides the result.
        folder: of the run; an existing one is refused.
        start: a trained network (`load_trained`) whose weights to start from, wherever they fit; random ones if
            left out. What that network has met counts as met by this one.
        observers: told what happens; by default, lines on standard output.
        tensorboard: also write TensorBoard events (needs an extra).

    Returns:
        How it ended, with the metrics.

    Raises:
        MannError: if the folder holds a run already, the data cannot be loaded, the run does not fit into memory,
            or the loss is no longer finite.

    Examples:
        >>> import tempfile, mann
        >>> config = mann.Config(
        ...     task=mann.Regression(length=5),
        ...     model=mann.ModelConfig(controller=mann.LSTMConfig(hidden=8), memory=mann.NoMemoryConfig()),
        ...     data=mann.NoData(),
        ...     optimiser=mann.AdamW(warmup=0),
        ...     updates=4, batch=2, evaluate_every=2, evaluate_episodes=2, dispatch=2,
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = mann.train(config, Path(folder) / "run", observers=[])
        >>> result.finished, [record["update"] for record in result.metrics]
        (True, [2, 4])
    """
    return _in_folder(folder, config, start, observers, tensorboard)


def resume(
    folder: str | Path, *, observers: Sequence[Observer] | None = None, tensorboard: bool = False
) -> Result:
    """Go on with the run in a folder from its newest valid checkpoint, as if nothing had happened.

    Args:
        folder: of the run.
        observers: told what happens; by default, lines on standard output.
        tensorboard: also write TensorBoard events (needs an extra).

    Returns:
        How it ended, with the metrics from the start of the run on.

    Raises:
        MannError: if there is no run in the folder, or as `train` does.
    """
    return _in_folder(folder, None, None, observers, tensorboard)


def _in_folder(
    folder: str | Path,
    config: Config | None,
    start: Weights | None,
    observers: Sequence[Observer] | None,
    tensorboard: bool,
) -> Result:
    """With a configuration, a new run; without one, the run that is there."""
    if tensorboard and importlib.util.find_spec("tensorboardX") is None:
        raise MannError(f"TensorBoard events need an extra: {install_command('tensorboard')}.")
    watching: list[Observer] = [PlainDisplay()] if observers is None else list(observers)

    def warn(message: str) -> None:
        for observer in watching:
            observer.warn(message)

    with Run(Path(folder), writable=distributed.is_main()) as run:
        checkpoint, is_new = None, config is not None
        if config is None:
            with distributed.together():
                config, checkpoint = run.resume(warn)
        else:
            with distributed.together():
                run.refuse_if_used()  # at once, not after the data is loaded
        config.optimiser.check_length(config.updates)
        mesh = distributed.make_mesh(config.shares)
        local_batch = config.batch * len(mesh.local_devices) // mesh.size
        check_memory(config.task, config.model, config.data.format, local_batch, training=True)
        check_memory(config.task, config.model, config.data.format, config.evaluate_episodes)
        sources = config.task.load(config.data)
        trainer = Trainer(config, sources.train, sources.held_out, mesh)
        progress = Progress(config, sources, trainer, checkpoint, start)
        with distributed.together():
            if is_new:
                run.create(config, mesh.size)
            else:
                run.start_session(config, mesh.size, warn)
        about = sources.about
        if progress.started is not None:
            about += f"; {progress.started}"
            if is_new:  # a run that is stopped before its first evaluation must not start anew at random
                run.save_checkpoint(*progress.to_save())
        if tensorboard and run.writable:
            watching.append(TensorBoard(run.folder))
        for observer in watching:
            observer.start(config, run.folder, about, mesh.size, progress.update)
        if distributed.has_partners():
            watch.rescue = lambda: progress.rescue(run)
        try:
            _loop(config, run, trainer, progress, watching)
        except (ValueError, RuntimeError) as error:
            if is_loss(error):
                watch.lost()
            raise
        finally:
            for observer in watching:
                observer.stop()
        run.check_place()
        return Result(
            run.folder, progress.update, progress.update >= config.updates, run.read("metrics.jsonl")
        )


def _loop(
    config: Config, run: Run, trainer: Trainer, progress: "Progress", observers: Sequence[Observer]
) -> None:
    """Updates, a call to the devices at a time, until the last one or until somebody asks to stop."""
    with _interruptions() as interrupted:
        while (update := progress.update) < config.updates:
            due = min(config.dispatch - update % config.dispatch, config.updates - update)
            progress.state, losses = trainer.advance(progress.state, due)
            _refuse_infinite(losses, update, run)
            progress.losses += losses.tolist()
            for observer in observers:
                observer.progress(progress.update, float(losses[-1]))
            finished = progress.update == config.updates
            evaluated = finished or progress.update % config.evaluate_every == 0
            if evaluated:
                record = progress.evaluate(trainer, stage_at(config, update))
                run.record(record)
                for observer in observers:
                    observer.evaluated(record)
            stopping = distributed.anywhere(interrupted())
            if evaluated or stopping:
                run.save_checkpoint(*progress.to_save())
            if run.writable and distributed.has_partners():
                progress.keep_intact(run)
            if stopping:
                return


class Progress:
    """Where a run stands. `state.update` is the only counter of updates."""

    def __init__(
        self,
        config: Config,
        sources: Sources,
        trainer: Trainer,
        checkpoint: Checkpoint | None = None,
        start: Weights | None = None,
    ) -> None:
        self.config, self.sources = config, sources
        self.started: Started | None = None
        self.state: TrainState = trainer.initial_state()
        self.losses: list[float] = []  # since the last record
        self.best: dict[str, Any] = dict(NO_BEST)
        self.intact: tuple[dict[str, np.ndarray], dict[str, Any], bytes] | None = None  # see `rescue`
        if start is not None:
            model, self.started, seen = start_from(start, distributed.to_host(self.state.model))
            average = None if self.state.average is None else jax.tree.map(jnp.copy, model)
            self.state = trainer.place(self.state._replace(model=model, average=average))
            self._has_met(seen)
        if checkpoint is not None:
            like = distributed.to_host(self.state)
            arrays = upgrade_arrays(checkpoint.arrays)
            self.state = trainer.place(from_arrays(like, arrays, str(checkpoint.path)))
            self.losses = list(checkpoint.description["losses"])
            self.best = checkpoint.description["best"]
            if (about := checkpoint.description.get("started")) is not None:
                self.started = Started(about["name"], tuple(about["new"]))
                self._has_met(checkpoint.arrays[SEEN])

    def _has_met(self, seen: Fingerprints) -> None:
        self.sources = self.sources._replace(seen=np.union1d(self.sources.seen, seen))

    @property
    def update(self) -> int:
        return int(self.state.update)

    def evaluate(self, trainer: Trainer, stage: Any) -> dict[str, Any]:
        """A record of the updates since the last one, with what the model does on held-out episodes."""
        task = self.config.task
        record: dict[str, Any] = {
            "update": self.update,
            "episodes": self.update * self.config.batch,
            "loss": sum(self.losses) / len(self.losses),
        }
        record |= task.record(trainer.validate(self.state))
        if stage is not None:
            record["classes"] = stage.size[0]
        self.losses = []
        if (score := task.score(record)) > self.best["score"]:
            self.best = {"update": self.update, "score": score}
        return record

    def to_save(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and description of a checkpoint. All processes take part in gathering the arrays."""
        arrays = to_arrays(distributed.to_host(self.state)) | {SEEN: self.sources.seen}
        started = {} if self.started is None else {"started": self.started._asdict()}
        return arrays, started | {
            "update": self.update,
            "losses": list(self.losses),
            "best": self.best,
            "classes": self.sources.classes,
            "config": to_dict(self.config),
        }

    def keep_intact(self, run: Run) -> None:
        """Copy what a checkpoint needs: the next updates use up the state, and may fail halfway."""
        if distributed.is_whole_here(self.state):
            arrays, description = self.to_save()
            self.intact = {name: array.copy() for name, array in arrays.items()}, description, run.metrics

    def rescue(self, run: Run) -> None:
        """When another process is lost in the midst of updates: save what was whole before them."""
        if self.intact is not None:
            arrays, description, run.metrics = self.intact
            run.save_checkpoint(arrays, description)


class TensorBoard(Observer):
    """Writes events for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def evaluated(self, record: dict[str, Any]) -> None:
        self.writer.add_scalar("loss/training", record["loss"], record["update"])
        self.writer.add_scalar("loss/held out", record["held_out_loss"], record["update"])
        for i, value in enumerate(record.get("accuracy", []), start=1):
            if value is not None:
                self.writer.add_scalar(f"accuracy/instance {i:02d}", value, record["update"])

    def stop(self) -> None:
        self.writer.close()


def _refuse_infinite(losses: np.ndarray, update: int, run: Run) -> None:
    if np.all(np.isfinite(losses)):
        return
    bad = update + int(np.argmin(np.isfinite(losses))) + 1
    checkpoints = list_checkpoints(run.checkpoints)
    where = (
        f"The last good checkpoint is {checkpoints[0]}" if checkpoints else "No checkpoint was written yet"
    )
    raise MannError(
        f"The loss is no longer finite at update {bad}. {where}: try a lower learning rate or stronger clipping."
    )


@contextmanager
def _interruptions() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM ask the loop to save and stop; a second one ends it at once."""
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            before[number] = signal.signal(number, note)
        except ValueError:  # not in the main thread: the caller handles signals
            break
    try:
        yield lambda: bool(signals)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
