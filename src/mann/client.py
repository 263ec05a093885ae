"""A learner on a server, from Python: the calls of `OneShotLearner`, answered by `mann serve`."""

import base64
import http.client
import io
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from mann.errors import MannError

SECONDS = 60.0  # that an answer may take
AT_ONCE = 64  # pictures that a server takes in one request
WRITABLE = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")  # modes of PIL that a PNG has


class Client:
    """A server of learners. Threads may share it: their requests go one after the other.

    Args:
        address: such as `http://127.0.0.1:8000`.
        token: one of the server's, if it wants any.

    Examples:
        >>> server = Client("http://127.0.0.1:8000")  # nothing is sent yet
        >>> server.address
        'http://127.0.0.1:8000'
    """

    def __init__(self, address: str = "http://127.0.0.1:8000", token: str = "") -> None:
        if not (token.isascii() and token.isprintable()):
            raise MannError("A token is printable ASCII: copy a line of the server's file of tokens.")
        try:
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("not of this kind")
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(parts.hostname, parts.port, timeout=SECONDS)
        except ValueError:  # also what `urlsplit` says of a port that is none
            raise MannError(
                f"{address!r} is no address of a server: give one such as http://127.0.0.1:8000."
            ) from None
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._token = token
        self._lock = threading.Lock()  # two requests in one connection would take each other's answers

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request, and return the answer.

        Args:
            method: such as GET.
            path: such as /v1/learners.
            body: for JSON.

        Raises:
            MannError: with the server's sentence if it refuses, or if it does not answer.
        """
        try:
            content = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        except (TypeError, ValueError) as error:
            raise MannError(f"This cannot be sent as JSON, where labels are text: {error}.") from None
        headers = {"content-type": "application/json"} if content is not None else {}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        with self._lock:
            status, answer = self._send(method, path, content, headers)
        try:
            content_ = json.loads(answer)
        except ValueError:
            raise MannError(f"{self.address} is no server of mann: it answered {status}.") from None
        if status >= 400:
            raise MannError(str(content_.get("error", f"The server answered {status}.")))
        return content_

    def _send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        for retry in (True, False):
            fresh = self._connection.sock is None
            try:
                self._connection.request(method, path, content, headers)
            except (OSError, http.client.HTTPException) as error:  # not sent: it may be sent again
                self._connection.close()
                if fresh or not retry:
                    raise MannError(f"{self.address} does not answer: {error}.") from None
                continue
            try:
                response = self._connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                # An idle connection that the server closed has taken nothing of it.
                if fresh or not retry or not isinstance(error, http.client.RemoteDisconnected):
                    raise MannError(f"{self.address} did not answer: {error}.") from None
        raise AssertionError("the second try returns or raises")

    def create(self, name: str = "", novelty: bool | float = True) -> "RemoteLearner":
        """A new learner that knows nothing.

        Args:
            name: for people.
            novelty: whether it may answer that something is new: yes, no, or from which probability on.
        """
        body = {"novelty": novelty} | ({"name": name} if name else {})
        return RemoteLearner(self, self.ask("POST", "/v1/learners", body)["id"])

    def learner(self, key: str) -> "RemoteLearner":
        """The learner of an id."""
        return RemoteLearner(self, key)

    def learners(self) -> list[dict[str, Any]]:
        """All learners: their ids, names, and how many examples they know."""
        return self.ask("GET", "/v1/learners")["learners"]

    def load(self, exported: str) -> "RemoteLearner":
        """A new learner from what `export`, `OneShotLearner.to_json` or the page gave."""
        return RemoteLearner(self, self.ask("POST", "/v1/learners/import", exported)["id"])

    def close(self) -> None:
        """End the connection; the next call opens another."""
        self._connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteLearner:
    """A learner on a server. A picture is a file, bytes of one, a PIL image, or an array.

    Args:
        server: where it is.
        key: its id.
    """

    def __init__(self, server: Client, key: str) -> None:
        self.id, self._server = key, server

    def __repr__(self) -> str:
        return f"RemoteLearner({self._server.address!r}, {self.id!r})"

    def _ask(self, action: str, **body: Any) -> Any:
        return self._server.ask("POST", f"/v1/learners/{quote(self.id, safe='')}/{action}", body)

    def _get(self, action: str = "") -> Any:
        return self._server.ask("GET", f"/v1/learners/{quote(self.id, safe='')}{action}")

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels known so far."""
        return tuple(one["label"] for one in self._get()["labels"])

    @property
    def examples(self) -> list[dict[str, Any]]:
        """Its examples in order: the label, and as `image` what the network saw, a PNG in base64."""
        told = self._get("/examples")["examples"]
        return [{"label": one["label"], "image": one["image"]} for one in told]

    def learn_one(self, image: Any, label: str) -> None:
        """Show one example; it is kept when this returns."""
        self._ask("learn", image=_encode(image), label=label)

    def learn_many(self, images: Sequence[Any], labels: Sequence[str]) -> None:
        """`learn_one` of each picture with its label, in order, in as few requests as the server allows.

        What a refused request holds is not learned, what went before it is.
        """
        if len(images) != len(labels):
            raise MannError(f"{len(images)} pictures need as many labels, not {len(labels)}.")
        for part in _parts(len(images)):
            pairs = zip(images[part], labels[part], strict=True)
            self._ask("learn", examples=[{"image": _encode(image), "label": label} for image, label in pairs])

    def predict_one(self, image: Any) -> str | None:
        """The most probable label; None for something new."""
        return self._predict(image)["label"]

    def predict_proba_one(self, image: Any) -> dict[str | None, float]:
        """The probability of the five most probable labels, and that of something new under None."""
        told = self._predict(image)
        return {one["label"]: one["probability"] for one in told["ranked"]} | {None: told["new"]}

    def _predict(self, image: Any) -> dict[str, Any]:
        return self._ask("predict", image=_encode(image))["predictions"][0]

    def predict_many(self, images: Sequence[Any]) -> list[str | None]:
        """`predict_one` of each picture, in as few requests as the server allows."""
        return [
            one["label"]
            for part in _parts(len(images))
            for one in self._ask("predict", images=list(map(_encode, images[part])))["predictions"]
        ]

    def forget(self, label: str) -> None:
        """Take back every example of a label."""
        self._ask("forget", label=label)

    def rename(self, old: str, new: str) -> None:
        """Call a label by another name."""
        self._ask("rename", label=old, to=new)

    def relabel(self, place: int, label: str) -> None:
        """Give one example, by its place among `examples`, another label; −1 is the last."""
        self._ask("relabel", example=self._number(place), label=label)

    def unlearn_one(self, place: int = -1) -> None:
        """Take back one example by its place among `examples`; −1 is the last."""
        self._ask("undo", **({} if place == -1 else {"example": self._number(place)}))

    def _number(self, place: int) -> int:
        """The server counts examples from 1."""
        return place + 1 + (self._get()["examples"] if place < 0 else 0)

    def export(self) -> str:
        """All of it, for `OneShotLearner.from_json` or `Client.load`."""
        return json.dumps(self._get("/export"))

    def delete(self) -> None:
        """Delete it on the server, with all its examples."""
        self._server.ask("DELETE", f"/v1/learners/{quote(self.id, safe='')}")


def _parts(count: int) -> Iterator[slice]:
    return (slice(start, start + AT_ONCE) for start in range(0, count, AT_ONCE))


def _encode(image: Any) -> str:
    """A picture as a file in base64: as it is, or as a PNG."""
    if isinstance(image, str | Path):
        try:
            content = Path(image).read_bytes()
        except (OSError, ValueError) as error:  # a name with a zero in it is a ValueError
            raise MannError(f"Could not read {image}: {getattr(error, 'strerror', error)}.") from None
    else:
        content = image if isinstance(image, bytes) else _png(image)
    return base64.b64encode(content).decode()


def _png(image: Any) -> bytes:
    import numpy as np
    from PIL import Image

    from mann.data.decode import as_bytes

    if isinstance(image, Image.Image) and image.mode not in ("I", "F"):  # these two are numbers of any range
        picture = image if image.mode in WRITABLE else image.convert("RGB")
    else:
        picture = Image.fromarray(as_bytes(np.asarray(image), "the picture"))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
