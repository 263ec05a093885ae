"""The playground as a folder of files, with the network running in the browser: no server, no Python."""

import hashlib
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from mann.errors import MannError
from mann.export.graph import Graph, Node, trace_step
from mann.export.graph import Value as GraphValue
from mann.files import write_atomically, writing
from mann.trained import Trained, with_precision

SMALL = 256  # numbers of an array from which on it is kept in half precision
LARGEST = 5_000_000  # bytes of the whole site
SERVED = (  # files of the server's page
    *("app.js", "asking.js", "common.js", "drawing.js", "example.js", "explain.js", "memory.js", "pad.js"),
    *("pictures.js", "play.js", "session.js", "statistics.js", "symbols.js", "icon.svg", "style.css"),
)
PARAMETERS = (
    *("broadcast_dimensions", "permutation", "start_indices", "strides", "axis", "axes", "dimension"),
    *("padding_config", "y", "k", "dimension_numbers"),
)
JSON_TYPES = ("float32", "int32", "bool", "uint8")


def write_site(trained: Trained, folder: Path) -> int:
    """Write the site.

    Args:
        trained: a network that names things in grey pictures.
        folder: where to.

    Returns:
        The size of all files, in bytes.

    Raises:
        MannError: if the network cannot be shown so, or is too large.
    """
    files = make_site(trained)
    for name, content in files.items():
        with writing(folder / name):
            write_atomically(folder / name, content)
    return sum(map(len, files.values()))


def make_site(trained: Trained) -> dict[str, bytes]:
    """The files of the site, by name.

    Args:
        trained: a network that names things in grey pictures.
    """
    names, pictures = trained.config.task.names, trained.config.data.format
    if pictures.channels != 1 or not trained.model.memory.slots:
        raise MannError(
            "The page is for drawings in grey and for networks with a memory: choose another model."
        )
    about = {
        "model": Path(trained.name).name,
        "letters": names.code.letters,
        "alphabet": names.code.alphabet,
        "capacity": names.code.capacity,
        "novelty": trained.novelty._asdict() if names.size > names.code.size else None,
        "side": pictures.side,
    }
    model = with_precision(trained, "float32").model  # whatever it was trained in
    graph, weights = pack_graph(trace_step(model, memory=True), about)
    static, standalone = (resources.files("mann") / "web" / place for place in ("static", "standalone"))
    files = {name: (static / name).read_bytes() for name in SERVED}
    files |= {path.name: path.read_bytes() for path in standalone.iterdir() if path.name.endswith(".js")}
    files["index.html"] = _page((static / "index.html").read_text())
    files["network.json"], files["weights.bin"] = json.dumps(graph, separators=(",", ":")).encode(), weights
    listed = json.dumps(["./", *sorted({*files} - {"offline.js"})])
    version = hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()[:16]
    offline = files["offline.js"].decode().replace("= FILES;", f"= {listed};").replace("VERSION", version)
    files["offline.js"] = offline.encode()
    if (total := sum(map(len, files.values()))) > LARGEST:
        raise MannError(f"The page would have {total / 1e6:.1f} MB, more than 5: choose a smaller model.")
    return files


def _page(html: str) -> bytes:
    """The page of the server, with addresses of a folder and without what needs the server."""
    html = html.replace('"/static/', '"./')
    html = html.replace("</head>", '<script defer src="./unserved.js"></script>\n</head>')
    for view in ("versus", "results"):
        html = re.sub(rf'    <a href="#{view}">.*?</a>\n', "", html)
        html = re.sub(rf'<section id="view-{view}".*?</section>\n\n', "", html, flags=re.DOTALL)
    html = re.sub(r'  <div class="row tabs".*?</div>\n', "", html, flags=re.DOTALL)
    return html.replace(", or\n  replay a test episode.", ".").encode()


def pack_graph(graph: Graph, about: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """The graph for JSON, and the numbers of its constants one after the other.

    Args:
        graph: of a step.
        about: what the page must know of the network.
    """
    content = bytearray()

    def add(array: np.ndarray, halve: bool) -> dict[str, Any]:
        stored = np.float16 if halve and array.dtype == np.float32 and array.size >= SMALL else array.dtype
        content.extend(b"\0" * (-len(content) % 4))
        place = len(content)
        content.extend(np.ascontiguousarray(array, stored).tobytes())
        return {
            "dtype": _dtype(array.dtype),
            "stored": np.dtype(stored).name,
            "offset": place,
            "shape": list(array.shape),
        }

    constants = {name: add(array, True) for name, array in graph.constants.items()}
    packed = {
        "about": about,
        "inputs": [value.name for value in graph.inputs],
        "outputs": [value.name for value in graph.outputs],
        "values": _values(graph),
        "nodes": [_node(node) for node in graph.nodes],
        "constants": constants,
        "start": {name: add(array, False) for name, array in graph.start.items()},
    }
    return packed, bytes(content)


def _values(graph: Graph) -> dict[str, Any]:
    values: dict[str, GraphValue] = {
        value.name: value for node in graph.nodes for value in (*node.inputs, *node.outputs)
    }
    return {
        name: {"shape": list(value.shape), "dtype": _dtype(value.dtype)} for name, value in values.items()
    }


def _dtype(dtype: np.dtype) -> str:
    if dtype.name not in JSON_TYPES:
        raise MannError(f"The network has numbers of the type {dtype}, which the page does not know.")
    return dtype.name


def _node(node: Node) -> dict[str, Any]:
    return {
        "operation": node.operation,
        "inputs": [value.name for value in node.inputs],
        "outputs": [value.name for value in node.outputs],
        "parameters": {
            key: plain for key in PARAMETERS if (plain := _plain(node.parameters.get(key))) is not None
        },
    }


def _plain(value: Any) -> Any:
    """Numbers and lists of them, as JSON has them."""
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, int | np.integer) else None
