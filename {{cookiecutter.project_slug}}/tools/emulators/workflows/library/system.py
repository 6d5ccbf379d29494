"""Modules sys, time, events and experimental.executions: what touches the world but for HTTP."""

from __future__ import annotations

from ..errors import WorkflowError, key_error, type_error, value_error
from ..operators import text_of
from ..parallel import side_by_side
from ..runtime import Frame, LogEntry
from ..values import Value, to_json, type_name
from . import times
from .registry import ABSENT, function, mapping, number, sequence, text

SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
CALLBACK_TIMEOUT = 43_200.0  # seconds, when await_callback gives none
CALLBACK_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
CHILD_TIMEOUT = 1800.0


@function("sys.get_env", "name", "default?")
def get_env(frame: Frame, name: Value, default: Value) -> Value:
    """An environment variable. Raises KeyError when there is neither it nor a default."""
    variable = text("name", name)
    if variable in frame.run.env:
        return frame.run.env[variable]
    if default is ABSENT:
        raise key_error(variable)
    return default


@function("sys.now")
def now(frame: Frame) -> Value:
    """Seconds since the epoch, as a double."""
    return float(frame.run.world.clock.now())


@function("sys.sleep", "seconds", blocking=True)
def sleep(frame: Frame, seconds: Value) -> Value:
    if number("seconds", seconds) < 0:
        raise value_error(f"sys.sleep: {seconds} seconds is negative")
    frame.run.sleep(seconds)
    return None


@function("sys.sleep_until", "time", blocking=True)
def sleep_until(frame: Frame, time: Value) -> Value:
    """Until an RFC 3339 time; one that has passed is no wait."""
    frame.run.sleep(max(0.0, times.parse(text("time", time)) - frame.run.world.clock.now()))
    return None


@function("sys.log", "data?", "severity?", "text?", "json?", "timeout?", blocking=True)
def log(frame: Frame, data: Value, severity: Value, plain: Value, json: Value, timeout: Value) -> Value:
    """One of data, text and json: `json` a map, `data` and `text` anything with a JSON form."""
    given = [value for value in (data, plain, json) if value is not ABSENT]
    if len(given) != 1:
        raise value_error("sys.log takes one of data, text and json")
    level = "DEFAULT" if severity is ABSENT else text("severity", severity)
    if level not in SEVERITIES:
        raise value_error(f"unknown severity {level!r}: one of {', '.join(SEVERITIES)}")
    if timeout is not ABSENT:
        number("timeout", timeout)
    if json is not ABSENT:
        mapping("json", json)
    value = given[0]
    to_json(value)
    message = None
    if json is ABSENT:
        message = text_of(value) if type(value) in (str, int, float, bool) else to_json(value)
    world = frame.run.world
    structured = value if json is not ABSENT else None
    world.log(LogEntry(level, message, structured, world.clock.now(), frame.step, frame.routine))
    return None


@function("time.format", "seconds", "timezone?")
def format_time(frame: Frame, seconds: Value, timezone: Value) -> Value:
    return times.format_time(number("seconds", seconds), "UTC" if timezone is ABSENT else text("timezone", timezone))


@function("time.parse", "value")
def parse_time(frame: Frame, value: Value) -> Value:
    return times.parse(text("value", value))


@function("events.create_callback_endpoint", "http_callback_method")
def create_callback_endpoint(frame: Frame, http_callback_method: Value) -> Value:
    method = text("http_callback_method", http_callback_method)
    if method not in CALLBACK_METHODS:
        raise value_error(f"a callback cannot take {method!r}: one of {', '.join(CALLBACK_METHODS)}")
    return {"url": frame.run.world.callbacks.create(method)}


@function("events.await_callback", "callback", "timeout?", blocking=True)
def await_callback(frame: Frame, callback: Value, timeout: Value) -> Value:
    """The request that came in. Raises TimeoutError after `timeout` seconds."""
    seconds = CALLBACK_TIMEOUT if timeout is ABSENT else float(number("timeout", timeout))
    url = mapping("callback", callback).get("url")
    if type(url) is not str:
        raise type_error(f"callback must have a url, as create_callback_endpoint gives it, not {type_name(url)}")
    if seconds < 0:
        raise value_error(f"events.await_callback: {timeout} seconds is negative")
    run = frame.run
    received = run.world.callbacks.wait(url, seconds, run.stop)
    run.require_going()
    if received is None:
        raise WorkflowError.of("TimeoutError", f"no callback was received within {seconds:g} seconds")
    return received


@function("experimental.executions.run", "workflow_id", "location?", "project_id?", "argument?", blocking=True)
def run_execution(frame: Frame, workflow_id: Value, location: Value, project_id: Value, argument: Value) -> Value:
    """The result of an execution of another workflow. Raises what says that it failed."""
    given = None if argument is ABSENT else argument
    return _child(frame, workflow_id, location, project_id, given, CHILD_TIMEOUT)


@function(
    "experimental.executions.map",
    *("workflow_id", "arguments", "timeout?", "location?", "project_id?"),
    blocking=True,
)
def map_executions(
    frame: Frame, workflow_id: Value, arguments: Value, timeout: Value, location: Value, project_id: Value
) -> Value:
    """The results of one execution an argument, in the order of the arguments. `timeout` is for all together."""
    clock = frame.run.world.clock
    seconds = CHILD_TIMEOUT if timeout is ABSENT else float(number("timeout", timeout))
    ends_at = clock.now() + seconds
    items = sequence("arguments", arguments)
    results: list[Value] = [None] * len(items)
    errors: list[WorkflowError] = []

    def run(index: int, inner: Frame) -> None:
        try:
            left = max(0.0, ends_at - clock.now())
            results[index] = _child(inner, workflow_id, location, project_id, items[index], left)
        except WorkflowError as error:
            errors.append(error)

    side_by_side(frame, len(items), frame.run.limits.concurrency, run)
    if errors:
        raise errors[0]
    return results


def _child(
    frame: Frame, workflow_id: Value, location: Value, project_id: Value, argument: Value, seconds: float
) -> Value:
    place = None if location is ABSENT else text("location", location)
    project = None if project_id is ABSENT else text("project_id", project_id)
    to_json(argument)
    run = frame.run
    result = run.world.children.run(text("workflow_id", workflow_id), place, project, argument, seconds, run.stop)
    run.require_going()
    return result
