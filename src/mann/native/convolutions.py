"""An encoder of convolutions as one native call on the CPU, forward and backward."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mann import kernel
from mann.encoders import ConvolutionKernel, Encoder, frame_inputs


def encode(encoder: Encoder, x: Float[Array, "pictures inputs"]) -> Float[Array, "pictures features"]:
    """What an encoder makes of pictures, natively where the kernel can run it; MANN_NATIVE=0 turns it off."""
    described = encoder.kernel()
    if described is None or not _supports(described, x):
        return encoder(x)
    maps = tuple(linear.bias.size for linear in described.layers)
    bfloat16 = int(encoder.precision == "bfloat16")
    stack = _Stack(len(x), *described.shape[1:], maps, described.strides, bfloat16)
    if described.framed:
        x = frame_inputs(x, described.shape)
    layers = described.layers
    arrays = [x, *(linear.weight for linear in layers), *(linear.bias for linear in layers)]
    x, *weights = kernel.varying(arrays)  # and biases
    return described.last(_convolve(stack, x, tuple(weights)))


def _supports(described: ConvolutionKernel, x: Array) -> bool:
    return (
        len(x) > 0
        and all(linear.bias.size % 16 == 0 for linear in described.layers)
        and all(array.dtype == jnp.float32 for array in jax.tree.leaves((x, described.layers)))
        and kernel.available()
    )


class _Stack(NamedTuple):
    """The attributes of a call; `Stack` in convolutions.h says what each is."""

    pictures: int
    side: int
    channels: int
    maps: tuple[int, ...]
    strides: tuple[int, ...]
    bfloat16: int  # 1: products in bfloat16, but for those with the picture itself

    @property
    def values(self) -> list[int]:
        """Normalised values of each layer, for one picture."""
        side, sizes = self.side, []
        for maps, stride in zip(self.maps, self.strides, strict=True):
            side = -(-side // stride)
            sizes.append(side * side * maps)
        return sizes

    def attributes(self) -> dict[str, Any]:
        return {
            name: np.int64(value) if isinstance(value, int) else np.array(value, np.int64)
            for name, value in self._asdict().items()
        }


def _call(
    way: str, stack: _Stack, shapes: Sequence[tuple[int, ...]], option: str, on: bool, *arrays: Array
) -> list[Array]:
    results = [(shape, jnp.float32) for shape in shapes]
    attributes = stack.attributes() | {option: np.int64(on)}
    return kernel.call(f"mann_convolutions_{way}", results, *arrays, **attributes)


def _forward(stack: _Stack, record: bool, *arrays: Array) -> list[Array]:
    """The features, and if asked for what the backward pass needs: the normalised values of all layers but the
    first, and two moments of each layer."""
    P, values = stack.pictures, stack.values
    shapes = [(P, values[-1]), (P, sum(values[1:]) * record), (P, 2 * len(values) * record)]
    return _call("forward", stack, shapes, "recorded", record, *arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolve(stack: _Stack, x: Array, weights: tuple[Array, ...]) -> Array:
    """The last maps at all places. `weights`: those of every layer, then its biases."""
    return _forward(stack, False, x, *weights)[0]


def _convolve_forward(stack: _Stack, x: Any, weights: Any) -> tuple[Array, Any]:
    arrays = tuple(weight.value for weight in weights)
    outputs, values, moments = _forward(stack, True, x.value, *arrays)
    return outputs, (x.value, arrays, values, moments, jnp.zeros((int(x.perturbed), 0)))


def _convolve_backward(stack: _Stack, residuals: Any, gradient: Any) -> tuple[Array, tuple[Array, ...]]:
    x, weights, values, moments, perturbed = residuals
    if isinstance(gradient, jax.custom_derivatives.SymbolicZero):
        return jnp.zeros_like(x), tuple(map(jnp.zeros_like, weights))
    to_pictures = bool(len(perturbed))  # pictures seldom want a gradient: it is left out where they do not
    sizes = [weight.size for weight in weights]
    layers = len(stack.maps)
    shapes = [(sum(sizes[:layers]),), (sum(sizes[layers:]),), (len(x), x.shape[1] * to_pictures)]
    arrays = (x, *weights, values, moments, gradient)
    dweights, dbiases, dx = _call("backward", stack, shapes, "to_pictures", to_pictures, *arrays)
    ends = list(itertools.accumulate(sizes))[:-1]
    parts = jnp.split(jnp.concatenate([dweights, dbiases]), ends)
    gradients = tuple(part.reshape(weight.shape) for part, weight in zip(parts, weights, strict=True))
    return dx if to_pictures else jnp.zeros_like(x), gradients


_convolve.defvjp(_convolve_forward, _convolve_backward, symbolic_zeros=True)
