"""Starts an execution for each call that it gets."""

import json
import os
from typing import Any

import grpc
from google.auth.credentials import AnonymousCredentials
from google.cloud.workflows import executions_v1
from google.cloud.workflows.executions_v1.services.executions.transports import ExecutionsGrpcTransport

channel = grpc.insecure_channel(os.environ["WORKFLOWS_EMULATOR_HOST"])
transport = ExecutionsGrpcTransport(channel=channel, credentials=AnonymousCredentials())
client = executions_v1.ExecutionsClient(transport=transport)


def main(request: Any) -> dict[str, str]:
    slot = request.headers["X-CloudScheduler-ScheduleTime"]
    execution = executions_v1.Execution(argument=json.dumps({"slot": slot}))
    made = client.create_execution(parent=os.environ["WORKFLOW"], execution=execution, timeout=30)
    return {"execution": made.name}
