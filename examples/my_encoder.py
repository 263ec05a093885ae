"""An encoder of one's own: the picture through a small window, row by row, with the same weights everywhere.

mann train examples/my_encoder.py:config --run runs/strips
mann eval runs/strips --use examples/my_encoder.py
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

import mann


@dataclasses.dataclass(frozen=True)
class StripsConfig(mann.EncoderConfig, kind="strips"):
    rows: int = 4
    """Rows of pixels in a strip."""
    features: int = 32
    """Numbers that are kept of each strip."""

    def build(self, shape, *, key):
        if len(shape) != 3 or shape[0] % self.rows:
            raise mann.MannError(f"Strips of {self.rows} rows do not fit into inputs of shape {shape}.")
        return Strips(self, shape, key=key)


class Strips(mann.Encoder):
    window: mann.Linear
    strips: int = eqx.field(static=True)
    features: int = eqx.field(static=True)

    def __init__(self, config, shape, *, key):
        side, _, channels = shape
        self.strips = side // config.rows
        self.window = mann.Linear(config.rows * side * channels, config.features, key=key)
        self.features = self.strips * config.features

    def __call__(self, x):
        strips = x.reshape(*x.shape[:-1], self.strips, -1)
        seen = jax.nn.relu(self.window(strips))
        return jnp.reshape(seen, (*x.shape[:-1], self.features))


config = mann.Config(
    task=mann.Classification(classes=5),
    model=mann.ModelConfig(encoder=StripsConfig()),
    data=mann.Glyphs(),
    updates=4000,
    evaluate_every=500,
    averaging=0.99,
)
