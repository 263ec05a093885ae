"""The two layers that the models are made of."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mann.data.render import SIZE


class Linear(eqx.Module):
    """x ↦ x W + b. W is stored as (in, out), so that a batch of rows is one plain matrix product."""

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, "outputs"]

    def __init__(
        self, inputs: int | tuple[int, ...], outputs: int, *, key: PRNGKeyArray, bias: float = 0.0
    ) -> None:
        """`inputs` may name the sizes of several parts that are concatenated.

        Each part is initialised by its own size, so that five numbers of a label weigh as much as 400 pixels
        at the start: in one run of each, without this the network left the first plateau much later.
        """
        parts = (inputs,) if isinstance(inputs, int) else inputs
        bounds = jnp.concatenate([jnp.full((part, 1), 1 / math.sqrt(part)) for part in parts])
        self.weight = bounds * jax.random.uniform(key, (sum(parts), outputs), minval=-1.0, maxval=1.0)
        self.bias = jnp.full(outputs, bias, jnp.float32)  # a weak type would compile updates twice

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        product = x @ self.weight
        return product + jnp.broadcast_to(self.bias, product.shape)


class ConvEncoder(eqx.Module):
    """The picture at half size, and 3×3 × `maps` features: three blocks of 3×3 convolution in steps of 2,
    normalisation and ReLU.

    The small picture gets the training off its first plateau; with the features alone, 15 classes stayed on it for
    2000 updates in one run. A convolution is a product with the matrix of patches: XLA's own is many times slower
    inside a loop on CPUs.
    """

    convolutions: tuple[Linear, ...]

    def __init__(self, maps: int, *, key: PRNGKeyArray) -> None:
        channels = [1, -(-maps // 2), maps, maps]
        self.convolutions = tuple(
            Linear(9 * channels[i], channels[i + 1], key=k) for i, k in enumerate(jax.random.split(key, 3))
        )

    @property
    def outputs(self) -> int:
        return (SIZE // 2) ** 2 + 9 * len(self.convolutions[-1].bias)

    def __call__(self, pixels: Float[Array, "*batch 400"]) -> Float[Array, "*batch outputs"]:
        maps = pixels.reshape(-1, SIZE, SIZE, 1)  # then 10×10, 5×5 and 3×3
        for convolution in self.convolutions:
            maps = jax.nn.standardize(patches(maps) @ convolution.weight, axis=(1, 2, 3))
            maps = jax.nn.relu(maps + jnp.broadcast_to(convolution.bias, maps.shape))
        small = pixels.reshape(-1, SIZE // 2, 2, SIZE // 2, 2).mean((2, 4))
        # Together about the norm of the pixels: much larger, they would drown the labels at the start.
        parts = (2.0 * small, 0.1 * maps)
        return jnp.concatenate([part.reshape(*pixels.shape[:-1], -1) for part in parts], axis=-1)


def patches(maps: Float[Array, "batch size size channels"]) -> Float[Array, "batch half half patch"]:
    """The 3×3 neighbourhood of every other place in either direction, with zeros beyond the border."""
    half = -(-maps.shape[1] // 2)
    padded = jnp.pad(maps, ((0, 0), (1, 1), (1, 1), (0, 0)))
    parts = [slice(i, i + 2 * half - 1, 2) for i in range(3)]
    return jnp.concatenate([padded[:, rows, columns] for rows in parts for columns in parts], axis=-1)
