"""What light does to a photograph: it is uneven, coloured, too strong or too weak, and casts shadows."""

import numpy as np
from jaxtyping import Float32, UInt8
from numpy.random import Generator

_UNEVEN = (
    0.35  # standard deviation of the logarithm of light from the middle to the edge, in either direction
)
_EXPOSURE, _COLOUR = 0.18, 0.07  # the same of all light, and of each colour's
_SHADOWS = 0.3  # share of the pictures across which a shadow falls
_NOISE = 0.015

Colours = Float32[np.ndarray, "drawings side side 3"]


def take_photographs(scenes: Colours, rng: Generator) -> UInt8[np.ndarray, "drawings side side 3"]:
    """Photographs of scenes (0 … 1), each in light of its own."""
    count, side = scenes.shape[:2]
    down, right = (np.indices((side, side), np.float32) * np.float32(2 / side) - 1)[:, None, ..., None]
    slope = rng.normal(0, _UNEVEN, (2, count, 1, 1, 1)).astype(np.float32)
    gains = rng.normal(0, _COLOUR, (count, 1, 1, 3)) + rng.normal(0, _EXPOSURE, (count, 1, 1, 1))
    light = np.exp(slope[0] * down + slope[1] * right + gains.astype(np.float32))
    angle = rng.uniform(0, 2 * np.pi, (count, 1, 1, 1)).astype(np.float32)
    place = rng.uniform(-0.6, 0.6, (count, 1, 1, 1)).astype(np.float32)
    softness = rng.uniform(0.02, 0.3, (count, 1, 1, 1)).astype(np.float32)
    depth = (rng.uniform(0.3, 0.65, (count, 1, 1, 1)) * (rng.random((count, 1, 1, 1)) < _SHADOWS)).astype(
        np.float32
    )
    across = (np.cos(angle) * down + np.sin(angle) * right - place) / softness
    shadow = 1 - depth / (1 + np.exp(-np.clip(4 * across, -30, 30)))
    noise = rng.standard_normal(scenes.shape, np.float32) * np.float32(_NOISE)
    return np.rint(255 * np.clip(scenes * light * shadow + noise, 0, 1)).astype(np.uint8)
