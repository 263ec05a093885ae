"""Floating-point operations of an update, counted from shapes."""

from typing import NamedTuple

import equinox as eqx
import jax

from mann.controllers import LSTM
from mann.errors import MannError
from mann.memory import LRUA
from mann.models import Model, build_model
from mann.training.config import Config


class Product(NamedTuple):
    name: str
    multiply_adds: int  # of the forward pass, in one step of one episode
    passes: int  # forward, and one product backward for each factor that needs a gradient


def products(model: Model) -> list[Product]:
    """The products of one step. At the headline setting (H 200, M 128, W 40, R 4, 400 pixels, 5 labels):

    | product                        | factors         | multiply-adds | passes |
    |--------------------------------|-----------------|---------------|--------|
    | input to the controller        | (400 + 5) × 4H  | 324 000       | 2      |
    | h to the controller            | H × 4H          | 160 000       | 3      |
    | r to the controller            | RW × 4H         | 128 000       | 3      |
    | keys, written vectors          | 2 · H × RW      | 64 000        | 3      |
    | gates, key strengths           | 2 · H × R       | 1 600         | 3      |
    | write                          | M × R × W       | 20 480        | 3      |
    | similarity of keys and slots   | R × W × M       | 20 480        | 3      |
    | norms of the slots             | M × W           | 5 120         | 3      |
    | read                           | R × M × W       | 20 480        | 3      |
    | output                         | (H + RW) × 5    | 1 800         | 3      |

    A product costs as much again backward for each of its factors; pictures and labels need no gradient. What
    is done to single numbers (gates, softmax, erasing, usage) is not counted, nor is anything computed twice.
    """
    controller, memory = model.controller, model.memory
    if not isinstance(controller, LSTM) or not isinstance(memory, LRUA) or jax.tree.leaves(model.encoder):
        raise MannError("Operations are counted for an LSTM with an LRUA memory and no encoder only.")
    slots = memory.slots * memory.width
    maps = [("keys", memory.keys), ("written vectors", memory.vectors)]
    maps += [("gates", memory.gates), ("key strengths", memory.strengths)]
    reads = controller.from_reads
    return [
        Product("input to the controller", controller.inputs.weight.size, 2),
        Product("h to the controller", controller.recurrent.size, 3),
        *([Product("r to the controller", reads.size, 3)] if reads is not None else []),
        *(Product(name, linear.weight.size, 3) for name, linear in maps if linear is not None),
        Product("write", memory.heads * slots, 3),
        Product("similarity of keys and slots", memory.heads * slots, 3),
        Product("norms of the slots", slots, 3),
        Product("read", memory.heads * slots, 3),
        Product("output", model.readout.weight.size, 3),
    ]


def flop_per_update(config: Config) -> int:
    """Of forward and backward pass, without drawing and optimiser; a multiply-add is two operations."""
    model = eqx.filter_eval_shape(
        build_model, config.model, config.task, config.data.format, key=jax.random.key(0)
    )
    step = sum(2 * product.multiply_adds * product.passes for product in products(model))
    return step * config.task.steps * config.batch
