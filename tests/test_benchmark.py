"""The benchmark: its counts and arithmetic, the files it writes, and that both sides compute the same."""

import dataclasses
import importlib.util
import json
import math
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from matplotlib.figure import Figure

from mann import benchmark
from mann.benchmark import Setting, flops, growth, parts, timing, worker
from mann.benchmark.parts import random_drawings
from mann.cli import main
from mann.data.render import Drawings, Transform, grid_side, render
from mann.episodes import Episode, time_offset
from mann.errors import MannError
from mann.installation import install_command
from mann.models import build_model
from mann.runtime import peak_memory
from mann.tasks import Classification
from mann.training.config import Config
from mann.training.optimisers import AdamW
from tests.networks import network

TASK = Classification(classes=3, length=6)
MODEL = network(hidden=8, slots=10, width=5, heads=2)
CONFIG = Config(TASK, MODEL, optimiser=AdamW(warmup=1), batch=2, dispatch=2, evaluate_every=2)
TINY = Setting(CONFIG, classes=4, drawings=4, rounds=2, calls=500, trained=8)


@pytest.fixture(autouse=True)
def _surroundings(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def torch_eager():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("torch_eager", benchmark.TORCH_EAGER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Operations


def test_operations_of_a_tiny_network_counted_by_hand():
    task, model = Classification(classes=2, length=3), network(hidden=2, slots=3, width=2, heads=1)
    config = Config(task, model, batch=2)
    input_to_gates = (400 + 2) * 8  # no gradient for pictures and labels: forward, and one product backward
    others = (
        *(2 * 8, 2 * 8),  # h and r to the four gates
        *(2 * 2, 2 * 2, 2 * 1, 2 * 1),  # h to key, written vector, gate, key strength
        *(3 * 2, 3 * 2, 3 * 2, 3 * 2),  # write, similarity, norms, read: once over the memory each
        (2 + 2) * 2,  # h and r to the two outputs
    )
    steps, batch = 3, 2
    assert flops.flop_per_update(config) == 2 * steps * batch * (2 * input_to_gates + 3 * sum(others))
    assert flops.flop_per_update(config) == 79_920


def test_operations_of_the_headline():
    assert flops.flop_per_update(benchmark.HEADLINE.config) == pytest.approx(3.06e9, rel=0.002)


def test_operations_are_those_of_the_traced_programs():
    """Count the products in what JAX traces for an episode, forward and backward."""
    model = build_model(MODEL, TASK, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)
    inputs, labels = jnp.zeros((TASK.steps, 400)), jnp.zeros((TASK.steps, TASK.classes))

    def loss(arrays):
        return jnp.sum(eqx.combine(arrays, static).unroll(inputs, labels)[0])

    rows = [row for row in flops.products(model) if row.name != "norms of the slots"]  # not a matrix product
    forward = sum(row.multiply_adds for row in rows)
    assert traced_multiply_adds(jax.make_jaxpr(loss)(arrays).jaxpr) == TASK.steps * forward
    both = sum(row.multiply_adds * row.passes for row in rows)
    assert traced_multiply_adds(jax.make_jaxpr(jax.grad(loss))(arrays).jaxpr) == TASK.steps * both


def traced_multiply_adds(jaxpr):
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += equation.outvars[0].aval.size * math.prod(shape[axis] for axis in contracted)
        for inner in jaxprs_in_params(equation.params):
            total += traced_multiply_adds(inner) * equation.params.get("length", 1)
    return total


def test_operations_of_other_networks_are_refused():
    model = build_model(network(memory="ntm", hidden=8), TASK, key=jax.random.key(0))
    with pytest.raises(MannError, match="LRUA"):
        flops.products(model)


# PyTorch


def random_model():
    """A network whose weights *and biases* are all at work."""
    rng = np.random.default_rng(0)
    shape = eqx.filter_eval_shape(build_model, MODEL, TASK, key=jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) * 0.5, jnp.float32), shape)


def test_torch_and_jax_give_the_same_outputs_and_gradients(torch_eager):
    import torch

    model = random_model()
    rng = np.random.default_rng(1)
    pixels, which = rng.uniform(size=(3, TASK.steps, 400)), rng.integers(3, size=(3, TASK.steps))
    classes, mask = jnp.asarray(which, jnp.int32), jnp.ones(which.shape, bool)
    targets = jax.nn.one_hot(classes, 3)
    episodes = Episode(jnp.asarray(pixels, jnp.float32), targets, classes, classes, mask)

    @eqx.filter_jit
    @eqx.filter_value_and_grad(has_aux=True)
    def differentiate(model):
        outputs = model.unroll_batch(episodes.inputs, time_offset(episodes.targets)).outputs
        return jnp.mean(TASK.loss(outputs, episodes)), outputs

    (value, outputs), gradient = differentiate(model)
    cell = torch_eager.from_jax(model)
    inputs = torch.tensor(np.array(episodes.inputs))
    theirs = cell(inputs, torch.tensor(np.array(time_offset(targets))))
    np.testing.assert_allclose(theirs.detach().numpy(), outputs, rtol=1e-4, atol=1e-5)
    loss = torch_eager.loss(cell, inputs, torch.tensor(which))
    loss.backward()
    assert loss.item() == pytest.approx(float(value), rel=1e-5)
    expected = dict(torch_eager.from_jax(gradient).named_parameters())  # gradients, laid out like weights
    for name, weight in cell.named_parameters():
        scale = expected[name].abs().max().item()
        assert scale > 1e-4
        difference = (weight.grad - expected[name]).abs().max().item()
        assert difference < 1e-4 * scale, name


