"""Every table and figure of the paper: one file each, run by `mann reproduce NAME`.

An experiment is a module with
    TITLE                       what it shows, in one line
    entries(scale)              the networks to train and test, as `Entry` objects
    table(records)              a `Table` from their records (by entry name; some may still be missing)
    figures(records, folder)    optional: pictures, as a list of paths
    page(records)               optional: a page of its own, docs/NAME.md
"""

from importlib import import_module
from types import ModuleType

from mann.errors import MannError

EXPERIMENTS = {
    "table1": "5 classes, one-hot labels: feed-forward, LSTM, MANN",
    "table2": "string labels, 5 and 15 classes: kNN, baselines, MANN, NTM access",
    "figure2": "accuracy by instance during training, then on unseen classes",
    "persistent": "memory not wiped between episodes",
    "curriculum": "15 to 25 classes in training, tested on 50 to 100",
    "regression": "functions of a Gaussian process in 1, 2 and 3 dimensions, beside the exact process",
    "ablation": "the ambiguities of the paper, one changed at a time",
    "transfer": "trained on glyphs, tested on Omniglot, and the other way round",
    "learning_rates": "the baselines' learning rates, tuned on held-out training classes",
}


def load_experiment(name: str) -> ModuleType:
    """The module of an experiment."""
    if name not in EXPERIMENTS:
        raise MannError(f"There is no experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}.")
    return import_module(f"mann.experiments.{name}")
