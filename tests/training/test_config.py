import dataclasses
import json
import math

import pytest

from mann.data import Folder, Glyphs, NoData, Omniglot
from mann.errors import MannError
from mann.tasks import Classification, Regression
from mann.training.config import Config, CurriculumConfig, from_dict, to_dict
from mann.training.optimisers import AdamW, Muon, RMSProp
from mann.training.presets import PRESETS, QUICKSTART
from tests.networks import network


@pytest.mark.parametrize(
    "config", [*PRESETS.values(), QUICKSTART, Config(task=Regression(dimensions=2), data=NoData())]
)
def test_json_round_trip_gives_the_same_configuration(config):
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_presets_are_what_their_names_say():
    assert PRESETS["omniglot-15-strings"].task == Classification(classes=15, length=100, labels="strings")
    for dimensions in (1, 2, 3):
        assert PRESETS[f"gp-{dimensions}d"].task.dimensions == dimensions
    paper = PRESETS["paper"]
    assert (paper.model.memory.key_strength, paper.model.memory.written) == ("none", "key")
    assert (paper.model.memory.least_used, paper.model.memory.decay) == ("per_head", 0.99)
    assert (paper.optimiser.kind, paper.optimiser.learning_rate) == ("rmsprop", 1e-4)
    assert paper.updates * paper.batch == 100_000
    for config in PRESETS.values():
        memory = config.model.memory
        if memory.kind != "lrua" or config.task.kind == "asking":  # beyond the paper
            continue
        assert (config.model.controller.hidden, memory.slots, memory.width, memory.heads) == (200, 128, 40, 4)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("batch",), "16", "config.batch should be a whole number"),
        (("batch",), 0, "batch must be at least 1"),
        (("bacth",), 16, "unknown field 'bacth'"),
        (("model", "memory", "kind"), "tape", "choose one of none, attention"),
        (("model", "memory", "decay"), 1.5, "between 0 and 1"),
        (("task", "kind"), "poetry", "config.task is of kind 'poetry'"),
        (("task", "kind"), ["classification"], "config.task is of kind"),
        (("updates",), 10**20, "updates must be at most"),
        (("task", "classes"), True, "should be a whole number"),
        (("model",), 3, "should hold named fields"),
    ],
)
def test_wrong_json_is_refused_by_name(path, value, message):
    content = to_dict(PRESETS["omniglot-5"])
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(MannError, match=message):
        from_dict(content)


def test_missing_field_is_refused():
    content = to_dict(PRESETS["omniglot-5"])
    del content["task"]
    with pytest.raises(MannError, match="incomplete"):
        from_dict(content)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seed": -1}, "seed"),
        ({"averaging": 1.0}, "averaged"),
        ({"evaluate_every": 15, "dispatch": 10}, "multiple of dispatch"),
        ({"curriculum": CurriculumConfig(every=100, start=15)}, "starts with 15 classes"),
        ({"curriculum": CurriculumConfig(every=105, start=2)}, "multiple of dispatch"),
        ({"persistent": True, "model": network(memory="none")}, "nothing that could persist"),
        ({"wiped_after": 5}, "wiped after every episode"),
    ],
)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(MannError, match=message):
        Config(task=Classification(), **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"learning_rate": 0.0}, "learning rate"),
        ({"learning_rate": math.inf}, "learning rate"),
        ({"momentum": math.nan}, r"momentum must lie in \[0, 1\), not nan"),
        ({"beta2": 7.0}, r"beta2 must lie in \[0, 1\), not 7.0"),
        ({"decay": 1.0}, "decay must lie"),
        ({"clip": math.nan}, "clip must be at least 0, not nan"),
        ({"weight_decay": math.inf}, "weight_decay must be at most"),
    ],
)
def test_an_optimiser_that_cannot_mean_anything_is_refused(fields, message):
    owner = RMSProp if {"momentum", "decay"} & set(fields) else AdamW
    with pytest.raises(MannError, match=message):
        owner(**fields)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Folder(path="a\0b"), "null character"),
        (lambda: Omniglot(path="a\0b"), "null character"),
        (lambda: Omniglot(validation=-1), "validation must be at least 0"),
        (lambda: Glyphs(side=0), "side must be at least 1"),
    ],
)
def test_data_that_cannot_mean_anything_is_refused(make, message):
    with pytest.raises(MannError, match=message):
        make()


@pytest.mark.parametrize("data", [Glyphs(classes=50), Omniglot()])
def test_functions_have_no_data_set(data):
    with pytest.raises(MannError, match="set data to none"):
        Config(task=Regression(), data=data)


def test_pictures_have_one():
    with pytest.raises(MannError, match="needs pictures"):
        Config(task=Classification(), data=NoData())


def test_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Muon().clip = 3.0
