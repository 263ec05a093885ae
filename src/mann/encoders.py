"""Encoders: what a network makes of x_t before the controller sees it. They know nothing of labels or order."""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mann.errors import MannError, check_range
from mann.layers import Layer, Linear, Precision, product
from mann.parts import Part

MOST_LAYERS = 64
TINY = 1e-6  # of ink: a picture without any stays where it is
SPREAD = 0.27  # of the side: how far ink is from its centre of mass in a usual drawing
MOST_SCALED = 2.0  # a dot stays small


class ConvolutionKernel(NamedTuple):
    """What the native kernel needs of an encoder that it can run (`mann.native.convolutions`)."""

    shape: tuple[int, int, int]  # rows, columns and channels of a picture
    layers: tuple[Linear, ...]  # from 3×3 neighbours to maps: normalised, biased, ReLU
    strides: tuple[int, ...]
    last: Callable[[Array], Array]  # from all maps at all places to features
    framed: bool  # first, by `frame_inputs`


class Encoder(Layer):
    """From the numbers of x_t to features; `unroll` calls it with all steps of an episode at once. The base of
    one's own: examples/my_encoder.py shows all of it.

    A subclass sets `features`, the length of what it returns.
    """

    features: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch features"]:
        """Features of each x, whatever axes come before.

        Args:
            x: inputs, flattened: pictures row by row with the channels last, paper 0 … ink 1.
        """

    @property
    def passes_on(self) -> bool:
        """Whether features are x itself, so that one can do without it."""
        return False

    def kernel(self) -> ConvolutionKernel | None:
        """How the native kernel runs it; None (the default) if it does not know this encoder."""
        return None


@dataclasses.dataclass(frozen=True)
class EncoderConfig(Part):
    """The family of encoders. The base of a configuration of one's own.

    Examples:
        >>> import jax
        >>> encoder = ConvConfig(maps=8).build((20, 20, 1), key=jax.random.key(0))
        >>> encoder(jax.numpy.zeros((3, 400))).shape  # a picture of 10×10, and 8 features at 3×3 places
        (3, 172)
    """

    @abc.abstractmethod
    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> Encoder:
        """A newly initialised encoder.

        Args:
            shape: of x_t before it is flattened: (side, side, channels) for pictures, (dimensions,) for points.
            key: random key of its weights.

        Raises:
            MannError: for inputs that it cannot take.
        """


@dataclasses.dataclass(frozen=True)
class NoEncoder(EncoderConfig, kind="none"):
    """The controller sees the pixels themselves, as in the paper."""

    framed: bool = False
    """First move the ink to the middle and bring it to the usual size (`frame`), which the paper does not."""

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> "Identity":
        _check_framed(self.framed, shape)
        return Identity(math.prod(shape), shape if self.framed else None)


class Identity(Encoder):
    """x itself, or framed."""

    features: int = eqx.field(static=True)
    framed: tuple[int, ...] | None = eqx.field(static=True)  # the shape of pictures that are to be

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch features"]:
        return x if self.framed is None else frame_inputs(x, self.framed)

    @property
    def passes_on(self) -> bool:
        return self.framed is None


@dataclasses.dataclass(frozen=True)
class MLPConfig(EncoderConfig, kind="mlp"):
    """Fully connected layers."""

    hidden: int = 512
    """Units of each hidden layer."""
    layers: int = 2
    """Hidden layers."""
    features: int = 256
    """Numbers that come out."""
    framed: bool = False
    """First move the ink to the middle and bring it to the usual size (`frame`): no layer knows of shifts."""

    def __post_init__(self) -> None:
        for field, most in (("hidden", 2**16), ("layers", MOST_LAYERS), ("features", 2**16)):
            check_range(f"The encoder's {field}", getattr(self, field), 1, most)

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> "MLP":
        _check_framed(self.framed, shape)
        return MLP(shape, self, key=key)


class MLP(Encoder):
    """Layers with normalisation and ReLU, then a linear one."""

    layers: tuple[Linear, ...]
    shape: tuple[int, ...] = eqx.field(static=True)
    features: int = eqx.field(static=True)
    framed: bool = eqx.field(static=True)

    def __init__(self, shape: tuple[int, ...], config: MLPConfig, *, key: PRNGKeyArray) -> None:
        sizes = [math.prod(shape), *[config.hidden] * config.layers, config.features]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(Linear(a, b, key=k) for a, b, k in zip(sizes, sizes[1:], keys, strict=False))
        self.shape, self.features, self.framed = shape, config.features, config.framed

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch features"]:
        if self.framed:
            x = frame_inputs(x, self.shape)
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.standardize(product(x, layer.weight, self.precision), axis=-1)
            x = jax.nn.relu(x + jnp.broadcast_to(layer.bias, x.shape))
        return last(x)


