"""Figures 5 and 6: functions of a Gaussian process in 1, 2 and 3 dimensions, beside the exact process."""

from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from mann.data import gp
from mann.data.functions import draw_smooth
from mann.evaluation import SEED, predict_along
from mann.experiments.entries import Condition, Entry, Network
from mann.experiments.experiment import Experiment
from mann.experiments.networks import SETTINGS, network, seeds, with_changes
from mann.experiments.records import Record, Records, Table
from mann.experiments.scales import Scale, at_scale
from mann.experiments.tables import COST, markdown_table, number, of_model, training_cost
from mann.figures.experiments import draw_coverage, draw_functions, draw_likelihood
from mann.models import Model
from mann.tasks import Regression
from mann.tasks.regression import LATE
from mann.trained import load_trained
from mann.training.optimisers import AdamW
from mann.training.presets import PRESETS

TITLE = "Regression: functions of a Gaussian process in 1, 2 and 3 dimensions"
DIMENSIONS = (1, 2, 3)
MODELS = ("best", "mann", "lstm", "feedforward")
SAMPLES = 20  # seen before the prediction along all x (Figure 5)
GRID = 101  # values of x in that prediction
SHOWN = 3  # functions in Figure 5
STEPS = (1, 5, 10, 20, 30, 40, 50)  # of the table
WITHOUT_MEMORY: dict[str, Any] = {  # another recipe than the MANN's: see the page
    "task__loss_over": "samples",
    "model__precision": "float32",
    "optimiser": AdamW(learning_rate=8e-3, warmup=100),
    "updates": 10_000,
}
GAP_STEPS = (1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50)


class Regressor(Network):
    """A network for functions; one with a memory, in one dimension, is also asked along all x."""

    def measure(self, folder: Path, episodes: int) -> Record | None:
        record = super().measure(folder, episodes)
        task = self.config.task
        assert isinstance(task, Regression)
        if record is not None and task.dimensions == 1 and self.config.model.memory.persists:
            record["along_x"] = predictions_along_x(load_trained(folder).model, task, episodes)
        return record


def entries(scale: Scale) -> list[Entry]:
    pairs = [(dimensions, model) for dimensions in DIMENSIONS for model in MODELS]
    if scale == "smoke":
        pairs = [(1, "best"), (1, "mann"), (1, "lstm"), (2, "mann"), (3, "mann")]
    chosen: list[Entry] = []
    for dimensions, model in pairs:
        setting = f"gp-{dimensions}d"
        if model == "best":
            chosen += [_best(setting, scale, seed) for seed in seeds(scale)]
            continue
        is_mann = model == "mann"
        changes = {"optimiser": SETTINGS[setting].optimiser} if is_mann else WITHOUT_MEMORY
        for seed in seeds(scale) if is_mann else (0,):
            entry = network(
                setting,
                model,
                scale,
                seed,
                label="MANN" if is_mann else "",
                tests=(Condition(),),
                **changes,
            )
            chosen.append(Regressor(entry.name, entry.label, entry.config, entry.tests))
    return chosen


def _best(setting: str, scale: Scale, seed: int) -> Entry:
    """The memory alone, by least squares."""
    config = at_scale(with_changes(PRESETS[f"{setting}-best"], seed=seed), scale)
    return Network(f"{setting}-best-seed{seed}", "Least squares", config, (Condition(),))


