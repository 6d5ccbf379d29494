"""The embedded server as a process: start, files, clock, limits of transactions, locks of readers, TTL."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import firestore as library
from google.cloud import firestore_admin_v1 as admin
from google.cloud.firestore_admin_v1.services.firestore_admin.transports import FirestoreAdminGrpcTransport

from tests.support.firestore import PROJECT, embedded_command, start_embedded
from tools.emulators.clock import OffsetFile

Start = Callable[..., str]
HOUR = 3_600_000_000
EVENT_SECONDS = 20.0
"""How long a test waits for something that has to happen; nothing is asserted about time."""


@pytest.fixture
def offset(tmp_path: Path) -> OffsetFile:
    return OffsetFile(tmp_path / "clock")


def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + EVENT_SECONDS
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def refused(*arguments: str) -> str:
    """What the command says when it does not start."""
    ended = subprocess.run(embedded_command(*arguments), cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    return ended.stderr


def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused("--port", str(port)) == f"firestore: cannot listen on 127.0.0.1:{port}: is the port in use?\n"


def test_a_file_in_use_is_said_in_one_line(own_server: Start, tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    own_server("--file", str(file))
    assert refused("--file", str(file)) == (
        f"firestore: cannot use {file} as a Firestore file: it is in use by another server\n"
    )


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database" * 100)
    assert "as a Firestore file" in refused("--file", str(file))
    assert file.read_text() == "not a database" * 100


def test_a_restart_carries_on(own_server: Start, connect: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "state.db")
    process, address = start_embedded("--file", file)
    written = connect(address).document("c/a").create({"n": 1})
    process.terminate()
    assert process.wait() == 0
    document = connect(own_server("--file", file)).document("c/a")
    assert document.get().update_time == written.update_time
    assert document.set({"n": 2}).update_time > written.update_time


def test_commit_times_increase_even_if_the_clock_goes_back(
    own_server: Start, connect: Any, offset: OffsetFile, tmp_path: Path
) -> None:
    document = connect(own_server("--clock-file", str(tmp_path / "clock"))).document("c/a")
    times = [document.set({"n": 0}).update_time]
    for n, microseconds in enumerate((HOUR, 0, -HOUR), 1):
        offset.write(microseconds)
        times.append(document.set({"n": n}).update_time)
    assert times == sorted(set(times))
    assert times[1] - times[0] >= timedelta(hours=1)
    assert times[3] - times[2] < timedelta(seconds=1)


def test_read_times(own_server: Start, connect: Any, offset: OffsetFile, tmp_path: Path) -> None:
    """The past can be read for an hour, and versions are found by the time at which they were current."""
    document = connect(own_server("--clock-file", str(tmp_path / "clock"))).document("c/a")
    document.set({"n": 1})
    offset.write(HOUR - 30_000_000)
    before = document.get().read_time
    document.set({"n": 2})
    offset.write(HOUR + 60_000_000)
    for n in range(3, 1010):  # enough commits for the past to be pruned
        document.set({"n": n})
    assert document.get(read_time=before).get("n") == 1
    with pytest.raises(exceptions.FailedPrecondition):
        document.get(read_time=before - timedelta(hours=1))
    with pytest.raises(exceptions.InvalidArgument):
        document.get(read_time=before + timedelta(days=1))


@pytest.mark.parametrize(("steps", "step"), [(1, 61), (6, 50)], ids=["idle", "total"])
def test_a_transaction_has_limits(
    own_server: Start, connect: Any, offset: OffsetFile, tmp_path: Path, steps: int, step: int
) -> None:
    firestore = connect(own_server("--clock-file", str(tmp_path / "clock")))
    document = firestore.document("c/a")
    transaction = firestore.transaction()
    transaction._begin()
    for number in range(1, steps):
        offset.write(number * step * 1_000_000)
        document.get(transaction=transaction)
    offset.write(steps * step * 1_000_000)
    transaction.set(document, {"n": 1})
    with pytest.raises(exceptions.InvalidArgument, match="expired"):
        transaction._commit()
    assert not document.get().exists


def abandoned(firestore: Any, document: Any) -> None:
    """A transaction that reads a document and is never heard of again."""
    transaction = firestore.transaction()
    transaction._begin()
    document.get(transaction=transaction)


def test_a_dead_reader_blocks_nobody(own_server: Start, connect: Any) -> None:
    firestore = connect(own_server())
    document = firestore.document("c/a")
    document.set({"n": 0})
    abandoned(firestore, document)
    document.update({"n": 1})

    @library.transactional
    def body(transaction: Any) -> None:
        transaction.update(document, {"n": document.get(transaction=transaction).get("n") + 1})

    body(firestore.transaction(max_attempts=1))
    assert document.get().get("n") == 2


def test_with_reader_locks_a_dead_reader_blocks_writers_until_its_time_is_over(
    own_server: Start, connect: Any, offset: OffsetFile, tmp_path: Path
) -> None:
    firestore = connect(own_server("--reader-locks", "--lock-wait", "0.1", "--clock-file", str(tmp_path / "clock")))
    document = firestore.document("c/a")
    document.set({"n": 0})
    abandoned(firestore, document)
    with pytest.raises(exceptions.Aborted):
        document.update({"n": 1}, retry=None)
    firestore.document("c/b").set({"n": 1})  # others are free
    offset.write(61_000_000)
    document.update({"n": 1}, retry=None)
    assert document.get().get("n") == 1


def test_with_reader_locks_a_writer_waits_for_the_reader(own_server: Start, connect: Any) -> None:
    firestore = connect(own_server("--reader-locks", "--lock-wait", "20"))
    document = firestore.document("c/a")
    document.set({"n": 0})
    transaction = firestore.transaction()
    transaction._begin()
    document.get(transaction=transaction)
    writer = threading.Thread(target=lambda: document.set({"n": 10}, retry=None))
    writer.start()
    transaction.set(document, {"n": 1})
    transaction._commit()
    writer.join()
    assert document.get().get("n") == 10


def test_with_reader_locks_two_readers_that_both_write_do_not_wait_for_each_other(
    own_server: Start, connect: Any
) -> None:
    firestore = connect(own_server("--reader-locks", "--lock-wait", "60"))
    document = firestore.document("c/a")
    document.set({"n": 0})

    @library.transactional
    def body(transaction: Any) -> None:
        n = document.get(transaction=transaction).get("n")
        transaction.update(document, {"n": n + 1})

    threads = [threading.Thread(target=body, args=(firestore.transaction(max_attempts=20),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert document.get().get("n") == 3


def ids(found: Any) -> list[str]:
    return sorted(each.id for each in found.stream())


def test_expired_documents_are_deleted(own_server: Start, connect: Any, offset: OffsetFile, tmp_path: Path) -> None:
    clock, file = str(tmp_path / "clock"), str(tmp_path / "state.db")
    firestore = connect(
        own_server("--clock-file", clock, "--file", file, "--ttl", "c=expire_at", "--ttl-delay", "3600")
    )
    found, now = firestore.collection("c"), datetime.now(UTC)
    for name, expire_at in (("soon", now), ("later", now + timedelta(days=2)), ("never", None), ("text", "2020")):
        found.document(name).set({"expire_at": expire_at})
    found.document("soon").collection("sub").document("kept").set({"expire_at": now})
    firestore.document("other/o").set({"expire_at": now})
    offset.write(HOUR // 2)
    assert ids(found) == ["later", "never", "soon", "text"]  # expired, and still there
    before = found.document("soon").get().read_time
    offset.write(HOUR + 60_000_000)
    assert eventually(lambda: ids(found) == ["later", "never", "text"])
    assert ids(found.document("soon").collection("sub")) == ["kept"]
    assert ids(firestore.collection("other")) == ["o"]
    assert found.document("soon").get(read_time=before).exists
    found.document("later").update({"expire_at": None})  # no longer expires
    offset.write(72 * HOUR)
    found.document("last").set({"expire_at": now})
    assert eventually(lambda: ids(found) == ["later", "never", "text"])


def test_a_policy_over_the_admin_api(own_server: Start, connect: Any, tmp_path: Path) -> None:
    """It holds for what is there already and in its database only, survives a restart, and can be taken back."""
    file = str(tmp_path / "state.db")
    process, address = start_embedded("--file", file, "--ttl-delay", "0")
    firestore, other = connect(address), connect(address, database="other")
    past = datetime.now(UTC) - timedelta(seconds=1)
    for each in (firestore, other):
        each.document("c/a").set({"expire_at": past})
    name = "projects/test-project/databases/(default)/collectionGroups/c/fields/expire_at"
    transport = FirestoreAdminGrpcTransport(channel=grpc.insecure_channel(address))
    client = admin.FirestoreAdminClient(transport=transport)
    ttl = admin.Field(name=name, ttl_config=admin.Field.TtlConfig())
    client.update_field(request={"field": ttl, "update_mask": {"paths": ["ttl_config"]}})
    assert client.get_field(name=name).ttl_config.state == admin.Field.TtlConfig.State.ACTIVE
    assert eventually(lambda: not firestore.document("c/a").get().exists)
    assert other.document("c/a").get().exists
    transport.close()
    process.terminate()
    process.wait()
    address = own_server("--file", file, "--ttl-delay", "0")
    again = connect(address)
    again.document("c/b").set({"expire_at": past})
    assert eventually(lambda: not again.document("c/b").get().exists)
    transport = FirestoreAdminGrpcTransport(channel=grpc.insecure_channel(address))
    client = admin.FirestoreAdminClient(transport=transport)
    client.update_field(request={"field": admin.Field(name=name), "update_mask": {"paths": ["ttl_config"]}})
    assert "ttl_config" not in client.get_field(name=name)
    with pytest.raises(exceptions.MethodNotImplemented, match="ttl_config"):
        client.update_field(request={"field": admin.Field(name=name), "update_mask": {"paths": ["index_config"]}})
    transport.close()


@pytest.mark.parametrize("method", ["Listen", "Write", "PartitionQuery", "ExecutePipeline", "Anything"])
def test_what_is_not_there_is_refused_by_name(embedded_firestore: str, method: str) -> None:
    with grpc.insecure_channel(embedded_firestore) as channel:
        call = channel.unary_unary(f"/google.firestore.v1.Firestore/{method}")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"")
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert method in error.details()
