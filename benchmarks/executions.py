"""A thousand short executions: by the engine alone, through the emulator in one process, and through Google's client.

    python benchmarks/executions.py [COUNT]

Prints seconds, executions a second, and each way's time as a multiple of the engine's.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "{{cookiecutter.project_slug}}"))

import grpc
from google.cloud.workflows import executions_v1
from google.cloud.workflows.executions_v1.services.executions.transports import ExecutionsGrpcTransport

from tools.emulators.clock import SystemClock
from tools.emulators.workflows import definition, engine
from tools.emulators.workflows.api import WorkflowsServer
from tools.emulators.workflows.runtime import World
from tools.emulators.workflows.transport import HttpTransport

NAME = "projects/p/locations/l/workflows/w"

SOURCE = """
main:
  params: [n]
  steps:
    - add:
        assign:
          - m: ${n + 1}
    - judge:
        switch:
          - condition: ${m % 2 == 0}
            return: ${m}
    - odd:
        return: ${m * 2}
"""


def measured(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    clock = SystemClock()
    compiled = definition.load(SOURCE)
    transport = HttpTransport(clock)

    def by_engine() -> None:
        for number in range(count):
            assert engine.execute(compiled, number, World(clock, transport), env={}).state == "SUCCEEDED"

    seconds = {"engine": measured(by_engine)}
    with tempfile.TemporaryDirectory() as folder:
        server = WorkflowsServer(Path(folder), clock)
        server.start()
        server.deploy(NAME, SOURCE)
        channel = grpc.insecure_channel(server.grpc_address)
        client = executions_v1.ExecutionsClient(transport=ExecutionsGrpcTransport(channel=channel))

        def in_process(number: int) -> str:
            created = server.executions.create_execution({"parent": NAME, "execution": {"argument": str(number)}})
            return str(created["name"])

        def by_client(number: int) -> str:
            execution = executions_v1.Execution(argument=str(number))
            return str(client.create_execution(parent=NAME, execution=execution).name)

        def all_of(start: Callable[[int], str]) -> None:
            for name in [start(number) for number in range(count)]:
                assert server.executions.wait(name, 60)["state"] == "SUCCEEDED"

        seconds["emulator, in process"] = measured(lambda: all_of(in_process))
        seconds["emulator, by Google's client"] = measured(lambda: all_of(by_client))
        channel.close()
        server.stop()
    for way, spent in seconds.items():
        print(f"{way:30} {spent:7.2f} s  {count / spent:8.0f} /s  {spent / seconds['engine']:6.1f} x")


if __name__ == "__main__":
    main()
