"""A trained model on what it has never met: one call, with intervals over episodes."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from mann.data import DataConfig, choose_data
from mann.data.gp import Prediction
from mann.episodes import time_offset
from mann.errors import MannError, check_range
from mann.files import is_array
from mann.models import Model
from mann.outputs import Gaussian
from mann.tasks import Alphabets, Result, Task
from mann.trained import Trained, load_trained
from mann.training import distributed
from mann.training.budget import check_memory
from mann.training.validation import CHAINS, make_tally

T = TypeVar("T")

SEED = 20160519  # of test episodes: never the seed of a training run
MOST_EPISODES = 10**6  # their results are held in memory
CHUNK = 40  # episodes per device in one call
LINKS = 50  # episodes that follow one another, at most, where the memory persists


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`."""

    model: str
    """The name of the model."""
    dataset: str
    """The name of the data set that it was tested on."""
    class_range: tuple[int, int] | None
    """First and last class id that were tested, from 1; None for a task without classes."""
    task: Task
    """The task that it was tested on."""
    episodes: int
    """How many were drawn."""
    result: Result
    """What the task made of them: `AccuracyByInstance`, `LikelihoodByStep`, or one's own."""

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers: what `mann eval --json` writes."""
        content: dict[str, Any] = {
            "model": self.model,
            "dataset": self.dataset,
            "length": self.task.steps,
            "episodes": self.episodes,
        }
        if self.class_range is not None:
            first, last = self.class_range
            content["class_ids"] = {"first": first, "last": last}
        return content | self.result.to_json()


def evaluate(
    model: str | Path | Trained,
    *,
    dataset: str | DataConfig = "",
    classes: int = 0,
    length: int = 0,
    alphabets: Alphabets | Literal[""] = "",
    episodes: int = 2000,
    task: Task | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Test a trained model, without any learning of weights, on episodes of what it has never met.

    Args:
        model: a shipped name, a run folder or a file of weights; or what `load_trained` returned.
        dataset: a kind of data set ("omniglot", "glyphs"), the path of a folder of pictures, or a configuration;
            empty for that of the training. Of a data set with a split only its test classes are used, and classes
            that the model was trained on or selected by are refused, however they got there.
        classes: classes per episode; 0 for as many as in training. One-hot labels allow no other number.
        length: samples per episode; 0 for as in training, or 10 per class if `classes` is given.
        alphabets: that the classes of an episode come from: "across" all of them, "within" one, or "mixed"; empty
            for all of them, or as `task` says.
        episodes: how many to draw; more make the intervals narrower.
        task: another task than the one trained for, with the same inputs and labels.
        progress: called with how many episodes are done, and how many there are.

    Returns:
        What the task makes of it: accuracy by instance or likelihood by step, with 95 % intervals.

    Raises:
        MannError: if there is no such model or data, or if the model has met the data in its training.

    Examples:
        >>> import mann
        >>> evaluation = mann.evaluate("omniglot-5", dataset=mann.Glyphs(classes=40), episodes=20)
        >>> evaluation.class_range
        (31, 40)
        >>> evaluation.result.instances[1].value > 0.8  # the second time that a class is seen
        True
    """
    check_range("The number of test episodes", episodes, 2, MOST_EPISODES)
    trained = model if isinstance(model, Trained) else load_trained(model)
    config = trained.config
    if task is None:
        task, alphabets = config.task, alphabets or "across"
    task = task.resized(classes, length, alphabets)
    if dataset and not task.needs_data:
        raise MannError("This model draws its episodes from no data set: leave the data set out.")
    data = choose_data(dataset, config.data)
    if data is not config.data and task.needs_data:
        data = dataclasses.replace(data, side=config.data.side)  # as the network sees them
    unseen = task.load_unseen(data, config.data, trained.seen, trained.name)
    tally, reference = _run(trained, task, unseen.source, episodes, progress)
    return Evaluation(
        trained.name, unseen.dataset, unseen.class_range, task, episodes, task.summarise(tally, reference)
    )


def _run(
    trained: Trained, task: Task, source: Any, episodes: int, progress: Callable[[int, int], None]
) -> tuple[Any, Any]:
    """What was counted in that many test episodes, and what an ideal predictor would have counted."""
    config = trained.config
    mesh = distributed.local_mesh(distributed.make_mesh(len(jax.devices())))
    arrays, static = eqx.partition(trained.model, is_array)
    arrays, source = distributed.replicate((arrays, source), mesh)
    tally = make_tally(task, config.persistent, static, mesh, reference=True)
    # How memories persist must not depend on the number of devices: the chunk is fixed then.
    chunk = CHAINS * LINKS if config.persistent else CHUNK * mesh.size
    parts = split_keys(SEED, episodes, chunk)
    check_memory(task, config.model, config.data.format, CHAINS if config.persistent else len(parts[0]))
    tallies = []
    for number, part in enumerate(parts, start=1):
        tallies.append(tally(arrays, source, part))
        progress(min(number * len(part), episodes), episodes)
    return join_episodes(tallies, episodes)


def split_keys(seed: int, episodes: int, chunk: int) -> list[Key[Array, "chunk"]]:
    """The keys of test episodes, a chunk at a time. All chunks are full, for one compilation to do for all.

    A single chunk has only the episodes that are asked for.
    """
    keys = jax.random.split(jax.random.key(seed), -(-episodes // chunk) * chunk)
    size = min(chunk, episodes)
    return [keys[start : start + size] for start in range(0, episodes, size)]


def join_episodes(parts: list[T], episodes: int) -> T:
    """One tree of arrays on the host from several, without the episodes that only filled up the last."""
    whole: T = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:episodes], *parts)
    return whole


@eqx.filter_jit
def predict_along(
    model: Model,
    x: Float[Array, "time dimensions"],
    y: Float[Array, "time"],
    queries: Float[Array, "queries dimensions"],
) -> Prediction:
    """A regression model's prediction at each query after the same samples.

    The last value seen arrives together with the query. Every query starts from the same state, and none
    leaves a trace in it.
    """
    labels = y[:, None]
    state = model.unroll(x, time_offset(labels)).state
    outputs, _ = jax.vmap(model.step, in_axes=(0, None, None))(queries, labels[-1], state)
    return Prediction(*Gaussian().mean_and_scale(outputs))
