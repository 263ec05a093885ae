"""Three symbols that nobody would mix up, as pen strokes, each a little different every time."""

import numpy as np
from PIL import Image, ImageDraw

_TURN = np.linspace(0, 2 * np.pi, 24)
SYMBOLS = {
    "ring": [np.stack([0.5 + 0.3 * np.cos(_TURN), 0.5 + 0.3 * np.sin(_TURN)], axis=1)],
    "cross": [np.array([(0.2, 0.5), (0.8, 0.5)]), np.array([(0.5, 0.2), (0.5, 0.8)])],
    "zigzag": [np.array([(0.2, 0.2), (0.8, 0.25), (0.2, 0.5), (0.8, 0.55), (0.2, 0.8)])],
}


def strokes(symbol: str, seed: int) -> list[np.ndarray]:
    """Points (x, y) between 0 and 1 of every stroke."""
    rng = np.random.default_rng(seed)
    scale, shift = rng.uniform(0.9, 1.1), rng.uniform(-0.04, 0.04, 2)
    return [(path - 0.5) * scale + 0.5 + shift + rng.normal(0, 0.008, path.shape) for path in SYMBOLS[symbol]]


def sketch(symbol: str, seed: int, side: int = 105) -> Image.Image:
    """Black on white."""
    picture = Image.new("L", (side, side), 255)
    pen = ImageDraw.Draw(picture)
    for path in strokes(symbol, seed):
        pen.line([tuple(point) for point in (path * side).tolist()], fill=0, width=max(1, side // 30))
    return picture
