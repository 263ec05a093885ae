"""Losses against scipy, predictions against the definition."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from mann.labels import STRINGS, one_hot
from mann.outputs import Gaussian, Letters
from mann.tasks import Classification, Regression

BATCH = (3, 4)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def array(values):
    return jnp.asarray(values, jnp.float32)


def test_categorical_loss_is_minus_the_log_probability_of_the_label(rng):
    outputs, labels = rng.normal(size=(*BATCH, 5)) * 3, rng.integers(5, size=BATCH)
    actual = np.asarray(Letters(one_hot(5)).nll(array(outputs), array(np.eye(5)[labels])))
    assert actual.shape == BATCH
    for index in np.ndindex(BATCH):
        expected = -stats.multinomial.logpmf(np.eye(5)[labels[index]], 1, softmax(outputs[index]))
        assert actual[index] == pytest.approx(expected, rel=1e-4)


def test_string_loss_is_the_sum_over_five_independent_letters(rng):
    outputs, codes = rng.normal(size=(12, 25)) * 3, rng.integers(3125, size=12)
    targets = STRINGS.encode(jnp.asarray(codes))
    actual = np.asarray(Letters(STRINGS).nll(array(outputs), targets))
    for i, code in enumerate(codes):
        expected = 0.0
        for position in range(5):
            letter = code // 5 ** (4 - position) % 5
            expected -= np.log(softmax(outputs[i, 5 * position : 5 * position + 5])[letter])
        assert actual[i] == pytest.approx(expected, rel=1e-4)


def test_gaussian_loss_is_the_normal_density_of_scipy(rng):
    outputs, target = rng.normal(size=(*BATCH, 2)) * 2, rng.normal(size=(*BATCH, 1))
    gaussian = Gaussian()
    mean, scale = (np.asarray(part, np.float64) for part in gaussian.mean_and_scale(array(outputs)))
    np.testing.assert_allclose(mean, outputs[..., 0], rtol=1e-6)
    np.testing.assert_allclose(scale, np.log1p(np.exp(outputs[..., 1])) + 1e-3, rtol=1e-5)
    expected = -stats.norm(mean, scale).logpdf(target[..., 0])
    np.testing.assert_allclose(gaussian.nll(array(outputs), array(target)), expected, rtol=1e-3)


@pytest.mark.parametrize("raw", [-1e6, -100.0, -10.0, 0.0, 50.0])
def test_gaussian_scale_is_positive_and_loss_and_gradient_finite_for_any_output(raw):
    gaussian, outputs, target = Gaussian(), array([0.5, raw]), array([-1.0])
    assert float(gaussian.mean_and_scale(outputs)[1]) >= 1e-3
    value, gradient = jax.value_and_grad(lambda o: gaussian.nll(o, target))(outputs)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


def test_extreme_categorical_outputs_give_finite_loss_and_gradient():
    outputs, target = array([1e4, -1e4, 0.0]), array([0.0, 1.0, 0.0])
    value, gradient = jax.value_and_grad(lambda o: Letters(one_hot(3)).nll(o, target))(outputs)
    assert float(value) == pytest.approx(2e4)
    np.testing.assert_allclose(gradient, [1, -1, 0], atol=1e-6)


def test_gradient_of_the_categorical_loss_is_probability_minus_label(rng):
    outputs, target = rng.normal(size=5), np.eye(5)[2]
    gradient = jax.grad(lambda o: Letters(one_hot(5)).nll(o, array(target)))(array(outputs))
    np.testing.assert_allclose(gradient, softmax(outputs) - target, atol=1e-6)


def test_categorical_predicts_the_largest_and_is_correct_when_it_is_the_label(rng):
    outputs = rng.normal(size=(20, 5))
    labels = rng.integers(5, size=20)
    labels[:5] = outputs[:5].argmax(1)
    categorical = Letters(one_hot(5))
    np.testing.assert_array_equal(categorical.predict(array(outputs)), np.eye(5)[outputs.argmax(1)])
    correct = np.asarray(categorical.correct(array(outputs), array(np.eye(5)[labels])))
    np.testing.assert_array_equal(correct, outputs.argmax(1) == labels)
    assert correct[:5].all()
    assert not correct.all()


def test_string_is_correct_only_if_every_letter_is():
    strings, target = Letters(STRINGS), STRINGS.encode(jnp.array([1234]))[0]
    sure = target * 4 - 2
    assert bool(strings.correct(sure, target))
    np.testing.assert_array_equal(strings.predict(sure), target)
    for position, letter in itertools.product(range(5), range(5)):
        block = np.asarray(target)[5 * position : 5 * position + 5]
        changed = np.array(sure)
        changed[5 * position : 5 * position + 5] = 4.0 * np.eye(5)[letter]
        assert bool(strings.correct(array(changed), target)) == bool(block[letter])


def test_gaussian_prediction_is_the_mean(rng):
    outputs = rng.normal(size=(*BATCH, 2))
    np.testing.assert_allclose(Gaussian().predict(array(outputs)), outputs[..., :1], rtol=1e-6)


@pytest.mark.parametrize(
    ("task", "distribution", "size"),
    [
        (Classification(classes=5), Letters(one_hot(5)), 5),
        (Classification(classes=15, labels="strings"), Letters(STRINGS), 25),
        (Regression(dimensions=3), Gaussian(), 2),
    ],
)
def test_every_task_gets_its_distribution_with_the_size_of_the_supplement(task, distribution, size):
    assert task.output == distribution
    assert task.output.size == size
