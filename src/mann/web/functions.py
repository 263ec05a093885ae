"""The page of functions: points that a visitor clicked, and the band that the network predicts from them.

Nothing is kept: the page sends all points each time, and a learner that shares the weights is taught anew.
"""

import math
from functools import cache
from typing import Any

import numpy as np

from mann.errors import MannError
from mann.online import FunctionLearner
from mann.online.functions import DEFAULT_MODEL
from mann.trained import Trained, load_trained

MOST_POINTS = 200
GRID = 121  # places at which the band is drawn, from 0 to 1


@cache
def _trained() -> Trained:
    return load_trained(DEFAULT_MODEL)


def predict_band(body: dict[str, Any]) -> dict[str, Any]:
    """Mean and scale along all x, after the points of a request: pairs of numbers between 0 and 1, in order."""
    points = body.get("points")
    if not isinstance(points, list) or not all(isinstance(p, list) and len(p) == 2 for p in points):
        raise MannError("Send the points as pairs of x and y.")
    if len(points) > MOST_POINTS:
        raise MannError(f"The page takes {MOST_POINTS} points at most: clear it and begin anew.")
    numbers = [number for point in points for number in point]
    if not all(type(n) in (int, float) and math.isfinite(n) and 0 <= n <= 1 for n in numbers):
        raise MannError("x and y are numbers between 0 and 1.")
    learner = FunctionLearner(_trained(), x_range=(0.0, 1.0), y_range=(0.0, 1.0))
    learner.learn_many([p[0] for p in points], [p[1] for p in points])
    grid = np.linspace(0, 1, GRID)
    mean, scale = learner.predict_many(grid)
    return {"x": grid.tolist(), "mean": mean.round(5).tolist(), "scale": scale.round(5).tolist()}
