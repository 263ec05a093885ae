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
from starlette.types import ASGIApp, Receive, Scope, Send

from mann.web.errors import HANDLERS
from mann.web.functions import predict_band
from mann.web.guard import Guard, network_of
from mann.web.playground import Playground
from mann.web.requests import MOST_BYTES, MOST_FILE_BYTES, is_small_text, read_episode, read_json
from mann.web.results import FIGURES, SHIPPED, find_figure, list_results
from mann.web.routes import Tokens, service_routes
from mann.web.service import KIND
from mann.web.sessions import KIND as BROWSER

T = TypeVar("T")

COOKIE = "mann_session"
PREDICT = "/api/predict"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
FIGURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"  # an SVG may not run anything

METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS")  # others are counted together
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
    tokens = Tokens(playground.settings.tokens)
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
        return JSONResponse({"status": "ok", "browsers": await disk.run(playground.sessions.__len__)})

    async def metrics(request: Request) -> Response:
        tokens.check(request)
        stored = {kind: await disk.run(playground.learners.store.count, kind) for kind in (BROWSER, KIND)}
        gauges = {
            "mann_learners": ("Learners in the store.", stored),
            "mann_live_learners": ("Learners in memory.", {"": len(playground.learners)}),
        }
        return Response(playground.metrics.render(gauges), media_type="text/plain; version=0.0.4")

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

    async def predict(request: Request) -> Response:
        body: Any = await read_json(request)
        small = "pixels" in body or is_small_text(body.get("image"))
        if not small:  # others shall not wait for it
            body = await computing.run(playground.drawing, body)
        return JSONResponse(await playground.predict(request.cookies.get(COOKIE), body))

    async def replay(request: Request) -> Response:
        number = read_episode(request)
        if replaying.requests >= MOST_REPLAYS:
            raise HTTPException(503, "Too many ask for a replay at the moment: try again in a few seconds.")
        return Response(await replaying.run(playground.replay, number), media_type="application/json")

    def for_session(
        work: Callable[..., dict[str, Any]],
        threads: _Threads = computing,
        *,
        takes_place: bool = False,
        most: int = MOST_BYTES,
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that works on the browser's own session, with the body of a POST.

        Only what takes a place begins a session that is kept: otherwise anybody could fill them all in no time.
        """

        def answer(cookie: str | None, address: str, body: list[Any]) -> tuple[dict[str, Any], str]:
            session = playground.sessions.find(cookie)
            if session is None and takes_place:
                with playground.sessions.place(address) as (key, session):
                    return work(session, *body), key
            return work(session or playground.sessions.guest(), *body), ""

        async def endpoint(request: Request) -> Response:
            body = [await read_json(request, most)] if request.method == "POST" else []
            address = network_of(request.client.host) if request.client else ""
            content, key = await threads.run(answer, request.cookies.get(COOKIE), address, body)
            response = JSONResponse(content)
            if key:
                age, secure = int(playground.settings.idle_seconds), request.url.scheme == "https"
                response.set_cookie(COOKIE, key, age, httponly=True, samesite="strict", secure=secure)
            return response

        return endpoint

    app = Starlette(
        routes=[
            Route(PREDICT, predict, methods=["POST"]),
            Route("/", index),
            Route("/static/{name}", static),
            Route("/health", health),
            Route("/functions", functions),
            Route("/api/functions", functions, methods=["POST"]),
            Route("/metrics", metrics),
            *service_routes(playground.service, tokens, computing.run, playground.desk.ask),
            Route("/api/session", for_session(playground.session)),
            Route("/api/learn", for_session(playground.learn, takes_place=True), methods=["POST"]),
            Route("/api/forget", for_session(playground.forget), methods=["POST"]),
            Route("/api/rename", for_session(playground.rename), methods=["POST"]),
            Route("/api/undo", for_session(playground.undo), methods=["POST"]),
            Route("/api/unlearn", for_session(playground.unlearn), methods=["POST"]),
            Route("/api/relabel", for_session(playground.relabel), methods=["POST"]),
            Route("/api/novelty", for_session(playground.set_novelty, takes_place=True), methods=["POST"]),
            Route("/api/examples", for_session(playground.examples)),
            Route("/api/save", for_session(playground.save)),
            Route(
                "/api/load",
                for_session(playground.load, takes_place=True, most=MOST_FILE_BYTES),
                methods=["POST"],
            ),
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
    paths: dict[Any, str] = {route.endpoint: route.path for route in app.routes if isinstance(route, Route)}

    def watch(scope: Scope, status: int, seconds: float) -> None:
        route = paths.get(scope.get("endpoint"), "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        playground.metrics.requests.add(route=route, method=method, status=str(status))
        playground.metrics.seconds.add(seconds, route=route)

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        quick = scope["path"] == PREDICT and scope["method"] == "POST"
        await (_answer(predict, scope, receive, send) if quick else app(scope, receive, send))

    return Guard(choose, playground.settings.hosts, watch)


async def _answer(
    endpoint: Callable[[Request], Awaitable[Response]], scope: Scope, receive: Receive, send: Send
) -> None:
    """What a route of Starlette does, without its layers: for what is asked more than all else together."""
    scope["endpoint"] = endpoint
    request = Request(scope, receive)
    try:
        response = await endpoint(request)
    except Exception as error:
        kind = next(kind for kind in type(error).__mro__ if kind in HANDLERS)
        await (await HANDLERS[kind](request, error))(scope, receive, send)
        if kind is Exception:  # a bug, for the log
            raise
    else:
        await response(scope, receive, send)
