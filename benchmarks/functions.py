"""Functions that are not known in advance: the network beside the true process and one that is fitted.

    python benchmarks/functions.py [--model functions-1d] [--functions 200] [--steps 20] [--fits FILE] [--json FILE]

Every kernel by itself. The fitted process (scikit-learn) knows the kind of kernel and the bounds that the
hyperparameters were drawn from, and takes those of the largest likelihood on the samples seen, anew before every
prediction. Of sawtooths, which are no Gaussian process, it is the periodic one, and the true process the one with
their covariance. The ideal is told nothing about a function, but knows how all were drawn. Times are of the
processor, per prediction with all that it needs: of the fitted process fitting and predicting, of the network
`learn_one` and `predict_one`.
"""

import argparse
import dataclasses
import json
import math
import os
import time
import warnings
from pathlib import Path
from typing import Any

# A thread that waits for work would count as processor time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Kernel, Matern, WhiteKernel

from mann import PRESETS, FunctionLearner, UnknownFunctions, UnknownProcess, load_trained
from mann.data.functions import KERNELS
from mann.statistics import mean_by_episode
from mann.trained import Trained

SEED = 7  # of test functions: never that of a training run
TIMED = 5  # functions of each kernel


def candidate(kernel: str, unknown: UnknownProcess) -> Kernel:
    """The kernel to fit, started in the middle of the bounds."""

    def middle(bounds: tuple[float, float]) -> float:
        return math.sqrt(bounds[0] * bounds[1])

    length, variance, period = unknown.length_scale, unknown.variance, unknown.period
    noise = tuple(v * n**2 for v, n in zip(variance, unknown.noise, strict=True))
    if kernel == "squared-exponential":
        shape: Kernel = RBF(middle(length), length)
    elif kernel == "matern":
        shape = Matern(middle(length), length, nu=2.5)
    else:
        around = (2 * math.pi * length[0] / period[1], 2 * math.pi * length[1] / period[0])
        shape = ExpSineSquared(middle(around), middle(period), around, period)
    return ConstantKernel(middle(variance), variance) * shape + WhiteKernel(middle(noise), noise)


def fitted_nll(kernel: Kernel, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """−log p of every sample, each by the process fitted to those before it, and seconds per prediction."""
    losses, start = [], time.process_time()
    for step in range(len(y)):
        process = GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=0)
        if step:
            process.fit(x[:step], y[:step])
        prediction = process.predict(x[step : step + 1], return_std=True)
        mean, scale = (float(np.ravel(part)[0]) for part in prediction)
        losses.append(0.5 * ((y[step] - mean) / scale) ** 2 + math.log(scale) + 0.5 * math.log(2 * math.pi))
    return np.array(losses), (time.process_time() - start) / len(y)


def ideal_nll(x: np.ndarray, y: np.ndarray, hypotheses: int = 2048, sizes: int = 12) -> np.ndarray:
    """−log p of every sample by who knows how the functions were drawn, all kernels among them, and no more.

    Processes drawn as the test functions are, each with several variances, believed by what they said of the
    samples before: the normal distribution with the mean and the variance of all their predictions. With this
    output no network could do better on average, but for sawtooths, which are taken for processes here.
    """
    unknown = PRESETS["functions-1d"].task.unknown
    keys = jax.random.split(jax.random.key(SEED + 1), hypotheses)
    drawn = jax.jit(jax.vmap(lambda key: unknown.draw(key, 1)))(keys)
    noise = np.asarray(drawn.noise / jax.numpy.sqrt(drawn.variance), np.float64)
    processes = drawn._replace(variance=jax.numpy.ones(hypotheses))
    covariance = jax.jit(jax.vmap(lambda process, points: process.covariance(points, points), (0, None)))
    low, high = unknown.variance
    variances = low * (high / low) ** ((np.arange(sizes) + 0.5) / sizes)
    losses = []
    for points, values in zip(x, y, strict=True):
        matrix = np.asarray(covariance(processes, points.astype(np.float32)), np.float64)
        factor = np.linalg.cholesky(matrix + (noise**2)[:, None, None] * np.eye(len(values)))
        errors = np.linalg.solve(factor, np.broadcast_to(values[:, None], (*factor.shape[:2], 1)))[..., 0]
        scale = np.diagonal(factor, axis1=1, axis2=2)
        said = -0.5 * errors[:, None] ** 2 / variances[:, None] - np.log(scale)[:, None]
        said = said - 0.5 * np.log(variances)[:, None]
        belief = np.cumsum(said, axis=2) - said  # before each sample
        belief = np.exp(belief - belief.max(axis=(0, 1)))
        belief /= belief.sum(axis=(0, 1))
        means = values - scale * errors
        mean = np.sum(belief.sum(axis=1) * means, axis=0)
        variance = np.sum(belief.sum(axis=1) * (means - mean) ** 2, axis=0)
        variance += np.sum(np.einsum("hvt,v->ht", belief, variances) * scale**2, axis=0)
        losses.append(0.5 * (values - mean) ** 2 / variance + 0.5 * np.log(2 * math.pi * variance))
    return np.array(losses)


