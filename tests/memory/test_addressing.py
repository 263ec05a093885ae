"""Every addressing equation against plain loops, and what must hold for any input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist

from mann.layers import normalise
from mann.memory import addressing
from tests.oracles import lrua, ntm

R, M, W = 2, 10, 5

cosine_similarity = jax.jit(addressing.cosine_similarity)
content_weights = jax.jit(addressing.content_weights)
least_used = jax.jit(addressing.least_used, static_argnums=1)
write_weights = jax.jit(addressing.write_weights)
update_usage = jax.jit(addressing.update_usage, static_argnums=3)
interpolate = jax.jit(addressing.interpolate)
shift = jax.jit(addressing.shift)
sharpen = jax.jit(addressing.sharpen)

invariant = settings(max_examples=60, deadline=None, derandomize=True)


def numbers(shape, low, high):
    elements = st.floats(low, high, width=32, allow_subnormal=False)
    return arrays(np.float32, shape, elements=elements)


def distributions(shape):
    """Non-negative rows that sum to 1, among them one-hot rows."""

    def normalise(values):
        values = values + (values.sum(-1, keepdims=True) == 0)
        return (values / values.sum(-1, keepdims=True)).astype(np.float32)

    return arrays(np.float32, shape, elements=st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0])).map(normalise)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def keys(rng):
    return rng.normal(size=(R, W)).astype(np.float32)


@pytest.fixture
def memory(rng):
    """Ordinary slots, one empty (1e-6), one all zero, one tiny and one large."""
    values = rng.normal(size=(M, W)).astype(np.float32)
    values[3], values[5], values[7], values[8] = 1e-6, 0, values[7] * 1e-3, values[8] * 100
    return values


def simplex(rng, *shape):
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)


def tolist(array):
    return np.asarray(array, np.float64).tolist()


# Values, against loops


def test_normalise_gives_unit_length_except_for_tiny_vectors(rng):
    vectors = rng.normal(size=(4, 3, W)).astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    np.testing.assert_allclose(normalise(jnp.asarray(vectors)), vectors / lengths, rtol=1e-5)
    tiny = jnp.full((1, W), 1e-6)
    assert float(jnp.linalg.norm(normalise(tiny))) < 0.01


def test_cosine_similarity_of_ordinary_vectors_is_the_exact_cosine(rng, keys):
    memory = rng.normal(size=(M, W)).astype(np.float32)
    expected = 1 - cdist(keys, memory, "cosine")
    np.testing.assert_allclose(cosine_similarity(keys, memory), expected, atol=1e-5)


def test_cosine_similarity_equals_the_loop_also_for_empty_slots(keys, memory):
    expected = [[lrua.cosine(k, slot) for slot in tolist(memory)] for k in tolist(keys)]
    actual = cosine_similarity(keys, memory)
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert np.abs(np.asarray(actual)[:, [3, 5]]).max() < 0.01  # empty slots are like nothing


@pytest.mark.parametrize("strength", [1.0, 11.0, 300.0])
def test_content_weights_equal_the_loop(keys, memory, strength):
    beta = np.array([strength, strength / 2], np.float32)
    expected = [lrua.read_weights(k, tolist(memory), b) for k, b in zip(tolist(keys), beta, strict=True)]
    np.testing.assert_allclose(content_weights(keys, memory, beta), expected, atol=1e-6 * max(strength, 5))


def test_without_a_key_strength_no_weight_on_128_slots_exceeds_the_bound_in_the_design_notes():
    memory = jnp.concatenate([jnp.ones((1, W)), jnp.full((127, W), -1.0)])  # the sharpest case possible
    weights = content_weights(jnp.ones((1, W)), memory, jnp.ones(1))
    assert float(weights.max()) == pytest.approx(np.e / (np.e + 127 / np.e), rel=1e-4)
    assert float(weights.max()) < 0.056


def test_read_equals_the_loop(rng, memory):
    weights = simplex(rng, R, M)
    expected = [lrua.read(w, tolist(memory)) for w in tolist(weights)]
    np.testing.assert_allclose(
        addressing.read(jnp.asarray(weights), jnp.asarray(memory)), expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("write_heads", [R, 1])
def test_usage_equals_the_loop(rng, write_heads):
    used = rng.uniform(size=M).astype(np.float32)
    reads, writes = simplex(rng, R, M), simplex(rng, write_heads, M)
    expected = lrua.usage(tolist(used), tolist(reads), tolist(writes), 0.9)
    np.testing.assert_allclose(update_usage(used, reads, writes, 0.9), expected, rtol=1e-5)


def test_usage_has_no_gradient(rng):
    used = jnp.asarray(rng.uniform(size=M), jnp.float32)
    reads, writes = jnp.asarray(simplex(rng, R, M)), jnp.asarray(simplex(rng, R, M))
    gradients = jax.grad(lambda *a: jnp.sum(addressing.update_usage(*a, 0.9) ** 2), (0, 1, 2))(
        used, reads, writes
    )
    assert all(not np.any(gradient) for gradient in gradients)


@pytest.mark.parametrize("count", [1, 2, 4, M])
@pytest.mark.parametrize(
    "used",
    [
        [0.0] * M,
        [1.0] + [0.0] * (M - 1),
        [3, 1, 2, 1, 0, 5, 0, 1, 0, 2],
        [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
    ],
    ids=["all tied", "start of an episode", "some tied", "none tied"],
)
def test_least_used_marks_exactly_as_many_slots_as_asked_ties_by_index(used, count):
    marked = np.asarray(least_used(jnp.asarray(used, jnp.float32), count))
    expected = np.zeros((count, M))
    for row, slot in enumerate(lrua.least_used_slots(used, count)):
        expected[row, slot] = 1
    np.testing.assert_array_equal(marked, expected)


@pytest.mark.parametrize("targets", [[4], [4, 1]], ids=["shared target", "a target for each head"])
def test_write_weights_equal_the_loop(rng, targets):
    gate, reads = np.array([0.3, 0.8], np.float32), simplex(rng, R, M)
    one_hot = jnp.asarray(np.eye(M, dtype=np.float32)[targets])
    both = targets * R if len(targets) == 1 else targets
    expected = [lrua.write_weights(float(gate[h]), tolist(reads)[h], both[h]) for h in range(R)]
    np.testing.assert_allclose(write_weights(gate, reads, one_hot), expected, rtol=1e-6)


def test_erase_zeroes_the_marked_slots_and_no_other(memory):
    marked = np.zeros(M, np.float32)
    marked[[2, 6]] = 1
    erased = np.asarray(addressing.erase(jnp.asarray(memory), jnp.asarray(marked)))
    for i in range(M):
        np.testing.assert_array_equal(erased[i], np.zeros(W) if i in (2, 6) else memory[i])


def test_write_equals_the_loop_summed_over_heads(rng, memory):
    weights, vectors = simplex(rng, R, M), rng.normal(size=(R, W)).astype(np.float32)
    expected = lrua.write(tolist(memory), tolist(weights), tolist(vectors))
    actual = addressing.write(jnp.asarray(memory), jnp.asarray(weights), jnp.asarray(vectors))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_ntm_interpolation_equals_the_loop(rng):
    gate, content, previous = np.array([0.2, 1.0], np.float32), simplex(rng, R, M), simplex(rng, R, M)
    expected = [ntm.interpolate(float(gate[h]), tolist(content)[h], tolist(previous)[h]) for h in range(R)]
    np.testing.assert_allclose(interpolate(gate, content, previous), expected, rtol=1e-5)


def test_ntm_shift_equals_the_loop(rng):
    weights, distribution = simplex(rng, R, M), simplex(rng, R, 3)
    expected = [ntm.shift(tolist(weights)[h], tolist(distribution)[h]) for h in range(R)]
    np.testing.assert_allclose(shift(weights, distribution), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("move", "lands_on"), [(0, M - 1), (1, 0), (2, 1)])
def test_ntm_shift_moves_a_one_hot_by_minus_one_zero_or_plus_one_around_the_ring(move, lands_on):
    moved = shift(jnp.eye(M)[:1], jnp.eye(3)[move][None])
    np.testing.assert_array_equal(moved, np.eye(M)[lands_on][None])


def test_ntm_sharpening_equals_the_loop(rng):
    weights, exponent = simplex(rng, R, M), np.array([1.0, 3.5], np.float32)
    expected = [ntm.sharpen(tolist(weights)[h], float(exponent[h])) for h in range(R)]
    np.testing.assert_allclose(sharpen(weights, exponent), expected, atol=5e-6)


def test_ntm_erase_and_add_equals_the_loop(rng, memory):
    weights = simplex(rng, M)
    erased, added = rng.uniform(size=W).astype(np.float32), rng.normal(size=W).astype(np.float32)
    expected = ntm.erase_and_add(tolist(memory), tolist(weights), tolist(erased), tolist(added))
    actual = addressing.erase_and_add(*(jnp.asarray(a) for a in (memory, weights, erased, added)))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


# Invariants, for any input


def assert_distributions(weights):
    weights = np.asarray(weights)
    assert np.all(weights >= 0)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


@invariant
@given(numbers((R, W), -10, 10), numbers((M, W), -100, 100), numbers(R, 0, 1000))
def test_read_weights_are_distributions(keys, memory, strength):
    assert_distributions(content_weights(keys, memory, strength))


@invariant
@given(numbers((R, W), -10, 10), numbers((M, W), -100, 100))
def test_cosine_lies_between_minus_one_and_one(keys, memory):
    assert np.abs(np.asarray(cosine_similarity(keys, memory))).max() <= 1 + 1e-5


@invariant
@given(numbers(M, 0, 20) | arrays(np.float32, M, elements=st.sampled_from([0.0, 0.5, 1.0])))
def test_exactly_r_slots_are_least_used(used):
    marked = np.asarray(least_used(used, R))
    slots = marked.argmax(-1)
    assert np.array_equal(np.sort(np.unique(marked)), [0, 1])
    assert np.all(marked.sum(-1) == 1)
    assert len(set(slots.tolist())) == R
    assert used[slots].max() <= np.delete(used, slots).min()
    assert np.array_equal(least_used(used, 1)[0], marked[0])


@invariant
@given(numbers(R, 0, 1), distributions((R, M)), st.integers(0, M - 1))
def test_write_weights_are_distributions(gate, reads, target):
    assert_distributions(write_weights(gate, reads, np.eye(M, dtype=np.float32)[[target]]))


@invariant
@given(numbers(M, 0, 20), distributions((R, M)), distributions((R, M)), st.sampled_from([0.0, 0.95, 1.0]))
def test_usage_is_not_negative_and_grows_by_the_number_of_reads_and_writes(used, reads, writes, decay):
    updated = np.asarray(update_usage(used, reads, writes, decay))
    assert np.all(updated >= 0)
    np.testing.assert_allclose(updated.sum(), decay * used.sum() + 2 * R, rtol=1e-4)


@invariant
@given(
    distributions((R, M)),
    distributions((R, M)),
    numbers(R, 0, 1),
    distributions((R, 3)),
    numbers(R, 1, 50),
)
def test_ntm_weights_stay_distributions(content, previous, gate, moves, exponent):
    gated = interpolate(gate, content, previous)
    assert_distributions(gated)
    moved = shift(gated, moves)
    assert_distributions(moved)
    assert_distributions(sharpen(moved, exponent))


# Nothing breaks where the paper's equations divide by zero


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1, 2))
def some_content_loss(keys, memory, strength):
    coefficients = jnp.arange(float(R * M)).reshape(R, M)
    return jnp.sum(addressing.content_weights(keys, memory, strength) * coefficients)


@pytest.mark.parametrize("memory_value", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("key_value", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("strength", [0.0, 1.0, 1e4])
def test_content_addressing_has_no_nan_in_outputs_or_gradients(memory_value, key_value, strength):
    keys, memory = jnp.full((R, W), key_value), jnp.full((M, W), memory_value)
    value, gradients = some_content_loss(keys, memory, jnp.full(R, strength))
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1))
def mean_slot_after_sharpening(weights, exponent):
    return jnp.sum(addressing.sharpen(weights, exponent) * jnp.arange(float(M))[None])


@pytest.mark.parametrize("exponent", [1.0, 2.5, 60.0])
def test_sharpening_a_one_hot_has_no_nan_in_outputs_or_gradients(exponent):
    value, gradients = mean_slot_after_sharpening(jnp.eye(M)[3:4], jnp.full(1, exponent))
    assert float(value) == pytest.approx(3, abs=1e-3)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


# Gradients, against finite differences


def _arguments(name, rng):
    keys, memory = rng.normal(size=(R, W)), rng.normal(size=(M, W))
    memory[3], memory[5] = 1e-6, 0  # empty slots too
    weights, other = rng.dirichlet(np.ones(M), R), rng.dirichlet(np.ones(M), R)
    gate = rng.uniform(0.1, 0.9, R)
    return {
        "normalise": (memory,),
        "cosine_similarity": (keys, memory),
        "content_weights": (keys, memory, np.array([1.0, 7.0])),
        "read": (weights, memory),
        "write_weights": (gate, weights, np.eye(M)[:1]),
        "erase": (memory, np.eye(M)[4]),
        "write": (memory, weights, rng.normal(size=(R, W))),
        "interpolate": (gate, weights, other),
        "shift": (weights, rng.dirichlet(np.ones(3), R)),
        "sharpen": (weights, np.array([1.5, 4.0])),
        "erase_and_add": (memory, weights[0], rng.uniform(size=W), rng.normal(size=W)),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "normalise",
        "cosine_similarity",
        "content_weights",
        "read",
        "write_weights",
        "erase",
        "write",
        "interpolate",
        "shift",
        "sharpen",
        "erase_and_add",
    ],
)
def test_gradient_equals_finite_differences(name, rng):
    step = 1e-6
    with jax.enable_x64(True):
        arguments = tuple(jnp.asarray(a) for a in _arguments(name, rng))
        function = getattr(addressing, name)
        coefficients = jnp.asarray(rng.normal(size=function(*arguments).shape))

        @jax.jit
        def loss(*arguments):
            return jnp.sum(function(*arguments) * coefficients)

        gradients = jax.jit(jax.grad(loss, tuple(range(len(arguments)))))(*arguments)
        for position, gradient in enumerate(gradients):
            direction = jnp.asarray(rng.normal(size=gradient.shape))
            moved = [
                loss(
                    *arguments[:position], arguments[position] + sign * direction, *arguments[position + 1 :]
                )
                for sign in (step, -step)
            ]
            expected = float(moved[0] - moved[1]) / (2 * step)
            actual = float(jnp.sum(gradient * direction))
            # The sharpening's scale is treated as a constant: exact but for its 1e-6, hence the tolerance.
            assert actual == pytest.approx(expected, rel=1e-4, abs=1e-5)
