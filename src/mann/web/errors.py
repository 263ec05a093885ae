"""Every error as one plain sentence in JSON, for the page to show."""

import logging
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from mann.errors import MannError
from mann.store import Gone, StoreError
from mann.web.sessions import Full, Outdated
from mann.web.trials import StoreError as TrialStoreError

_log = logging.getLogger(__name__)


def sentence(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {
        404: "There is nothing at this address.",
        405: "This address does not take that kind of request.",
    }
    response = sentence(error.status_code, known.get(error.status_code, error.detail))
    response.headers.update(error.headers or {})
    return response


async def _on_mistake(request: Request, error: Exception) -> Response:
    return sentence(400, str(error))


async def _on_full(request: Request, error: Exception) -> Response:
    response = sentence(503, str(error))
    response.headers["retry-after"] = "60"
    return response


async def _on_outdated(request: Request, error: Exception) -> Response:
    return sentence(409, str(error))


async def _on_gone(request: Request, error: Exception) -> Response:
    return sentence(404, str(error))


async def _on_store_error(request: Request, error: Exception) -> Response:
    _log.error("%s", error)  # for those who run the server: where the file lies is no visitor's business
    return sentence(503, "What is taught cannot be kept at the moment: wait a little and try again.")


async def _on_trial_store_error(request: Request, error: Exception) -> Response:
    _log.error("%s", error)
    return sentence(503, "Trials cannot be kept at the moment: wait a little and try again.")


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return sentence(400, "The request was cut short.")


async def _on_bug(request: Request, error: Exception) -> Response:
    return sentence(500, "Something went wrong in the playground: please try again.")


HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    HTTPException: _on_http_error,
    MannError: _on_mistake,
    Full: _on_full,
    Gone: _on_gone,
    Outdated: _on_outdated,
    StoreError: _on_store_error,
    TrialStoreError: _on_trial_store_error,
    ClientDisconnect: _on_disconnect,
    Exception: _on_bug,
}
