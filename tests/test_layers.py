"""The linear layer against plain numbers, and what the layers of a whole model say of their matrices."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.layers import Layer, Linear, matrix_blocks
from mann.models import build_model
from mann.tasks import Classification
from tests.networks import network


def blocks_by_name(model):
    leaves = jax.tree_util.tree_leaves_with_path(matrix_blocks(model))
    return {jax.tree_util.keystr(path): count for path, count in leaves}


def blocks_of(**words):
    """By name, for a network without numbers."""
    config, task = network(**words), Classification(classes=5)
    return blocks_by_name(eqx.filter_eval_shape(build_model, config, task, key=jax.random.key(0)))


def test_linear_layer_is_a_product_and_a_sum():
    layer = Linear(3, 2, key=jax.random.key(0), bias=0.5)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    weight = np.asarray(layer.weight)
    expected = [[sum(row[i] * weight[i, j] for i in range(3)) + 0.5 for j in range(2)] for row in x]
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-5)
    np.testing.assert_allclose(layer(jnp.asarray(x[0])), expected[0], rtol=1e-5)


def test_each_part_of_the_input_is_initialised_by_its_own_size():
    """Uniform in ±1/√n for n inputs: five numbers of a label weigh as much as 400 pixels."""
    weight = np.abs(np.asarray(Linear((400, 5), 300, key=jax.random.key(0)).weight))
    for part, size in ((weight[:400], 400), (weight[400:], 5)):
        bound = 1 / np.sqrt(size)
        assert part.max() <= bound
        assert part.max() > 0.99 * bound
        assert part.mean() == pytest.approx(bound / 2, rel=0.05)


@pytest.mark.parametrize(
    "sizes",
    [{}, {"hidden": 40, "slots": 20, "width": 40, "heads": 4}, {"hidden": 3, "slots": 5, "width": 3}],
    ids=["paper", "as many columns of keys as of gates", "small"],
)
def test_only_the_matrices_of_an_lstm_are_four_side_by_side(sizes):
    """Whatever the sizes: with 40 units, 4 heads and a width of 40, keys and gates both have 160 columns."""
    assert blocks_of(**sizes) == {
        ".controller.inputs.weight": 4,
        ".controller.inputs.bias": 0,
        ".controller.recurrent": 4,
        ".controller.from_reads": 4,
        ".memory.keys.weight": 1,
        ".memory.keys.bias": 0,
        ".memory.gates.weight": 1,
        ".memory.gates.bias": 0,
        ".memory.vectors.weight": 1,
        ".memory.vectors.bias": 0,
        ".memory.strengths.weight": 1,
        ".memory.strengths.bias": 0,
        ".readout.weight": 0,
        ".readout.bias": 0,
    }


def test_other_parts_have_one_matrix_in_each_array():
    names = ("keys", "addressing", "erase", "add")
    assert blocks_of(controller="feedforward", memory="ntm", encoder="conv") == {
        **{f".encoder.convolutions[{i}].weight": 1 for i in range(3)},
        **{f".encoder.convolutions[{i}].bias": 0 for i in range(3)},
        ".controller.inputs.weight": 1,
        ".controller.inputs.bias": 0,
        ".controller.from_reads": 1,
        **{f".memory.{name}.weight": 1 for name in names},
        **{f".memory.{name}.bias": 0 for name in names},
        ".readout.weight": 0,
        ".readout.bias": 0,
    }


class Stack(Layer):
    """Layers in a list and in a dictionary, and arrays of one's own."""

    column_blocks: ClassVar[dict[str, int]] = {"pair": 2, "cube": 2}
    plain: ClassVar[tuple[str, ...]] = ("table",)
    layers: list[Linear]
    named: dict[str, Linear]
    pair: jax.Array
    single: jax.Array
    cube: jax.Array
    table: jax.Array
    missing: jax.Array | None = None


def test_layers_of_ones_own_are_asked_wherever_they_are():
    stack = Stack(
        [Linear(2, 6, key=jax.random.key(0)), Linear(2, 6, key=jax.random.key(1), blocks=3)],
        {"a": Linear(2, 6, key=jax.random.key(2), blocks=2)},
        *(jnp.zeros(shape) for shape in ((3, 4), (3, 4), (2, 3, 4), (3, 4))),
    )
    weights = {name: count for name, count in blocks_by_name([stack]).items() if "bias" not in name}
    assert weights == {
        "[0].layers[0].weight": 1,
        "[0].layers[1].weight": 3,
        "[0].named['a'].weight": 2,
        "[0].pair": 2,
        "[0].single": 1,
        "[0].cube": 0,
        "[0].table": 0,
    }
