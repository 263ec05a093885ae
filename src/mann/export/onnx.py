"""The graph of a step as an ONNX model, verified with onnxruntime over an episode.

Inputs and outputs are those of the graph: `x` and `label` in, `output` out, and every array of the state in and
out. A second model, without inputs, gives the state of a wiped memory.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float32

from mann.errors import MannError
from mann.export.graph import Graph, Node, Value, trace_step
from mann.files import to_arrays, write_atomically, writing
from mann.installation import install_command, version
from mann.outputs import Letters
from mann.trained import Trained, with_precision

try:
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError:
    raise MannError(f"The export to ONNX needs two more packages: {install_command('export')}.") from None

OPSET = 18
TOLERANCE = 1e-4  # of every output, over the whole episode; relative for numbers larger than 1
STATE = 0.1  # differences in a state count so much: a gate sums large numbers, of which little comes out
STEPS = 50  # of the episode that is run after the export

# Operations of JAX that are one operation of ONNX, with the same arguments.
SAME = {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "pow": "Pow"},
    **{"exp": "Exp", "log": "Log", "tanh": "Tanh", "logistic": "Sigmoid", "abs": "Abs", "neg": "Neg"},
    **{
        "sqrt": "Sqrt",
        "sign": "Sign",
        "floor": "Floor",
        "ceil": "Ceil",
        "erf": "Erf",
        "sin": "Sin",
        "cos": "Cos",
    },
    **{"eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual"},
    **{"and": "And", "or": "Or", "not": "Not", "xor": "Xor", "copy": "Identity"},
}


def export_onnx(trained: Trained, folder: Path) -> float:
    """Write `step.onnx`, `start.onnx` and `model.json` for a network, after running an episode through them.

    Args:
        trained: the network.
        folder: which holds no files of these names yet.

    Returns:
        The largest difference between ONNX and JAX in any output of the episode, or a tenth of that in any state.

    Raises:
        MannError: if an operation is unknown to ONNX, or the two do not agree; nothing is written then.
    """
    trained = with_precision(trained, "float32")  # whatever it was trained in
    graph = trace_step(trained.model)
    about = json.dumps(describe(trained, graph), indent=2)
    step, start = (model.SerializeToString() for model in (make_step(graph, about), make_start(graph)))
    difference = compare(step, start, trained)
    if not difference <= TOLERANCE:
        raise MannError(
            f"ONNX and JAX differ by {difference:.2g} over an episode, more than {TOLERANCE:.0e}: nothing was "
            "written. Please report it with the model."
        )
    files = {"step.onnx": step, "start.onnx": start, "model.json": f"{about}\n".encode()}
    for name, content in files.items():
        with writing(folder / name):
            write_atomically(folder / name, content)
    return difference


def make_step(graph: Graph, about: str = "") -> "onnx.ModelProto":
    """One step as a model, checked by ONNX.

    Args:
        graph: of the step.
        about: what is written into the model's metadata.
    """
    writer = _Writer()
    for node in graph.nodes:
        writer.add(node)
    return _model(
        "step", writer.nodes, graph.inputs, graph.outputs, graph.constants | writer.constants, about
    )


def make_start(graph: Graph) -> "onnx.ModelProto":
    """The state at the start of an episode as a model without inputs.

    Args:
        graph: of the step.
    """
    outputs = [value for value in graph.inputs if value.name in graph.start]
    nodes = [helper.make_node("Identity", [f"start.{value.name}"], [value.name]) for value in outputs]
    constants = {f"start.{name}": array for name, array in graph.start.items()}
    return _model("start", nodes, (), outputs, constants)


def _model(
    name: str,
    nodes: list[Any],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: dict[str, np.ndarray],
    about: str = "",
) -> "onnx.ModelProto":
    model = helper.make_model(
        helper.make_graph(
            nodes,
            name,
            [_info(value) for value in inputs],
            [_info(value) for value in outputs],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="mann",
        producer_version=version(),
        ir_version=9,
    )
    if about:
        helper.set_model_props(model, {"mann": about})
    onnx.checker.check_model(model, full_check=True)
    return model


def describe(trained: Trained, graph: Graph) -> dict[str, Any]:
    """What somebody must know who runs the graph.

    Args:
        trained: the network.
        graph: of its step.
    """
    names, pictures = label_names(trained), trained.config.data.format
    about: dict[str, Any] = {
        "model": trained.name,
        "task": type(trained.config.task).kind,
        "inputs": {value.name: list(value.shape) for value in graph.inputs},
        "outputs": {value.name: list(value.shape) for value in graph.outputs},
    }
    if names is not None:
        about |= {
            "picture": {"side": pictures.side, "channels": pictures.channels, "paper": 0, "ink": 1},
            "label": {"letters": names.code.letters, "alphabet": names.code.alphabet},
            "novelty": names.size > names.code.size,
        }
    return about


def label_names(trained: Trained) -> Letters | None:
    """How the outputs of a network name things; None if it was not trained to."""
    try:
        return trained.config.task.names
    except MannError:
        return None


def compare(step: bytes, start: bytes, trained: Trained, steps: int = STEPS) -> float:
    """Run an episode through onnxruntime and through JAX: the largest difference of any output, or a tenth of that
    of any state.

    Args:
        step: the ONNX model of a step.
        start: the ONNX model of the first state.
        trained: the network that they were made of.
        steps: of the episode.
    """
    session, theirs = _session(step), _run(_session(start), {})
    advance, state = jax.jit(lambda *arguments: trained.model.step(*arguments)), trained.model.initial_state()
    largest = 0.0
    for x, label in zip(*_episode(trained, steps), strict=True):
        output, state = advance(x, label, state)
        found = _run(session, {"x": x, "label": label, **theirs})
        ours = {f"next.{name}": array for name, array in to_arrays(state).items()} | {"output": output}
        apart = (_difference(ours[name], found[name]) * (1 if name == "output" else STATE) for name in ours)
        largest = max([largest, *apart])
        theirs = {name.replace("next", "state", 1): array for name, array in found.items()}
        del theirs["output"]
    return largest


def _session(content: bytes) -> "onnxruntime.InferenceSession":
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def _run(session: "onnxruntime.InferenceSession", inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _difference(one: Any, other: np.ndarray) -> float:
    exact = np.asarray(one, np.float64)
    return float(np.max(np.abs(exact - other) / np.maximum(np.abs(exact), 1), initial=0.0))


def _episode(
    trained: Trained, steps: int
) -> tuple[Float32[np.ndarray, "steps x"], Float32[np.ndarray, "steps label"]]:
    """Strokes of ink at random and labels of a few classes, or random numbers where there are no pictures."""
    rng, names = np.random.default_rng(0), label_names(trained)
    labels = rng.normal(size=(steps, trained.model.label_size))
    x = rng.normal(size=(steps, trained.model.input_size))
    if names is not None:
        code = names.code
        which = rng.integers(min(5, code.capacity), size=steps)
        labels = code.encode_on_host(rng.permutation(code.capacity)[:5][which].tolist())
        drawings = rng.random((5, x.shape[1])) < 0.2
        x = np.where(rng.random(x.shape) < 0.03, 1 - drawings[which], drawings[which])
    labels = np.concatenate([np.zeros_like(labels[:1]), labels[:-1]])
    return x.astype(np.float32), labels.astype(np.float32)


class _Writer:
    """Turns operations of JAX into those of ONNX; a method for each that is not in `SAME`."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.count = 0

    def add(self, node: Node) -> None:
        inputs, outputs = [v.name for v in node.inputs], [v.name for v in node.outputs]
        if node.operation in SAME:
            self.nodes.append(helper.make_node(SAME[node.operation], inputs, outputs))
            return
        write: Callable[[Node, list[str]], str | list[str]] | None = getattr(self, f"_{node.operation}", None)
        if write is None:
            raise MannError(
                f"The network uses the operation {node.operation}, which the export does not know."
            )
        results = write(node, inputs)
        for result, output in zip([results] if isinstance(results, str) else results, outputs, strict=True):
            self.nodes.append(helper.make_node("Identity", [result], [output]))

    def _new(self) -> str:
        self.count += 1
        return f"o{self.count}"

    def do(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """One operation with one result."""
        result = self._new()
        self.nodes.append(helper.make_node(operation, list(inputs), [result], **attributes))
        return result

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = self._new()
        self.constants[name] = np.asarray(value, dtype)
        return name

    def reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        return self.do("Reshape", name, self.constant(shape), allowzero=1)

    def _dot_general(self, node: Node, inputs: list[str]) -> str:
        (left, right), (left_batch, right_batch) = node.parameters["dimension_numbers"]
        ranks = [len(value.shape) for value in node.inputs]
        if not left_batch and left == (ranks[0] - 1,) and right == (0,) and ranks[1] == 2:
            return self.do("MatMul", *inputs)
        letters = [[""] * rank for rank in ranks]
        fresh = iter("abcdefghijklmnopqrstuvwxyz")
        for mine, theirs in (*zip(left_batch, right_batch, strict=True), *zip(left, right, strict=True)):
            letters[0][mine] = letters[1][theirs] = next(fresh)
        own = [[letter or next(fresh) for letter in row] for row in letters]
        batch = [own[0][axis] for axis in left_batch]
        rest = [
            c
            for row, used in zip(own, (left, right), strict=True)
            for i, c in enumerate(row)
            if i not in used
        ]
        result = "".join(batch + [letter for letter in rest if letter not in batch])
        return self.do("Einsum", *inputs, equation=f"{','.join(map(''.join, own))}->{result}")

    def _broadcast_in_dim(self, node: Node, inputs: list[str]) -> str:
        shape, axes = node.parameters["shape"], node.parameters["broadcast_dimensions"]
        sizes = dict(zip(axes, node.inputs[0].shape, strict=True))
        aligned = self.reshaped(inputs[0], tuple(sizes.get(axis, 1) for axis in range(len(shape))))
        return self.do("Expand", aligned, self.constant(shape))

    def _reshape(self, node: Node, inputs: list[str]) -> str:
        return self.reshaped(inputs[0], node.outputs[0].shape)

    _squeeze = _expand_dims = _reshape

    def _transpose(self, node: Node, inputs: list[str]) -> str:
        return self.do("Transpose", inputs[0], perm=node.parameters["permutation"])

    def _concatenate(self, node: Node, inputs: list[str]) -> str:
        return self.do("Concat", *inputs, axis=node.parameters["dimension"])

    def _stack(self, node: Node, inputs: list[str]) -> str:
        axis = node.parameters["axis"]
        axes = self.constant([axis])
        return self.do("Concat", *(self.do("Unsqueeze", name, axes) for name in inputs), axis=axis)

    def _split(self, node: Node, inputs: list[str]) -> list[str]:
        results = [self._new() for _ in node.outputs]
        sizes = self.constant(node.parameters["sizes"])
        self.nodes.append(
            helper.make_node("Split", [inputs[0], sizes], results, axis=node.parameters["axis"])
        )
        return results

    def _slice(self, node: Node, inputs: list[str]) -> str:
        starts, ends = node.parameters["start_indices"], node.parameters["limit_indices"]
        steps = node.parameters["strides"] or [1] * len(starts)
        axes = range(len(starts))
        return self.do("Slice", inputs[0], *(self.constant(list(n)) for n in (starts, ends, axes, steps)))

    def _pad(self, node: Node, inputs: list[str]) -> str:
        config = node.parameters["padding_config"]
        if any(inside for _, _, inside in config):
            raise MannError("The network pads between numbers, which the export does not know.")
        pads = [low for low, _, _ in config] + [high for _, high, _ in config]
        return self.do("Pad", inputs[0], self.constant(pads), inputs[1])

    def _reduce(self, operation: str, node: Node, inputs: list[str]) -> str:
        return self.do(operation, inputs[0], self.constant(list(node.parameters["axes"])), keepdims=0)

    def _reduce_sum(self, node: Node, inputs: list[str]) -> str:
        return self._reduce("ReduceSum", node, inputs)

    def _reduce_max(self, node: Node, inputs: list[str]) -> str:
        return self._reduce("ReduceMax", node, inputs)

    def _reduce_min(self, node: Node, inputs: list[str]) -> str:
        return self._reduce("ReduceMin", node, inputs)

    def _reduce_prod(self, node: Node, inputs: list[str]) -> str:
        return self._reduce("ReduceProd", node, inputs)

    def _best(self, operation: str, node: Node, inputs: list[str]) -> str:
        (axis,) = node.parameters["axes"]
        return self._cast(self.do(operation, inputs[0], axis=axis, keepdims=0), node.outputs[0])

    def _argmax(self, node: Node, inputs: list[str]) -> str:
        return self._best("ArgMax", node, inputs)

    def _argmin(self, node: Node, inputs: list[str]) -> str:
        return self._best("ArgMin", node, inputs)

    def _top_k(self, node: Node, inputs: list[str]) -> list[str]:
        values, places = self._new(), self._new()
        count = self.constant([node.parameters["k"]])
        self.nodes.append(helper.make_node("TopK", [inputs[0], count], [values, places], axis=-1))
        return [values, self._cast(places, node.outputs[1])]

    def _cumsum(self, node: Node, inputs: list[str]) -> str:
        axis = self.constant(node.parameters["axis"])
        return self.do("CumSum", inputs[0], axis, reverse=int(node.parameters["reverse"]))

    def _cast(self, name: str, like: Value) -> str:
        return self.do("Cast", name, to=helper.np_dtype_to_tensor_dtype(like.dtype))

    def _convert_element_type(self, node: Node, inputs: list[str]) -> str:
        return self._cast(inputs[0], node.outputs[0])

    def _select_n(self, node: Node, inputs: list[str]) -> str:
        which, *cases = inputs
        if len(cases) != 2:
            raise MannError("The network chooses among more than two, which the export does not know.")
        return self.do("Where", which, cases[1], cases[0])

    def _number(self, value: int, like: Value) -> str:
        return self.constant(value, like.dtype)

    def _integer_pow(self, node: Node, inputs: list[str]) -> str:
        return self.do("Pow", inputs[0], self._number(node.parameters["y"], node.inputs[0]))

    def _square(self, node: Node, inputs: list[str]) -> str:
        return self.do("Mul", inputs[0], inputs[0])

    def _rsqrt(self, node: Node, inputs: list[str]) -> str:
        return self.do("Reciprocal", self.do("Sqrt", inputs[0]))

    def _log1p(self, node: Node, inputs: list[str]) -> str:
        return self.do("Log", self.do("Add", inputs[0], self._number(1, node.inputs[0])))

    def _ne(self, node: Node, inputs: list[str]) -> str:
        return self.do("Not", self.do("Equal", *inputs))


def _info(value: Value) -> Any:
    return helper.make_tensor_value_info(
        value.name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)
    )
