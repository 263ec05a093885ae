"""The HTTP server: uvicorn, with bounds on how long and how often an address may keep it waiting."""

from collections import Counter
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mann.web.guard import MOST_HEADER_BYTES, network_of

IDLE_SECONDS = 10  # of a connection between two requests
HEADER_SECONDS = 10.0  # for a header to arrive, from its first byte, or from the opening of the connection
BODY_SECONDS = 10.0  # for a body to arrive
ANSWER_SECONDS = 60.0  # for a client to take the answer
MOST_CONNECTIONS = 500  # well below the 1024 files that a process may usually open
MOST_PER_ADDRESS = 200


def _refusal(status: bytes, sentence: bytes) -> bytes:
    """An answer that ends the connection."""
    content = b'{"error":"%b"}' % sentence
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(content)) + content


INVALID = _refusal(b"400 Bad Request", b"The request is not valid HTTP.")
LATE = _refusal(b"408 Request Timeout", b"The request took too long to arrive: send it again.")


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed when its client lets it wait.

    uvicorn waits forever for the end of a header and for a client to take its answer. Where there are too many
    connections, one that owes us a request gives way, the oldest first, so that newcomers are still served.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.network = network_of(self.client[0]) if self.client else ""
        self.quiet_since = self.loop.time()
        self._in_header = True
        self._header_bytes = 0
        self._arrival: Any = None
        self._departure: Any = None
        self._await_within(HEADER_SECONDS)
        self._make_room()

    @property
    def owes_request(self) -> bool:
        """Whether we wait for the client, and not the client for us."""
        return self._in_header or self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def close_now(self) -> None:
        self.connections.discard(self)  # at once; `connection_lost` comes later
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_header:
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER_BYTES and not self.transport.is_closing():
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0
        if self.cycle is not None:  # the first header is awaited from the opening of the connection on
            self._in_header = True
            self._await_within(HEADER_SECONDS)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_header = False
        self._await_within(BODY_SECONDS, LATE)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._await_within(None)

    def send_400_response(self, msg: str) -> None:
        """To what is no HTTP."""
        self._refuse(INVALID)

    def _refuse(self, answer: bytes) -> None:
        """What the application has to say to the part before it is not sent any more."""
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            self.transport.write(answer)
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

    def _await_within(self, seconds: float | None, answer: bytes = b"") -> None:
        """Close the connection if what the client owes us now is not here by then, with an answer if any."""
        self._cancel(self._arrival)
        self._arrival = None
        if seconds is not None:
            late = (self._refuse, answer) if answer else (self.close_now,)
            self._arrival = self.loop.call_later(seconds, *late)

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

    def _cancel(self, timer: Any) -> None:
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
    )
