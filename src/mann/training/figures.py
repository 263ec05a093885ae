"""Curves of a run: accuracy by instance during training, as in the paper's Figure 2."""

from pathlib import Path
from typing import Any

from mann.training.config import Config


def draw_curves(records: list[dict[str, Any]], config: Config, folder: Path) -> list[Path]:
    """Draw `curves.png` and `curves.svg` from the records of metrics.jsonl."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    episodes = [r["episodes"] for r in records]
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    if "accuracy" in records[0]:
        colours = plt.get_cmap("viridis")
        shown = (1, 2, 3, 4, 5, 10)
        for i, instance in enumerate(shown):
            values = [_percent(r["accuracy"][instance - 1]) for r in records]
            axes.plot(
                episodes, values, color=colours(i / len(shown)), label=_ordinal(instance), linewidth=1.6
            )
        axes.set_ylim(0, 100)
        axes.set_ylabel("Accuracy on held-out classes (%)")
        axes.legend(title="Instance", loc="lower right", ncols=2)
    else:
        axes.plot(episodes, [r["held_out_loss"] for r in records], label="held-out functions")
        axes.plot(episodes, [r["loss"] for r in records], label="training", linewidth=1)
        axes.set_ylabel("Negative log-likelihood (nats per point)")
        axes.legend()
    axes.set_xlabel(f"Episodes (updates × {config.batch})")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    paths = [folder / "curves.png", folder / "curves.svg"]
    for path in paths:
        figure.savefig(path, dpi=160)
    plt.close(figure)
    return paths


def _percent(value: float | None) -> float:
    return float("nan") if value is None else 100 * value


def _ordinal(number: int) -> str:
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number, 'th') }"
