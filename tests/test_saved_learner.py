"""A saved learner, as a file and as JSON: the same content, versions, digests, and what is refused."""

import base64
import json
import tracemalloc
from pathlib import Path

import jax
import numpy as np
import pytest

from mann import MannError, OneShotLearner
from mann.files import dump_arrays, load_arrays, parse_arrays, save_arrays
from mann.online import saved
from tests.test_legacy import EXPECTED, OLD
from tests.test_online import GLYPHS, tiny
from tests.test_taking_back import assert_same

LABELS = ["ankh", 3, (1, ("x", 2.5)), np.int64(9), "ankh"]


@pytest.fixture(scope="module")
def parent() -> OneShotLearner:
    return OneShotLearner(tiny("strings"))


@pytest.fixture(params=["pixels", "pictures", "nothing"])
def taught(parent, request) -> OneShotLearner:
    learner = parent.sibling(labels=["known"], seed=3, novelty=0.25, keep=request.param)
    for glyph, label in enumerate(LABELS):
        learner.learn_one(GLYPHS[glyph, 0], label)
    return learner


def through_file(learner: OneShotLearner, folder: Path) -> OneShotLearner:
    learner.save(folder / "learner")
    return OneShotLearner.load(folder / "learner")


def through_json(learner: OneShotLearner, folder: Path) -> OneShotLearner:
    """As a database may hand it back: keys in another order, and spaces."""
    content = json.loads(learner.to_json())
    return OneShotLearner.from_json(json.dumps(content, sort_keys=True, indent=1).encode())


@pytest.mark.parametrize("through", [through_file, through_json])
def test_it_goes_on_where_it_was(taught, through, tmp_path):
    again = through(taught, tmp_path)
    for learner in (taught, again):
        learner.learn_one(GLYPHS[5, 0], "a new label")
    assert again.choose({"a": 0.7, None: 0.3}) is None  # the threshold of novelty
    assert again._knowledge.labels == taught._knowledge.labels
    assert again._knowledge.random == taught._knowledge.random
    for ours, theirs in zip(
        jax.tree.leaves(again._knowledge.state), jax.tree.leaves(taught._knowledge.state), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    if taught._keep == "nothing":
        with pytest.raises(MannError, match="kept nothing"):
            again.forget("ankh")
        return
    for learner in (taught, again):
        learner.forget("ankh")
        learner.forget("known")
        learner.relabel(0, "mended")
    assert_same(again, taught)
    for ours, theirs in zip(again.examples, taught.examples, strict=True):
        assert (ours.picture is None) == (taught._keep == "pixels")
        if ours.picture is not None:
            np.testing.assert_array_equal(ours.picture, theirs.picture)


def test_file_and_json_have_the_same_content(taught, tmp_path):
    taught.save(tmp_path / "learner")
    arrays, description = load_arrays(tmp_path / "learner")
    others, other = parse_arrays(taught.to_json())
    assert description == other
    assert description["learner"]["version"] == 2
    assert arrays.keys() == others.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], others[name])
        assert arrays[name].dtype == others[name].dtype


def test_the_json_can_be_read_by_anybody(taught):
    """With nothing but the format: base64 of little-endian numbers."""
    content = json.loads(taught.to_json())
    item = content["arrays"]["pending"]
    pending = np.frombuffer(base64.b64decode(item["base64"]), "<f4").reshape(item["shape"])
    np.testing.assert_array_equal(pending, taught._knowledge.pending)
    assert [label for label, _ in json.loads(content["description"])["learner"]["labels"]][:2] == [
        "known",
        "ankh",
    ]


@pytest.mark.parametrize("name", ["learner-2.json", "learner.safetensors"])
def test_learners_of_every_version_are_read(name):
    """What earlier versions wrote, against what they answered."""
    from mann.data import Glyphs

    file = OLD / name
    read = OneShotLearner.from_json if file.suffix == ".json" else OneShotLearner.load
    learner = read(file.read_text() if file.suffix == ".json" else file)
    images = Glyphs(classes=30).load().images
    expected = EXPECTED["learner-2" if file.suffix == ".json" else "learner"]
    for number, before in enumerate(expected):
        now = {str(label): p for label, p in learner.predict_proba_one(255 * images[number, 1]).items()}
        # Pictures are brought to their ink since the first version.
        assert now == pytest.approx(before, abs=1e-3 if file.suffix == ".json" else 0.02)
    if file.suffix == ".json":
        learner.forget("thing 0")
        assert "thing 0" not in learner.labels
    else:
        with pytest.raises(MannError, match="kept nothing"):
            learner.examples  # noqa: B018


