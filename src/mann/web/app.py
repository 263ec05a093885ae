"""The web application: its addresses. `static/` holds the page that asks for them."""

import os
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mann.web.errors import HANDLERS
from mann.web.functions import predict_band
from mann.web.guard import Guard, network_of
from mann.web.playground import Playground
from mann.web.requests import read_episode, read_json
from mann.web.results import FIGURES, SHIPPED, find_figure, list_results

T = TypeVar("T")

COOKIE = "mann_session"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
FIGURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"  # an SVG may not run anything

DISK_THREADS = 8  # they wait more than they compute
MOST_REPLAYS = 20  # in work or waiting: one after the other, they take some seconds


class _Threads:
    """Threads for the work of requests, so many of a kind that one kind cannot stall another."""

    def __init__(self, count: int) -> None:
        self.requests = 0  # in work or waiting
        self._limiter = anyio.CapacityLimiter(count)

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        self.requests += 1
        try:
            return await anyio.to_thread.run_sync(work, *arguments, limiter=self._limiter)
        finally:
            self.requests -= 1


def create_app(playground: Playground) -> ASGIApp:
    """The application, ready for a server."""
    # Computing in more threads than there are cores only makes them wait for one another.
    computing, disk, replaying = _Threads(os.cpu_count() or 1), _Threads(DISK_THREADS), _Threads(1)
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

    async def functions(request: Request) -> Response:
        if request.method == "POST":
            return JSONResponse(await computing.run(predict_band, await read_json(request)))
        return file_response("functions.html")

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "browsers": len(playground.sessions)})

    async def about_experiment(request: Request) -> Response:
        length = playground.settings.trial_length
        return JSONResponse({"dataset": playground.material.name, "length": length})

    async def results(request: Request) -> Response:
        folder = playground.settings.results
        return JSONResponse({"results": await disk.run(list_results, folder), "shipped": folder == SHIPPED})

    async def figure(request: Request) -> Response:
        names = request.path_params["name"], request.path_params["figure"]
        path = await disk.run(find_figure, playground.settings.results, *names)
        if path is None:
            raise HTTPException(404)
        content = await disk.run(path.read_bytes)
        return Response(
            content,
            media_type=FIGURES[path.suffix],
            headers={"content-security-policy": FIGURE_POLICY},
        )

    async def replay(request: Request) -> Response:
        number = read_episode(request)
        if replaying.requests >= MOST_REPLAYS:
            raise HTTPException(503, "Too many ask for a replay at the moment: try again in a few seconds.")
        return Response(await replaying.run(playground.replay, number), media_type="application/json")

    def for_session(
        work: Callable[..., dict[str, Any]], threads: _Threads = computing, *, takes_place: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that works on the browser's own session, with the body of a POST.

        Only what takes a place begins a session that is kept: otherwise anybody could fill them all in no time.
        """

        async def endpoint(request: Request) -> Response:
            body = [await read_json(request)] if request.method == "POST" else []
            session = playground.sessions.find(request.cookies.get(COOKIE))
            if session is None and takes_place:
                address = network_of(request.client.host) if request.client else ""
                with playground.sessions.place(address) as (key, session):
                    response = JSONResponse(await threads.run(work, session, *body))
                secure = request.url.scheme == "https"
                response.set_cookie(COOKIE, key, httponly=True, samesite="strict", secure=secure)
                return response
            return JSONResponse(await threads.run(work, session or playground.sessions.guest(), *body))

        return endpoint

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/static/{name}", static),
            Route("/health", health),
            Route("/functions", functions),
            Route("/api/functions", functions, methods=["POST"]),
            Route("/api/session", for_session(playground.session)),
            Route("/api/predict", for_session(playground.predict), methods=["POST"]),
            Route("/api/learn", for_session(playground.learn, takes_place=True), methods=["POST"]),
            Route("/api/forget", for_session(playground.forget), methods=["POST"]),
            Route("/api/memory", for_session(playground.memory)),
            Route("/api/replay", replay),
            Route("/api/experiment", about_experiment),
            Route(
                "/api/trial", for_session(playground.begin_trial, disk, takes_place=True), methods=["POST"]
            ),
            Route("/api/trial", for_session(playground.current_trial, disk)),
            Route("/api/answer", for_session(playground.answer_trial, disk), methods=["POST"]),
            Route("/api/results", results),
            Route("/results/{name}/{figure}", figure),
        ],
        exception_handlers=HANDLERS,
    )
    app.router.redirect_slashes = False  # an address has one spelling
    return Guard(app, playground.settings.hosts)
