"""ON_OVERLAP=queue: the job that starts queued slots."""

from __future__ import annotations

from collections.abc import Callable

from tests.deploy.deployment import Deployment

Make = Callable[..., Deployment]


def test_the_sweep_is_made_once_put_right_and_taken_away(new: Make) -> None:
    project = new(ON_OVERLAP="queue")
    project.deploy()
    state = project.gcloud.state
    assert sorted(state["jobs"]) == ["shop", "shop-sweep"]
    sweep = state["jobs"]["shop-sweep"]
    assert (sweep["schedule"], sweep["httpTarget"]["headers"]) == ("* * * * *", {"X-Exactly-Once-Sweep": "queued"})
    assert sweep["httpTarget"]["oidcToken"] == state["jobs"]["shop"]["httpTarget"]["oidcToken"]
    assert "headers" not in state["jobs"]["shop"]["httpTarget"]
    assert "Nothing changed" in project.deploy()
    settings = (project.root / "settings.env").read_text()
    project.write("settings.env", settings + "ATTEMPT_DEADLINE=60\n")
    project.deploy("--only", "schedule")
    assert project.gcloud.state["jobs"]["shop-sweep"]["attemptDeadline"] == "60s"
    assert project.gcloud.state["jobs"]["shop-sweep"]["httpTarget"]["headers"] == {"X-Exactly-Once-Sweep": "queued"}
    project.write("settings.env", settings)  # the policy is another by then: it goes all the same
    project.deploy("destroy", "--yes")
    assert project.gcloud.state["jobs"] == {}


def test_without_a_queue_there_is_no_sweep(new: Make) -> None:
    project = new(ON_OVERLAP="skip")
    project.deploy()
    assert list(project.gcloud.state["jobs"]) == ["shop"]
    assert not any("shop-sweep" in word for call in project.gcloud.calls for word in call["argv"])


def test_somebody_elses_job_of_that_name_is_left_alone(new: Make) -> None:
    project = new(ON_OVERLAP="queue")
    project.deploy()
    state = project.gcloud.state
    state["jobs"]["shop-sweep"]["description"] = "mine"
    project.gcloud.state = state
    done = project.run()
    assert done.returncode != 0 and "shop-sweep is there already" in done.stdout + done.stderr
    assert project.gcloud.state["jobs"]["shop-sweep"]["description"] == "mine"
