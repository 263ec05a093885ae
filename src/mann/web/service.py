"""What the service does: learners for programs, by their ids. `openapi.py` says how it is asked."""

import base64
import io
import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from mann.errors import MannError
from mann.online import Label, OneShotLearner, Prepared
from mann.online.page import FORMAT, from_levels, read_page, to_page
from mann.online.together import Glance
from mann.store import Gone, Learners, Live, Moment
from mann.web.desk import Ask
from mann.web.metrics import Metrics
from mann.web.requests import read_whole
from mann.web.sessions import Full, Outdated

KIND = "learner"  # of these learners in the store
LETTERS = 24  # of an id
MOST_LABELS = 3000  # of one learner
MOST_EXAMPLES = 10_000  # of one learner
MOST_LETTERS = 100  # of a label or a name
MOST_IMAGES = 64  # of one request
MOST_PIXELS = 8_000_000  # of all pictures of a request together
RANKED = 5  # labels in an answer


class Picture(NamedTuple):
    """One picture of a request."""

    content: bytes
    label: Any = None


class Service:
    """The requests, each a method that returns what is sent. They compute: run them in threads.

    Args:
        learners: where learners are.
        most: learners that there may be.
        metrics: what is counted.
    """

    def __init__(self, learners: Learners, most: int, metrics: Metrics) -> None:
        self.learners, self._most, self._metrics = learners, most, metrics

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        seed = None if body.get("seed") is None else read_whole(body, "seed", 0, 2**31 - 1)
        return self._begin(_name(body), seed, _novelty(body))

    def _begin(self, name: str, seed: int | None, novelty: bool | float) -> dict[str, Any]:
        if self.learners.store.count(KIND) >= self._most:
            raise Full(f"There are {self._most} learners, as many as this server keeps: delete one.")
        live = self.learners.create(
            KIND, secrets.token_hex(LETTERS // 2), name=name, seed=seed, novelty=novelty
        )
        return _describe(live.key, live.now)

    def listing(self) -> dict[str, Any]:
        return {
            "learners": [
                {"id": key, "name": head.name, "created": head.created, "examples": version.examples}
                for key, head, version, _ in self.learners.store.listing(KIND)
            ]
        }

    def find(self, key: str) -> Live:
        """The learner of an id; those of browsers are not to be had."""
        (found,) = self._find_all([key])
        if isinstance(found, MannError):
            raise found
        return found

    def _find_all(self, keys: Sequence[str]) -> "list[Live | MannError]":
        """The learners of several ids, for one question to the store."""
        ids = [key for key in keys if len(key) == LETTERS]
        found = dict(zip(ids, self.learners.find_all(ids), strict=True)) if ids else {}
        gone = "There is no learner {!r}: GET /v1/learners lists them."
        return [found.get(key) or Gone(gone.format(key[:30])) for key in keys]

    def get(self, key: str) -> dict[str, Any]:
        return _describe(key, self.find(key).now)

    def change(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        """Another name or threshold."""
        live = self.find(key)

        def change(learner: OneShotLearner) -> None:
            if "novelty" in body:
                learner.novelty = _novelty(body)

        return self._mend(live, change, body, _name(body) if "name" in body else None)

    def delete(self, key: str) -> dict[str, Any]:
        self.find(key)
        self.learners.delete(key)
        return {"deleted": key}

    def learn(self, key: str, body: dict[str, Any], pictures: Sequence[Picture]) -> dict[str, Any]:
        live = self.find(key)
        prepared = self.prepare(pictures)
        labels = [check_text(picture.label, "label") for picture in pictures]

        def change(learner: OneShotLearner) -> None:
            if len({*learner.labels, *labels}) > MOST_LABELS:
                raise MannError(
                    f"A learner has {MOST_LABELS} labels at most: forget some, or create another."
                )
            if len(learner.examples) + len(labels) > MOST_EXAMPLES:
                raise MannError(f"A learner keeps {MOST_EXAMPLES} examples at most: forget some.")
            if len(labels) == 1:  # one step, which is compiled already
                learner.learn_one(prepared[0], labels[0])
            else:
                learner.learn_many(prepared, labels)

        answer = self._mend(live, change, body)
        self._metrics.examples.add(len(labels))
        return answer

    def prepare(self, pictures: Sequence[Picture]) -> list[Prepared]:
        """Pictures as the network sees them, bounded in number and size."""
        if not 1 <= len(pictures) <= MOST_IMAGES:
            raise MannError(f"Send between 1 and {MOST_IMAGES} pictures.")
        opened = [_open(picture.content) for picture in pictures]
        if sum(picture.width * picture.height for picture in opened) > MOST_PIXELS:
            raise MannError(
                f"The pictures are too large: send at most {MOST_PIXELS // 10**6} million pixels at once."
            )
        return [self.learners.parent.prepare(picture, "the picture") for picture in opened]

    def prepare_predictions(self, requests: list[tuple[str, Any]]) -> list[Ask | Exception]:
        """Predictions by learner, and pictures as files or prepared."""
        found = self._find_all([key for key, _ in requests])
        return [
            self._prepare_prediction(live, pictures)
            for live, (_, pictures) in zip(found, requests, strict=True)
        ]

    def _prepare_prediction(self, live: Live | MannError, pictures: Any) -> Ask | Exception:
        if isinstance(live, MannError):
            return live
        learner = live.now.learner
        try:
            ready = isinstance(pictures[0], Prepared) if pictures else False
            prepared = pictures if ready else self.prepare(pictures)
        except MannError as error:
            return error

        def finish(glances: list[Glance]) -> dict[str, Any]:
            return {"predictions": [predicted(learner, glance.probabilities) for glance in glances]}

        return Ask(learner, [one.pixels for one in prepared], finish)

    def forget(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        """One label, or everything."""
        label = None if body.get("label") is None else check_text(body["label"], "label")

        def change(learner: OneShotLearner) -> None:
            if label is None:
                learner.reset()
            else:
                learner.forget(label)

        return self._mend(self.find(key), change, body)

    def rename(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        old, new = check_text(body.get("label"), "label"), check_text(body.get("to"), "new label, `to`,")
        return self._mend(self.find(key), lambda learner: learner.rename(old, new), body)

    def relabel(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        place, label = _place(body), check_text(body.get("label"), "label")
        return self._mend(self.find(key), lambda learner: learner.relabel(place, label), body)

    def undo(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        """Take back one example, the last if none is named."""
        place = _place(body) if body.get("example") is not None else -1
        return self._mend(self.find(key), lambda learner: learner.unlearn_one(place), body)

    def examples(self, key: str) -> dict[str, Any]:
        now = self.find(key).now
        shape = now.learner.format.shape if now.learner.format.channels > 1 else now.learner.format.shape[:2]
        return {
            "version": version_of(now),
            "examples": [
                {"example": number, "label": one.label, "image": _png(one.pixels.reshape(shape))}
                for number, one in enumerate(now.learner.examples, start=1)
            ],
        }

    def export(self, key: str, form: str) -> str:
        """What `OneShotLearner.from_json` reads, or a file of the page."""
        learner = self.find(key).now.learner
        if form not in ("learner", "page"):
            raise MannError("A learner is exported in the format learner or page.")
        return learner.to_json() if form == "learner" else json.dumps(to_page(learner))

    def take(self, content: bytes) -> dict[str, Any]:
        """A new learner, taught anew with the examples of one that was exported."""
        parent = self.learners.parent
        try:
            page = json.loads(content).get("format") == FORMAT
        except (ValueError, AttributeError, RecursionError):
            raise MannError("Send the JSON that a learner was exported as.") from None
        seed = None
        if page:
            lessons, novelty = read_page(content, MOST_EXAMPLES)
            pictures = [from_levels(levels, parent.format) for _, levels in lessons]
            labels: list[Label] = [label for label, _ in lessons]
        else:
            other = OneShotLearner.from_json(content)
            if other.format != parent.format:
                raise MannError(f"It was taught with {other.model}, whose pictures have another format.")
            examples, novelty, seed = other.examples, other.novelty, other.seed
            pictures = [Prepared(one.pixels, np.zeros((1, 1), np.uint8)) for one in examples]
            labels = [example.label for example in examples]
        if len(labels) > MOST_EXAMPLES or len(set(labels)) > MOST_LABELS:
            raise MannError(f"A learner has {MOST_EXAMPLES} examples and {MOST_LABELS} labels at most.")
        checked = [check_text(label, "label") for label in labels]
        key = self._begin("", seed, novelty)["id"]
        live = self.find(key)
        try:
            return self._mend(live, lambda learner: learner.learn_many(pictures, checked), {})
        except BaseException:
            self.learners.delete(key)
            raise

    def _mend(
        self,
        live: Live,
        change: Callable[[OneShotLearner], None],
        body: dict[str, Any],
        name: str | None = None,
    ) -> dict[str, Any]:
        """Make a change; where the request names a version, only to that."""
        version = body.get("version")

        def checked(learner: OneShotLearner) -> None:
            if version is not None and version != version_of(live.now):
                raise Outdated(f"The learner is no longer of version {str(version)[:30]!r}: look again.")
            change(learner)

        self.learners.change(live, checked, name)
        return _describe(live.key, live.now)


def version_of(now: Moment) -> str:
    return f"{now.version.epoch}.{now.version.examples}"


def predicted(learner: OneShotLearner, chances: dict[Label, float]) -> dict[str, Any]:
    """One prediction: the label, or null for something new, and the most probable ones."""
    label = learner.choose(chances)
    known = sorted(
        ((one, chance) for one, chance in chances.items() if one is not None), key=lambda it: -it[1]
    )
    return {
        "label": label,
        "probability": chances[label],
        "new": chances[None],
        "ranked": [{"label": one, "probability": chance} for one, chance in known[:RANKED]],
    }


def _describe(key: str, now: Moment) -> dict[str, Any]:
    counts: dict[Label, int] = dict.fromkeys(now.learner.labels, 0)
    for example in now.learner.examples:
        counts[example.label] += 1
    return {
        "id": key,
        "name": now.head.name,
        "version": version_of(now),
        "model": Path(now.learner.model).name,
        "created": now.head.created,
        "novelty": now.learner.novelty,
        "threshold": now.learner.threshold,
        "examples": len(now.learner.examples),
        "labels": [{"label": label, "examples": count} for label, count in counts.items()],
    }


def check_text(text: Any, name: str) -> str:
    if not isinstance(text, str) or not 1 <= len(text) <= MOST_LETTERS or not text.isprintable():
        raise MannError(f"The {name} must be a text of 1 to {MOST_LETTERS} letters.")
    return text


def _name(body: dict[str, Any]) -> str:
    return check_text(body["name"], "name") if body.get("name") else ""


def _novelty(body: dict[str, Any]) -> bool | float:
    novelty = body.get("novelty", True)
    if not isinstance(novelty, bool | int | float) or not 0 <= novelty <= 1:
        raise MannError("The novelty is true, false, or a probability from 0 to 1.")
    return novelty if isinstance(novelty, bool) else float(novelty)


def _place(body: dict[str, Any]) -> int:
    return read_whole(body, "example", 1, MOST_EXAMPLES) - 1


def _open(content: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "WEBP", "BMP", "GIF"))
    except Exception:  # a decoder may raise anything at all on a damaged file
        raise MannError("A picture is not readable: send PNG, JPEG, WebP, BMP or GIF.") from None


def _png(pixels: np.ndarray) -> str:
    """What the network saw; ink is dark on light, as people draw."""
    levels = np.rint(255 * pixels).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(255 - levels if levels.ndim == 2 else levels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
