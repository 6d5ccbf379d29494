"""Cloud Tasks' CreateTask and Pub/Sub's Publish over gRPC: see the package for the rest.

A queue takes a task's name once (ALREADY_EXISTS from then on, for ever) and delivers nothing. A topic takes every
message, as the real one does: the ledger tells the first with a key from its repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc

from tools.emulators.clock import Clock
from tools.emulators.receivers import Ledger

TASKS = "tasks"
PUBSUB = "pubsub"


def serve(ledger: Ledger, clock: Clock) -> tuple[str, Callable[[], None]]:
    """Starts the server on a free port of this machine; its host:port, and what stops it.

    Serves what is installed: a step's requirements bring its service's types.
    """
    server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    for handlers in (_tasks, _pubsub):
        try:
            server.add_generic_rpc_handlers((handlers(ledger, clock),))
        except ImportError:
            continue
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    def stop() -> None:
        server.stop(None).wait()

    return f"127.0.0.1:{port}", stop


def _tasks(ledger: Ledger, clock: Clock) -> grpc.GenericRpcHandler:
    from google.cloud.tasks_v2 import CreateTaskRequest, Task

    def create(request: Any, context: grpc.ServicerContext) -> Any:
        if not request.task.name:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "the stand-in for Cloud Tasks takes tasks with a name only")
        with clock.busy():
            row = ledger.record(
                clock.now(), TASKS, "", "CreateTask", request.parent, request.task.name, request.task.http_request.body
            )
        if row["outcome"] != "first":
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "Requested entity already exists")
        return request.task

    method = grpc.unary_unary_rpc_method_handler(create, CreateTaskRequest.deserialize, Task.serialize)
    return _handler("google.cloud.tasks.v2.CloudTasks", "CreateTask", method)


def _pubsub(ledger: Ledger, clock: Clock) -> grpc.GenericRpcHandler:
    from google.pubsub_v1.types import PublishRequest, PublishResponse

    def publish(request: Any, _: grpc.ServicerContext) -> Any:
        with clock.busy():
            rows = [
                ledger.record(
                    clock.now(),
                    PUBSUB,
                    "",
                    "Publish",
                    request.topic,
                    message.attributes.get("idempotency_key"),
                    message.data,
                )
                for message in request.messages
            ]
        return PublishResponse(message_ids=[row["id"] for row in rows])

    method = grpc.unary_unary_rpc_method_handler(publish, PublishRequest.deserialize, PublishResponse.serialize)
    return _handler("google.pubsub.v1.Publisher", "Publish", method)


def _handler(service: str, name: str, method: grpc.RpcMethodHandler) -> grpc.GenericRpcHandler:
    handler: grpc.GenericRpcHandler = grpc.method_handlers_generic_handler(service, {name: method})
    return handler
