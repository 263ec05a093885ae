"""The exact process against scikit-learn."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from mann.data.functions import GaussianProcess
from mann.data.gp import predict, sequential_predictions
from mann.outputs import gaussian_nll

PROCESS = GaussianProcess(length_scale=0.7, variance=1.5, noise=0.2)


def fitted(x, y):
    kernel = ConstantKernel(PROCESS.variance) * RBF(PROCESS.length_scale)
    return GaussianProcessRegressor(kernel, alpha=PROCESS.noise**2, optimizer=None).fit(x, y)


def samples(count, dimensions):
    rng = np.random.default_rng(dimensions)
    return rng.uniform(-2, 2, (count, dimensions)), rng.normal(size=count)


def single(*arrays):
    return (jnp.asarray(array, jnp.float32) for array in arrays)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_every_step_of_an_episode_is_predicted_from_the_samples_before_it(dimensions):
    x, y = samples(14, dimensions)
    mean, scale = sequential_predictions(*single(x, y), PROCESS)
    nll = gaussian_nll(jnp.asarray(y, jnp.float32), mean, scale)
    assert float(mean[0]) == pytest.approx(0, abs=1e-6)
    assert float(scale[0]) == pytest.approx(np.sqrt(1.5 + 0.04), rel=1e-6)
    for step in range(1, 14):
        (expected,), (deviation,) = fitted(x[:step], y[:step]).predict(x[step : step + 1], return_std=True)
        total = np.hypot(deviation, PROCESS.noise)
        assert float(mean[step]) == pytest.approx(expected, abs=1e-3)
        assert float(scale[step]) == pytest.approx(total, rel=1e-3)
        assert float(nll[step]) == pytest.approx(-stats.norm(expected, total).logpdf(y[step]), abs=5e-3)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_prediction_along_x_is_that_of_scikit_learn(dimensions):
    x, y = samples(20, dimensions)
    queries = np.random.default_rng(9).uniform(-2, 2, (30, dimensions))
    mean, scale = predict(*single(x, y, queries), PROCESS)
    expected, deviation = fitted(x, y).predict(queries, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=2e-3)
    np.testing.assert_allclose(scale, np.hypot(deviation, PROCESS.noise), rtol=2e-3)
