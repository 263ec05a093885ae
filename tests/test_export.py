"""The step as a graph and as ONNX: run with onnxruntime, against `Model.unroll`, over whole episodes."""

import builtins
import dataclasses
import importlib
import json
import sys

import jax
import numpy as np
import onnxruntime
import pytest

import mann
from mann import MannError, load_trained, pretrained_names
from mann.cli import main
from mann.export.graph import trace_step
from mann.export.onnx import _run, _session, compare, export_onnx, make_start, make_step
from mann.models import ModelConfig, build_model
from mann.trained import Trained, save_trained
from mann.web.site import write_site
from tests.test_online import tiny

MANY = mann.ManyThings(length=20)
SMALL = {
    "encoder": [mann.NoEncoder(), mann.MLPConfig(hidden=8, features=6, framed=True), mann.ConvConfig(maps=3)],
    "controller": [mann.LSTMConfig(hidden=7), mann.FeedForwardConfig(hidden=7)],
    "memory": [
        mann.NoMemoryConfig(),
        mann.LRUAConfig(slots=6, width=4, heads=2),
        mann.LRUAConfig(slots=6, width=4, heads=2, least_used="per_head", erased="all", order="read_first"),
        mann.NTMConfig(slots=6, width=4, heads=2),
        mann.KeyValueConfig(slots=6, width=4),
        mann.KeyValueConfig(slots=6, width=4, heads=2, neighbours=2),
    ],
}
NETWORKS = [
    ModelConfig(encoder=encoder, controller=SMALL["controller"][number % 2], memory=memory)
    for number, memory in enumerate(SMALL["memory"])
    for encoder in SMALL["encoder"][number % 2 :: 2]
]


def untrained(model: ModelConfig) -> Trained:
    config = dataclasses.replace(mann.PRESETS["glyphs-5"], task=MANY, model=model)
    return Trained("untrained", build_model(model, MANY, key=jax.random.key(1)), config, {})


def through_onnx(step: bytes, start: bytes, pictures, labels) -> np.ndarray:
    """As docs/how-to/export.md does it."""
    step, start = _session(step), _session(start)
    state, outputs = _run(start, {}), []
    for x, label in zip(pictures, labels, strict=True):
        found = _run(step, {"x": x, "label": label, **state})
        outputs.append(found.pop("output"))
        state = {name.replace("next.", "state."): array for name, array in found.items()}
    return np.stack(outputs)


@pytest.mark.parametrize(
    "model", NETWORKS, ids=lambda m: f"{m.memory.kind}-{m.encoder.kind}-{m.controller.kind}"
)
def test_every_part_is_exported(model):
    trained = untrained(model)
    graph = trace_step(trained.model)
    onnx = make_step(graph).SerializeToString(), make_start(graph).SerializeToString()
    rng = np.random.default_rng(2)
    pictures = (rng.random((12, 400)) < 0.2).astype(np.float32)
    labels = trained.config.task.label_code.encode_on_host([0, *rng.integers(3000, size=11).tolist()])
    labels[0] = 0
    expected = trained.model.unroll(jax.numpy.asarray(pictures), jax.numpy.asarray(labels)).outputs
    np.testing.assert_allclose(through_onnx(*onnx, pictures, labels), expected, atol=1e-4)


def test_what_was_trained_in_bfloat16_is_exported_in_float32(tmp_path):
    model = next(model for model in NETWORKS if model.memory.kind == "keyvalue")
    model = dataclasses.replace(model, precision="bfloat16")
    assert export_onnx(untrained(model), tmp_path / "onnx") < 1e-4
    assert write_site(untrained(model), tmp_path / "web") > 0
    constants = json.loads((tmp_path / "web/network.json").read_text())["constants"].values()
    assert {one["dtype"] for one in constants} <= {"float32", "int32", "bool"}


def test_what_the_export_does_not_know_is_refused(tmp_path, capsys):
    assert main(["export", "functions-1d", "--onnx", str(tmp_path / "new")]) == 2
    assert "lgamma, which the export does not know" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


EXPORTED = [name for name in pretrained_names() if mann.PRESETS[name].model.memory.kind != "least-squares"]


