"""The HTTP server: uvicorn, with bounds on how long and how often an address may keep it waiting."""

import asyncio
from collections import Counter
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mann.web.guard import MOST_HEADER_BYTES, network_of

IDLE_SECONDS = 10  # of a connection between two requests
HEADER_SECONDS = 10.0  # for a header to arrive, from its first byte, or from the opening of the connection
BODY_SECONDS = 20.0  # for a body to arrive: longer than the application waits before it says so
ANSWER_SECONDS = 60.0  # for a client to take the answer
MOST_CONNECTIONS = 500  # well below the 1024 files that a process may usually open
MOST_PER_ADDRESS = 200
_REFUSAL = b'{"error":"The request is not valid HTTP."}'
INVALID = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
INVALID += b"content-length: %d\r\n\r\n%s" % (len(_REFUSAL), _REFUSAL)


class BoundedProtocol(H11Protocol):
    """A connection that is closed when its client lets it wait.

    uvicorn waits forever for the end of a header and for a client to take its answer. Where there are too many
    connections, one that owes us a request gives way, the oldest first, so that newcomers are still served.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.network = network_of(self.client[0]) if self.client else ""
        self.quiet_since = self.loop.time()
        self._owed: Any = None
        self._arrival: asyncio.TimerHandle | None = None
        self._departure: asyncio.TimerHandle | None = None
        self._watch_arrival()
        self._make_room()

    @property
    def owes_request(self) -> bool:
        """Whether we wait for the client, and not the client for us."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def close_now(self) -> None:
        self.connections.discard(self)  # at once; `connection_lost` comes later
        self.transport.abort()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch_arrival()

    def send_400_response(self, msg: str) -> None:
        """To what is no HTTP. What the application has to say to the part before it is not sent any more."""
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(INVALID)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def on_response_complete(self) -> None:
        self.quiet_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._departure = self.loop.call_later(ANSWER_SECONDS, self.close_now)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel(self._departure)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel(self._arrival)
        self._cancel(self._departure)

    def _watch_arrival(self) -> None:
        """Start a clock whenever the client begins to owe us a header or a body."""
        owed: Any = self.conn.their_state
        if owed is h11.IDLE and self.cycle is not None and not self.conn.trailing_data[0]:
            owed = None  # between two requests, where uvicorn has a clock of its own
        if owed is self._owed:
            return
        self._owed = owed
        self._cancel(self._arrival)
        seconds = {h11.IDLE: HEADER_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(owed)
        if seconds is not None:
            self._arrival = self.loop.call_later(seconds, self.close_now)

    def _make_room(self) -> None:
        """If there are too many connections, close one of this address, or of that which has most of them."""
        everyone = [one for one in self.connections if isinstance(one, BoundedProtocol)]
        counts = Counter(one.network for one in everyone)
        if counts[self.network] > MOST_PER_ADDRESS:
            crowded = self.network
        elif len(everyone) > MOST_CONNECTIONS:
            crowded = counts.most_common(1)[0][0]
        else:
            return
        slow = [one for one in everyone if one.network == crowded and one is not self and one.owes_request]
        min(slow, key=lambda one: one.quiet_since, default=self).close_now()

    def _cancel(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def configure(app: ASGIApp) -> uvicorn.Config:
    """How the playground is served, with no more than it needs."""
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )
