"""A learner as arrays with a description, the content of its file and of its JSON alike."""

import math
import secrets
from typing import Any, NamedTuple

import jax
import numpy as np

from mann.errors import MannError
from mann.files import from_arrays, to_arrays
from mann.online import knowledge
from mann.online.answers import Label
from mann.online.examples import Example, Keep, check_keep
from mann.online.knowledge import Knowledge
from mann.online.network import Network, compile_network
from mann.trained import from_content
from mann.training.config import to_dict

VERSION = 2  # 1 had no version, no seed, no threshold of novelty, and no examples


class Content(NamedTuple):
    """All of a learner."""

    network: Network
    knowledge: Knowledge
    seed: int
    novelty: bool | float
    keep: Keep


def pack(content: Content) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays, and a description for JSON.

    Raises:
        MannError: if a label is not text, a number, or a tuple of them.
    """
    known, trained = content.knowledge, content.network.trained
    arrays = {f"model.{name}": value for name, value in to_arrays(trained.model).items()}
    arrays |= {f"state.{name}": value for name, value in to_arrays(known.state).items()}
    arrays["pending"] = known.pending
    learner: dict[str, Any] = {
        "version": VERSION,
        "model": trained.name,
        "seed": content.seed,
        "novelty": content.novelty,
        "keep": content.keep,
        "labels": [[_to_json(label), code] for label, code in known.labels.items()],
        "shows": [known.shows.get(label, 0) for label in known.labels],
        "announced": [_to_json(label) for label in known.announced],
    }
    if known.examples is not None:
        places = {label: place for place, label in enumerate(known.labels)}
        learner["examples"] = [places[example.label] for example in known.examples]
        pixels = [example.pixels for example in known.examples]
        arrays["examples.pixels"] = np.array(pixels, np.float32).reshape(
            len(pixels), trained.model.input_size
        )
        arrays |= {
            f"examples.picture.{place}": example.picture
            for place, example in enumerate(known.examples)
            if example.picture is not None
        }
    return arrays, trained.description | {"config": to_dict(trained.config), "learner": learner}


def unpack(arrays: dict[str, np.ndarray], description: dict[str, Any], source: str) -> Content:
    """What `pack` packed, in this or an earlier version.

    Args:
        arrays: by name.
        description: which has a learner.
        source: what errors call the file.

    Raises:
        MannError: if it is no learner, of a later version, or makes no sense.
    """
    if not isinstance(description.get("learner"), dict):
        raise MannError(f"{source} holds no learner: give what OneShotLearner.save or to_json wrote.")
    learner = description["learner"]
    version = learner.get("version", 1)
    if not isinstance(version, int) or version > VERSION:
        raise MannError(f"{source} was written by a later version of mann: update mann to read it.")
    described = {key: value for key, value in description.items() if key != "learner"}
    trained = from_content(str(learner.get("model")), arrays, described, source)
    try:
        seed, novelty, keep, announced, labels, shown, shows = _read(learner)
    except (KeyError, TypeError, ValueError, RecursionError):
        raise MannError(f"{source} holds a learner that makes no sense: teach it anew.") from None
    state_arrays = {
        key.removeprefix("state."): array for key, array in arrays.items() if key.startswith("state.")
    }
    # Shapes alone, before a start state is made: its size is whatever the configuration says.
    state = from_arrays(jax.eval_shape(trained.model.initial_state), state_arrays, source)
    network = compile_network(trained)
    code = network.code
    pending = arrays.get("pending", np.zeros(0))
    codes = list(labels.values())
    if (
        len(set(codes)) < len(codes)
        or not all(0 <= number < code.capacity for number in codes)
        or pending.shape != (code.size,)
        or not all(np.isfinite(leaf).all() for leaf in (pending, *jax.tree.leaves(state)))
        or not set(announced) <= set(labels)
    ):
        raise MannError(f"{source} holds a learner that makes no sense: teach it anew.")
    known = knowledge.begin(network, seed, announced, keeps=False)
    for label in labels:  # their codes are those of the file; the generator goes on after them
        known = knowledge.name(network, known, label)
    known = known._replace(
        state=state,
        pending=np.asarray(pending, np.float32),
        labels=labels,
        encoded=code.encode_on_host(codes),
        examples=None if shown is None else _examples(arrays, list(labels), shown, network, source),
        shows=shows,
    )
    return Content(network, known, seed, novelty, keep)


class _Described(NamedTuple):
    seed: int
    novelty: bool | float
    keep: Keep
    announced: tuple[Label, ...]
    labels: dict[Label, int]
    shown: list[int] | None  # the place of each example's label
    shows: dict[Label, int]


def _read(learner: dict[str, Any]) -> _Described:
    labels = {_from_json(label): int(code) for label, code in learner["labels"]}
    if len(labels) < len(learner["labels"]):
        raise ValueError("a label twice")
    announced = tuple(_from_json(label) for label in learner["announced"])
    if "version" not in learner:
        return _Described(secrets.randbelow(2**31), True, "nothing", announced, labels, None, {})
    seed, novelty, keep, shown = (learner.get(key) for key in ("seed", "novelty", "keep", "examples"))
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise ValueError("no seed")
    if not isinstance(novelty, bool | float | int) or not math.isfinite(novelty):
        raise ValueError("no threshold")
    check_keep(str(keep))
    if (shown is None) != (keep == "nothing"):
        raise ValueError("not what it says it keeps")
    if shown is not None and not all(type(place) is int and 0 <= place < len(labels) for place in shown):
        raise ValueError("an example of no label")
    counts = learner.get("shows", [0] * len(labels))  # older files do not say
    if shown is not None:
        counts = np.bincount(shown, minlength=len(labels)).tolist()
    if len(counts) != len(labels) or not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("not the examples of each label")
    shows = {label: count for label, count in zip(labels, counts, strict=True) if count}
    return _Described(seed, novelty, keep, announced, labels, shown, shows)  # type: ignore[arg-type]


def _examples(
    arrays: dict[str, np.ndarray], labels: list[Label], shown: list[int], network: Network, source: str
) -> tuple[Example, ...]:
    pixels = arrays.get("examples.pixels", np.zeros(0))
    size = network.trained.model.input_size
    if pixels.dtype != np.float32 or pixels.shape != (len(shown), size):
        raise MannError(f"{source} holds {pixels.shape} pixels for {len(shown)} examples: it is damaged.")
    pixels.flags.writeable = False
    return tuple(
        Example(labels[label], pixels[place], arrays.get(f"examples.picture.{place}"))
        for place, label in enumerate(shown)
    )


def _to_json(label: Any) -> Any:
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple):
        return {"tuple": [_to_json(part) for part in label]}
    if isinstance(label, str | int | float):
        return label
    raise MannError(f"The label {label!r} cannot be saved: use text, numbers, or tuples of them.")


def _from_json(label: Any) -> Any:
    if isinstance(label, dict):
        return tuple(_from_json(part) for part in label["tuple"])
    if not isinstance(label, str | int | float):
        raise TypeError("no label")
    return label