def test_torch_and_jax_render_the_same_pictures(torch_eager):
    import torch

    rng = np.random.default_rng(0)
    drawings = random_drawings(3, 4)
    classes, which, quarter = (rng.integers(0, limit, 9).astype(np.int32) for limit in (3, 4, 4))
    rotation = rng.uniform(-0.2, 0.2, 9).astype(np.float32)
    shift = rng.uniform(-2, 2, (9, 2)).astype(np.float32)
    transform = Transform(jnp.asarray(rotation), jnp.asarray(shift), jnp.asarray(quarter))
    ours = render(drawings, jnp.asarray(classes), jnp.asarray(which), transform)
    grids = torch.tensor(np.array(drawings.grids))
    indices = (torch.tensor(array).long() for array in (classes, which))
    numbers = (torch.tensor(array) for array in (rotation, shift))
    theirs = torch_eager.render(grids, *indices, *numbers, torch.tensor(quarter).long())
    np.testing.assert_allclose(
        theirs.numpy(), ours, atol=1e-3
    )  # noise of 8 bits: a steep slope at every point


def test_torch_draws_episodes_of_distinct_classes_without_repeating_drawings(torch_eager):
    shade = np.arange(20, 32).reshape(4, 3)  # one for each drawing of each class; what the middle pixel shows
    grids = np.broadcast_to(shade[:, :, None, None], (4, 3, grid_side(20), grid_side(20))).astype(np.uint8)
    drawings = Drawings(jnp.asarray(grids), jnp.full(4, 3, jnp.int32))
    config = dataclasses.replace(CONFIG, batch=20)
    training = torch_eager.Training(random_model(), drawings, config)
    pixels, labels = (array.numpy() for array in training.draw())
    assert pixels.shape == (20, TASK.steps, 400)
    shades = np.rint(255 * pixels[:, :, 210]).astype(int) - 20
    for seen, named in zip(shades, labels, strict=True):
        classes = seen // 3
        assert len(set(zip(classes, named, strict=True))) == len(set(classes)) == len(set(named))
        for one in set(classes):
            first = seen[classes == one][:3]
            assert len(set(first)) == len(first)
    assert set(shades.ravel() // 3) == {0, 1, 2, 3}
    assert set(labels.ravel()) == {0, 1, 2}


def test_torch_learns(torch_eager):
    training = torch_eager.Training(random_model(), random_drawings(3, 1), CONFIG)
    losses = [training.update() for _ in range(40)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


def test_without_torch_or_its_file_the_row_says_what_to_do(monkeypatch, tmp_path):
    drawings = random_drawings(4, 4)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        patch.setattr("importlib.util.find_spec", lambda name: None)
        assert benchmark.torch_works(CONFIG, drawings) == ({}, install_command("bench"))
    pytest.importorskip("torch")
    monkeypatch.setattr(benchmark, "TORCH_EAGER", tmp_path / "absent.py")
    works, note = benchmark.torch_works(CONFIG, drawings)
    assert works == {}
    assert "source checkout" in note


# The command


def test_quick_writes_finite_numbers(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmark, "HEADLINE", TINY)
    monkeypatch.setattr(parts, "SGEMM", {64: 2, 128: 1})
    path = tmp_path / "quick.json"
    assert main(["bench", "--quick", "--json", str(path), "--devices", "2"]) == 0
    result = json.loads(path.read_text())
    numbers = {"utilisation", "ms_per_update", "ms_model", "ms_draw", "ms_draw_one_core", "ms_forward"}
    numbers |= {
        "ms_optimiser",
        "ms_muon",
        "sgemm_gflops",
        "online_ms_p50",
        "online_ms_p99",
        "gflop_per_update",
    }
    numbers |= {"updates_per_second", "episodes_per_second", "bf16_speedup"}
    numbers |= {f"ms_per_update_{name}" for name in ("default", "bfloat16", "conv")}
    numbers |= {f"ms_per_update_conv_{name}" for name in ("bfloat16", "pool", "pool_bfloat16")}
    compared = {"torch_ms_per_update", "speedup_vs_torch", "torch_threads", "speedup_vs_torch_default"}
    if importlib.util.find_spec("torch"):
        numbers |= compared
    else:
        assert all(result[name] is None for name in compared)
    assert all(math.isfinite(result[name]) and result[name] > 0 for name in numbers)
    assert result["devices"] == 2
    assert result["growth"] is None
    assert result["networks"] is None
    assert result["precision_default"] in ("float32", "bfloat16")
    command = result["command"]
    assert command["updates"] == 4  # of 8: one call compiles, one follows a checkpoint
    assert command["updates_per_second"] == pytest.approx(1e3 / command["ms_per_update"])
    assert all(math.isfinite(value) and value >= 0 for value in command.values())
    assert result["online_ms_p50"] <= result["online_ms_p99"]
    assert result["episodes_per_second"] == pytest.approx(2e3 / result["ms_per_update"])
    rate = result["gflop_per_update"] / result["ms_model"] * 1e3
    assert result["utilisation"] == pytest.approx(rate / result["sgemm_gflops"])
    for times in result["spread"].values():
        assert times["min"] <= times["median"] <= times["max"]
        assert times["samples"] == 2
    shown = capsys.readouterr().out
    for row in (
        "update",
        "Muon, bfloat16",
        "update, convolutions",
        "with a pool, bfloat16",
        "`mann train`: ",
        "draw on one core",
        "PyTorch eager",
        "of this machine's matrix products",
    ):
        assert row in shown


def test_networks_are_measured_with_and_without_the_kernel(monkeypatch, capsys):
    from rich.console import Console

    from mann.commands.bench import print_networks

    some = {name: benchmark.NETWORKS[name] for name in ("LSTM", "feed-forward")}
    monkeypatch.setattr(benchmark, "NETWORKS", some)
    networks = benchmark.measure_networks(TINY, lambda *_: None)
    assert networks.keys() == some.keys()
    for row in networks.values():
        assert 0 < row["ms"]["min"] <= row["ms"]["median"]
        assert row["speedup"] == pytest.approx(row["ms_xla"]["median"] / row["ms"]["median"])
    print_networks(networks, Console())
    assert "MANN_NATIVE=0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quick", "--plot", "growth"], "nothing to plot"),
        (["--json", "/dev/null/bench.json"], "Cannot write /dev/null/bench.json"),
        (["--devices", "-1"], "devices must be at least 1"),
    ],
)
def test_mistakes_are_found_before_measuring(arguments, message, capsys):
    assert main(["bench", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


# Growth


def test_a_point_of_a_growth_curve_has_time_and_memory():
    point = worker.start("growth", growth.at(TINY, "batch", 4), devices=2)
    assert point["devices"] == 2
    assert point["ms"]["samples"] >= 3
    assert 0 < point["ms"]["min"] <= point["ms"]["median"]
    assert point["memory"] is None or 0 <= point["memory"] < 2**28


def test_growth_changes_one_size_at_a_time_and_compares_with_the_first_point(monkeypatch, tmp_path, capsys):
    asked = []

    def start(what, setting, devices):
        asked.append(setting.config)
        config = setting.config
        if config.model.memory.slots == 512:
            raise MannError("it was killed")
        cost = config.task.steps * config.batch / 100 + 20
        return {"ms": timing.spread([cost])._asdict(), "memory": 2**20 * config.batch, "devices": devices}

    monkeypatch.setattr(worker, "start", start)
    result = growth.measure_growth(benchmark.HEADLINE, 2, lambda *_: None)
    assert len(asked) == len(set(asked)) == 22  # 25 points; the headline is on all four curves
    first, *_, last = result["length"]
    assert (first["size"], last["size"]) == (50, 1000)
    assert first["linearity"] == 1
    assert last["linearity"] == pytest.approx((180 / 1000) / (28 / 50))
    assert [row["size"] for row in result["slots"] if row["ms"] is None] == [512]
    assert {config.task.steps for config in asked if config.task.classes == 25} == {250}

    from rich.console import Console

    from mann.commands.bench import print_growth

    print_growth(result, Console())
    assert "it was killed" in capsys.readouterr().out
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: drawn.append(figure) or file.write(b"x"))
    assert [path.name for path in growth.draw_growth(result, tmp_path / "growth.png")] == [
        "growth.png",
        "growth.svg",
    ]
    panels = np.reshape(drawn[0].axes, (2, len(result)))
    for (axis, rows), (time, memory) in zip(result.items(), panels.T, strict=True):
        linear, measured = (line.get_xydata().tolist() for line in time.get_lines())
        known = [row for row in rows if row["ms"]]
        assert measured == [[row["size"], row["ms"]["median"]] for row in known], axis
        assert linear[-1] == measured[-1]
        assert linear[0][1] * linear[-1][0] == pytest.approx(linear[-1][1] * linear[0][0])
        assert memory.get_lines()[1].get_ydata().tolist() == [row["memory"] / 2**20 for row in known]


def test_peak_memory_is_what_a_run_allocates():
    memory = peak_memory(lambda: np.ones(2**24))
    if memory is None:
        pytest.skip("this system does not tell")
    assert memory == pytest.approx(2**27, rel=0.25)  # what else the process holds comes and goes


def test_works_take_turns_and_are_counted_by_unit():
    order = []
    works = {
        name: timing.Work(lambda name=name: order.append(name), units)
        for name, units in (("a", 1), ("b", 1000))
    }
    spreads = timing.interleave(works, 3, lambda *_: None)
    assert order == ["a", "b"] * 3
    assert spreads["a"].samples == 3
    assert timing.spread([3.0, 1.0, 2.0, 10.0]) == (2.5, 1.0, 10.0, 4)
