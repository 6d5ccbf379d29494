"""The APIs over gRPC, as the `google-cloud-workflows` package speaks it.

Requests and answers are translated between protobuf and the services' JSON form by the types of that package. They
take a tenth of a second to import, so a thread does that after the server has started.
"""

from __future__ import annotations

import socket
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import grpc

from .deployments import Deployments
from .executions import Executions
from .resources import Resource
from .status import ApiError

WORKERS = 16
"""Calls answered at once. None waits for an execution."""

OPTIONS = (("grpc.max_receive_message_length", 16 * 1024 * 1024), ("grpc.so_reuseport", 0))

Service = Callable[[Resource], Resource]


class Method(NamedTuple):
    """One RPC: the names of its protobuf types, and what carries it out."""

    request: str
    answer: str
    carry_out: Service


def methods(deployments: Deployments, executions: Executions) -> dict[str, Method]:
    """Full RPC name -> method."""
    workflows = "/google.cloud.workflows.v1.Workflows/"
    runs = "/google.cloud.workflows.executions.v1.Executions/"
    operations = "/google.longrunning.Operations/"
    operation = "google.longrunning.Operation"
    return {
        workflows + "ListWorkflows": _workflow("List", "ListWorkflowsResponse", deployments.list_workflows),
        workflows + "GetWorkflow": _workflow("Get", "Workflow", deployments.get_workflow),
        workflows + "CreateWorkflow": _workflow("Create", operation, deployments.create_workflow),
        workflows + "DeleteWorkflow": _workflow("Delete", operation, deployments.delete_workflow),
        workflows + "UpdateWorkflow": _workflow("Update", operation, deployments.update_workflow),
        workflows + "ListWorkflowRevisions": Method(
            "google.cloud.workflows.v1.ListWorkflowRevisionsRequest",
            "google.cloud.workflows.v1.ListWorkflowRevisionsResponse",
            deployments.list_workflow_revisions,
        ),
        operations + "GetOperation": _operation("Get", operation, deployments.get_operation),
        operations + "ListOperations": _operation(
            "List", "google.longrunning.ListOperationsResponse", deployments.list_operations
        ),
        operations + "DeleteOperation": _operation("Delete", "google.protobuf.Empty", deployments.delete_operation),
        runs + "ListExecutions": _execution("List", "ListExecutionsResponse", executions.list_executions),
        runs + "CreateExecution": _execution("Create", "Execution", executions.create_execution),
        runs + "GetExecution": _execution("Get", "Execution", executions.get_execution),
        runs + "CancelExecution": _execution("Cancel", "Execution", executions.cancel_execution),
    }


def _workflow(verb: str, answer: str, carry_out: Service) -> Method:
    plural = "s" if verb == "List" else ""
    full = answer if answer.startswith("google.") else f"google.cloud.workflows.v1.{answer}"
    return Method(f"google.cloud.workflows.v1.{verb}Workflow{plural}Request", full, carry_out)


def _execution(verb: str, answer: str, carry_out: Service) -> Method:
    package, plural = "google.cloud.workflows.executions.v1", "s" if verb == "List" else ""
    return Method(f"{package}.{verb}Execution{plural}Request", f"{package}.{answer}", carry_out)


def _operation(verb: str, answer: str, carry_out: Service) -> Method:
    plural = "s" if verb == "List" else ""
    return Method(f"google.longrunning.{verb}Operation{plural}Request", answer, carry_out)


@cache
def message_types() -> Callable[[str], Any]:
    """Full protobuf name -> class. Imports what the names need."""
    import google.cloud.workflows.executions_v1
    import google.cloud.workflows_v1  # noqa: F401 - registers its types
    from google.longrunning import operations_pb2  # noqa: F401 - registers its types
    from google.protobuf import descriptor_pool, empty_pb2, message_factory  # noqa: F401 - empty_pb2 likewise

    pool = descriptor_pool.Default()

    @cache
    def of(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    return of


def read(name: str, data: bytes) -> Resource:
    """The JSON form of a protobuf message."""
    from google.protobuf import json_format

    message = message_types()(name)()
    message.ParseFromString(data)
    found: Resource = json_format.MessageToDict(message)
    return found


def write(name: str, resource: Resource) -> bytes:
    """The protobuf message of a JSON form; what the package's types do not know is left out."""
    from google.protobuf import json_format

    message = message_types()(name)()
    json_format.ParseDict(resource, message, ignore_unknown_fields=True)
    data: bytes = message.SerializeToString()
    return data


class GrpcFace:
    """The gRPC server."""

    def __init__(self, deployments: Deployments, executions: Executions) -> None:
        self._methods = methods(deployments, executions)
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="workflows-grpc")
        self._server: grpc.Server | None = None
        self._warm = threading.Thread(target=message_types, name="workflows-types", daemon=True)

    def start(self, host: str, port: int) -> str:
        """Listen; the address. Raises OSError if the port cannot be had."""
        with socket.socket() as probe:  # gRPC itself would write its error to standard error as well
            try:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
            except OSError as error:
                raise OSError(f"{host}:{port} cannot be listened on: {error.strerror}") from None
        server = grpc.server(self._pool, handlers=[_Handlers(self._methods)], options=OPTIONS)
        bound = server.add_insecure_port(f"{host}:{port}")
        server.start()
        self._server = server
        self._warm.start()
        return f"{host}:{bound}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(grace=0.5).wait()
            self._warm.join()
        self._pool.shutdown(wait=True)


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, methods: dict[str, Method]) -> None:
        self._methods = methods

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = self._methods.get(details.method)
        if method is None:
            return None  # UNIMPLEMENTED

        def answer(data: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                return write(method.answer, method.carry_out(read(method.request, data)))
            except ApiError as error:
                context.abort(getattr(grpc.StatusCode, error.status), error.message)
            except Exception:
                traceback.print_exc()
                context.abort(grpc.StatusCode.INTERNAL, "the emulator has a bug; its traceback is in the log")
            raise AssertionError("abort raises")

        handler: grpc.RpcMethodHandler = grpc.unary_unary_rpc_method_handler(answer)
        return handler
