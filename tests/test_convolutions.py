"""A stack of convolutions against scipy, the native call against both, and its gradients against differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate2d

from mann.encoders import ConvStackConfig
from mann.errors import MannError
from mann.layers import with_precision
from mann.native.convolutions import encode

STACKS = [  # side, channels, maps, strides
    (28, 1, (16, 16, 32), (2, 2, 1)),
    (9, 3, (48, 16), (1, 2)),
    (8, 2, (16, 16), (3, 2)),
    (7, 1, (64,), (2,)),
    (18, 1, (16, 48, 32), (1, 1, 2)),  # the second one by minimal filtering, with blocks beyond the border
]
IDS = [f"{side}x{channels}" for side, channels, *_ in STACKS]


def make(side, channels, maps, strides, features=5, seed=0, standardised=False):
    config = ConvStackConfig(maps, strides, features, standardised=standardised)
    encoder = config.build((side, side, channels), key=jax.random.key(seed))
    rng = np.random.default_rng(seed)

    def shifted(layer):  # biases start at 0: some that matter
        return eqx.tree_at(
            lambda layer: layer.bias, layer, jnp.asarray(rng.normal(size=layer.bias.shape), jnp.float32)
        )

    encoder = eqx.tree_at(lambda e: e.layers, encoder, tuple(map(shifted, encoder.layers)))
    return encoder, jnp.asarray(rng.random((11, side * side * channels)), jnp.float32)


def by_scipy(encoder, picture):
    """In float64, one map after the other; zeros beyond the border."""
    side, _, channels = encoder.shape
    maps = [np.asarray(picture, np.float64).reshape(side, side, channels)[..., c] for c in range(channels)]
    for layer, stride in zip(encoder.layers, encoder.strides, strict=True):
        kernels = np.asarray(layer.weight, np.float64).reshape(3, 3, len(maps), -1)
        sums = np.stack(
            [
                sum(correlate2d(m, kernels[:, :, c, k], mode="same") for c, m in enumerate(maps))
                for k in range(kernels.shape[3])
            ]
        )[:, ::stride, ::stride]
        standard = (sums - sums.mean()) / np.sqrt(sums.var() + 1e-5)
        maps = list(np.maximum(standard + np.asarray(layer.bias, np.float64)[:, None, None], 0))
    flat = np.stack(maps, axis=-1).ravel()
    return flat @ np.asarray(encoder.last.weight, np.float64) + np.asarray(encoder.last.bias, np.float64)


@pytest.mark.parametrize("stack", STACKS, ids=IDS)
def test_both_ways_equal_scipy(stack):
    encoder, x = make(*stack)
    expected = np.stack([by_scipy(encoder, picture) for picture in x])
    np.testing.assert_allclose(encoder(x), expected, atol=2e-5)
    np.testing.assert_allclose(jax.jit(encode)(encoder, x), expected, atol=2e-5)


def test_features_may_be_brought_to_one_size():
    encoder, x = make(*STACKS[0])
    standardised, _ = make(*STACKS[0], standardised=True)
    features = np.stack([by_scipy(encoder, picture) for picture in x])
    expected = (features - features.mean(1, keepdims=True)) / features.std(1, keepdims=True)
    for ours in (standardised(x), jax.jit(encode)(standardised, x)):
        np.testing.assert_allclose(ours, expected, atol=1e-4)


@pytest.mark.parametrize("stack", STACKS, ids=IDS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_one_picture_by_itself_is_the_same_as_among_others(stack, precision):
    """The kernel takes whole lines of its places at a time, not places of several pictures."""
    encoder, x = make(*stack)
    encoder = with_precision(encoder, precision)
    together = jax.jit(encode)(encoder, x)
    alone = jax.jit(encode)(encoder, x[-1:])
    np.testing.assert_allclose(alone[0], together[-1], atol=2e-5 if precision == "float32" else 2e-2)


@pytest.mark.parametrize("stack", STACKS, ids=IDS)
def test_gradients_of_the_native_call_are_those_of_the_plain_one(stack):
    """Of weights and pictures, and of the weights alone."""
    encoder, x = make(*stack)
    weight = jnp.asarray(np.random.default_rng(1).normal(size=(len(x), 5)), jnp.float32)

    def loss(way, encoder, x):
        return jnp.sum(jnp.tanh(way(encoder, x)) * weight)

    plain = jax.jit(jax.grad(lambda e, x: loss(lambda e, x: e(x), e, x), argnums=(0, 1)))(encoder, x)
    native = jax.jit(jax.grad(lambda e, x: loss(encode, e, x), argnums=(0, 1)))(encoder, x)
    alone = jax.jit(jax.grad(lambda e: loss(encode, e, x)))(encoder)
    for ours, theirs in zip(jax.tree.leaves(native), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=3e-5 * float(jnp.abs(theirs).max()) + 1e-7)
    for ours, theirs in zip(jax.tree.leaves(alone), jax.tree.leaves(native[0]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_gradients_of_the_native_call_are_differences_in_double_precision():
    encoder, x = make(9, 2, (16, 16), (1, 2))
    x, rng = x[:2], np.random.default_rng(2)
    exact = jax.tree.map(lambda w: np.asarray(w, np.float64), encoder)
    direction = jax.tree.map(lambda w: rng.normal(size=w.shape), exact)

    def loss(sign):
        moved = jax.tree.map(lambda w, d: w + sign * 1e-6 * d, exact, direction)
        return sum(np.tanh(by_scipy(moved, picture)).sum() for picture in x)

    gradient = jax.grad(lambda e: jnp.sum(jnp.tanh(encode(e, x))))(encoder)
    slope = sum(np.vdot(g, d) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
    assert slope == pytest.approx((loss(1) - loss(-1)) / 2e-6, rel=1e-3)


@pytest.mark.parametrize("stack", STACKS[:2], ids=IDS[:2])
def test_in_bfloat16_it_equals_the_plain_products_of_rounded_factors(stack):
    """`product` rounds both factors of every product, forward and backward, and so does the kernel: what is left is
    the order of sums, and a rounding here and there that falls the other way."""
    encoder, x = make(*stack)
    encoder = with_precision(encoder, "bfloat16")
    weight = jnp.asarray(np.random.default_rng(1).normal(size=(len(x), 5)), jnp.float32)

    def gradients(way):
        loss = jax.value_and_grad(lambda e, x: jnp.sum(way(e, x) * weight), argnums=(0, 1))
        return jax.tree.leaves(jax.jit(loss)(encoder, x))

    exact = with_precision(encoder, "float32")
    single = jax.tree.leaves(
        jax.value_and_grad(lambda e, x: jnp.sum(encode(e, x) * weight), argnums=(0, 1))(exact, x)
    )
    for ours, theirs, precise in zip(gradients(encode), gradients(lambda e, x: e(x)), single, strict=True):
        apart = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        rounding = np.linalg.norm(precise - theirs) / np.linalg.norm(theirs)
        assert apart < 0.01
        assert apart < 0.6 * rounding or rounding < 1e-4  # much closer to each other than to single precision


def test_minimal_filtering_is_used_for_batches_without_gradients_and_rounds_little_more():
    """Blocks of 4×4 places from 36 products in place of 144. A few pictures, and those that want a gradient, go the
    plain way, and the two differ by rounding: by something, else there would be only one way."""
    encoder, x = make(20, 1, (16, 64, 64), (1, 1, 1))
    expected = np.stack([by_scipy(encoder, picture) for picture in x])
    batch, few = jax.jit(encode)(encoder, x), jax.jit(encode)(encoder, x[:7])
    recorded, _ = jax.jit(lambda x: jax.vjp(lambda x: encode(encoder, x), x))(x)
    np.testing.assert_array_equal(few, recorded[:7])
    assert 0 < np.abs(batch - recorded).max() < 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(batch, expected, atol=1e-5 * np.abs(expected).max())


def test_the_native_call_is_what_runs_and_can_be_turned_off(monkeypatch):
    encoder, x = make(*STACKS[0])

    def text():
        return jax.jit(lambda e, x: encode(e, x)).lower(encoder, x).as_text()

    assert "mann_convolutions_forward" in text()
    monkeypatch.setenv("MANN_NATIVE", "0")
    assert "mann_convolutions" not in text()
    monkeypatch.delenv("MANN_NATIVE")
    odd, x = make(9, 1, (12,), (1,))  # 12 maps are no multiple of 16
    np.testing.assert_allclose(encode(odd, x), odd(x), atol=1e-6)


def test_gradients_do_not_depend_on_the_number_of_pictures_in_a_part():
    """One picture at a time, summed, is the whole: parts of the batch with a gradient each are put together."""
    encoder, x = make(*STACKS[1])
    grad = jax.jit(jax.grad(lambda e, x: jnp.sum(encode(e, x) ** 2)))
    whole = grad(encoder, x)
    single = [grad(encoder, x[i : i + 1]) for i in range(len(x))]
    for leaf, *parts in zip(*map(jax.tree.leaves, (whole, *single)), strict=True):
        np.testing.assert_allclose(leaf, sum(parts), rtol=2e-4, atol=1e-5 * float(jnp.abs(leaf).max()))


@pytest.mark.parametrize(
    ("maps", "strides", "sentence"),
    [
        ((16, 16), (2,), "give one of each per layer"),
        ((), (), "give one of each per layer"),
        ((0,), (1,), "feature maps"),
        ((16,), (4,), "strides"),
    ],
)
def test_impossible_stacks_are_refused(maps, strides, sentence):
    with pytest.raises(MannError, match=sentence):
        ConvStackConfig(maps, strides)


def test_numbers_are_not_pictures():
    with pytest.raises(MannError, match="reads pictures"):
        ConvStackConfig().build((3,), key=jax.random.key(0))
