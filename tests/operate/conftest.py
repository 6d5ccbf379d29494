from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operate.office import Office, open_office


@pytest.fixture
def office(tmp_path: Path, firestore_host: str, collection: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """A pipeline of its own, on each server in turn."""
    yield from open_office(tmp_path / "project", collection, firestore_host, monkeypatch)


@pytest.fixture
def desk(tmp_path: Path, embedded_firestore: str, collection: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """A pipeline of its own on the embedded server alone: for what is not Firestore's to do differently."""
    yield from open_office(tmp_path / "project", collection, embedded_firestore, monkeypatch)
