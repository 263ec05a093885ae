"""The addresses of the service: who may ask, what a request holds, and what is counted."""

import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mann.errors import MannError
from mann.web.openapi import OPERATIONS, Operation, document
from mann.web.requests import content_type, is_small, parse_json, read_body
from mann.web.service import MOST_IMAGES, Picture, Service

MOST_BYTES = 12_000_000  # of a request with pictures
MOST_IMPORT_BYTES = 32_000_000
MOST_OTHER_BYTES = 100_000
FEW = 4  # pictures of a request that are read among those of others

Endpoint = Callable[[Request], Awaitable[Response]]
Run = Callable[..., Awaitable[Any]]  # work and its arguments, to be run in a thread


class Tokens:
    """Who may ask. Without any token everybody may, which is for loopback alone."""

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]

    def check(self, request: Request) -> None:
        if not self._digests:
            return
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(token.strip().encode()).digest()
        # Digests, in constant time: how long it takes tells nothing.
        known = any(hmac.compare_digest(digest, one) for one in self._digests)
        if not known or kind.lower() != "bearer":
            raise HTTPException(
                401,
                "Send a token of this server, as Authorization: Bearer TOKEN.",
                {"www-authenticate": "Bearer"},
            )


def service_routes(service: Service, tokens: Tokens, run: Run, ask: Run) -> list[Route]:
    """All routes of the service.

    Args:
        service: what answers.
        tokens: who may ask.
        run: runs work in a thread.
        ask: answers predictions, many at once.
    """
    about = document()

    async def openapi(request: Request) -> Response:
        return JSONResponse(about)

    routes = [Route("/v1/openapi.json", openapi)]
    for operation in OPERATIONS:
        endpoint = _endpoint(operation, service, tokens, run, ask)
        routes.append(Route(operation.path, endpoint, methods=[operation.method]))
    return routes


def _endpoint(operation: Operation, service: Service, tokens: Tokens, run: Run, ask: Run) -> Endpoint:
    work = getattr(service, operation.name, None)

    async def endpoint(request: Request) -> Response:
        tokens.check(request)
        arguments: list[Any] = [request.path_params["id"]] if "id" in request.path_params else []
        if operation.name == "export":
            arguments.append(request.query_params.get("format", "learner"))
        if operation.images:
            body, pictures = await _read_pictures(request, labelled=operation.images == "learn")
            arguments += [body, pictures] if operation.images == "learn" else [pictures]
        elif operation.large:
            _check_json(request)
            arguments.append(await read_body(request, MOST_IMPORT_BYTES))
        elif operation.body is not None:
            _check_json(request)
            arguments.append(parse_json(await read_body(request, MOST_OTHER_BYTES)))
        if operation.images == "predict":
            key, pictures = arguments
            if len(pictures) > FEW or not all(is_small(picture.content) for picture in pictures):
                pictures = await run(service.prepare, pictures)
            return JSONResponse(await ask(service.prepare_predictions, (key, pictures)))
        content = await run(work, *arguments)
        if isinstance(content, str):
            return Response(content, media_type="application/json")
        return JSONResponse(content, operation.status)

    return endpoint


def _check_json(request: Request) -> None:
    if content_type(request) != "application/json":
        raise HTTPException(415, "Send JSON, with the content type application/json.")


async def _read_pictures(request: Request, labelled: bool) -> tuple[dict[str, Any], list[Picture]]:
    kind = content_type(request)
    if kind not in ("application/json", "multipart/form-data"):
        raise HTTPException(415, "Send pictures as JSON (in base64) or as multipart/form-data.")
    content = await read_body(request, MOST_BYTES)
    if kind == "multipart/form-data":
        return {}, await _parse_form(request, content, labelled)
    body = parse_json(content)
    several = body.get("examples" if labelled else "images")
    if several is None:
        several = [body] if labelled else [body.get("image")]
    if not isinstance(several, list) or len(several) > MOST_IMAGES:
        raise MannError(f"Send between 1 and {MOST_IMAGES} pictures.")
    if not labelled:
        several = [{"image": image} for image in several]
    if not all(isinstance(one, dict) for one in several):
        raise MannError("Every example is an object with an image and a label.")
    return body, [Picture(_decode(one.get("image")), one.get("label")) for one in several]


def _decode(text: Any) -> bytes:
    if not isinstance(text, str):
        raise MannError("There is no picture in the request: send one as image, in base64.")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise MannError("A picture is no valid base64.") from None


async def _parse_form(request: Request, content: bytes, labelled: bool) -> list[Picture]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield content
        yield b""

    parser = MultiPartParser(
        request.headers, stream(), max_files=MOST_IMAGES, max_fields=MOST_IMAGES, max_part_size=1000
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, f"The form cannot be read: {error.message.rstrip('.')}.") from None
    except Exception:  # a damaged form may end anywhere in the parser
        raise HTTPException(400, "The form cannot be read.") from None
    try:
        files = form.getlist("image")
        if not all(isinstance(file, UploadFile) for file in files):
            raise MannError("Send every image as a file of the form.")
        images = [await file.read() for file in files if isinstance(file, UploadFile)]
        labels = form.getlist("label") if labelled else [None] * len(images)
        if len(labels) != len(images):
            raise MannError(
                f"Send as many files `image` as fields `label`: the form has {len(images)} and {len(labels)}."
            )
        return [Picture(image, label) for image, label in zip(images, labels, strict=True)]
    finally:
        await form.close()
