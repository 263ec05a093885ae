"""Every table and figure of the paper: one file each, run by `mann reproduce NAME`.

entries.py      what is measured: networks, neighbours; networks.py names those that the paper compares
cost.py         what is measured too: time and memory of a step
records.py      what was measured, one JSON file per entry
scales.py       all of it, a tenth, or just enough to see that it works
tables.py       rows by instance beside the paper's
experiment.py   what an experiment is: entries, and a table, figures and a page from their records
page.py         docs/results.md
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from mann.errors import MannError

if TYPE_CHECKING:
    from mann.experiments.experiment import Experiment

EXPERIMENTS = {  # in the order in which they are shown: the paper's, then ours
    "table1": "5 classes, one-hot labels: feed-forward, LSTM, MANN",
    "table2": "string labels, 5 and 15 classes: kNN, baselines, MANN, NTM access",
    "figure2": "accuracy by instance during training, then on unseen classes",
    "persistent": "memory not wiped between episodes",
    "curriculum": "15 to 25 classes in training, tested on 50 to 100",
    "capacity": "25 to 400 classes, dense and sparse access; time and memory of a step by the slots",
    "frontier": "with an encoder: 5 classes one-hot, 20 with strings, 20 characters of one alphabet",
    "peers": "what people would take instead: ProtoNet, matching network, attention, LSTM, nearest neighbours",
    "roaming": "RoamingOmniglot: streams that wander between alphabets, known or new before the class",
    "regression": "functions of a Gaussian process in 1, 2 and 3 dimensions, beside the exact process",
    "asking": "labels only where the network asks for them, at every price, beside the rule that asks when unsure",
    "writing": "what to keep: 32 slots for 200 steps, a memory never wiped; LRUA, NTM, DNC, ring, learned writing",
    "mixture": "trained on many kinds of pictures but one, and tested on that one; grey and in colour",
    "transfer": "trained on glyphs, tested on Omniglot, and the other way round",
    "learning_rates": "the baselines' learning rates, tuned on held-out training classes",
    "ablation": "the ambiguities of the paper, one changed at a time",
}


def load_experiment(name: str) -> "Experiment":
    """One of `EXPERIMENTS`; only its own module is imported."""
    if name not in EXPERIMENTS:
        raise MannError(f"There is no experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}.")
    experiment: Experiment = import_module(f"mann.experiments.{name}").EXPERIMENT
    return experiment


def figures_folder(results: Path, name: str) -> Path:
    """Where the figures of an experiment are: for those who draw them, and for those who show them."""
    return results / name / "figures"
