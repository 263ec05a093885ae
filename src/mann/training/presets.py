"""Named configurations for `mann train`."""

from mann.data.functions import GaussianProcess
from mann.episodes import Classification, Regression
from mann.memory import LRUAConfig
from mann.models import PAPER, ModelConfig
from mann.training.config import Config, DataConfig, OptimiserConfig


def _functions(dimensions: int, length_scale: float) -> Config:
    """Regression. The more dimensions, the smoother the functions, so that 50 samples still tell much of one.

    The key strength starts low: where classification looks up one sample, this blends several close ones.
    """
    return Config(
        task=Regression(dimensions=dimensions, process=GaussianProcess(length_scale=length_scale)),
        model=ModelConfig(lrua=LRUAConfig(initial_strength=3.0)),
        optimiser=OptimiserConfig(name="adamw", learning_rate=8e-3, warmup=100),
        updates=10_000,
        evaluate_every=500,
        averaging=0.999,
    )


PRESETS: dict[str, Config] = {
    "omniglot-5": Config(
        task=Classification(classes=5),
        data=DataConfig(mirror=True),
        updates=40_000,
        evaluate_every=500,
        averaging=0.999,
    ),
    "omniglot-5-strings": Config(
        task=Classification(classes=5, labels="strings"),
        data=DataConfig(mirror=True),
        updates=20_000,
        evaluate_every=500,
        averaging=0.999,
    ),
    "omniglot-15-strings": Config(
        task=Classification(classes=15, length=100, labels="strings"),
        data=DataConfig(mirror=True),
        updates=35_000,
        evaluate_every=500,
        averaging=0.999,
    ),
    "glyphs-5": Config(
        task=Classification(classes=5),
        data=DataConfig(name="glyphs"),
        updates=6250,
        evaluate_every=500,
        averaging=0.999,
    ),
    "paper": Config(
        task=Classification(classes=5),
        model=PAPER,
        optimiser=OptimiserConfig(
            name="rmsprop", learning_rate=1e-4, warmup=0, schedule="constant", clip=0.0
        ),
        updates=6250,
    ),
    "gp-1d": _functions(1, length_scale=0.5),
    "gp-2d": _functions(2, length_scale=1.0),
    "gp-3d": _functions(3, length_scale=1.5),
}
"""The first three train the models that the paper tables; `paper` is its literal cell and optimiser; the
last three are its regression (docs/regression.md says why these length scales)."""

QUICKSTART = Config(
    task=Classification(classes=5),
    model=ModelConfig(hidden=128, slots=64, width=32),
    data=DataConfig(name="glyphs"),
    updates=4000,
    evaluate_every=500,
    averaging=0.99,
)
"""What `mann quickstart` trains: smaller than the paper's network, for a few minutes on two cores."""


def describe() -> str:
    """One line for each preset, with what was measured of it (`measured.json`)."""
    import json
    from importlib import resources

    measured = json.loads((resources.files("mann") / "training" / "measured.json").read_text())
    lines = []
    for name, config in PRESETS.items():
        line = f"  {name:<21}{config.updates:>6} updates"
        if result := measured.get(name):
            shown = " ".join(f"{100 * value:.1f}" for value in result.get("accuracy", []))
            line += f", {result['minutes']:>3.0f} min:  {shown or format(result['late_gap'], '.3f')}"
        lines.append(line)
    return "\n".join(lines)
