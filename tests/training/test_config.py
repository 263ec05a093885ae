import dataclasses
import json

import pytest

from mann.episodes import Classification, Regression
from mann.errors import MannError
from mann.models import ModelConfig
from mann.training.config import Config, CurriculumConfig, DataConfig, OptimiserConfig, from_dict, to_dict
from mann.training.presets import PRESETS, QUICKSTART


@pytest.mark.parametrize("config", [*PRESETS.values(), QUICKSTART, Config(task=Regression(dimensions=2))])
def test_json_round_trip_gives_the_same_configuration(config):
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_presets_are_what_their_names_say():
    assert PRESETS["omniglot-15-strings"].task == Classification(classes=15, length=100, labels="strings")
    for dimensions in (1, 2, 3):
        assert PRESETS[f"gp-{dimensions}d"].task.dimensions == dimensions
    paper = PRESETS["paper"]
    assert (paper.model.lrua.key_strength, paper.model.lrua.written) == ("none", "key")
    assert (paper.model.lrua.least_used, paper.model.lrua.decay) == ("per_head", 0.99)
    assert (paper.optimiser.name, paper.optimiser.learning_rate) == ("rmsprop", 1e-4)
    assert paper.updates * paper.batch == 100_000
    for config in PRESETS.values():
        sizes = (config.model.hidden, config.model.slots, config.model.width, config.model.heads)
        assert sizes == (200, 128, 40, 4)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("batch",), "16", "config.batch should be a int"),
        (("batch",), 0, "batch must be at least 1"),
        (("bacth",), 16, "unknown field 'bacth'"),
        (("model", "memory"), "tape", "choose one of 'lrua'"),
        (("model", "lrua", "decay"), 1.5, "between 0 and 1"),
        (("task", "kind"), "poetry", "config.task.kind must be one of"),
        (("task", "classes"), True, "should be a int"),
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
        ({"persistent": True, "model": ModelConfig(memory="none")}, "nothing that could persist"),
    ],
)
def test_contradictions_are_refused(fields, message):
    with pytest.raises(MannError, match=message):
        Config(task=Classification(), **fields)


def test_bad_optimiser_is_refused():
    with pytest.raises(MannError, match="learning rate"):
        OptimiserConfig(learning_rate=0.0)


def test_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DataConfig().name = "glyphs"
