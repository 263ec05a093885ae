"""How time and memory of an update grow with the size of the problem."""

import dataclasses
import io
from pathlib import Path
from typing import Any

from mann.benchmark import Setting, worker
from mann.benchmark.timing import Report
from mann.errors import MannError
from mann.files import write_atomically
from mann.memory import SlotConfig
from mann.tasks import Classification

AXES = {
    "length": (50, 100, 200, 500, 1000),
    "slots": (128, 256, 512, 1024, 2048, 4096),
    "batch": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "classes": (5, 15, 25, 50, 100),
}
UNITS = {
    "length": "steps in an episode",
    "slots": "slots of the memory",
    "batch": "episodes in an update",
    "classes": "classes in an episode of 10 steps per class",
}
Growth = dict[str, list[dict[str, Any]]]


def at(setting: Setting, axis: str, size: int) -> Setting:
    """The setting with one size changed."""
    config, task = setting.config, setting.config.task
    assert isinstance(task, Classification)
    if axis == "slots":
        assert isinstance(config.model.memory, SlotConfig)
        memory = dataclasses.replace(config.model.memory, slots=size)
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, memory=memory))
    elif axis == "batch":
        config = dataclasses.replace(config, batch=size)
    elif axis == "length":
        config = dataclasses.replace(config, task=dataclasses.replace(task, length=size))
    else:
        config = dataclasses.replace(config, task=dataclasses.replace(task, classes=size, length=10 * size))
    return dataclasses.replace(setting, config=config)


def measure_growth(setting: Setting, devices: int, report: Report) -> Growth:
    """Each point in a fresh process. `linearity` is the time per unit over that of the first point: 1 is linear."""
    total = sum(map(len, AXES.values()))
    measured: dict[Setting, dict[str, Any]] = {}  # the headline setting is on every curve, measured once
    growth: Growth = {}
    for axis, sizes in AXES.items():
        growth[axis] = []
        for size in sizes:
            report(f"growth: {size} {axis}", sum(map(len, growth.values())), total)
            point = at(setting, axis, size)
            if point not in measured:
                measured[point] = _measure(point, devices)
            growth[axis].append({"size": size} | measured[point])
        first = growth[axis][0]
        for row in growth[axis]:
            known = row["ms"] is not None and first["ms"] is not None
            per_unit, start = (r["ms"]["median"] / r["size"] if known else 0.0 for r in (row, first))
            row["linearity"] = per_unit / start if known else None
    return growth


def _measure(point: Setting, devices: int) -> dict[str, Any]:
    try:
        return worker.start("growth", point, devices)
    except MannError as error:  # too large for this machine: the other points are still worth having
        return {"ms": None, "memory": None, "devices": None, "problem": str(error)}


def draw_growth(growth: Growth, path: Path) -> list[Path]:
    """Time above, memory below, one column per axis; dashed: growth in proportion to the last point."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=(3.2 * len(growth), 5.6), layout="constrained")
    panels = figure.subplots(2, len(growth), squeeze=False, sharex="col", sharey="row")
    for column, (axis, rows) in enumerate(growth.items()):
        series = [
            [(row["size"], row["ms"]["median"]) for row in rows if row["ms"]],
            [(row["size"], row["memory"] / 2**20) for row in rows if row["memory"]],
        ]
        for axes, points in zip(panels[:, column], series, strict=True):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_locator(NullLocator())
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25)
            if points:
                sizes, values = zip(*points, strict=True)
                linear = [values[-1] * size / sizes[-1] for size in sizes]
                axes.plot(sizes, linear, color="#6b7280", linestyle="--", linewidth=1, label="linear")
                axes.plot(sizes, values, color="#1d4ed8", marker="o", markersize=4, label="measured")
        ticks = [row["size"] for row in rows]
        panels[1, column].set_xticks(ticks, [str(tick) for tick in ticks], fontsize=7, rotation=45)
        panels[1, column].xaxis.set_minor_locator(NullLocator())
        panels[1, column].set_xlabel(UNITS[axis].capitalize(), fontsize=8)
    panels[0, 0].set_ylabel("Time of an update (ms)")
    panels[1, 0].set_ylabel("Peak memory of an update (MiB)")
    panels[0, 0].legend(frameon=False, fontsize=8)
    paths = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    for target in paths:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=target.suffix[1:], dpi=150)
        write_atomically(target, buffer.getvalue())
    return paths