def predictions_along_x(model: Model, task: Regression, functions: int) -> dict[str, Any]:
    """What a network and the exact GP predict everywhere after `SAMPLES` samples of test functions.

    The correlation is over all functions and all x: of the predicted scale with the distance to the nearest
    sample. The first few functions are kept in full, for Figure 5.
    """
    grid = jnp.linspace(task.low, task.high, GRID)

    def one(key: PRNGKeyArray) -> tuple[Float[Array, "..."], ...]:
        x_key, y_key, noise_key = jax.random.split(key, 3)
        seen = jax.random.uniform(x_key, (SAMPLES,), minval=task.low, maxval=task.high)
        values = draw_smooth(y_key, jnp.concatenate([seen, grid])[:, None], task.process)
        y = values[:SAMPLES] + task.process.noise * jax.random.normal(noise_key, (SAMPLES,))
        ours = predict_along(model, seen[:, None], y, grid[:, None])
        exact = gp.predict(seen[:, None], y, grid[:, None], task.process)
        distance = jnp.min(jnp.abs(grid[:, None] - seen[None]), axis=1)
        return seen, y, values[SAMPLES:], *ours, *exact, distance

    keys = jax.random.split(jax.random.fold_in(jax.random.key(SEED), SAMPLES), functions)
    results = [np.asarray(part, np.float64) for part in jax.jit(lambda keys: jax.lax.map(one, keys))(keys)]
    seen, y, truth, mean, scale, exact_mean, exact_scale, distance = results
    rounded = partial(np.round, decimals=4)
    return {
        "samples": SAMPLES,
        "functions": functions,
        "correlation": {
            name: float(np.corrcoef(values.ravel(), distance.ravel())[0, 1])
            for name, values in (("model", scale), ("gp", exact_scale))
        },
        "x": rounded(grid).tolist(),
        "shown": [
            {
                "seen": {"x": rounded(seen[i]).tolist(), "y": rounded(y[i]).tolist()},
                "truth": rounded(truth[i]).tolist(),
                "model": {"mean": rounded(mean[i]).tolist(), "scale": rounded(scale[i]).tolist()},
                "gp": {"mean": rounded(exact_mean[i]).tolist(), "scale": rounded(exact_scale[i]).tolist()},
            }
            for i in range(min(SHOWN, functions))
        ],
    }


def table(records: Records) -> Table:
    columns = ["dimensions", "network", *(f"step {step}" for step in STEPS)]
    columns += [f"gap from step {LATE}", "in 50 %", "in 95 %", COST]
    rows = []
    for dimensions in DIMENSIONS:
        networks = [runs for model in MODELS if (runs := _runs(records, dimensions, model))]
        for runs in networks:
            rows.append([str(dimensions), runs[0]["label"], *_cells(runs), training_cost(runs)])
        if networks:
            rows.append([str(dimensions), "Exact GP", *_cells(networks[0][:1], "gp"), ""])
    return Table(TITLE, columns, rows, NOTE)


NOTE = (
    "Negative log-likelihood in nats per point at some steps of an episode, for test functions (lower is better), "
    "and the gap to that of the exact process on the same samples, averaged over the steps from 20 to the last. "
    "± half of the 95 % interval over episodes; several runs (seeds): their mean, and [lowest, highest]. Last: the "
    "share of samples from step 20 on that lie inside the predicted 50 % and 95 % band."
)


def _runs(records: Records, dimensions: int, model: str) -> list[Record]:
    return of_model(records, f"gp-{dimensions}d", model)


def _cells(runs: list[Record], who: str = "model") -> list[str]:
    """Log-likelihood at `STEPS`, gap and coverage of one row."""
    tests = [record["evaluations"][0] for record in runs]
    nll = np.array([test["nll"][who] for test in tests])
    cells = [number(nll[:, step - 1].mean(), form=".3f") for step in STEPS]
    cells.append("" if who == "gp" else late_gap(runs))
    for band in ("50", "95"):
        inside = np.mean([test["coverage"][band][who][LATE - 1 :] for test in tests])
        cells.append(f"{100 * inside:.1f}")
    return cells


def late_gap(runs: list[Record]) -> str:
    """The mean gap to the exact process over the late steps, with its interval or range."""
    gaps = [record["evaluations"][0]["late_gap"] for record in runs]
    values = [gap["value"] for gap in gaps]
    if len(gaps) == 1:
        return f"{values[0]:.3f} ±{gaps[0]['half_width']:.3f}"
    return f"{np.mean(values):.3f} [{min(values):.3f}, {max(values):.3f}]"


def figures(records: Records) -> dict[str, Figure]:
    """Figure 5, Figure 6, and the calibration; panels without records are left out."""
    charts = {}
    if runs := _runs(records, 1, "mann"):
        charts["regression-functions"] = draw_functions(runs[0]["along_x"])
    panels = []
    for dimensions in DIMENSIONS:
        tests = {
            runs[0]["label"]: runs[0]["evaluations"][0]
            for model in MODELS
            if (runs := _runs(records, dimensions, model))
        }
        if tests:
            panels.append((f"{dimensions} dimension{'s' if dimensions > 1 else ''}", tests))
    charts["regression-likelihood"] = draw_likelihood(panels)
    charts["regression-calibration"] = draw_coverage(panels)
    return charts


