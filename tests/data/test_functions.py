"""Gaussian process draws against scikit-learn and scipy."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from mann.data.functions import GaussianProcess, cholesky, draw_function, draw_smooth
from mann.errors import MannError
from mann.tasks import Regression

PROCESSES = [
    GaussianProcess(),
    GaussianProcess(length_scale=1.3, variance=2.5, noise=0.3),
    GaussianProcess(length_scale=0.1, variance=0.2, noise=0.05),
]
draw = jax.jit(draw_function, static_argnums=2)
draw_many = jax.jit(jax.vmap(draw_function, (0, None, None)), static_argnums=2)


def kernel(process):
    return ConstantKernel(process.variance, "fixed") * RBF(process.length_scale, "fixed")


def points(count, dimensions, seed=0, low=-2.0, high=2.0):
    return np.random.default_rng(seed).uniform(low, high, (count, dimensions)).astype(np.float32)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_covariance_equals_scikit_learn(process, dimensions):
    a, b = points(7, dimensions, 0), points(9, dimensions, 1)
    actual = process.covariance(jnp.asarray(a), jnp.asarray(b))
    np.testing.assert_allclose(actual, kernel(process)(a, b), atol=1e-5)


@pytest.mark.parametrize("process", PROCESSES)
def test_total_log_density_equals_scipy(process):
    x = points(15, 2)
    values, log_density = draw(jax.random.key(0), jnp.asarray(x), process)
    covariance = kernel(process)(x.astype(np.float64)) + process.noise**2 * np.eye(15)
    expected = stats.multivariate_normal(np.zeros(15), covariance).logpdf(np.asarray(values, np.float64))
    assert float(np.sum(log_density)) == pytest.approx(expected, abs=2e-2)


@pytest.mark.parametrize("process", PROCESSES)
def test_log_density_of_each_step_equals_the_prediction_of_scikit_learn(process):
    """log p(y_t | x_t, D_1:t−1): fit on the samples before t, predict the one at t, with its noise."""
    x = points(15, 2)
    values, log_density = draw(jax.random.key(1), jnp.asarray(x), process)
    y = np.asarray(values, np.float64)
    first = stats.norm(0, np.sqrt(process.variance + process.noise**2)).logpdf(y[0])
    assert float(log_density[0]) == pytest.approx(first, abs=1e-4)
    for t in range(1, 15):
        regressor = GaussianProcessRegressor(kernel(process), alpha=process.noise**2, optimizer=None)
        mean, deviation = regressor.fit(x[:t], y[:t]).predict(x[t : t + 1], return_std=True)
        scale = np.sqrt(deviation[0] ** 2 + process.noise**2)
        assert float(log_density[t]) == pytest.approx(stats.norm(mean[0], scale).logpdf(y[t]), abs=5e-3)


def test_draws_have_the_mean_and_covariance_of_the_process():
    count, process, x = 20_000, PROCESSES[1], points(6, 2)
    values = np.asarray(draw_many(jax.random.split(jax.random.key(2), count), jnp.asarray(x), process).values)
    expected = kernel(process)(x) + process.noise**2 * np.eye(6)
    # Standard error of an entry is at most variance · √(2 / count) ≈ 0.026: five of them.
    np.testing.assert_allclose(np.cov(values.T), expected, atol=0.13)
    np.testing.assert_allclose(values.mean(0), 0, atol=5 * np.sqrt(2.6 / count))
    whitened = np.linalg.solve(np.linalg.cholesky(expected), values.T)
    assert stats.kstest(whitened.ravel(), "norm").pvalue > 1e-3


def test_same_key_gives_the_same_function_and_another_key_another():
    x = jnp.asarray(points(10, 1))
    first, again, other = (draw(jax.random.key(seed), x, PROCESSES[0]).values for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(np.asarray(first) - np.asarray(other)).max() > 0.1


@pytest.mark.parametrize("noise", [0.1, 0.01], ids=["default noise", "smallest noise"])
@pytest.mark.parametrize("spread", [0.0, 1e-3, 0.1])
def test_clustered_points_stay_finite_and_right_in_float32(noise, spread):
    process, count = GaussianProcess(noise=noise), 150
    x = points(count, 1, low=0.0, high=1.0) * np.float32(spread)
    values, log_density = draw(jax.random.key(0), jnp.asarray(x), process)
    assert np.all(np.isfinite(values))
    covariance = kernel(process)(x.astype(np.float64)) + noise**2 * np.eye(count)
    factor = np.linalg.cholesky(covariance)
    z = np.asarray(jax.random.normal(jax.random.key(0), (count,)), np.float64)
    expected = -0.5 * z**2 - np.log(np.diag(factor)) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(log_density, expected, atol=0.05)


def test_smallest_noise_that_is_accepted_is_safe():
    """Whatever the error message allows must not give NaN, even for 150 samples close together."""
    process = GaussianProcess(variance=4.0, noise=0.02)
    with pytest.raises(MannError, match="too small for float32"):
        GaussianProcess(variance=4.0, noise=0.0199)
    close = jnp.asarray(points(150, 1, low=0.0, high=1e-3))
    keys = jax.random.split(jax.random.key(0), 3)
    assert all(bool(jnp.all(jnp.isfinite(draw(key, close, process).values))) for key in keys)


@pytest.mark.parametrize("field", ["length_scale", "variance", "noise"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_hyperparameters_are_refused_by_name(field, value):
    with pytest.raises(MannError, match=field.replace("_", " ")):
        GaussianProcess(**{field: value})


@pytest.mark.parametrize("process", PROCESSES)
def test_functions_without_noise_have_the_covariance_of_the_kernel(process):
    """The square root by eigenvectors, from the same normal numbers: f fᵀ = K, and no noise on a dense grid."""
    x = np.linspace(-2, 2, 121, dtype=np.float32)[:, None]
    keys = jax.random.split(jax.random.key(3), 5_000)
    values = np.asarray(jax.jit(jax.vmap(lambda key: draw_smooth(key, jnp.asarray(x), process)))(keys))
    # Standard error of an entry is at most variance · √(2 / count): five of them.
    np.testing.assert_allclose(np.cov(values.T), kernel(process)(x), atol=5 * process.variance * 0.02)
    # The second difference of a smooth function is nearly zero; a noise of s would give it a deviation of s√6.
    curvature = np.diff(values[:500], 2, axis=1).std()
    step = float(x[1, 0] - x[0, 0])
    smooth = (
        np.sqrt(3 * process.variance) * (step / process.length_scale) ** 2
    )  # deviation of f'' times step²
    assert curvature < smooth + 0.01 * np.sqrt(process.variance)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_cholesky_factor_is_that_of_numpy(count):
    x = points(count, 1)
    matrix = kernel(PROCESSES[0])(x.astype(np.float64)) + 0.01 * np.eye(count)
    factor = jax.jit(cholesky)(jnp.asarray(matrix, jnp.float32))
    np.testing.assert_allclose(factor, np.linalg.cholesky(matrix), atol=1e-5)
    assert not np.triu(factor, 1).any()


def test_two_devices_draw_long_functions_at_the_same_time():
    """With LAPACK's Cholesky factorisation this never came back."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("devices",))
    task, keys = Regression(length=50), jax.random.split(jax.random.key(0), 16)
    split = PartitionSpec("devices")
    both = jax.shard_map(jax.vmap(task.draw), mesh=mesh, in_specs=split, out_specs=split, check_vma=False)
    expected = jax.jit(jax.vmap(task.draw))(keys).targets
    for _ in range(20):
        np.testing.assert_allclose(jax.jit(both)(keys).targets, expected, atol=1e-4)


