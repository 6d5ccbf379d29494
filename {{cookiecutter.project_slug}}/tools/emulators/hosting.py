"""One HTTP server in a thread for all of the chain's HTTP parts: one socket a part, told apart by its port.

A part is a coroutine `Request -> Response | None`; None breaks the connection without an answer, as a network does.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tools.emulators.clock import Clock, Hold
from tools.errors import UserError

Part = Callable[[Request], Awaitable[Response | None]]

MARK = "mark"
"""Where a request's scope keeps its mark on the clock."""


class PortInUseError(UserError):
    """The port cannot be had, mostly since something listens there already; the text names it."""


def bind(port: int) -> socket.socket:
    """A socket on this machine alone; port 0 takes a free one. Raises PortInUseError."""
    if port > 65535:
        raise PortInUseError(f"port {port} is none: they end at 65535; begin with a lower one")
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
        bound.listen(512)
    except OSError as error:
        bound.close()
        raise PortInUseError(f"port {port} is in use: {error.strerror}") from None
    return bound


class _Protocol(H11Protocol):
    """uvicorn's HTTP, with a way to cut a connection off: ASGI has none."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {"abort": transport.abort}


class Host:
    """Serves the parts until `stop`; also runs what they leave to be done in the background."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parts: dict[int, Part] = {}
        self._sockets: list[socket.socket] = []
        self._pool = ThreadPoolExecutor(256, thread_name_prefix="host")
        self._background: set[asyncio.Task[Any]] = set()
        self._stopping = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def add(self, part: Part, listening: socket.socket) -> int:
        """Serve `part` on a bound socket, before `start`; its port."""
        port: int = listening.getsockname()[1]
        self._parts[port] = part
        self._sockets.append(listening)
        return port

    def start(self) -> None:
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            http=_Protocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        server = self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=server.run, args=(self._sockets,), name="host", daemon=True)
        self._thread.start()
        while not server.started:
            self._thread.join(0.002)
            if not self._thread.is_alive():
                raise RuntimeError("the HTTP server of the chain ended while it started")

    def stop(self) -> None:
        """Every open connection breaks; what sleeps is woken."""
        self._stopping.set()
        if self._server and self._thread:
            self._server.force_exit = self._server.should_exit = True
            self._thread.join()
        for listening in self._sockets:
            listening.close()
        self._pool.shutdown(cancel_futures=True)

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run on after the answer; from within a part."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def blocking(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """`call` in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    @contextmanager
    def waiting(self, request: Request) -> Iterator[None]:
        """Within, a request is not work in flight: who works on it, or keeps it waiting, says so itself.

        Outside it is, from its arrival until its answer is sent.
        """
        mark: Hold = request.scope["state"][MARK]
        mark.off()
        try:
            yield
        finally:
            mark.on()

    async def sleep(self, seconds: float, until: asyncio.Future[Any] | None = None) -> None:
        """On the clock; ends early when `until` is done, and when the host stops."""
        if until is None:
            mark = self._clock.hold()

            def nap() -> None:
                with self._clock.busy():
                    self._clock.sleep(seconds, self._stopping)
                    mark.on()  # until the coroutine has gone on, and says itself that it works

            await self.blocking(nap)
            asyncio.get_running_loop().call_soon(mark.off)
            return
        wake = threading.Event()
        until.add_done_callback(lambda _: wake.set())
        sleeping = asyncio.ensure_future(self.blocking(self._clock.sleep, seconds, wake))
        await asyncio.wait({sleeping, until}, return_when=asyncio.FIRST_COMPLETED)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        mark = scope["state"][MARK] = self._clock.hold()
        mark.on()
        try:
            response = await self._parts[scope["server"][1]](request)
            if response is not None:
                await response(scope, receive, send)
                return
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # the host stops
            pass
        finally:
            mark.off()
        scope["state"]["abort"]()
        await asyncio.sleep(0)  # the server hears of it before it misses the answer
