"""The gRPC server: which method goes where, and errors as statuses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tools.emulators.firestore.admin import Admin
from tools.emulators.firestore.core import Database
from tools.emulators.firestore.errors import FirestoreError
from tools.emulators.firestore.messages import Message, of_method
from tools.emulators.firestore.service import STREAMING, UNARY, Firestore
from tools.emulators.firestore.storage import ANY_DATABASE, Storage
from tools.emulators.firestore.transactions import Limits
from tools.emulators.firestore.ttl import DELAY_SECONDS, Sweeper

SERVICE = "/google.firestore.v1.Firestore/"
ADMIN_SERVICE = "/google.firestore.admin.v1.FirestoreAdmin/"
THREADS = 256
"""Requests at a time; of these, transactions.MAX_WAITING may wait for others."""

STOP_SECONDS = 0.2
"""What is under way when the server is told to stop has this long."""


@dataclass(frozen=True)
class Options:
    """`file` None: in memory. `now`: seconds on the emulators' clock. `ttl`: collection group, field."""

    file: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    now: Callable[[], float] = time.time
    synchronous: str = "normal"
    limits: Limits = field(default_factory=Limits)
    reader_locks: bool = False
    ttl: tuple[tuple[str, str], ...] = ()
    ttl_delay: float = DELAY_SECONDS


class PortInUse(Exception):  # noqa: N818
    """Nothing can listen at the address that was asked for."""


class Server:
    """Firestore at `address`, from `start` to `stop`. Raises StorageError, PortInUse, InvalidArgument for a policy."""

    def __init__(self, options: Options) -> None:
        self.storage = Storage(options.file, options.now, options.synchronous)
        for group, path in options.ttl:
            self.storage.set_policy(ANY_DATABASE, group, path)
        database = Database(self.storage, options.now, options.limits, reader_locks=options.reader_locks)
        self._sweeper = Sweeper(database, options.ttl_delay)
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(THREADS, thread_name_prefix="rpc"),
            handlers=[_Handlers(Firestore(database), Admin(database))],
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
        )
        try:
            port = self._grpc.add_insecure_port(f"{options.host}:{options.port}")
        except RuntimeError:
            self.storage.close()
            raise PortInUse(f"cannot listen on {options.host}:{options.port}: is the port in use?") from None
        self.address = f"{options.host}:{port}"

    def start(self) -> None:
        self._grpc.start()
        self._sweeper.start()

    def stop(self) -> None:
        self._grpc.stop(STOP_SECONDS).wait()
        self._sweeper.stop()
        self.storage.close()


class _Handlers(grpc.GenericRpcHandler):
    """Every method of every service has an answer: one that is not known here is refused by its name."""

    def __init__(self, firestore: Firestore, admin: Admin) -> None:
        self._methods: dict[str, Any] = {}
        for name in STREAMING:
            self._methods[SERVICE + name] = grpc.unary_stream_rpc_method_handler(
                _streaming(getattr(firestore, name)), of_method(name, "Request").FromString
            )
        for name in UNARY:
            self._methods[SERVICE + name] = grpc.unary_unary_rpc_method_handler(
                _unary(getattr(firestore, name)), of_method(name, "Request").FromString, _serialize
            )
        for name, method in admin.methods().items():
            self._methods[ADMIN_SERVICE + name] = grpc.unary_unary_rpc_method_handler(method)

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        return self._methods.get(path) or grpc.stream_stream_rpc_method_handler(_refuse(path.rsplit("/", 1)[-1]))


def _unary(method: Callable[[Message], Message]) -> Callable[[Message, Any], Message]:
    def handle(request: Message, context: Any) -> Message:
        try:
            return method(request)
        except FirestoreError as error:
            context.abort(error.code, error.message)

    return handle


def _streaming(method: Callable[[Message], Iterable[bytes]]) -> Callable[[Message, Any], Iterable[bytes]]:
    def handle(request: Message, context: Any) -> Iterable[bytes]:
        try:
            yield from method(request)
        except FirestoreError as error:
            context.abort(error.code, error.message)

    return handle


def _refuse(name: str) -> Callable[[Any, Any], Iterable[bytes]]:
    def handle(requests: Any, context: Any) -> Iterable[bytes]:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{name} is not implemented by this emulator")
        yield from ()

    return handle


def _serialize(message: Message) -> bytes:
    data: bytes = message.SerializeToString()
    return data
