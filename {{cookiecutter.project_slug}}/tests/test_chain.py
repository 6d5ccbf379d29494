"""The whole chain on this machine: the sample, one slot delivered again and again, and the effects it should have."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests import expected
from tests.conftest import ROOT
from tools.database import add_missing
from tools.emulators.chain import Chain
from tools.emulators.clock import JumpClock, OffsetFile
from tools.loading import read

SLOT = datetime.fromisoformat(expected.SLOT)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    clock = JumpClock(OffsetFile(tmp_path / "offset"))
    clock.set(SLOT.timestamp())
    try:
        with Chain(ROOT, tmp_path, clock=clock, wired=False) as chain:
            yield chain
    finally:
        clock.stop()


def test_a_slot_delivered_thrice_has_its_effects_once(chain: Chain) -> None:
    with chain.database() as client:
        for name in expected.SAMPLE:
            add_missing(client, read(ROOT, ROOT / name))
    chain.deliver(SLOT)
    chain.duplicate(SLOT)
    assert chain.settle()
    chain.duplicate(SLOT)
    assert [execution["state"] for execution in chain.executions()] == ["SUCCEEDED"]
    effects = expected.expected(chain.documents(), chain.receivers.ledger())
    assert effects
    assert [effect for effect in effects if effect.expected != effect.seen] == []
