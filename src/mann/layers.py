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
    """Four blocks of 3×3 convolution in steps of 2, normalisation and ReLU: 20×20 pixels to `features`."""

    convolutions: tuple[eqx.nn.Conv2d, ...]
    norms: tuple[eqx.nn.GroupNorm, ...]

    def __init__(self, features: int, *, key: PRNGKeyArray) -> None:
        inner = -(-features // 2)
        sizes = [1, inner, inner, inner, features]
        padding = [1, 1, 1, 0]  # 20 → 10 → 5 → 3 → 1
        self.convolutions = tuple(
            eqx.nn.Conv2d(sizes[i], sizes[i + 1], 3, stride=2, padding=padding[i], key=k)
            for i, k in enumerate(jax.random.split(key, 4))
        )
        self.norms = tuple(eqx.nn.GroupNorm(1, size) for size in sizes[1:])

    def __call__(self, pixels: Float[Array, "400"]) -> Float[Array, "features"]:
        maps = pixels.reshape(1, SIZE, SIZE)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            maps = jax.nn.relu(norm(convolution(maps)))
        return maps.reshape(-1)
