"""A learner on a server, from Python: the calls of `OneShotLearner`, answered by `mann serve`."""

import base64
import http.client
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from mann.errors import MannError

SECONDS = 60.0  # that an answer may take


class Client:
    """A server of learners.

    Args:
        address: such as `http://127.0.0.1:8000`.
        token: one of the server's, if it wants any.

    Examples:
        >>> server = Client("http://127.0.0.1:8000")  # nothing is sent yet
        >>> server.address
        'http://127.0.0.1:8000'
    """

    def __init__(self, address: str = "http://127.0.0.1:8000", token: str = "") -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise MannError(f"{address!r} is no address of a server: give one such as http://127.0.0.1:8000.")
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._token = token
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.netloc, timeout=SECONDS)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request, and return the answer.

        Args:
            method: such as GET.
            path: such as /v1/learners.
            body: for JSON.

        Raises:
            MannError: with the server's sentence if it refuses, or if it does not answer.
        """
        content = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        headers = {"content-type": "application/json"} if content is not None else {}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
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
                answer = response.read()
                break
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                # An idle connection that the server closed has taken nothing of it.
                if fresh or not retry or not isinstance(error, http.client.RemoteDisconnected):
                    raise MannError(f"{self.address} did not answer: {error}.") from None
        try:
            content_ = json.loads(answer)
        except ValueError:
            raise MannError(f"{self.address} is no server of mann: it answered {response.status}.") from None
        if response.status >= 400:
            raise MannError(str(content_.get("error", f"The server answered {response.status}.")))
        return content_

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
        """Its examples: number, label, and what the network saw as a PNG in base64."""
        return self._get("/examples")["examples"]

    def learn_one(self, image: Any, label: str) -> None:
        """Show one example; it is kept when this returns."""
        self._ask("learn", image=_encode(image), label=label)

    def predict_one(self, image: Any) -> str | None:
        """The most probable label; None for something new."""
        return self.predict_proba_one(image)["label"]

    def predict_proba_one(self, image: Any) -> dict[str, Any]:
        """The label, its probability, that of something new, and the most probable labels."""
        return self._ask("predict", image=_encode(image))["predictions"][0]

    def predict_many(self, images: list[Any]) -> list[str | None]:
        """`predict_one` of each picture, in one request; at most 64 of them."""
        predictions = self._ask("predict", images=[_encode(image) for image in images])["predictions"]
        return [one["label"] for one in predictions]

    def forget(self, label: str) -> None:
        """Take back every example of a label."""
        self._ask("forget", label=label)

    def rename(self, old: str, new: str) -> None:
        """Call a label by another name."""
        self._ask("rename", label=old, to=new)

    def unlearn_one(self, number: int | None = None) -> None:
        """Take back one example by its number from 1, or the last."""
        self._ask("undo", **({} if number is None else {"example": number}))

    def export(self) -> str:
        """All of it, for `OneShotLearner.from_json` or `Client.load`."""
        return json.dumps(self._get("/export"))

    def delete(self) -> None:
        """Delete it on the server, with all its examples."""
        self._server.ask("DELETE", f"/v1/learners/{quote(self.id, safe='')}")


def _encode(image: Any) -> str:
    if isinstance(image, str | Path):
        try:
            content = Path(image).read_bytes()
        except OSError as error:
            raise MannError(f"Could not read {image}: {error.strerror}.") from None
    elif isinstance(image, bytes):
        content = image
    else:
        from PIL import Image

        file = io.BytesIO()
        (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, "PNG")
        content = file.getvalue()
    return base64.b64encode(content).decode()
