"""What every request passes first: whom the playground answers, and the security headers of its answers."""

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mann.web.errors import sentence

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
MOST_HEADERS = 100
MOST_HEADER_BYTES = 32_000  # of all together
MOST_IGNORED_BYTES = 16_000_000  # of a body that is refused
IGNORED_SECONDS = 5.0  # for such a body to arrive: less than the server allows for any


def network_of(host: str) -> str:
    """The address itself; of IPv6 the /64, since whoever has one such address has all of them."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return host


class Guard:
    """Security headers on every response, and no answer to strangers.

    Starlette's TrustedHostMiddleware answers in plain text and may redirect.
    """

    def __init__(
        self, app: ASGIApp, hosts: tuple[str, ...], watch: Callable[[Scope, int, float], None]
    ) -> None:
        self.app, self.hosts, self.watch = app, hosts, watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, began = _Body(scope, receive), time.perf_counter()

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.watch(scope, message["status"], time.perf_counter() - began)
                await body.ignore_rest()
                present = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(header for header in _ENCODED if header[0] not in present),
                ]
            await send(message)

        app = _refuse(scope, self.hosts) or self.app
        await app(scope, body.receive, send_guarded)


def _refuse(scope: Scope, hosts: tuple[str, ...]) -> Response | None:
    """The answer to a request that goes no further."""
    size, host, foreign = len(scope["raw_path"]) + len(scope["query_string"]), "", False
    origins: list[str] = []
    asks = scope["path"].startswith(
        ("/api/", "/v1/", "/metrics")
    )  # a link to the page itself may stand anywhere
    for name, value in scope["headers"]:
        size += len(name) + len(value)
        if name == b"host":
            host += value.decode("latin-1").lower()
        elif name == b"origin":
            origins.append(value.decode("latin-1").lower())
        elif name == b"sec-fetch-site" and asks:
            foreign |= value.lower() not in (b"same-origin", b"none")
    if len(scope["headers"]) > MOST_HEADERS or size > MOST_HEADER_BYTES:
        return sentence(431, "The header of the request is too long.")
    called = host if host.endswith("]") else host.rsplit(":", 1)[0]
    if called.removeprefix("[").removesuffix("]") not in hosts:
        return sentence(400, "This playground answers only to the address that it was started with.")
    # Another site's page in the same browser could not read the answer, but it could teach or take up a place.
    foreign |= any(not _is_own(origin, host) for origin in origins)
    return sentence(403, "Only the playground's own page may ask this.") if foreign else None


def _is_own(origin: str, host: str) -> bool:
    """The scheme may differ: a proxy in front of us may have encryption."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == host


class _Body:
    """The body of a request, of which the part that nobody read is read before the answer goes out.

    Otherwise the connection would be reset while the client is still sending, and the answer lost.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._more = (b"expect", b"100-continue") not in scope["headers"]  # it waits for the answer first

    async def receive(self) -> Message:
        message = await self._receive()
        self._more = message.get("more_body", False)
        return message

    async def ignore_rest(self) -> None:
        size = 0
        if not self._more:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(IGNORED_SECONDS):
                while self._more and size < MOST_IGNORED_BYTES:
                    size += len((await self.receive()).get("body", b""))
