"""A task from the base class alone, with episodes of a shape of its own: the protocol is enough."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mann
from mann.labels import one_hot
from mann.outputs import Letters
from mann.tasks.base import ResultTable


class Bits(NamedTuple):
    inputs: jax.Array
    targets: jax.Array
    mask: jax.Array


@dataclasses.dataclass(frozen=True)
class Right:
    share: float

    def to_json(self):
        return {"right": self.share}

    def table(self, paper):
        return ResultTable(["right"], [[f"{100 * self.share:.1f}"]], [])


@dataclasses.dataclass(frozen=True)
class Parity(mann.Task, kind="parity"):
    """Whether the ones so far are an odd number."""

    steps = 6
    label_size = 2
    output = Letters(one_hot(2))

    def input_shape(self, pictures):
        return (1,)

    def draw(self, key, source=None, size=None):
        bits = jax.random.bernoulli(key, 0.5, (self.steps, 1)).astype(jnp.float32)
        odd = (jnp.cumsum(bits[:, 0]) % 2).astype(jnp.int32)
        return Bits(bits, jax.nn.one_hot(odd, 2), jnp.ones(self.steps, bool))

    def tally(self, outputs, episodes):
        right = self.output.correct(outputs, episodes.targets)
        return {"right": right, "nll": self.output.nll(outputs, episodes.targets)}

    def record(self, tally):
        return {"held_out_loss": float(np.mean(tally["nll"]))}

    def summarise(self, tally, reference):
        assert reference is None
        return Right(float(np.mean(tally["right"])))


def test_a_task_from_the_base_class_is_trained_resumed_and_tested(tmp_path):
    config = mann.Config(
        task=Parity(),
        data=mann.NoData(),
        model=mann.ModelConfig(
            mann.NoEncoder(), mann.LSTMConfig(hidden=8), mann.LRUAConfig(slots=4, width=4)
        ),
        optimiser=mann.AdamW(warmup=1, learning_rate=0.01),
        **{"updates": 120, "batch": 8, "evaluate_every": 60, "evaluate_episodes": 16, "dispatch": 20},
    )
    trained = mann.train(config, tmp_path / "run", observers=[])
    (tmp_path / "run/checkpoints/update-00000120.safetensors").unlink()
    assert mann.resume(tmp_path / "run", observers=[]).metrics == trained.metrics
    evaluation = mann.evaluate(tmp_path / "run", episodes=40).to_json()
    assert (evaluation["dataset"], evaluation["length"]) == ("parity", 6)
    assert evaluation["right"] > 0.6  # 0.5 by chance
    with pytest.raises(mann.MannError, match="not trained to name things"):
        mann.OneShotLearner.from_pretrained(tmp_path / "run")