def damaged_texts(text: str) -> dict[str, object]:
    content = json.loads(text)
    item = content["arrays"]["pending"]
    other = json.loads(text)
    other["description"] = other["description"].replace('"seed": 3', '"seed": 4')
    return {
        "not JSON": text[:-10],
        "no object": "[]",
        "nothing": "",
        "too deep": "[" * 100_000,
        "no UTF-8": b"\xff\xfe\x00",
        "other seed": json.dumps(other),
        "other number": json.dumps(
            content | {"arrays": content["arrays"] | {"pending": item | {"base64": "AAAA"}}}
        ),
        "pickled": json.dumps(content | {"arrays": {"a": item | {"dtype": "object"}}}),
        "negative": json.dumps(content | {"arrays": {"a": item | {"shape": [-1]}}}),
        "huge": json.dumps(content | {"arrays": {"a": item | {"shape": [2**62]}}}),
        "no base64": json.dumps(content | {"arrays": {"a": item | {"base64": "ü"}}}),
        "no arrays": json.dumps(content | {"arrays": []}),
        "number": json.dumps(content | {"description": 3}),
    }


def test_damaged_json_is_refused(parent):
    learner = parent.sibling(seed=3)
    learner.learn_one(GLYPHS[0, 0], "a")
    for name, text in damaged_texts(learner.to_json()).items():
        with pytest.raises(MannError, match="damaged") as error:
            OneShotLearner.from_json(text)
        assert len(str(error.value)) < 200, name


def test_too_long_json_is_not_even_parsed(parent, monkeypatch):
    monkeypatch.setattr("mann.files.MOST_JSON", 100)
    with pytest.raises(MannError, match="too long"):
        OneShotLearner.from_json(parent.to_json())


SENSELESS = {
    "no labels": {"labels": 3},
    "label twice": {"labels": [["a", 1], ["a", 2]]},
    "code twice": {"labels": [["a", 1], ["b", 1]]},
    "code out of range": {"labels": [["a", 3125]]},
    "negative code": {"labels": [["a", -1]]},
    "label of no kind": {"labels": [[None, 1]]},
    "list for a label": {"labels": [[["x"], 1]]},
    "unknown announced": {"announced": ["z"]},
    "no seed": {"seed": "x"},
    "huge seed": {"seed": 2**200},
    "no novelty": {"novelty": "x"},
    "novelty": {"novelty": 7.0},
    "keeps": {"keep": "everything"},
    "keeps nothing": {"keep": "nothing"},
    "example of no label": {"examples": [5]},
    "more examples": {"examples": [0, 0]},
    "example": {"examples": ["x"]},
}


def test_json_of_a_later_format_is_said_to_be_that():
    later = json.dumps({"format": "mann arrays 2"})
    with pytest.raises(MannError, match="is of the format 'mann arrays 2', not 'mann arrays 1'"):
        parse_arrays(later)


@pytest.mark.parametrize("name", SENSELESS)
def test_what_makes_no_sense_is_refused_though_its_digest_is_right(parent, name):
    learner = parent.sibling(seed=3)
    learner.learn_one(GLYPHS[0, 0], "a")
    arrays, description = parse_arrays(learner.to_json())
    description["learner"] |= SENSELESS[name]
    with pytest.raises(MannError) as error:
        OneShotLearner.from_json(dump_arrays(arrays, description))
    assert len(str(error.value)) < 200


def test_later_versions_and_unusable_states_are_refused(parent, tmp_path):
    learner = parent.sibling(seed=3)
    arrays, description = parse_arrays(learner.to_json())
    later = description | {"learner": description["learner"] | {"version": saved.VERSION + 1}}
    with pytest.raises(MannError, match="update mann"):
        OneShotLearner.from_json(dump_arrays(arrays, later))
    save_arrays(tmp_path / "later", arrays, later)
    with pytest.raises(MannError, match="update mann"):
        OneShotLearner.load(tmp_path / "later")
    spoilt = dict(arrays, **{"state.memory.usage": np.full_like(arrays["state.memory.usage"], np.nan)})
    with pytest.raises(MannError, match="makes no sense"):
        OneShotLearner.from_json(dump_arrays(spoilt, description))
    with pytest.raises(MannError, match="no learner"):
        OneShotLearner.from_json(dump_arrays(arrays, {"config": description["config"]}))


def test_a_huge_memory_in_a_small_file_is_refused_before_it_is_made(parent):
    arrays, description = parse_arrays(parent.to_json())
    description["config"]["model"]["memory"]["slots"] = 2**24
    tracemalloc.start()
    with pytest.raises(MannError, match="expected"):
        OneShotLearner.from_json(dump_arrays(arrays, description))
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()
