"""The readings of the paper that implementations disagree on, one changed at a time, in short runs."""

from typing import Any

from mann.experiments.entries import Entry
from mann.experiments.experiment import Experiment
from mann.experiments.networks import SETTINGS, network
from mann.experiments.records import Records, Table
from mann.experiments.scales import Scale
from mann.experiments.tables import accuracy_table, comparison, header, of_model
from mann.training.optimisers import AdamW, RMSProp
from mann.training.presets import PRESETS

TITLE = "Ablation: one reading changed at a time, 5 classes, one-hot labels"
UPDATES = 2500
LRUA = "model__memory__"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("our defaults", {}),
    "beta1": ("key strength β = 1", {f"{LRUA}key_strength": "none"}),
    "written-key": ("the key is written", {f"{LRUA}written": "key"}),
    "per-head": ("a least used slot per head", {f"{LRUA}least_used": "per_head"}),
    "read-first": ("read before writing", {f"{LRUA}order": "read_first"}),
    "erase-none": ("nothing erased", {f"{LRUA}erased": "none"}),
    "gamma090": ("γ = 0.90", {f"{LRUA}decay": 0.90}),
    "gamma095": ("γ = 0.95", {f"{LRUA}decay": 0.95}),
    "gamma100": ("γ = 1", {f"{LRUA}decay": 1.0}),
    "heads1": ("1 head", {"model__memory__heads": 1}),
    "slots64": ("64 slots", {"model__memory__slots": 64}),
    "slots256": ("256 slots", {"model__memory__slots": 256}),
    "query-cell": ("query from the cell state", {"model__query": "cell"}),
    "no-reads": ("no reads to the controller", {"model__reads_to_controller": False}),
    "adam": ("AdamW", {"optimiser": AdamW()}),
    "rmsprop": ("RMSProp, 1e-3", {"optimiser": RMSProp()}),
    "paper-cell": ("cell of the preset `paper`", {"model": PRESETS["paper"].model}),
    "paper-optimiser": ("optimiser of `paper`: RMSProp, 1e-4", {"optimiser": PRESETS["paper"].optimiser}),
    "paper": (
        "literal preset `paper`",
        {"model": PRESETS["paper"].model, "optimiser": PRESETS["paper"].optimiser},
    ),
}


def entries(scale: Scale) -> list[Entry]:
    chosen = ("default",) if scale == "smoke" else tuple(VARIANTS)
    return [
        network(
            "5-onehot",
            "mann",
            scale,
            seed,
            suffix=f"-ablation-{name}",
            label=VARIANTS[name][0],
            updates=UPDATES,
            **VARIANTS[name][1],
        )
        for seed in ((0,) if scale == "smoke" else (0, 1))
        for name in chosen
    ]


def table(records: Records) -> Table:
    rows = []
    for name, (label, _) in VARIANTS.items():
        rows += comparison(label, of_model(records, "5-onehot", "mann", f"-ablation-{name}"), None)
    batch = SETTINGS["5-onehot"].batch
    note = (
        f"{UPDATES} updates ({UPDATES * batch:,} episodes) each: where runs stand early, not where they end."
    )
    return accuracy_table(TITLE, header(), rows, note.replace(",", " ", 1))


EXPERIMENT = Experiment(entries, table)
