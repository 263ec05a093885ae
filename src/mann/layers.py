"""What every part is made of: a layer, the precision of its products, what an optimiser may know of its weights."""

import dataclasses
import math
from typing import Any, ClassVar, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mann import kernel

Precision = Literal["float32", "bfloat16"]
"""Of the factors of a matrix product; sums are in float32 in either case."""


# Added to squared norms. Empty slots hold 1e-6 or zero: they get cosine 0 and a finite gradient.
EPSILON = 1e-6


def normalise(vectors: Float[Array, "*n width"]) -> Float[Array, "*n width"]:
    """Unit length, except that vectors much shorter than 1e-3 shrink towards zero instead."""
    squares = jnp.sum(vectors**2, axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(squares + EPSILON)


def product(
    x: Float[Array, "*batch inputs"], w: Float[Array, "inputs outputs"], precision: Precision
) -> Float[Array, "*batch outputs"]:
    """x w, and the products of its gradient, at a precision.

    Args:
        x: rows, whatever axes come before.
        w: a matrix.
        precision: bfloat16 rounds both factors to 8 bits of mantissa; whatever comes in and goes out is float32.

    Examples:
        >>> x, w = jnp.array([[1.001, 2.0]]), jnp.array([[1.0], [0.5]])
        >>> product(x, w, "float32").item(), product(x, w, "bfloat16").item()
        (2.000999927520752, 2.0)
    """
    if precision == "float32":
        return x @ w
    rows, matrix = kernel.varying([x.reshape(-1, x.shape[-1]), w])
    return _product_bfloat16(rows, matrix).reshape(*x.shape[:-1], w.shape[1])


def outer_product(
    x: Float[Array, "rows inputs"], d: Float[Array, "rows outputs"], precision: Precision
) -> Float[Array, "inputs outputs"]:
    """xᵀ d: the gradient of w, where d is that of `product(x, w, precision)`."""
    return x.T @ d if precision == "float32" else _dot(x, d, left_transposed=True)


@jax.custom_vjp
def _product_bfloat16(
    x: Float[Array, "rows inputs"], w: Float[Array, "inputs outputs"]
) -> Float[Array, "rows outputs"]:
    return _dot(x, w)


def _dot(
    left: Float[Array, "_ _"],
    right: Float[Array, "_ _"],
    left_transposed: bool = False,
    right_transposed: bool = False,
) -> Float[Array, "_ _"]:
    if min(*left.shape, *right.shape) > 1 and kernel.available():  # a step of a scan is XLA's
        return kernel.product(left, right, left_transposed=left_transposed, right_transposed=right_transposed)
    a, b = left.astype(jnp.bfloat16), right.astype(jnp.bfloat16)
    a, b = a.T if left_transposed else a, b.T if right_transposed else b
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def _product_forward(x: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    return _dot(x, w), (x, w)


def _product_backward(factors: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    """By itself, JAX would multiply the gradient in float32."""
    x, w = factors
    return _dot(gradient, w, right_transposed=True), outer_product(x, gradient, "bfloat16")


_product_bfloat16.defvjp(_product_forward, _product_backward)


class Layer(eqx.Module):
    """A module that can say more about its weight matrices than their shapes do.

    `column_blocks` names fields whose columns are several matrices side by side, such as the gates of an LSTM: an
    optimiser that works on matrices (Muon) takes each by itself. `plain` names parts that such an optimiser should
    treat as plain numbers. `precision` is that of the layer's products with its weights (`product`), and is set by
    `with_precision` for all layers of a network at once.
    """

    column_blocks: ClassVar[dict[str, int]] = {}
    plain: ClassVar[tuple[str, ...]] = ()
    precision: Precision = eqx.field(static=True, default="float32", kw_only=True)


L = TypeVar("L", bound=Layer)


class Linear(Layer):
    """x ↦ x W + b. W is stored as (in, out), so that a batch of rows is one plain matrix product.

    Args:
        inputs: length of x, or the lengths of several parts that are concatenated. Each part is initialised by its
            own size, so that five numbers of a label weigh as much as 400 pixels at the start: in one run of each,
            without this the network left the first plateau much later.
        outputs: length of the result.
        key: random key of the weights.
        bias: what every bias starts with.
        blocks: how many matrices stand side by side in the columns (`Layer`).

    Examples:
        >>> import jax
        >>> layer = Linear((400, 5), 8, key=jax.random.key(0))
        >>> layer(jax.numpy.zeros((3, 405))).shape
        (3, 8)
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, "outputs"]
    blocks: int = eqx.field(static=True)

    def __init__(
        self,
        inputs: int | tuple[int, ...],
        outputs: int,
        *,
        key: PRNGKeyArray,
        bias: float = 0.0,
        blocks: int = 1,
    ) -> None:
        parts = (inputs,) if isinstance(inputs, int) else inputs
        bounds = jnp.concatenate([jnp.full((part, 1), 1 / math.sqrt(part)) for part in parts])
        self.weight = bounds * jax.random.uniform(key, (sum(parts), outputs), minval=-1.0, maxval=1.0)
        self.bias = jnp.full(outputs, bias, jnp.float32)  # a weak type would compile updates twice
        self.blocks = blocks

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        y = product(x, self.weight, self.precision)
        return y + jnp.broadcast_to(self.bias, y.shape)


def with_precision(layer: L, precision: Precision) -> L:
    """The same layer, it and all layers in it with products at this precision.

    Examples:
        >>> layer = Linear(3, 2, key=jax.random.key(0))
        >>> layer.precision, with_precision(layer, "bfloat16").precision
        ('float32', 'bfloat16')
    """

    def change(node: Any) -> Any:
        if not isinstance(node, Layer):
            return node
        changed = object.__new__(type(node))  # as JAX does with a tree: there may be an __init__ of its own
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            if not field.metadata.get("static", False):
                value = jax.tree.map(change, value, is_leaf=lambda leaf: isinstance(leaf, Layer))
            object.__setattr__(changed, field.name, value)
        object.__setattr__(changed, "precision", precision)
        return changed

    changed: L = change(layer)
    return changed


def matrix_blocks(model: Any) -> Any:
    """For every array of a model: in how many blocks of columns it is a matrix, or 0 if it is none.

    Vectors are none, nor is what a layer calls `plain`; the rest is as the layers say.
    """

    def blocks(path: tuple[Any, ...], leaf: Any) -> int:
        owner, count = model, 1
        for key in path:
            name = getattr(key, "name", None)
            if isinstance(owner, Layer) and name in owner.plain:
                return 0
            if isinstance(owner, Layer) and name in owner.column_blocks:
                count = owner.column_blocks[name]
            owner = (
                getattr(owner, name)
                if name is not None
                else owner[key.idx if hasattr(key, "idx") else key.key]
            )
            if isinstance(owner, Linear):
                count = owner.blocks
        return count if leaf.ndim == 2 else 0

    return jax.tree_util.tree_map_with_path(blocks, model)
