"""The web application: pages, and a small JSON interface that `static/` uses."""

import asyncio
import base64
import dataclasses
import io
import json
import os
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import anyio
import numpy as np
from jaxtyping import Float
from PIL import Image
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mann.data.folder import normalise_image
from mann.data.images import SIDE
from mann.data.pictures import draw_pictures
from mann.data.render import downscale
from mann.errors import MannError
from mann.memory import MemoryTrace
from mann.online import Label, OneShotLearner
from mann.web import experiment
from mann.web.experiment import Material, Trial
from mann.web.results import FIGURES, find_figure, list_results
from mann.web.sessions import KEPT_THUMBNAILS, MOST_SYMBOLS, MOST_TRIALS, Full, Session, Sessions
from mann.web.trials import TrialStore

T = TypeVar("T")

COOKIE = "mann_session"
MOST_BYTES = 200_000  # of a request
MOST_PIXELS = 1_000_000  # of a drawing
MOST_LETTERS = 30  # of a label
BODY_SECONDS = 10  # for a request to arrive
PRACTICE = 10  # pictures of the trial run after which it can be ended
REPLAY_EPISODES = 1000  # which test episodes can be replayed
REPLAY_LENGTH = 50
RANKED = 5  # labels in an answer

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
OWN_SITE = (b"same-origin", b"none")
FIGURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"  # an SVG may not run anything


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `mann serve` chooses."""

    results: Path
    trials: Path
    most_sessions: int = 200
    idle_seconds: float = 1800.0
    trial_length: int = 50
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "::1")
    """Host names that a request may ask for, against DNS rebinding; empty: any."""


# Computing in more threads than there are cores only makes them wait for one another.
_cores = anyio.CapacityLimiter(max(1, (os.cpu_count() or 1)))


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    return await anyio.to_thread.run_sync(work, *arguments, limiter=_cores)


class Playground:
    """The requests, each a method. The methods that learn or compute run in threads."""

    def __init__(
        self, learner: OneShotLearner, opponent: OneShotLearner, material: Material, settings: Settings
    ) -> None:
        self.learner, self.opponent, self.material, self.settings = learner, opponent, material, settings
        self.sessions = Sessions(
            lambda: Session(learner.sibling()), settings.most_sessions, settings.idle_seconds
        )
        self.store = TrialStore(settings.trials)

    def session(self, session: Session) -> dict[str, Any]:
        return {
            "model": Path(self.learner.model).name,
            "capacity": min(self.learner.capacity, MOST_SYMBOLS),
            "taught": session.count,
            "symbols": [
                {"label": label, "examples": count, "pictures": [_bytes(picture) for picture in pictures]}
                for label, (count, pictures) in session.symbols.items()
            ],
            "memory": _weights(session.learner.memory) if session.count else None,
        }

    def predict(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        look = session.learner.look(_picture(body))
        chances = dict(look.probabilities)
        new = chances.pop(None)
        ranked = sorted(chances.items(), key=lambda item: -item[1])[:RANKED]
        known = bool(ranked) and ranked[0][1] >= new
        return {
            "guess": ranked[0][0] if known else None,
            "confidence": ranked[0][1] if known else new,
            "ranked": [{"label": label, "probability": chance} for label, chance in ranked],
            "new": new,
            "memory": _weights(look.memory),
        }

    def learn(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        picture, label = _picture(body), _label(body)
        pixels = downscale(normalise_image(picture, "the drawing"))
        with session.lock:
            if label not in session.symbols and len(session.symbols) >= MOST_SYMBOLS:
                raise MannError(f"The playground keeps {MOST_SYMBOLS} symbols: start again to teach others.")
            guess = session.learner.predict_one(picture)
            session.learner.learn_one(picture, label)
            session.count += 1
            count, pictures = session.symbols.get(label, (0, []))
            session.symbols[label] = (count + 1, [*pictures, pixels][:KEPT_THUMBNAILS])
            if (trace := session.learner.memory) is not None:
                session.steps.append(_step(session.count, label, guess, pixels, trace))
            return self.session(session)

    def forget(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        with session.lock:
            session.forget()
            return self.session(session)

    def memory(self, session: Session) -> dict[str, Any]:
        with session.lock:
            return {"steps": list(session.steps)}

    def replay(self, number: int) -> dict[str, Any]:
        """A test episode, driven through the learner step by step."""
        rng = np.random.default_rng(number)
        labels = rng.permutation(np.arange(1, experiment.CLASSES + 1)).tolist()
        network = self.opponent.sibling(labels=sorted(labels), seed=number)
        stream = draw_pictures(self.material.bitmaps, experiment.CLASSES, REPLAY_LENGTH, rng)
        steps: list[dict[str, Any]] = []
        for place, (picture, which) in enumerate(stream, start=1):
            guess, label = network.predict_one(picture), labels[which]
            network.learn_one(picture, label)
            trace = network.memory
            assert trace is not None
            pixels = downscale(normalise_image(picture))
            instance = 1 + sum(step["label"] == str(label) for step in steps)
            steps.append(_step(place, str(label), guess, pixels, trace) | {"instance": instance})
        return {
            "episode": number,
            "dataset": self.material.name,
            "model": Path(network.model).name,
            "steps": steps,
        }

    def begin_trial(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        with session.lock:
            if session.trials >= MOST_TRIALS:
                raise MannError(
                    f"A participant can take part in {MOST_TRIALS} trials: thank you, that was all."
                )
            scored = body.get("scored") is True and session.practised
            session.trial = Trial(
                self.store,
                self.opponent,
                self.material,
                participant=session.participant,
                scored=scored,
                length=self.settings.trial_length,
            )
            session.trials += 1
            return _trial(session, session.trial, self.material)

    def answer_trial(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        step = _whole(body, "step", 1, 10_000)
        answer = _whole(body, "answer", 1, experiment.CLASSES)
        seconds = body.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 1e6:
            raise MannError("The time of an answer is a number of seconds.")
        with session.lock:
            trial = session.trial
            if trial is None or trial.info.id != body.get("trial"):
                raise MannError("This trial is over or has expired: begin a new one.")
            given = trial.answer(step, answer, float(seconds))
            session.practised |= trial.finished or len(trial.answers) >= PRACTICE
            told = {"label": given.label, "correct": given.answer == given.label}
            result = experiment.compare(trial.answers) if trial.finished else None
            return told | {"next": _trial(session, trial, self.material), "result": result}


def create_app(playground: Playground) -> Starlette:
    """The application, ready for a server."""
    files = {
        path.name: path.read_bytes()
        for path in (resources.files("mann") / "web" / "static").iterdir()
        if Path(path.name).suffix in TYPES
    }

    def file_response(name: str) -> Response:
        return Response(files[name], media_type=TYPES[Path(name).suffix])

    async def index(request: Request) -> Response:
        return file_response("index.html")

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            raise HTTPException(404)
        return file_response(name)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "browsers": len(playground.sessions)})

    async def about_experiment(request: Request) -> Response:
        length = playground.settings.trial_length
        return JSONResponse({"dataset": playground.material.name, "length": length})

    async def results(request: Request) -> Response:
        found = await _in_thread(list_results, playground.settings.results)
        return JSONResponse({"results": found})

    async def figure(request: Request) -> Response:
        names = request.path_params["name"], request.path_params["figure"]
        path = await _in_thread(find_figure, playground.settings.results, *names)
        if path is None:
            raise HTTPException(404)
        content = await _in_thread(path.read_bytes)
        return Response(
            content,
            media_type=FIGURES[path.suffix],
            headers={"content-security-policy": FIGURE_POLICY},
        )

    async def replay(request: Request) -> Response:
        text = request.query_params.get("episode", "0")
        if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < REPLAY_EPISODES):
            raise MannError(f"An episode is a number from 0 to {REPLAY_EPISODES - 1}.")
        return JSONResponse(await _in_thread(playground.replay, int(text)))

    def for_session(work: Callable[..., dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that works on the browser's own session, with the body of a POST."""

        async def endpoint(request: Request) -> Response:
            body = [await _read_json(request)] if request.method == "POST" else []
            key, session = None, playground.sessions.find(request.cookies.get(COOKIE))
            if session is None:
                key, session = playground.sessions.create()
            response = JSONResponse(await _in_thread(work, session, *body))
            if key is not None:
                secure = request.url.scheme == "https"
                response.set_cookie(COOKIE, key, httponly=True, samesite="strict", secure=secure)
            return response

        return endpoint

    return Starlette(
        routes=[
            Route("/", index),
            Route("/static/{name}", static),
            Route("/health", health),
            Route("/api/session", for_session(playground.session)),
            Route("/api/predict", for_session(playground.predict), methods=["POST"]),
            Route("/api/learn", for_session(playground.learn), methods=["POST"]),
            Route("/api/forget", for_session(playground.forget), methods=["POST"]),
            Route("/api/memory", for_session(playground.memory)),
            Route("/api/replay", replay),
            Route("/api/experiment", about_experiment),
            Route("/api/trial", for_session(playground.begin_trial), methods=["POST"]),
            Route("/api/answer", for_session(playground.answer_trial), methods=["POST"]),
            Route("/api/results", results),
            Route("/results/{name}/{figure}", figure),
        ],
        middleware=[Middleware(_Guard, hosts=playground.settings.hosts)],
        exception_handlers={
            HTTPException: _on_http_error,
            MannError: _on_mistake,
            Full: _on_full,
            ClientDisconnect: _on_disconnect,
            Exception: _on_bug,
        },
    )


