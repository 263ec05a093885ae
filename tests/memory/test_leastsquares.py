"""The least-squares memory against a Gaussian process in numpy, whole episodes at once against step by step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, special
from sklearn.gaussian_process import kernels

from mann.cell import Cell, Scan
from mann.controllers import LSTMConfig, NoController, NoControllerConfig
from mann.errors import MannError
from mann.layers import Linear
from mann.memory import LeastSquaresConfig
from mann.memory.base import pass_on
from mann.memory.innovations import innovations
from mann.models import ModelConfig, build_model, tile_state
from mann.native.host import host_step
from mann.outputs import Gaussian
from mann.recurrences import Apart, choose_recurrence
from mann.tasks import Classification, Regression

QUERY, T, DIMENSIONS = 3, 15, 2


def memory(**fields):
    config = LeastSquaresConfig(**{"frequencies": 5, "heads": 3, "hidden": 6} | fields)
    module = config.build(QUERY, (DIMENSIONS, 1), key=jax.random.key(0))
    rng = np.random.default_rng(1)  # as after training: nothing at its start
    places = lambda m: (m.strengths, m.shape, m.rate, m.preference, m.trust, m.mend.weight, m.mend.bias)  # noqa: E731
    changed = [jnp.asarray(0.3 * rng.normal(size=leaf.shape) + leaf, jnp.float32) for leaf in places(module)]
    return eqx.tree_at(places, module, changed)


def stream(seed=0, steps=T):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (steps, DIMENSIONS))
    y = np.concatenate(
        [[0], np.sin(2 * x[:-1, 0]) + 0.1 * rng.normal(size=steps - 1)]
    )  # y of the step before
    return jnp.asarray(x, jnp.float32), jnp.asarray(y[:, None], jnp.float32)


def oracle(module, x, previous):
    """Mean and scale at every step, in float64: one Gaussian process per head, given all samples before."""
    arrays = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), eqx.filter(module, eqx.is_array))
    x, values = np.asarray(x, np.float64), np.asarray(previous, np.float64)[1:, 0]
    answers = []
    for step in range(len(x)):
        heads = []
        for h in range(module.heads):
            share = np.exp(arrays.strengths[h]) / np.exp(arrays.strengths[h]).sum()
            noise = np.exp(2 * arrays.noise[h]) + 1e-4

            def kernel(a, b, share=share, waves=arrays.frequencies[h]):
                return np.cos((a[:, None] - b[None]) @ waves.T) @ share

            seen, y, now = x[:step], values[:step], x[step : step + 1]
            matrix = kernel(seen, seen) + noise * np.eye(step)
            solved = np.linalg.solve(matrix, np.column_stack([y, kernel(seen, now)]))
            mean = float(kernel(now, seen)[0] @ solved[:, 0])
            variance = float(1 + noise - kernel(now, seen)[0] @ solved[:, 1])
            a, b = np.exp(arrays.shape[h]), np.exp(arrays.rate[h])
            quadratic = float(y @ solved[:, 0])
            evidence = (
                a * np.log(b)
                - (a + step / 2) * np.log(b + quadratic / 2)
                + special.gammaln(a + step / 2)
                - special.gammaln(a)
                - 0.5 * np.linalg.slogdet(matrix)[1]
            )
            variance *= (b + quadratic / 2) / (a + step / 2)
            heads.append((mean, variance, np.exp(arrays.trust) * evidence + arrays.preference[h]))
        means, variances, scores = np.array(heads).T
        weights = special.softmax(scores)
        mean = weights @ means
        total = weights @ (variances + (means - mean) ** 2)
        seen = [weights, weights * (means - mean) / np.sqrt(total), weights * np.log(variances / total)]
        doubt = -weights @ np.log(weights + 1e-9)
        seen.append([0.5 * np.log(total), doubt, np.log1p(step), weights @ variances / total])
        units = np.tanh(np.concatenate(seen) @ arrays.hidden.weight + arrays.hidden.bias)
        shift, stretch = units @ arrays.mend.weight + arrays.mend.bias
        answers.append((mean + np.sqrt(total) * shift, np.sqrt(total) * np.exp(stretch)))
    return np.array(answers)


def run(module, x, previous, state=None):
    """Step by step, with something for the query that must not matter."""
    state, reads = module.initial_state() if state is None else state, []
    for direct in module.project(x, previous):
        read, state = module(jnp.concatenate([jnp.full(QUERY, 9.0), direct]), state)
        reads.append(read)
    return jnp.stack(reads), state


def test_reads_are_those_of_gaussian_processes_believed_by_their_evidence():
    module = memory()
    x, previous = stream()
    expected = oracle(module, x, previous)
    one_by_one, _ = run(module, x, previous)
    at_once, _ = module.unroll(module.project(x, previous), module.initial_state())
    for reads in (one_by_one, at_once):
        np.testing.assert_allclose(np.stack(Gaussian().mean_and_scale(reads), axis=1), expected, atol=2e-4)


def test_so_are_those_of_the_native_step():
    module = memory()
    x, previous = stream()
    cell, readout = Cell(NoController(), module, "hidden"), pass_on(Linear(2, 2, key=jax.random.key(0)), 0)
    step, state, reads = host_step(cell, readout, DIMENSIONS, 1), cell.initial_state(), []
    if step is None:
        pytest.skip("no C++ compiler: there is no native kernel to test")
    for now, value in zip(np.asarray(x), np.asarray(previous), strict=True):
        outputs, state = step(now, value, state)
        reads.append(state.reads)
        np.testing.assert_array_equal(outputs[:-1], state.reads)
    found = np.stack(Gaussian().mean_and_scale(jnp.stack(reads)), axis=1)
    np.testing.assert_allclose(found, oracle(module, x, previous), atol=2e-4)


def test_the_state_after_whole_episodes_is_that_of_single_steps_also_from_a_full_memory():
    module = memory()
    x, previous = stream(steps=9)
    states = [module.initial_state()] * 2
    for _ in range(2):  # the second time with a key that waits for its value
        (one_by_one, a), (at_once, b) = (
            run(module, x, previous, states[0]),
            module.unroll(module.project(x, previous), states[1]),
        )
        np.testing.assert_allclose(one_by_one, at_once, atol=3e-4)
        jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=3e-4), a, b)
        states = [a, b]
    assert float(a.samples) == 17  # the very first key had no value to wait for


def starting_kernel(module, apart, head):
    """The kernel of a head as it starts, from its waves."""
    waves, shares = np.asarray(module.frequencies[head, :, 0]), special.softmax(module.strengths[head])
    return np.cos(np.multiply.outer(apart, waves)) @ shares


def test_heads_start_with_the_kernels_that_they_are_named_after():
    """Against scikit-learn; the sawtooth against the covariance of sawtooths over all phases."""
    config = LeastSquaresConfig(
        frequencies=40, heads=5, rough=1, periodic=2, sawtooth=1, shortest=0.5, longest=2.0, span=20.0
    )
    module = config.build(QUERY, (1, 1), key=jax.random.key(0))
    apart = np.linspace(0, 6, 31)
    points, zero = apart[:, None], np.zeros((1, 1))
    golden = [(i * (5**0.5 - 1) / 2) % 1 for i in (1, 2)]
    periods, scales = [2**0.5, 8**0.5], [0.5 * 4**place for place in golden]
    expected = [kernels.RBF(1.0), kernels.Matern(1.0, nu=2.5)]
    # scikit-learn has exp(−2 sin² / L²), ours exp(−(p / π)² sin² / 2 ℓ²): L = 2 π ℓ / p.
    expected += [
        kernels.ExpSineSquared(2 * np.pi * scale / period, period)
        for period, scale in zip(periods, scales, strict=True)
    ]
    for head, kernel in enumerate(expected):
        np.testing.assert_allclose(
            starting_kernel(module, apart, head), kernel(points, zero)[:, 0], atol=5e-3
        )
    phases = (np.arange(2000) + 0.5) / 2000
    teeth = np.mean((2 * phases - 1) * (2 * ((apart[:, None] / 2 + phases) % 1) - 1), axis=1) * 3
    np.testing.assert_allclose(
        starting_kernel(module, apart, 4), teeth, atol=0.04
    )  # without the last harmonics
    odds = special.softmax(module.preference)
    np.testing.assert_allclose(odds, [1 / 4, 1 / 4, 1 / 8, 1 / 8, 1 / 4], rtol=1e-6)


def test_rough_waves_are_drawn_from_a_matern_spectrum_in_any_dimension():
    config = LeastSquaresConfig(frequencies=20_000, heads=2, rough=1, shortest=1.0, longest=1.0)
    module = config.build(QUERY, (2, 1), key=jax.random.key(0))
    apart = np.array([[0.3, 0.4], [1.0, 0.0], [1.0, 2.0]])
    for head, kernel in enumerate((kernels.RBF(1.0), kernels.Matern(1.0, nu=2.5))):
        ours = np.cos(apart @ np.asarray(module.frequencies[head]).T).mean(axis=1)
        np.testing.assert_allclose(ours, kernel(apart, np.zeros((1, 2)))[:, 0], atol=0.03)


def test_thousands_of_samples_leave_a_sound_estimate():
    """Rounding does not pile up: after 3000 samples in float32, the least squares of numpy in float64."""
    module = memory(heads=1)
    x, previous = stream(steps=3000)
    direct = module.project(x, previous)
    state = jax.jit(lambda s, d: jax.lax.scan(lambda s, d: (module(d, s)[1], None), s, d)[0])(
        module.initial_state(), direct
    )
    keys = np.asarray(module.embed(x), np.float64)[:-1]
    noise = np.exp(2 * float(module.noise[0])) + 1e-4
    precision = keys.T @ keys + noise * np.eye(keys.shape[1])
    estimate = linalg.solve(precision, keys.T @ np.asarray(previous, np.float64)[1:, 0], assume_a="pos")
    np.testing.assert_allclose(keys @ np.asarray(state.estimate[0], np.float64), keys @ estimate, atol=2e-3)


def test_innovations_and_their_gradient_are_those_of_scipy_and_of_small_steps():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(2, 14, 14))
    matrix = factors @ factors.swapaxes(1, 2) + np.eye(14)
    values = rng.normal(size=(2, 14))

    def loss(matrix, values):
        lower = np.linalg.cholesky(matrix)
        z = np.stack([linalg.solve_triangular(a, b, lower=True) for a, b in zip(lower, values, strict=True)])
        return np.sum(np.sin(z)) + np.sum(np.log(lower.diagonal(axis1=1, axis2=2)) * np.arange(14)), lower, z

    def ours(matrix, values):
        scale, errors, _ = innovations(matrix, values)
        return jnp.sum(jnp.sin(errors)) + jnp.sum(jnp.log(scale) * jnp.arange(14.0)[None])

    _, lower, z = loss(matrix, values)
    single = [jnp.asarray(array, jnp.float32) for array in (matrix, values)]
    scale, errors, inverse = innovations(*single)
    np.testing.assert_allclose(scale, lower.diagonal(axis1=1, axis2=2), rtol=1e-5)
    np.testing.assert_allclose(errors, z, atol=1e-4)
    np.testing.assert_allclose(inverse @ lower, np.tile(np.eye(14), (2, 1, 1)), atol=1e-4)
    to_matrix, to_values = jax.grad(ours, argnums=(0, 1))(*single)
    for seed in range(3):
        direction = np.random.default_rng(seed).normal(size=matrix.shape)
        direction = direction + direction.swapaxes(1, 2)
        across = np.random.default_rng(seed + 9).normal(size=values.shape)
        h = 1e-5
        ahead, behind = (loss(matrix + s * direction, values + s * across)[0] for s in (h, -h))
        slope = np.sum(np.asarray(to_matrix) * direction) + np.sum(np.asarray(to_values) * across)
        assert slope == pytest.approx((ahead - behind) / (2 * h), rel=1e-3, abs=1e-3)


def network(**fields):
    config = ModelConfig(
        controller=NoControllerConfig(),
        memory=LeastSquaresConfig(**{"frequencies": 5, "heads": 2, "hidden": 4} | fields),
        reads_to_controller=False,
    )
    return build_model(config, Regression(dimensions=DIMENSIONS, length=T), key=jax.random.key(0))


def test_whole_episodes_at_once_are_the_scan_with_its_gradients():
    model = network()
    assert isinstance(choose_recurrence(model.cell), Apart)
    x, previous = (jnp.stack(parts) for parts in zip(*(stream(seed) for seed in range(2)), strict=True))
    state = tile_state(model.initial_state(), 2)

    def outputs(model, recurrence):
        found, last = recurrence(model.cell, model.project(x, previous), state)
        return jnp.sum(jnp.sin(found)), (found, last)

    results = [
        eqx.filter_jit(eqx.filter_grad(lambda m, r=recurrence: outputs(m, r), has_aux=True))(model)
        for recurrence in (Apart(), Scan())
    ]
    for ours, theirs in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3, rtol=2e-3)


def test_the_null_label_of_the_first_step_is_no_sample():
    model = network()
    x, previous = stream(steps=4)
    ours = model.unroll(x, previous).outputs
    theirs = model.unroll(x, previous.at[0].set(7.0)).outputs
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 0}, "heads must be at least 1"),
        ({"shortest": 2.0, "longest": 1.0}, "in order"),
        ({"noise": 0.001}, "noise must be at least 0.01"),
        ({"heads": 4, "rough": 3, "sawtooth": 2}, "together must be at most 4"),
        ({"span": -1.0}, "span must be positive"),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(MannError, match=message):
        LeastSquaresConfig(**fields)


def test_it_is_for_functions_alone():
    config = ModelConfig(controller=LSTMConfig(hidden=8), memory=LeastSquaresConfig())
    with pytest.raises(MannError, match="functions of one variable"):
        LeastSquaresConfig(span=9.0).build(QUERY, (2, 1), key=jax.random.key(0))
    with pytest.raises(MannError, match="use it for regression"):
        build_model(config, Classification(classes=3), key=jax.random.key(0))
