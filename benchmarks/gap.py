"""Where a regression model falls behind the exact process: python benchmarks/gap.py [MODEL …] [--functions 400]

For each model (default: gp-1d) the mean gap in nats per point from step 20 on, by the distance to the nearest
sample and by the number of samples within a length scale; and, in 1, 2 and 3 dimensions, the gap of an oracle that
may use the K nearest samples alone: once blended exactly, and once by a softmax of the negative squared distance, a
read by content, with its best width, and its best scale given how much lies near.
"""

import argparse
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mann import Regression, load_trained
from mann.data.functions import GaussianProcess
from mann.outputs import gaussian_nll
from mann.training.presets import PRESETS

SEED, LATE, CHUNK = 11, 20, 50
WIDTHS = (0.1, 0.2, 0.3, 0.5, 0.7)  # of the softmax, in length scales


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["gp-1d"])
    parser.add_argument("--functions", type=int, default=400)
    options = parser.parse_args()
    keys = jax.random.split(jax.random.key(SEED), options.functions // CHUNK * CHUNK)
    for name in options.models:
        by_neighbourhood(name, keys)
    for dimensions in (1, 2, 3):
        oracles(PRESETS[f"gp-{dimensions}d"].task, keys)


def by_neighbourhood(name: str, keys: Array) -> None:
    trained = load_trained(name)
    task = trained.config.task

    @jax.jit
    def run(keys: Array) -> tuple[Array, Array, Array]:
        episodes = task.draw_batch(keys)
        outputs, _ = task.unroll(trained.model, episodes)
        gap = task.tally(outputs, episodes).nll - task.reference(episodes).nll
        away = distances(episodes.inputs)
        within = jnp.sum(away < task.process.length_scale, axis=-1)
        return gap, jnp.min(away, axis=-1) / task.process.length_scale, within

    parts = [run(keys[i : i + CHUNK]) for i in range(0, len(keys), CHUNK)]
    gap, nearest, within = (np.concatenate(p)[:, LATE - 1 :].ravel() for p in zip(*parts, strict=True))
    print(f"\n{name}: gap {gap.mean():.3f} from step {LATE} on, {len(keys)} functions")
    show("nearest sample, in length scales", nearest, [0, 0.02, 0.05, 0.1, 0.2, 0.4, np.inf], gap)
    show("samples within a length scale", within, [0, 3, 6, 10, 15, 20, np.inf], gap)


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


def oracles(task: Regression, keys: Array) -> None:
    print(
        f"\n{task.dimensions}-D oracle: gap from step {LATE} on by the K nearest samples, {len(keys)} functions"
    )
    print("| K | blended exactly | by a softmax of the distance |\n|---|---|---|")
    for count in (2, 4, 8, 16, 32):
        run = jax.jit(partial(one_oracle, task, count))
        parts = [run(keys[i : i + CHUNK]) for i in range(0, len(keys), CHUNK)]
        exact, reference, error, doubt = (np.concatenate(p) for p in zip(*parts, strict=True))
        softmax = min(calibrated(error[..., i], doubt[..., i]) for i in range(len(WIDTHS))) - reference.mean()
        print(f"| {count} | {(exact - reference).mean():.3f} | {softmax:.3f} |", flush=True)


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
