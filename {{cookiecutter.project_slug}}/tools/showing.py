"""Events as lines that a person reads: when, who, what, and of what; colour only on a terminal."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

STYLES = {
    "DEBUG": "dim",
    "NOTICE": "green",
    "WARNING": "yellow",
    "ERROR": "bold red",
    "CRITICAL": "bold red",
}

HIDDEN = frozenset(["front.request", "workflow.call", "workflow.returned", "step.running"])
"""Events that say nothing that the ones around them do not."""

DETAILS = ("slot", "step", "item", "key", "state", "status", "attempt", "seconds", "reason", "error")


def console(stderr: bool = False) -> Console:
    """A terminal's width there; 100 columns without colour where the output goes to a file."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=100, no_color=True)


class Lines:
    """Prints events; give it to `EventLog.listen`. A traceback comes as a block under the name of its step."""

    def __init__(self, out: Console, only_problems: bool = False) -> None:
        self._out = out
        self._only_problems = only_problems
        self._shown: set[tuple[str, str]] = set()

    def __call__(self, event: dict[str, Any]) -> None:
        name = str(event.get("event", ""))
        severity = str(event.get("severity", "INFO"))
        if name in HIDDEN or event.get("ready"):
            return
        if trace := event.get("traceback"):
            self._trace(event["service"], str(trace))
        if name == "process.broken" or event.get("stream") == "stderr":
            self._out.print(Text(f"{event['service']}: {event['message']}", style="red"), soft_wrap=True)
        elif not self._only_problems:
            self._out.print(self._line(event, name, severity), soft_wrap=True)

    def _trace(self, service: str, trace: str) -> None:
        """In full the first time; a step that is called again fails again in the same way."""
        if (service, trace) not in self._shown:
            self._shown.add((service, trace))
            self._out.print(Text(f"{service}: {trace.rstrip()}", style="red"), soft_wrap=True)

    def _line(self, event: dict[str, Any], name: str, severity: str) -> Text:
        line = Text()
        line.append(datetime.fromtimestamp(event["time"]).astimezone().strftime("%H:%M:%S "), style="dim")
        line.append(f"{event['service']:<16.16} ", style="cyan")
        if name == "output":
            line.append(str(event["message"]))
            return line
        line.append(f"{name or 'log':<20} ", style=STYLES.get(severity, ""))
        if run := event.get("run_id"):
            line.append(f"{run[:8]} ", style="magenta")
        line.append(_details(event), style="dim")
        return line


def _details(event: dict[str, Any]) -> str:
    shown = {**event, "key": str(event.get("key") or "")[:12]}
    parts = [f"{name}={shown[name]}" for name in DETAILS if shown.get(name) not in (None, "", event["service"])]
    known = "event" in event and (parts or "run_id" in event or str(event["event"]).startswith("process."))
    return " ".join(parts) if known else str(event.get("message", event.get("data", "")))
