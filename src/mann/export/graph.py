"""One step of a network as a graph: JAX's own trace of it, flat, with the weights and everything constant in it.

This is all that other runtimes need to know: a parameter, an activation or a memory of one's own comes along by
itself, as long as it is made of operations that the runtime knows.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from mann import kernel
from mann.cell import State
from mann.files import to_arrays
from mann.models import Model

INLINED = ("pjit", "jit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")
SAME = ("stop_gradient", "copy", "copy_p", "optimization_barrier")
LARGEST_FOLDED = 4096  # numbers that a constant may have that its inputs do not


class Value(NamedTuple):
    """What flows between operations."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


class Node(NamedTuple):
    """One operation of JAX."""

    operation: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    parameters: dict[str, Any]


class Graph(NamedTuple):
    """The operations in order."""

    inputs: tuple[Value, ...]
    """`x`, `label`, and one `state.…` for each array of the state."""
    outputs: tuple[Value, ...]
    """`output`, one `next.…` for each array of the state after the step, and `trace.…` if it was asked for."""
    nodes: tuple[Node, ...]
    constants: dict[str, np.ndarray]
    start: dict[str, np.ndarray]
    """The state at the start of an episode, by the names of the inputs."""


def trace_step(model: Model, memory: bool = False) -> Graph:
    """The graph of `model.step`.

    Args:
        model: with its weights.
        memory: also give what happened in the memory, as in `MemoryTrace`.
    """
    state = model.initial_state()
    leaves, structure = jax.tree.flatten(state)

    traced = [field for field, value in _watch(model, state).items() if value is not None] if memory else []

    def step(x: jax.Array, label: jax.Array, *leaves: jax.Array) -> list[jax.Array]:
        output, after = model.step(x, label, jax.tree.unflatten(structure, leaves))
        seen = _watch(model, after) if traced else {}
        return [output, *jax.tree.leaves(after), *(seen[field] for field in traced)]

    with kernel.avoided():
        closed = jax.make_jaxpr(step)(jnp.zeros(model.input_size), jnp.zeros(model.label_size), *leaves)
    start = to_arrays(state)
    return _Builder().build(
        closed,
        ["x", "label", *(f"state.{name}" for name in start)],
        ["output", *(f"next.{name}" for name in start), *(f"trace.{field}" for field in traced)],
        {f"state.{name}": array for name, array in start.items()},
    )


def _watch(model: Model, state: State) -> dict[str, Any]:
    if not model.memory.slots:
        return {}
    trace = model.memory.trace(state.memory)._asdict()
    return trace | {"familiarity": model.memory.familiarity(state.memory)}


class _Builder:
    """Follows a trace; `known` says what every variable of it is here, a value or a constant."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self.count = 0

    def build(
        self, closed: Any, inputs: Sequence[str], outputs: Sequence[str], start: dict[str, np.ndarray]
    ) -> Graph:
        values = tuple(
            Value(name, variable.aval.shape, np.dtype(variable.aval.dtype))
            for name, variable in zip(inputs, closed.jaxpr.invars, strict=True)
        )
        results = self.follow(closed.jaxpr, closed.consts, values)
        last = []
        for name, result in zip(outputs, results, strict=True):  # each under its name, whatever it is
            value = self.value(result)
            last.append(Value(name, value.shape, value.dtype))
            self.nodes.append(Node("copy", (value,), (last[-1],), {}))
        needed = _needed(self.nodes, last)
        used = {value.name for node in needed for value in node.inputs}
        constants = {name: array for name, array in self.constants.items() if name in used}
        return Graph(values, tuple(last), needed, constants, start)

    def follow(self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """The results of a trace: values, or arrays where they are constant."""
        known: dict[Any, Any] = dict(zip(jaxpr.invars, inputs, strict=True))
        known |= {
            variable: np.asarray(array) for variable, array in zip(jaxpr.constvars, constants, strict=True)
        }

        def read(atom: Any) -> Any:
            literal: Any = atom if isinstance(atom, jex.Literal) else None
            return known[atom] if literal is None else np.asarray(literal.val, literal.aval.dtype)

        for equation in jaxpr.eqns:
            arguments = [read(atom) for atom in equation.invars]
            known |= dict(zip(equation.outvars, self.apply(equation, arguments), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def apply(self, equation: Any, arguments: list[Any]) -> list[Any]:
        name = equation.primitive.name
        if name in SAME:
            return arguments
        if name in INLINED:
            inner = next(
                equation.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in equation.params
            )
            if isinstance(inner, jex.ClosedJaxpr):
                return self.follow(inner.jaxpr, inner.consts, arguments)
            return self.follow(inner, (), arguments)
        if name in ("concatenate", "split") and (simple := _without_empty(equation, arguments)):
            return simple
        if all(isinstance(argument, np.ndarray) for argument in arguments):
            size = sum(math.prod(variable.aval.shape) for variable in equation.outvars)
            if size <= max([LARGEST_FOLDED, *(argument.size for argument in arguments)]):
                return self.compute(equation, arguments)
        outputs = tuple(self.name(variable.aval) for variable in equation.outvars)
        inputs = tuple(self.value(argument) for argument in arguments)
        self.nodes.append(Node(name, inputs, outputs, dict(equation.params)))
        return list(outputs)

    def compute(self, equation: Any, arguments: list[np.ndarray]) -> list[np.ndarray]:
        results = equation.primitive.bind(*map(jnp.asarray, arguments), **equation.params)
        return [
            np.asarray(result) for result in (results if equation.primitive.multiple_results else [results])
        ]

    def name(self, aval: Any) -> Value:
        self.count += 1
        return Value(f"v{self.count}", tuple(aval.shape), np.dtype(aval.dtype))

    def value(self, known: Any) -> Value:
        """As a value, to be the input of an operation."""
        if isinstance(known, Value):
            return known
        same = [name for name, array in self.constants.items() if array is known]
        name = same[0] if same else f"c{len(self.constants)}"  # weights that are used twice are there once
        self.constants[name] = known
        return Value(name, known.shape, known.dtype)


def _without_empty(equation: Any, arguments: list[Any]) -> list[Any]:
    """What a concatenation or a split is that does nothing but for empty parts; [] if it does more."""
    if equation.primitive.name == "concatenate":
        full = [argument for argument in arguments if math.prod(argument.shape)]
        return full if len(full) == 1 else []
    shapes = [variable.aval.shape for variable in equation.outvars]
    (argument,) = arguments
    if sum(map(bool, map(math.prod, shapes))) != 1:
        return []
    return [argument if math.prod(shape) else np.zeros(shape, argument.dtype) for shape in shapes]


def _needed(nodes: list[Node], outputs: list[Value]) -> tuple[Node, ...]:
    """Without those whose results nobody uses."""
    wanted = {value.name for value in outputs}
    kept = []
    for node in reversed(nodes):
        if any(value.name in wanted for value in node.outputs):
            kept.append(node)
            wanted |= {value.name for value in node.inputs}
    return tuple(reversed(kept))
