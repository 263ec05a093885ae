"""Reading what version 0.1 wrote: its configurations had one flat model, and its output layer was called `head`."""

from typing import Any

import numpy as np

SLOTS = ("slots", "width", "heads")
OPTIMISERS = {  # which of the fields, once common to all, belong to each
    "muon": ("weight_decay", "beta2"),
    "adamw": ("weight_decay", "beta2"),
    "rmsprop": ("decay", "momentum"),
}


def upgrade_config(content: Any) -> Any:
    """A configuration in today's form; anything that is not of version 0.1 is returned as it is."""
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("memory", "lrua"), str):
        return content
    if not ({"hidden", "lrua", "ntm"} & set(model) or isinstance(model.get("controller"), str)):
        return content
    upgraded = dict(content)
    upgraded["model"] = _model(model)
    functions = isinstance(content.get("task"), dict) and content["task"].get("kind") == "regression"
    if "data" in content:
        upgraded["data"] = upgrade_data(content["data"])
    if isinstance(content.get("optimiser"), dict) and isinstance(content["optimiser"].get("name"), str):
        upgraded["optimiser"] = _optimiser(content["optimiser"])
    if functions:
        upgraded["data"] = {"kind": "none"}
    return upgraded


def _model(model: dict[str, Any]) -> dict[str, Any]:
    memory = model.get("memory", "lrua")
    sizes = {name: model[name] for name in SLOTS if name in model and memory != "none"}
    own = model.get(memory) if isinstance(model.get(memory), dict) else {}
    controller = {"kind": model.get("controller", "lstm")}
    if "hidden" in model:
        controller["hidden"] = model["hidden"]
    encoder = {"kind": model.get("encoder", "none")}
    if encoder["kind"] == "conv" and "features" in model:
        encoder["maps"] = model["features"]
    common: dict[str, Any] = {name: model[name] for name in ("reads_to_controller", "query") if name in model}
    moved = {*SLOTS, *common, "hidden", "features", "lrua", "ntm", "controller", "memory", "encoder"}
    unknown = {name: value for name, value in model.items() if name not in moved}  # to be refused by name
    return {
        "encoder": encoder,
        "controller": controller,
        "memory": {"kind": memory, **sizes, **(own or {})},
        **common,
        **unknown,
    }


def upgrade_data(data: Any) -> Any:
    """The configuration of a data set in today's form."""
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        return data
    kind = data["name"]
    own = {"omniglot": ("path",), "folder": ("path",), "glyphs": ("classes",)}.get(kind, ())
    others = {name: value for name, value in data.items() if name not in ("name", "path", "classes")}
    return {"kind": kind, **others, **{name: data[name] for name in own if name in data}}


def _optimiser(optimiser: dict[str, Any]) -> dict[str, Any]:
    kind = optimiser["name"]
    everyones = {name for fields in OPTIMISERS.values() for name in fields}
    dropped = everyones - set(OPTIMISERS.get(kind, ()))
    return {"kind": kind} | {
        name: value for name, value in optimiser.items() if name != "name" and name not in dropped
    }


def upgrade_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays under today's names."""
    return {_renamed(name): array for name, array in arrays.items()}


def _renamed(name: str) -> str:
    return ".".join("readout" if part == "head" else part for part in name.split("."))