@pytest.mark.parametrize("name", EXPORTED)
def test_shipped_models_agree_over_an_episode(name, tmp_path, capsys):
    assert main(["export", name, "--onnx", str(tmp_path / "new")]) == 0
    assert "differs from JAX by at most" in capsys.readouterr().out
    trained = load_trained(name)
    about = json.loads((tmp_path / "new/model.json").read_text())
    assert about["inputs"]["x"] == [trained.model.input_size]
    if name != "omniglot-15-strings":  # the others were compared by the command, as the output says
        return
    rng = np.random.default_rng(3)
    pictures = rng.random((30, trained.model.input_size)).astype(np.float32)
    labels = np.zeros((30, trained.model.label_size), np.float32)
    labels[1:, ::5] = 1
    expected = trained.model.unroll(jax.numpy.asarray(pictures), jax.numpy.asarray(labels)).outputs
    onnx = ((tmp_path / f"new/{name}.onnx").read_bytes() for name in ("step", "start"))
    np.testing.assert_allclose(through_onnx(*onnx, pictures, labels), expected, atol=1e-4)


def test_the_description_says_how_to_read_it(tmp_path):
    export_onnx(untrained(NETWORKS[-1]), tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    assert about["label"] == {"letters": 5, "alphabet": 5}
    assert about["picture"] == {"side": 20, "channels": 1, "paper": 0, "ink": 1}
    assert about["novelty"] is True
    assert about["outputs"]["output"] == [26]
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx")
    assert json.loads(session.get_modelmeta().custom_metadata_map["mann"]) == about


def test_a_wrong_model_is_noticed():
    """The comparison that guards every export can fail."""
    trained = untrained(NETWORKS[1])
    graph = trace_step(trained.model)
    name = max(graph.constants, key=lambda name: graph.constants[name].size)
    wrong = graph._replace(constants=graph.constants | {name: graph.constants[name] * np.float32(1.01)})
    right = make_step(graph).SerializeToString(), make_start(graph).SerializeToString()
    assert compare(*right, trained) < 1e-5
    assert compare(make_step(wrong).SerializeToString(), right[1], trained) > 1e-4


def test_nothing_is_written_if_the_numbers_differ(tmp_path, monkeypatch):
    monkeypatch.setattr("mann.export.onnx.compare", lambda *arguments: float("nan"))
    with pytest.raises(MannError, match="nothing was written"):
        export_onnx(tiny(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unknown_operation_is_named():
    graph = trace_step(tiny().model)
    odd = graph._replace(nodes=(graph.nodes[0]._replace(operation="sort"), *graph.nodes[1:]))
    with pytest.raises(MannError, match="uses the operation sort"):
        make_step(odd)


def test_the_start_is_that_of_the_model():
    trained = untrained(NETWORKS[2])
    graph = trace_step(trained.model)
    found = _run(_session(make_start(graph).SerializeToString()), {})
    leaves = jax.tree.leaves(trained.model.initial_state())
    assert len(found) == len(leaves)
    for ours, theirs in zip(found.values(), leaves, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_weights_are_there_once_and_no_larger():
    """The graph holds as many numbers as the model and a few constants."""
    trained = load_trained("omniglot-5")
    numbers = sum(array.size for array in trace_step(trained.model).constants.values())
    weights = sum(leaf.size for leaf in jax.tree.leaves(trained.model) if hasattr(leaf, "size"))
    assert weights <= numbers < 1.01 * weights


def test_no_constant_is_left_that_nobody_uses():
    """onnxruntime would warn of it."""
    step = make_step(trace_step(load_trained("omniglot-many").model)).graph
    used = {name for node in step.node for name in node.input}
    assert {constant.name for constant in step.initializer} <= used


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["omniglot-5"], "--onnx DIR, or --web DIR"),
        (["omniglot-5", "--onnx", "new", "--web", "new"], "a folder each"),
        (["omniglot-5", "--web", "full"], "new or empty"),
        (["gp-1d", "--web", "new"], "not trained to name things"),
        (["omniglot-5", "--onnx", "full"], "new or empty"),
        (["omniglot-5", "--onnx", "full/file"], "new or empty"),
        (["nothing", "--onnx", "new"], "no model 'nothing'"),
    ],
)
def test_mistakes_get_a_sentence(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    assert main(["export", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_without_the_extra_a_sentence_names_it(tmp_path, monkeypatch, capsys):
    save_trained(tmp_path / "tiny", tiny())
    real = builtins.__import__

    def refuse(name, *arguments):
        if name == "onnx" or name.startswith("onnx."):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.delitem(sys.modules, "mann.export.onnx")
    monkeypatch.setattr(builtins, "__import__", refuse)
    assert main(["export", str(tmp_path / "tiny"), "--onnx", str(tmp_path / "new")]) == 2
    assert "pip install 'mann-oneshot[export]'" in capsys.readouterr().err
    monkeypatch.undo()
    importlib.import_module("mann.export.onnx")