def page(records: Records) -> str:
    """docs/regression.md: the text in `regression.md` with what was measured."""
    results = table(records)
    networks = [runs for d in DIMENSIONS for model in MODELS if (runs := _runs(records, d, model))]
    gaps = []
    for runs in networks:
        tests = [record["evaluations"][0] for record in runs]
        gap = np.mean([np.subtract(test["nll"]["model"], test["nll"]["gp"]) for test in tests], axis=0)
        gaps.append(
            [str(tests[0]["dimensions"]), runs[0]["label"], *(f"{gap[s - 1]:.3f}" for s in GAP_STEPS)]
        )
    text = (resources.files("mann") / "experiments" / "regression.md").read_text()
    return text.format(
        functions=_functions(records),
        rate=SETTINGS["gp-1d"].optimiser.learning_rate,
        rate_without=WITHOUT_MEMORY["optimiser"].learning_rate,
        episodes=networks[0][0]["evaluations"][0]["episodes"],
        results=markdown_table(results.columns, results.rows),
        note=results.note,
        verdict=_verdict(records),
        gaps=markdown_table(["dimensions", "network", *map(str, GAP_STEPS)], gaps),
        correlation=_correlation(_runs(records, 1, "mann")),
        exact=np.mean(networks[0][0]["evaluations"][0]["nll"]["gp"]),
    )


def _functions(records: Records) -> str:
    """The hyperparameters of every dimension, with what they mean for the exact process."""
    steps = (1, 10, 20, 50)
    columns = ["dimensions", "length scale", "variance", "noise", "range of each x", "length"]
    columns += ["exact GP: nll at step " + ", ".join(map(str, steps)), "rms error at the same"]
    rows = []
    for dimensions in DIMENSIONS:
        for record in _runs(records, dimensions, "mann")[:1]:
            task, test = record["config"]["task"], record["evaluations"][0]
            process = task["process"]
            rows.append(
                [
                    str(dimensions),
                    *(f"{process[field]:g}" for field in ("length_scale", "variance", "noise")),
                    f"{task['low']:g} … {task['high']:g}",
                    str(task["length"]),
                    ", ".join(f"{test['nll']['gp'][s - 1]:.2f}" for s in steps),
                    ", ".join(f"{test['squared_error']['gp'][s - 1] ** 0.5:.2f}" for s in steps),
                ]
            )
    return markdown_table(columns, rows)


def _verdict(records: Records) -> str:
    """One line per dimension: what the MANN gains within an episode, and how far it and the others are off."""
    sentences = []
    for dimensions in DIMENSIONS:
        best, ours, lstm = (_runs(records, dimensions, model) for model in ("best", "mann", "lstm"))
        if ours and lstm:
            nll = ours[0]["evaluations"][0]["nll"]["model"]
            sentences.append(
                f"- In {dimensions}-D the MANN's log-likelihood rises by {nll[0] - nll[-1]:.2f} nats within an "
                f"episode; from step {LATE} on it lies {late_gap(ours)} nats behind the exact process, the LSTM "
                f"{late_gap(lstm)}{f', the memory by least squares {late_gap(best)}' if best else ''}."
            )
    return "\n".join(sentences)


def _correlation(runs: list[Record]) -> str:
    if not runs:
        return ""
    predictions = [record["along_x"] for record in runs]
    ours = ", ".join(f"{along['correlation']['model']:.2f}" for along in predictions)
    return (
        "The band widens away from the samples and narrows near them: over "
        f"{predictions[0]['functions']} test functions and all x, the predicted scale correlates with the "
        f"distance to the nearest sample by {ours} "
        f"(MANN{', by seed' if len(predictions) > 1 else ''}); the exact process's by "
        f"{predictions[0]['correlation']['gp']:.2f}."
    )


EXPERIMENT = Experiment(entries, table, figures, page)