def prediction_times(trained: Trained, kernel: Kernel, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Milliseconds of the processor per prediction, of the network and of the fitted process in turns: the median
    over functions, so that what else the machine does counts for both alike."""
    task = trained.config.task
    learner = FunctionLearner(trained, x_range=(task.low, task.high), y_range=(-2, 2))
    times: dict[str, list[float]] = {"network": [], "fitted": []}
    for points, values in zip(x, y, strict=True):
        times["fitted"].append(fitted_nll(kernel, points, values)[1])
        for _ in range(20):
            learner.reset()
            start = time.process_time()
            for point, value in zip(points, values, strict=True):
                learner.predict_one(point)
                learner.learn_one(point, value)
            times["network"].append((time.process_time() - start) / len(points))
    return {name: 1e3 * float(np.median(seconds)) for name, seconds in times.items()}


def fit_all(functions: int, steps: int) -> dict[str, np.ndarray]:
    """What takes long, and does not depend on the network: the fitted process on functions of every kernel."""
    fits = {}
    for kernel in KERNELS:
        task, episodes = draw(kernel, functions, steps)
        x, y = points(episodes)
        kind = candidate(kernel, task.unknown)
        fits[kernel] = np.stack([fitted_nll(kind, a, b)[0] for a, b in zip(x, y, strict=True)])
        fits[f"{kernel} ideal"] = ideal_nll(x, y)
        print(f"{kernel}: fitted", flush=True)
    return fits


def draw(kernel: str, functions: int, steps: int) -> tuple[UnknownFunctions, Any]:
    """Test functions of one kernel, others for each."""
    task = PRESETS["functions-1d"].task
    assert isinstance(task, UnknownFunctions)
    unknown = dataclasses.replace(task.unknown, kernels=(kernel,))
    task = dataclasses.replace(task, length=steps, unknown=unknown)
    seed = jax.random.fold_in(jax.random.key(SEED), KERNELS.index(kernel))
    return task, jax.jit(task.draw_batch)(jax.random.split(seed, functions))


def points(episodes: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = (np.asarray(part, np.float64) for part in (episodes.inputs, episodes.targets[..., 0]))
    return x, y


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="functions-1d")
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--fits",
        type=Path,
        help="keep what the fitted process said here (.npz), or take it from here: minutes, whatever the network",
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of hyperparameters at their bounds
    if options.fits and options.fits.exists():
        fits = dict(np.load(options.fits))
    else:
        fits = fit_all(options.functions, options.steps)
        if options.fits:
            np.savez(options.fits, **fits)
    trained = load_trained(options.model)
    results, parts = {}, []
    for kernel in KERNELS:
        fitted, ideal = fits[kernel], fits[f"{kernel} ideal"]
        task, episodes = draw(kernel, *fitted.shape)
        outputs, _ = jax.jit(lambda e, task=task: task.unroll(trained.model, e))(episodes)
        ours = np.asarray(task.tally(outputs, episodes).nll)
        exact = np.asarray(jax.jit(task.reference)(episodes).nll)
        x, y = points(episodes)
        times = prediction_times(trained, candidate(kernel, task.unknown), x[:TIMED], y[:TIMED])
        results[kernel] = compare(ours, fitted, ideal, exact) | {"milliseconds": times}
        parts.append((ours, fitted, ideal, exact))
        print_table(kernel, results[kernel])
    results["all"] = compare(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    print_table("all kernels", results["all"])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def compare(ours: np.ndarray, fitted: np.ndarray, ideal: np.ndarray, exact: np.ndarray) -> dict[str, Any]:
    """By step: the mean of each, and by how much the network is ahead of the fitted process."""
    gain, half = mean_by_episode(fitted - ours)
    return {
        "functions": len(ours),
        "network": ours.mean(axis=0).tolist(),
        "fitted": fitted.mean(axis=0).tolist(),
        "ideal": ideal.mean(axis=0).tolist(),
        "medians": {
            "network": np.median(ours, axis=0).tolist(),
            "fitted": np.median(fitted, axis=0).tolist(),
        },
        "exact": exact.mean(axis=0).tolist(),
        "gain": gain.tolist(),
        "half_width": half.tolist(),
    }


def print_table(kernel: str, result: dict) -> None:
    steps = [s for s in (1, 2, 3, 5, 7, 10, 15, 20) if s <= len(result["network"])]
    print(f"\n{kernel}: {result['functions']} functions, nll in nats per point")
    print("| step | " + " | ".join(map(str, steps)) + " |")
    print("|---" * (len(steps) + 1) + "|")
    for name in ("exact", "ideal", "network", "fitted"):
        print(f"| {name} | " + " | ".join(f"{result[name][s - 1]:.3f}" for s in steps) + " |")
    behind = [
        f"{step} ({gain:.3f} ±{half:.3f})"
        for step, (gain, half) in enumerate(zip(result["gain"], result["half_width"], strict=True), start=1)
        if gain < 0
    ]
    print(f"steps at which the fitted process is ahead: {', '.join(behind) or 'none'}")
    if times := result.get("milliseconds"):
        ratio = times["fitted"] / times["network"]
        print(
            f"time per prediction {times['network']:.3f} ms, fitted {times['fitted']:.1f} ms: {ratio:.0f} times",
            flush=True,
        )


if __name__ == "__main__":
    main()