class _Guard:
    """Security headers on every response, and no answer to a host name that is not ours."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in extra if name not in present),
                ]
            await send(message)

        headers = dict(scope["headers"])
        if scope["path"].startswith("/api/") and headers.get(b"sec-fetch-site", b"none") not in OWN_SITE:
            # Another site's page in the same browser could not read the answer, but would take up a place.
            refusal = _sentence(403, "Only the playground's own page may ask this.")
            await refusal(scope, receive, send_guarded)
            return
        asked = headers.get(b"host", b"").decode("latin-1")
        name = asked.rsplit(":", 1)[0] if not asked.endswith("]") else asked
        if self.hosts and name.strip("[]").lower() not in self.hosts:
            refusal = _sentence(400, "This playground answers only to the address that it was started with.")
            await refusal(scope, receive, send_guarded)
            return
        await self.app(scope, receive, send_guarded)


async def _read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object, bounded in size and time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "Send JSON, with the content type application/json.")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > MOST_BYTES:
        raise HTTPException(413, f"A request may have {MOST_BYTES // 1000} kB at most.")
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise HTTPException(413, f"A request may have {MOST_BYTES // 1000} kB at most.")
    except TimeoutError:
        raise HTTPException(408, "The request took too long to arrive: send it again.") from None
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise HTTPException(400, "The request is not valid JSON.") from None
    if not isinstance(body, dict):
        raise HTTPException(400, "The request must be a JSON object.")
    return body


def _picture(body: dict[str, Any]) -> Image.Image:
    """The drawing of a request; its pixels are decoded, and refused if they cannot be, when they are used."""
    text = body.get("image")
    if not isinstance(text, str):
        raise MannError("There is no drawing in the request.")
    try:
        picture = Image.open(io.BytesIO(base64.b64decode(text, validate=True)), formats=("PNG",))
    except Exception:  # a decoder may raise anything at all on a damaged file
        raise MannError("The drawing is not a readable PNG picture.") from None
    if picture.width * picture.height > MOST_PIXELS:
        raise MannError("The drawing is too large: send one of at most a million pixels.")
    return picture


def _label(body: dict[str, Any]) -> str:
    label = body.get("label")
    label = " ".join(label.split()) if isinstance(label, str) else ""
    if not 1 <= len(label) <= MOST_LETTERS or not label.isprintable():
        raise MannError(f"Give the symbol a name of 1 to {MOST_LETTERS} letters.")
    return label


def _whole(body: dict[str, Any], name: str, low: int, high: int) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MannError(f"The {name} must be a whole number from {low} to {high}.")
    return value


def _trial(session: Session, trial: Trial, material: Material) -> dict[str, Any]:
    """The picture that waits for an answer, without anything about what comes after it."""
    picture = trial.picture
    return {
        "trial": trial.info.id,
        "participant": trial.info.participant,
        "scored": trial.info.scored,
        "practised": session.practised,
        "dataset": material.name,
        "length": trial.info.length,
        "step": len(trial.answers) + 1,
        "picture": None if picture is None else _png(picture),
    }


def _png(picture: Image.Image) -> str:
    assert picture.size == (SIDE, SIDE)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _bytes(values: Float[np.ndarray, "..."], largest: float = 1.0) -> str:
    """Numbers from 0 to `largest` as bytes in base64: a fraction of the size of JSON."""
    scaled = np.clip(255 * values / max(largest, 1e-9), 0, 255)
    return base64.b64encode(np.round(scaled).astype(np.uint8).tobytes()).decode()


def _weights(trace: MemoryTrace | None) -> dict[str, str] | None:
    """Where one step read (mean over heads) and wrote (sum over heads), and the usage relative to its largest."""
    if trace is None:
        return None
    usage = np.zeros(trace.memory.shape[0]) if trace.usage is None else np.asarray(trace.usage)
    return {
        "read": _bytes(np.asarray(trace.read_weights).mean(axis=0)),
        "write": _bytes(np.asarray(trace.write_weights).sum(axis=0)),
        "usage": _bytes(usage, float(usage.max())),
    }


def _step(
    number: int, label: str, guess: Label | None, picture: Float[np.ndarray, "400"], trace: MemoryTrace
) -> dict[str, Any]:
    """What happened in the memory when an example was shown; `guess` is what the learner took it for."""
    return {
        "step": number,
        "label": label,
        "guess": None if guess is None else str(guess),
        "picture": _bytes(picture),
        **(_weights(trace) or {}),
        "contents": _contents(trace),
    }


def _contents(trace: MemoryTrace) -> dict[str, Any]:
    """What the slots hold, down to the last that was ever written to: magnitudes, relative to the largest."""
    memory = np.abs(np.asarray(trace.memory))
    slots = 1 + int(np.flatnonzero(memory.max(axis=1) > 0.05 * memory.max()).max(initial=0))
    return {"slots": slots, "width": memory.shape[1], "values": _bytes(memory[:slots], float(memory.max()))}


def _sentence(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {
        404: "There is nothing at this address.",
        405: "This address does not take that kind of request.",
    }
    return _sentence(error.status_code, known.get(error.status_code, error.detail))


async def _on_mistake(request: Request, error: Exception) -> Response:
    return _sentence(400, str(error))


async def _on_full(request: Request, error: Exception) -> Response:
    response = _sentence(503, str(error))
    response.headers["retry-after"] = "60"
    return response


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return _sentence(400, "The request was cut short.")


async def _on_bug(request: Request, error: Exception) -> Response:
    return _sentence(500, "Something went wrong in the playground: please try again.")