def frame(pictures: Float[Array, "n side side channels"]) -> Float[Array, "n side side channels"]:
    """The same pictures, with the ink's centre of mass in the middle and its root mean square distance from there
    at `SPREAD` of the side.

    What comes in from beyond the border is empty; between pixels it is interpolated.
    """
    side = pictures.shape[1]
    pixels = jnp.arange(side, dtype=pictures.dtype)
    from_middle = (pixels - (side - 1) / 2)[None]
    ink = jnp.sum(pictures, axis=-1)
    ink = ink / (jnp.sum(ink, axis=(1, 2), keepdims=True) + TINY)

    def moments(profile: Float[Array, "n side"]) -> tuple[Float[Array, "n 1"], Float[Array, "n 1"]]:
        mean = jnp.sum(profile * from_middle, axis=1, keepdims=True)
        return mean, jnp.sum(profile * (from_middle - mean) ** 2, axis=1, keepdims=True)

    down, variance_down = moments(jnp.sum(ink, axis=2))
    right, variance_right = moments(jnp.sum(ink, axis=1))
    scale = jnp.sqrt(variance_down + variance_right + TINY) / (SPREAD * side)
    scale = jnp.clip(scale, 1 / MOST_SCALED, MOST_SCALED)

    def taken(middle: Float[Array, "n 1"]) -> Float[Array, "n side side"]:
        """What each new row takes from the old ones; the same for columns."""
        source = from_middle * scale + middle + (side - 1) / 2
        return jnp.maximum(1 - jnp.abs(source[:, :, None] - pixels[None, None]), 0)

    return jnp.einsum("nij,njkc,nlk->nilc", taken(down), pictures, taken(right))


def _check_framed(framed: bool, shape: tuple[int, ...]) -> None:
    if framed and len(shape) != 3:
        raise MannError("Only pictures can be framed: set model.encoder.framed to false for this task.")


def frame_inputs(x: Float[Array, "*batch inputs"], shape: tuple[int, ...]) -> Float[Array, "*batch inputs"]:
    """`frame` for pictures of a shape that come flattened."""
    pictures = x.reshape(-1, *shape)
    if half := len(pictures) // 2:
        # By a loop over two halves: else the compiler draws the pictures anew for every sum over them.
        framed = jax.lax.map(lambda picture: frame(picture[None])[0], pictures, batch_size=half)
    else:
        framed = frame(pictures)
    return framed.reshape(x.shape)


@dataclasses.dataclass(frozen=True)
class ConvConfig(EncoderConfig, kind="conv"):
    """A small convolutional network."""

    maps: int = 64
    """Feature maps of the last layer."""

    def __post_init__(self) -> None:
        check_range("The encoder's feature maps", self.maps, 1, 2**16)

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> "Convolutions":
        if len(shape) != 3:
            raise MannError(
                "The convolutional encoder reads pictures: set model.encoder to none for this task."
            )
        return Convolutions(shape, self.maps, key=key)