@pytest.mark.parametrize("dimensions", [1, 3])
def test_drawing_functions_takes_no_more_than_a_few_times_as_long_as_with_numpy(dimensions):
    """Both on the same cores in turn, however busy these are: thousands per second where they are not."""
    draw_batch = jax.jit(jax.vmap(Regression(dimensions=dimensions, length=50).draw))
    keys = jax.random.split(jax.random.key(0), 200)
    rng = np.random.default_rng(0)

    def with_numpy():
        for _ in range(200):
            x = rng.uniform(-2, 2, (50, dimensions))
            np.linalg.cholesky(kernel(PROCESSES[0])(x) + 0.01 * np.eye(50)) @ rng.normal(size=50)

    def seconds(draw):
        began = time.perf_counter()
        draw()
        return time.perf_counter() - began

    jax.block_until_ready(draw_batch(keys))
    times = [
        (seconds(lambda: jax.block_until_ready(draw_batch(keys))), seconds(with_numpy)) for _ in range(10)
    ]
    assert np.divide(*np.min(times, axis=0)) < 5  # about 1


def test_the_loss_over_the_process_is_the_mean_over_all_values_that_scikit_learn_holds_possible():
    """−log p of each possible y_t (scipy), weighed by the prediction from the samples before (quadrature)."""
    process = GaussianProcess(length_scale=0.8, variance=1.5, noise=0.2)
    task = Regression(dimensions=2, length=6, process=process, loss_over="process")
    episodes = task.draw_batch(jax.random.split(jax.random.key(3), 2))
    outputs = jax.random.normal(jax.random.key(4), (2, 6, 2))
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    expected = []
    for x, targets, said in zip(*map(np.asarray, (episodes.inputs, episodes.targets, outputs)), strict=True):
        losses = []
        for t in range(6):
            mean, scale = 0.0, np.sqrt(process.variance + process.noise**2)
            if t:
                fitted = GaussianProcessRegressor(kernel(process), alpha=process.noise**2, optimizer=None)
                fitted.fit(x[:t], targets[:t, 0])
                (mean,), (spread,) = fitted.predict(x[t : t + 1], return_std=True)
                scale = np.hypot(spread, process.noise)
            ours = stats.norm(said[t, 0], np.log1p(np.exp(said[t, 1])) + 1e-3)
            losses.append(-np.sum(weights * ours.logpdf(mean + scale * nodes)) / np.sum(weights))
        expected.append(np.mean(losses))
    np.testing.assert_allclose(task.loss(outputs, episodes), expected, rtol=1e-3)
    sampled = Regression(dimensions=2, length=6, process=process)
    assert not np.allclose(sampled.loss(outputs, episodes), expected, rtol=1e-3)
