"""A deployment that has been made once; tests go on from copies of it."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deploy.deployment import Deployment
from tests.support.gcloud import Gcloud

STEPS = ("charge_orders", "reserve_stock")


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Deployed once, from nothing. Read only."""
    made = Deployment(tmp_path_factory.mktemp("first"), STEPS, PAYMENT_KEY="x")
    made.step(
        "charge_orders",
        'RECEIVERS=PAYMENT_URL\nSETTINGS="GREETING"\nSECRETS="API_KEY=pay-key:3"\nTHREADS=4\nROLES=roles/bigquery.jobUser\n',
    )
    state = made.gcloud.state
    state["secrets"]["pay-key"] = {}
    made.gcloud.state = state
    made.output = made.deploy()
    return made


@pytest.fixture
def deployed(first: Deployment, tmp_path: Path) -> Iterator[Deployment]:
    """A copy of it, with an empty record of calls."""
    made = twin(first, tmp_path)
    yield made
    made.gcloud.close()


def twin(original: Deployment, folder: Path) -> Deployment:
    """The same files and resources, in a folder of its own."""
    made = Deployment(folder, ())
    shutil.rmtree(made.root)
    shutil.copytree(original.root, made.root)
    made.gcloud.state = copy.deepcopy(original.gcloud.state)
    return made


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Callable[..., Deployment]]:
    """Makes a project that was never deployed, of one step unless others are named."""
    made: list[Deployment] = []

    def make(*steps: str, **settings: str) -> Deployment:
        made.append(Deployment(tmp_path / f"new{len(made)}", steps or ("charge_orders",), **settings))
        return made[-1]

    yield make
    for project in made:
        project.gcloud.close()


@pytest.fixture
def gcloud(deployed: Deployment) -> Gcloud:
    return deployed.gcloud
