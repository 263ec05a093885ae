"""One step of a network that is a memory alone, natively on arrays of the host.

JAX takes longer to be called than such a step takes to be computed. The state is the same named tuple as
everywhere, of NumPy's arrays: whatever is compiled takes it as well.
"""

import ctypes
import math
import struct
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32

from mann import kernel
from mann.cell import Cell, State
from mann.layers import Linear
from mann.memory.base import HostKernel


def host_step(cell: Cell, readout: Linear, inputs: int, labels: int) -> "HostStep | None":
    """The native step of a network without an encoder, or None if there is none for it here.

    Args:
        cell: of which the memory must do without a controller.
        readout: the output layer.
        inputs: length of x_t.
        labels: length of y_{t−1}.
    """
    if cell.controller.hidden_size or cell.controller.gate_size:
        return None
    needs = cell.memory.host_kernel()
    arrays = jax.tree.leaves(eqx.filter((cell, readout), eqx.is_array))
    single = cell.memory.precision == "float32" and all(array.dtype == jnp.float32 for array in arrays)
    if needs is None or not single:
        return None
    function = kernel.host_function(needs.name, f"mann_{needs.name}_step")
    return None if function is None else HostStep(function, needs, cell, readout, inputs, labels)


class HostStep:
    """`Model.step` as one call. The state that it takes stays as it is, so that threads may share it."""

    def __init__(
        self,
        function: Any,
        needs: HostKernel,
        cell: Cell,
        readout: Linear,
        inputs: int,
        labels: int,
    ) -> None:
        wiped, outputs = jax.eval_shape(cell.memory.initial_state), len(readout.bias)
        function.restype = None
        self._function, self._state = function, type(wiped)
        self._sizes = struct.pack(f"{len(needs.sizes) + 1}q", *needs.sizes, outputs)
        weights = (*needs.weights, np.asarray(readout.weight), np.asarray(readout.bias))
        self._kept = [np.array(weight, order="C") for weight in weights]  # the call has but their addresses
        self._weights = struct.pack(f"{len(weights)}P", *(weight.ctypes.data for weight in self._kept))
        state = [leaf.shape for leaf in wiped]
        self._results = [(outputs + 1,), (cell.memory.read_size,), *state]
        shapes = [(inputs,), (labels,), *state, *self._results]
        # Each finds the place of a NumPy array, and refuses one that is too short: quicker than `array.ctypes`.
        self._views = [(ctypes.c_float * math.prod(shape)).from_buffer for shape in shapes]
        self._pack = struct.Struct(f"{len(shapes)}P").pack

    def __call__(
        self, x: Float32[np.ndarray, "inputs"], previous_label: Float32[np.ndarray, "labels"], state: State
    ) -> tuple[Float32[np.ndarray, "outputs"], State]:
        """The outputs with, last, how familiar x is (−1 if the memory cannot say); and the state after the step."""
        results = [np.empty(shape, np.float32) for shape in self._results]
        x, label = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(previous_label, np.float32)
        try:
            arrays = self._places(x, label, *state.memory, *results)
        except TypeError:  # an array that must not be written, as JAX's are
            return self(x.copy(), label.copy(), on_host(state))
        self._function(self._sizes, self._weights, arrays)
        outputs, reads, *memory = results
        return outputs, State((), reads, self._state(*memory))  # type: ignore[arg-type]  # not JAX's

    def _places(self, *arrays: np.ndarray) -> bytes:
        places = [ctypes.addressof(view(array)) for view, array in zip(self._views, arrays, strict=True)]
        return self._pack(*places)


def on_host(state: State) -> State:
    """The same in NumPy's arrays, which a native step finds at once."""
    copied: State = jax.tree.map(lambda leaf: np.array(leaf, np.float32, order="C"), state)
    return copied
