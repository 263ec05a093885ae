"""Functions that are not known in advance: the network beside the true process and one that is fitted.

    python benchmarks/functions.py [--model functions-1d] [--functions 200] [--steps 20] [--json FILE]

Every kernel by itself. The fitted process (scikit-learn) knows the kind of kernel and the bounds that the
hyperparameters were drawn from, and takes those of the largest likelihood on the samples seen, anew before every
prediction. Of sawtooths, which are no Gaussian process, it is the periodic one, and the true process the one with
their covariance. Times are of the processor, per prediction with all that it needs: of the fitted process fitting
and predicting, of the network `learn_one` and `predict_one`.
"""

import argparse
import dataclasses
import json
import math
import time
import warnings
from pathlib import Path

import jax
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Kernel, Matern, WhiteKernel

from mann import PRESETS, FunctionLearner, UnknownFunctions, UnknownProcess, load_trained
from mann.data.functions import KERNELS
from mann.statistics import mean_by_episode
from mann.trained import Trained

SEED = 7  # of test functions: never that of a training run


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


def step_time(trained: Trained, x: np.ndarray, y: np.ndarray) -> float:
    """Seconds of a `predict_one` and a `learn_one`: the least of many rounds."""
    task = trained.config.task
    learner = FunctionLearner(trained, x_range=(task.low, task.high), y_range=(-2, 2))
    rounds = []
    for _ in range(20):
        start = time.process_time()
        for point, value in zip(x, y, strict=True):
            learner.predict_one(point)
            learner.learn_one(point, value)
        rounds.append((time.process_time() - start) / len(x))
        learner.reset()
    return min(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="functions-1d")
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of hyperparameters at their bounds
    task = PRESETS["functions-1d"].task
    assert isinstance(task, UnknownFunctions)
    keys = jax.random.split(jax.random.key(SEED), options.functions)
    cases = {}
    for kernel in KERNELS:  # what takes long, and does not depend on the network
        unknown = dataclasses.replace(task.unknown, kernels=(kernel,))
        one = dataclasses.replace(task, length=options.steps, unknown=unknown)
        episodes = jax.jit(one.draw_batch)(keys)
        x, y = (np.asarray(part, np.float64) for part in (episodes.inputs, episodes.targets[..., 0]))
        fits = [fitted_nll(candidate(kernel, unknown), a, b) for a, b in zip(x, y, strict=True)]
        cases[kernel] = one, episodes, np.stack([losses for losses, _ in fits]), np.mean([t for _, t in fits])
        print(f"{kernel}: fitted, {1e3 * cases[kernel][3]:.1f} ms per prediction", flush=True)
    trained = load_trained(options.model)
    results = {}
    for kernel, (one, episodes, fitted, seconds) in cases.items():
        outputs, _ = jax.jit(lambda e, one=one: one.unroll(trained.model, e))(episodes)
        ours = np.asarray(one.tally(outputs, episodes).nll)
        gain, half = mean_by_episode(fitted - ours)
        points = (np.asarray(part[0], np.float64) for part in (episodes.inputs, episodes.targets[..., 0]))
        results[kernel] = {
            "functions": options.functions,
            "network": ours.mean(axis=0).tolist(),
            "fitted": fitted.mean(axis=0).tolist(),
            "exact": np.asarray(jax.jit(one.reference)(episodes).nll).mean(axis=0).tolist(),
            "gain": gain.tolist(),
            "half_width": half.tolist(),
            "milliseconds": {"network": 1e3 * step_time(trained, *points), "fitted": 1e3 * float(seconds)},
        }
        print_table(kernel, results[kernel])
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def print_table(kernel: str, result: dict) -> None:
    steps = [s for s in (1, 2, 3, 5, 7, 10, 15, 20) if s <= len(result["network"])]
    print(f"\n{kernel}: {result['functions']} functions, nll in nats per point")
    print("| step | " + " | ".join(map(str, steps)) + " |")
    print("|---" * (len(steps) + 1) + "|")
    for name in ("exact", "network", "fitted"):
        print(f"| {name} | " + " | ".join(f"{result[name][s - 1]:.3f}" for s in steps) + " |")
    worst = min(range(len(result["gain"])), key=lambda i: result["gain"][i])
    print(
        f"least gain over the fitted process: {result['gain'][worst]:.3f} ±{result['half_width'][worst]:.3f} at "
        f"step {worst + 1}; time per prediction {result['milliseconds']['network']:.3f} ms, fitted "
        f"{result['milliseconds']['fitted']:.1f} ms",
        flush=True,
    )


if __name__ == "__main__":
    main()
