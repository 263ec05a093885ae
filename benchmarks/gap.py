"""Where a regression model falls behind the exact process.

    python benchmarks/gap.py [MODEL …] [--functions 400] [--figure FOLDER]

For each model (default: gp-1d) the mean gap in nats per point from step 20 on, by the distance to the nearest
sample and by the number of samples within a length scale, and what its heads read; and, in as many dimensions, the
gap of an oracle that may use the K nearest samples alone: once blended exactly, and once by a softmax of the
negative squared distance, a read by content, with its best width, and its best scale given how much lies near. All
of it as a figure, regression-gap.png, in a folder.
"""

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mann import Regression, load_trained
from mann.data.functions import GaussianProcess
from mann.episodes import time_offset
from mann.figures.gap import draw_gap
from mann.figures.style import save
from mann.outputs import gaussian_nll
from mann.trained import Trained

SEED, LATE, CHUNK = 11, 20, 50
WIDTHS = (0.1, 0.2, 0.3, 0.5, 0.7)  # of the softmax, in length scales
NEAREST = [0, 0.02, 0.05, 0.1, 0.2, 0.4, np.inf]  # in length scales
WITHIN = [0, 3, 6, 10, 15, 20, np.inf]  # samples
AWAY = [0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0]  # of any sample, in length scales
RANKS = 12  # samples, from the nearest on, whose slots are looked at
FEWEST = 100  # points that a mean is taken of


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["gp-1d"])
    parser.add_argument("--functions", type=int, default=400)
    parser.add_argument("--figure", type=Path, help="folder for the figure")
    options = parser.parse_args()
    keys = jax.random.split(jax.random.key(SEED), options.functions // CHUNK * CHUNK)
    found = {}
    for name in options.models:
        trained = load_trained(name)
        task = trained.config.task
        part = by_neighbourhood(trained, keys) | what_is_read(trained, keys)
        found[task.dimensions] = part | {"oracles": oracles(task, keys)}
    if options.figure:
        print(*save(draw_gap(found), options.figure, "regression-gap"))


def by_neighbourhood(trained: Trained, keys: Array) -> dict[str, Any]:
    task = trained.config.task

    @jax.jit
    def run(keys: Array) -> tuple[Array, Array, Array]:
        episodes = task.draw_batch(keys)
        outputs, _ = task.unroll(trained.model, episodes)
        gap = task.tally(outputs, episodes).nll - task.reference(episodes).nll
        away = distances(episodes.inputs)
        within = jnp.sum(away < task.process.length_scale, axis=-1)
        return gap, jnp.min(away, axis=-1) / task.process.length_scale, within

    gaps, nearest, within = in_chunks(run, keys)
    gap, nearest, within = (part[:, LATE - 1 :].ravel() for part in (gaps, nearest, within))
    print(f"\n{trained.name}: gap {gap.mean():.3f} from step {LATE} on, {len(keys)} functions")
    show("nearest sample, in length scales", nearest, NEAREST, gap)
    show("samples within a length scale", within, WITHIN, gap)
    return {
        "gap": float(gap.mean()),
        "by_step": list(enumerate(smooth(gaps.mean(axis=0)), start=3)),
        "by_distance": means(nearest, NEAREST, gap),
        "by_count": means(within, WITHIN, gap),
    }


def what_is_read(trained: Trained, keys: Array) -> dict[str, Any]:
    """The weight of every head on the slots of samples: by how near they are, from step 20 on.

    The slot of a sample is the one most written to at the step at which its value arrived, until another is.
    """
    task = trained.config.task

    @jax.jit
    def run(keys: Array) -> tuple[Array, Array]:
        episodes = task.draw_batch(keys)
        labels = time_offset(episodes.targets)
        trace = jax.vmap(lambda x, y: trained.model.unroll(x, y, trace=True).trace)(episodes.inputs, labels)
        weights = jax.vmap(on_samples)(trace.read_weights, trace.write_weights)
        away = distances(episodes.inputs)[:, LATE - 1 :]
        order = jnp.argsort(away, axis=-1)[..., : LATE - 1]  # samples that are there at all of these steps
        chosen = jnp.take_along_axis(weights[:, LATE - 1 :], order[:, :, None], axis=-1)
        return jnp.take_along_axis(away, order, axis=-1) / task.process.length_scale, chosen

    away, weights = in_chunks(run, keys)
    by_rank = weights.mean(axis=(0, 1))  # heads ranks
    print(f"\n{trained.name}: mean weight of a read on the slot of the n-th nearest sample, in %, by head")
    print("| head | " + " | ".join(str(rank) for rank in range(1, RANKS + 1)) + f" | nearest {LATE - 1} |")
    print("|---" * (RANKS + 2) + "|")
    for head, line in enumerate(100 * by_rank, start=1):
        cells = [f"{weight:.1f}" for weight in (*line[:RANKS], line.sum())]
        print(f"| {head} | " + " | ".join(cells) + " |")
    heads = range(len(by_rank))
    return {
        "by_rank": [list(enumerate(by_rank[head, :RANKS].tolist(), start=1)) for head in heads],
        "read_by_distance": [means(away.ravel(), AWAY, weights[:, :, head].ravel()) for head in heads],
    }


def on_samples(
    read: Float[Array, "time heads slots"], written: Float[Array, "time heads slots"]
) -> Float[Array, "time heads samples"]:
    """At every step the weight of every head on the slot of each sample; 0 where none is its own."""
    time = len(read)
    slots = jnp.argmax(jnp.sum(written, axis=1), axis=-1)  # of every step
    again = (slots[:, None] == slots[None]) & ~jnp.tri(time, dtype=bool)  # the slot of t, once more at t' > t
    taken = jnp.cumsum(again, axis=1) > 0  # by then
    kept = jnp.tri(time, dtype=bool) & ~taken.T  # at a step: the slots of those before that are theirs still
    weights = jnp.where(kept[:, None], read[:, :, slots], 0.0)
    return jnp.pad(weights[:, :, 1:], ((0, 0), (0, 0), (0, 1)))  # the value of t arrives at t + 1


def in_chunks(run: Any, keys: Array) -> tuple[np.ndarray, ...]:
    parts = [run(keys[i : i + CHUNK]) for i in range(0, len(keys), CHUNK)]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def smooth(values: np.ndarray) -> list[float]:
    """Means of five steps in a row."""
    return np.convolve(values, np.ones(5) / 5, mode="valid").tolist()


def means(values: np.ndarray, edges: list[float], of: np.ndarray) -> list[tuple[float, float]]:
    """Where the values between two edges lie, and the mean of something there."""
    pairs = []
    for low, high in itertools.pairwise(edges):
        inside = (values >= low) & (values < high)
        if inside.sum() >= FEWEST:
            pairs.append((float(values[inside].mean()), float(of[inside].mean())))
    return pairs


def show(title: str, values: np.ndarray, edges: list[float], gap: np.ndarray) -> None:
    print(f"| {title} | share of points | gap | share of the gap |\n|---|---|---|---|")
    for low, high in itertools.pairwise(edges):
        inside = (values >= low) & (values < high)
        if inside.any():
            share, part = inside.mean(), gap[inside].sum() / gap.sum()
            print(f"| {low:g} – {high:g} | {share:.2f} | {gap[inside].mean():.3f} | {part:.2f} |")


def distances(x: Float[Array, "batch time dimensions"]) -> Float[Array, "batch time time"]:
    """To every sample before; infinite to the others."""
    away = jnp.linalg.norm(x[:, :, None] - x[:, None], axis=-1)
    return jnp.where(jnp.tri(x.shape[1], k=-1, dtype=bool)[None], away, jnp.inf)


def oracles(task: Regression, keys: Array) -> list[tuple[int, float, float]]:
    """K, and the gap with K samples blended exactly and by a softmax."""
    found = []
    print(
        f"\n{task.dimensions}-D oracle: gap from step {LATE} on by the K nearest samples, {len(keys)} functions"
    )
    print("| K | blended exactly | by a softmax of the distance |\n|---|---|---|")
    for count in (2, 4, 8, 16, 32):
        exact, reference, error, doubt = in_chunks(jax.jit(partial(one_oracle, task, count)), keys)
        softmax = min(calibrated(error[..., i], doubt[..., i]) for i in range(len(WIDTHS))) - reference.mean()
        found.append((count, float((exact - reference).mean()), float(softmax)))
        print(f"| {count} | {found[-1][1]:.3f} | {softmax:.3f} |", flush=True)
    return found


def one_oracle(task: Regression, count: int, keys: Array) -> tuple[Array, Array, Array, Array]:
    """Late steps only: −log p by exact blending and by the exact process; error and doubt by the softmax."""
    episodes = task.draw_batch(keys)
    x, y = episodes.inputs, episodes.targets[..., 0]
    away, places = (part[:, LATE - 1 :] for part in nearest(distances(x), count))
    exact = jax.vmap(
        jax.vmap(partial(few, task.process), in_axes=(0, 0, 0, 0, None, None)), (0, 0, 0, 0, 0, 0)
    )
    late_x, late_y = x[:, LATE - 1 :], y[:, LATE - 1 :]
    nll = exact(late_x, late_y, places, jnp.isfinite(away), x, y)
    values = jax.vmap(lambda values, places: values[places])(y, places)
    width = task.process.length_scale * jnp.asarray(WIDTHS)
    logits = -(away[..., None] ** 2) / (2 * width**2)
    weights = jax.nn.softmax(logits, axis=2)
    error = late_y[..., None] - jnp.sum(weights * values[..., None], axis=2)
    doubt = jax.nn.logsumexp(logits, axis=2)  # how much lies near: what a scale could be read from
    return nll, task.reference(episodes).nll[:, LATE - 1 :], error, doubt


def nearest(away: Float[Array, "batch time time"], count: int) -> tuple[Array, Array]:
    values, places = jax.lax.top_k(-away, count)
    return -values, places


def few(
    process: GaussianProcess, at: Array, value: Array, places: Array, there: Array, x: Array, y: Array
) -> Array:
    """−log p of a value by the exact process on some samples alone."""
    seen, values = x[places], jnp.where(there, y[places], 0.0)
    matrix = process.covariance(seen, seen) * (there[:, None] & there[None])
    matrix = matrix + process.noise**2 * jnp.eye(len(places))
    across = process.covariance(seen, at[None])[:, 0] * there
    solved = jnp.linalg.solve(matrix, jnp.stack([values, across], axis=1))
    variance = process.variance + process.noise**2 - across @ solved[:, 1]
    return gaussian_nll(value, across @ solved[:, 0], jnp.sqrt(variance))


def calibrated(error: np.ndarray, doubt: np.ndarray, groups: int = 50) -> float:
    """Mean −log p with the best scale for every group of equal doubt."""
    order = np.argsort(doubt, axis=None)
    losses = [
        0.5 * np.log(2 * np.pi * np.e * np.mean(part**2))
        for part in np.array_split(error.ravel()[order], groups)
    ]
    return float(np.mean(losses))


if __name__ == "__main__":
    main()
