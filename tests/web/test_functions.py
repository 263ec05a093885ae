"""The page of functions: what it sends, what comes back, and what is refused."""

import numpy as np
import pytest

from mann.errors import MannError
from mann.web import functions
from mann.web.functions import GRID, MOST_POINTS, predict_band
from tests.test_function_learner import TRAINED


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(functions, "_trained", lambda: TRAINED)


def test_the_band_narrows_at_the_points_and_goes_through_them():
    nothing = predict_band({"points": []})
    assert len(nothing["x"]) == len(nothing["mean"]) == len(nothing["scale"]) == GRID
    np.testing.assert_allclose(nothing["mean"], 0.5, atol=0.02)
    told = predict_band({"points": [[0.25, 0.8], [0.26, 0.8], [0.5, 0.3]]})
    quarter = np.searchsorted(told["x"], 0.25)
    assert told["mean"][quarter] == pytest.approx(0.8, abs=0.1)
    assert told["scale"][quarter] < 0.5 * told["scale"][-1]


def test_the_page_asks_the_server(running):
    with running.browser() as browser:
        page = browser.get("/functions")
        assert page.status_code == 200
        assert "/static/functions.js" in page.text
        answer = browser.post("/api/functions", json={"points": [[0, 1], [1.0, 0.5]]})
        assert answer.status_code == 200
        assert set(answer.json()) == {"x", "mean", "scale"}
        refused = browser.post("/api/functions", json={"points": [[0, 2]]})
        assert refused.status_code == 400
        assert refused.json()["error"] == "x and y are numbers between 0 and 1."
        assert browser.get("/api/functions").status_code == 405


@pytest.mark.parametrize(
    "points",
    [
        None,
        "x",
        [1],
        [[1]],
        [[0, "a"]],
        [[0, None]],
        [[0, True]],
        [[0, float("nan")]],
        [[0, 0]] * (MOST_POINTS + 1),
    ],
)
def test_what_the_page_would_not_send_is_refused_in_a_sentence(points):
    with pytest.raises(MannError, match=r"^[^\n]+\.$"):
        predict_band({"points": points})