class Convolutions(Encoder):
    """The picture at half size, and `maps` features per place: three blocks of 3×3 convolution in steps of 2,
    normalisation and ReLU. 20×20 pixels become 3×3 places.

    The small picture gets the training off its first plateau; with the features alone, 15 classes stayed on it for
    2000 updates in one run. A convolution is a product with the matrix of patches: XLA's own is many times slower
    inside a loop on CPUs.
    """

    convolutions: tuple[Linear, ...]
    shape: tuple[int, ...] = eqx.field(static=True)
    features: int = eqx.field(static=True)

    def __init__(self, shape: tuple[int, ...], maps: int, *, key: PRNGKeyArray) -> None:
        channels = [shape[2], -(-maps // 2), maps, maps]
        self.convolutions = tuple(
            Linear(9 * channels[i], channels[i + 1], key=k) for i, k in enumerate(jax.random.split(key, 3))
        )
        self.shape = shape
        self.features = (shape[0] // 2) ** 2 * shape[2] + (-(-shape[0] // 8)) ** 2 * maps

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch features"]:
        side, _, channels = self.shape
        pictures = x.reshape(-1, side, side, channels)
        maps = pictures  # for 20×20: then 10×10, 5×5 and 3×3
        for convolution in self.convolutions:
            maps = product(patches(maps), convolution.weight, self.precision)
            maps = jax.nn.standardize(maps, axis=(1, 2, 3))
            maps = jax.nn.relu(maps + jnp.broadcast_to(convolution.bias, maps.shape))
        half = side // 2
        small = pictures[:, : 2 * half, : 2 * half].reshape(-1, half, 2, half, 2, channels).mean((2, 4))
        # Together about the norm of the pixels: much larger, they would drown the labels at the start.
        parts = (2.0 * small, 0.1 * maps)
        return jnp.concatenate([part.reshape(*x.shape[:-1], -1) for part in parts], axis=-1)


def patches(
    maps: Float[Array, "batch size size channels"], stride: int = 2
) -> Float[Array, "batch places places patch"]:
    """The 3×3 neighbourhood of every `stride`-th place in either direction, with zeros beyond the border."""
    places = -(-maps.shape[1] // stride)
    padded = jnp.pad(maps, ((0, 0), (1, 1), (1, 1), (0, 0)))
    parts = [slice(i, i + stride * (places - 1) + 1, stride) for i in range(3)]
    return jnp.concatenate([padded[:, rows, columns] for rows in parts for columns in parts], axis=-1)


@dataclasses.dataclass(frozen=True)
class ConvStackConfig(EncoderConfig, kind="conv-stack"):
    """Layers of 3×3 convolutions, each followed by normalisation and ReLU: for pictures of 28×28 and more."""

    maps: tuple[int, ...] = (64, 64, 64, 64)
    """Feature maps of each layer; in multiples of 16 they run as one native call."""
    strides: tuple[int, ...] = (2, 2, 2, 1)
    """By how many places each layer moves: 2 halves the picture's side."""
    features: int = 128
    """Numbers that come out."""
    framed: bool = False
    """First move the ink to the middle of the picture and bring it to the usual size (`frame`)."""
    standardised: bool = False
    """Bring features to mean 0 and variance 1, for a controller: as they come, they drown the labels."""

    def __post_init__(self) -> None:
        check_range("The encoder's features", self.features, 1, 2**16)
        for count in self.maps:
            check_range("The encoder's feature maps", count, 1, 2**16)
        for stride in self.strides:
            check_range("The encoder's strides", stride, 1, 3)
        if not 0 < len(self.maps) == len(self.strides) <= MOST_LAYERS:
            raise MannError(
                f"The encoder has {len(self.maps)} numbers of maps and {len(self.strides)} strides: give one of "
                f"each per layer, for 1 to {MOST_LAYERS} layers."
            )

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> "ConvStack":
        if len(shape) != 3:
            raise MannError(
                "The convolutional encoder reads pictures: set model.encoder to none for this task."
            )
        return ConvStack(shape, self, key=key)


class ConvStack(Encoder):
    """A linear layer over all maps of the last layer at all of its places: for 28×28 pixels and the default strides
    4×4 of 64."""

    layers: tuple[Linear, ...]
    last: Linear
    shape: tuple[int, int, int] = eqx.field(static=True)
    strides: tuple[int, ...] = eqx.field(static=True)
    features: int = eqx.field(static=True)
    framed: bool = eqx.field(static=True)
    standardised: bool = eqx.field(static=True)

    def __init__(self, shape: tuple[int, ...], config: ConvStackConfig, *, key: PRNGKeyArray) -> None:
        channels = (shape[2], *config.maps)
        last_key, *keys = jax.random.split(key, 1 + len(config.maps))
        self.layers = tuple(
            Linear(9 * a, b, key=k) for a, b, k in zip(channels, config.maps, keys, strict=False)
        )
        self.shape, self.strides = (shape[0], shape[1], shape[2]), config.strides
        places = shape[0]
        for stride in config.strides:
            places = -(-places // stride)
        self.last = Linear(places**2 * config.maps[-1], config.features, key=last_key)
        self.features, self.framed, self.standardised = config.features, config.framed, config.standardised

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch features"]:
        return self.describe(self.convolve(x))

    def describe(self, values: Float[Array, "*batch values"]) -> Float[Array, "*batch features"]:
        """From all maps of the last layer to features."""
        features = self.last(values)
        return jax.nn.standardize(features, axis=-1) if self.standardised else features

    def convolve(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch values"]:
        """All maps of the last layer at all of its places."""
        maps = (frame_inputs(x, self.shape) if self.framed else x).reshape(-1, *self.shape)
        for layer, stride in zip(self.layers, self.strides, strict=True):
            few = maps.shape[-1] % 16 > 0  # such as the channels of a picture: nothing to gain
            precision: Precision = "float32" if few else self.precision
            maps = jax.nn.standardize(product(patches(maps, stride), layer.weight, precision), axis=(1, 2, 3))
            maps = jax.nn.relu(maps + jnp.broadcast_to(layer.bias, maps.shape))
        return maps.reshape(*x.shape[:-1], -1)

    def kernel(self) -> ConvolutionKernel:
        return ConvolutionKernel(self.shape, self.layers, self.strides, self.describe, self.framed)
