"""Functions that are not known in advance: kernels against scikit-learn, draws within bounds, sawtooths by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, Matern

from mann.data.functions import KERNELS, Drawn, UnknownProcess, draw_unknown
from mann.errors import MannError
from mann.tasks import UnknownFunctions

LENGTH, PERIOD, VARIANCE = 0.6, 1.7, 2.5


def drawn(kernel, direction=(1.0,), noise=0.1, phase=0.25):
    numbers = (LENGTH, VARIANCE, noise, PERIOD)
    return Drawn(
        jnp.asarray(KERNELS.index(kernel)),
        *(jnp.asarray(number, jnp.float32) for number in numbers),
        jnp.asarray(direction, jnp.float32),
        jnp.asarray(phase, jnp.float32),
    )


@pytest.mark.parametrize("dimensions", [1, 3])
@pytest.mark.parametrize(
    ("kernel", "theirs"),
    [
        ("squared-exponential", RBF(LENGTH)),
        ("matern", Matern(LENGTH, nu=2.5)),
        ("periodic", ExpSineSquared(2 * np.pi * LENGTH / PERIOD, PERIOD)),
    ],
)
def test_kernels_are_those_of_scikit_learn(kernel, theirs, dimensions):
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-2, 2, (7, dimensions)), rng.uniform(-2, 2, (5, dimensions))
    ours = drawn(kernel, np.eye(dimensions)[0]).covariance(*(jnp.asarray(x, jnp.float32) for x in (a, b)))
    if kernel == "periodic":  # of each dimension by itself
        expected = np.prod([theirs(a[:, [d]], b[:, [d]]) for d in range(dimensions)], axis=0)
    else:
        expected = theirs(a, b)
    np.testing.assert_allclose(ours, VARIANCE * expected, atol=1e-5)


def test_a_sawtooth_rises_falls_at_once_and_has_the_covariance_that_is_said_of_it():
    x = np.array([[0.0], [0.1], [0.1 + 3 * PERIOD], [0.75 * PERIOD - 1e-3], [0.75 * PERIOD + 1e-3]])
    values = np.asarray(drawn("sawtooth").sawtooth(jnp.asarray(x, jnp.float32)))
    height = np.sqrt(3 * VARIANCE)
    np.testing.assert_allclose(values[:2], height * (2 * (0.25 + x[:2, 0] / PERIOD) - 1), atol=1e-4)
    assert values[1] == pytest.approx(values[2], abs=1e-3)
    np.testing.assert_allclose(values[3:], [height, -height], atol=0.02)
    phases = np.arange(2000) / 2000
    points = np.array([0.0, 0.3, 1.1])
    teeth = height * (2 * ((points[None] / PERIOD + phases[:, None]) % 1) - 1)
    expected = teeth.T @ teeth / len(phases)
    ours = drawn("sawtooth").covariance(*[jnp.asarray(points[:, None], jnp.float32)] * 2)
    np.testing.assert_allclose(ours, expected, atol=0.01)


def test_samples_are_those_of_the_kernel_with_its_noise():
    """Second moments over many draws."""
    x = jnp.asarray([[0.0], [0.4], [1.3]])
    for kernel in ("matern", "sawtooth"):
        process = drawn(kernel, noise=0.5)

        def draw(key, process=process):
            phase_key, key = jax.random.split(key)
            return draw_unknown(key, x, process._replace(phase=jax.random.uniform(phase_key)))

        y = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 20_000)), np.float64)
        expected = np.asarray(process.covariance(x, x), np.float64) + 0.25 * np.eye(3)
        np.testing.assert_allclose(y.T @ y / len(y), expected, atol=0.1)


def test_hyperparameters_are_even_on_a_logarithmic_scale_within_their_bounds():
    unknown = UnknownProcess(kernels=("matern", "sawtooth"), noise=(0.02, 0.5))
    draws = jax.jit(jax.vmap(lambda key: unknown.draw(key, 2)))(jax.random.split(jax.random.key(1), 2000))
    relative = np.asarray(draws.noise) / np.sqrt(np.asarray(draws.variance))
    for values, (low, high) in (
        (draws.length_scale, unknown.length_scale),
        (draws.variance, unknown.variance),
        (relative, unknown.noise),
        (draws.period, unknown.period),
    ):
        share = (np.log(values) - np.log(low)) / np.log(high / low)
        assert share.min() > -1e-5
        assert share.max() < 1 + 1e-5
        assert share.mean() == pytest.approx(0.5, abs=0.03)
    assert set(np.asarray(draws.kernel)) == {1, 3}
    np.testing.assert_allclose(np.linalg.norm(draws.direction, axis=1), 1, rtol=1e-5)


def test_the_reference_is_the_process_with_the_true_hyperparameters():
    task = UnknownFunctions(length=6, dimensions=2)
    episodes = jax.jit(task.draw_batch)(jax.random.split(jax.random.key(0), 5))
    nll = jax.jit(task.reference)(episodes).nll
    for i in range(5):
        x, y = episodes.inputs[i], np.asarray(episodes.targets[i, :, 0], np.float64)
        process = jax.tree.map(lambda leaf, i=i: leaf[i], episodes.process)
        noise = float(process.noise) ** 2 * np.eye(6)
        matrix = np.asarray(process.covariance(x, x), np.float64) + noise
        joint = 0.5 * (y @ np.linalg.solve(matrix, y) + np.linalg.slogdet(2 * np.pi * matrix)[1])
        assert float(nll[i].sum()) == pytest.approx(joint, abs=0.02)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kernels": ()}, "name at least one"),
        ({"length_scale": (2.0, 1.0)}, "length scale must be positive and in order"),
        ({"period": (0.0, 1.0)}, "period must be positive"),
        ({"noise": (0.001, 0.1)}, "too small for float32"),
    ],
)
def test_bounds_that_cannot_be_are_refused(fields, message):
    with pytest.raises(MannError, match=message):
        UnknownProcess(**fields)
