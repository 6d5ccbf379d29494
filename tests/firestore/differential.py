"""The same random operations on the embedded server and on Google's emulator: equal results, equal status codes.

    python -m tests.firestore.differential EMBEDDED OFFICIAL --seed 1 --operations 20000

Times are compared by what they say (the same as which other one), not by their digits. `EXCUSES` lists where the
official emulator differs from the documentation of Firestore, or where the documentation leaves it open.
"""

from __future__ import annotations

import argparse
import math
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.text_format import MessageToString

from tests.firestore.operations import Generator, Operation, Side
from tools.emulators.firestore.messages import Document, Message, of_method
from tools.emulators.firestore.service import STREAMING, UNARY

ROUND = 400
"""Operations on one collection, before a new one is begun."""

OF_A_DOCUMENT = ("CreateDocument", "UpdateDocument", "GetDocument")
"""Methods that answer with a document."""

ADMIN = (("authorization", "Bearer owner"),)
"""Google's emulator takes who says so for an administrator, as the client libraries do."""

NOW_SECONDS = 1_750_000_000
"""Later timestamps in a document are the server's own."""


@dataclass(frozen=True)
class Outcome:
    """A status code's name, and what was answered, free of what may differ."""

    code: str
    answer: Any = None
    message: str = field(default="", compare=False)


class Server:
    """One of the two, with what it has answered so far."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self.side = Side()
        self._symbols: dict[tuple[int, int], int] = {}

    def forget(self) -> None:
        self.side = Side()
        self._symbols = {}

    def close(self) -> None:
        self._channel.close()

    def run(self, operation: Operation) -> Outcome:
        path = f"/google.firestore.v1.Firestore/{operation.method}"
        request = operation.build(self.side)
        try:
            if operation.method in STREAMING:
                data = list(self._channel.unary_stream(path)(request.SerializeToString(), timeout=60, metadata=ADMIN))
            else:
                assert operation.method in UNARY
                data = [self._channel.unary_unary(path)(request.SerializeToString(), timeout=60, metadata=ADMIN)]
        except grpc.RpcError as error:
            failed: Any = error
            if operation.begins is not None:
                self.side.transactions[operation.begins] = b"none"
            return Outcome(failed.code().name, message=failed.details())
        if operation.method in ("Rollback", "DeleteDocument"):
            return Outcome("OK")
        answer = Document if operation.method in OF_A_DOCUMENT else of_method(operation.method, "Response")
        answers = [answer.FromString(each) for each in data]
        return Outcome("OK", self._read(operation, answers))

    def _read(self, operation: Operation, answers: list[Message]) -> Any:
        match operation.method:
            case "BeginTransaction":
                assert operation.begins is not None
                self.side.transactions[operation.begins] = answers[0].transaction
                return None
            case "Commit" | "BatchWrite":
                (answer,) = answers
                statuses = [each.code for each in getattr(answer, "status", ())]
                results = []
                for name, result in zip(operation.touches, answer.write_results, strict=True):
                    if result.HasField("update_time"):
                        self._note(name, result.update_time)
                    results.append((self._time(result, "update_time"), [_value(v) for v in result.transform_results]))
                return statuses, results
            case "CreateDocument" | "UpdateDocument" | "GetDocument":
                if operation.touches:
                    self._note(operation.touches[0], answers[0].update_time)
                return self._document(answers[0])
            case "BatchGetDocuments":
                found = [self._document(each.found) if each.HasField("found") else each.missing for each in answers]
                return sorted(found, key=repr)
            case "RunQuery":
                return [self._document(each.document) for each in answers if each.HasField("document")]
            case "RunAggregationQuery":
                return {alias: _value(v) for alias, v in answers[0].result.aggregate_fields.items()}
            case "ListDocuments":
                return [self._document(each) for each in answers[0].documents]
            case _:
                return list(answers[0].collection_ids)

    def _note(self, name: str, time: Message) -> None:
        known = self.side.times.setdefault(name, [])
        if not known or known[-1] != time:
            known.append(time)

    def _document(self, document: Message) -> Any:
        fields = {name: _value(value) for name, value in sorted(document.fields.items())}
        if not document.HasField("create_time"):
            return document.name, fields  # one that does not exist: Google's emulator may give it an update time
        return document.name, fields, self._time(document, "create_time"), self._time(document, "update_time")

    def _time(self, message: Message, name: str) -> int | None:
        """The same number for the same time, in the order in which they are first seen."""
        if not message.HasField(name):
            return None
        time = getattr(message, name)
        return self._symbols.setdefault((time.seconds, time.nanos), len(self._symbols))


def _value(value: Message) -> Any:
    kind = value.WhichOneof("value_type")
    match kind:
        case "double_value":
            number = value.double_value
            return ("double", "nan" if math.isnan(number) else repr(number))
        case "timestamp_value":
            time = value.timestamp_value
            return ("timestamp", "now" if time.seconds > NOW_SECONDS else (time.seconds, time.nanos))
        case "geo_point_value":
            return ("geo", value.geo_point_value.latitude, value.geo_point_value.longitude)
        case "map_value":
            return ("map", {name: _value(member) for name, member in sorted(value.map_value.fields.items())})
        case "array_value":
            return ("array", [_value(element) for element in value.array_value.values])
        case None:
            return None
        case _:
            return (kind, getattr(value, kind))


@dataclass(frozen=True)
class Difference:
    operation: Operation
    request: str
    embedded: Outcome
    official: Outcome

    def __str__(self) -> str:
        return (
            f"{self.operation.method}\n  request: {self.request[:2000]}\n"
            f"  embedded: {str(self.embedded)[:1500]} {self.embedded.message[:200]}\n"
            f"  official: {str(self.official)[:1500]} {self.official.message[:200]}"
        )


Excuse = Callable[[Difference], bool]


def _rounding(difference: Difference) -> bool:
    """Equal but for doubles in the place of doubles."""
    ours, theirs = difference.embedded.answer, difference.official.answer
    if difference.operation.method != "RunAggregationQuery" or not ours or not theirs or ours.keys() != theirs.keys():
        return False
    return all(mine == theirs[alias] or mine[0] == theirs[alias][0] == "double" for alias, mine in ours.items())


EXCUSES: dict[str, Excuse] = {
    "doubles are added in another order: the documentation leaves it open, and rounding depends on it": _rounding,
}
"""Reason -> whether a difference is this one. Each names the official emulator's departure from the documentation."""


@dataclass
class Report:
    operations: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)


def compare(embedded: str, official: str, seed: int, operations: int, conflicts: float = 0.0) -> Report:
    """Run `operations` on both servers, in rounds on collections of their own."""
    ours, theirs, report = Server(embedded), Server(official), Report()
    try:
        for start in range(0, operations, ROUND):
            _round(ours, theirs, seed * 1_000_003 + start, min(ROUND, operations - start), conflicts, report)
    finally:
        ours.close()
        theirs.close()
    return report


def _round(ours: Server, theirs: Server, seed: int, operations: int, conflicts: float, report: Report) -> None:
    """Ends with what both have stored. Stops after an unexcused difference, which would only breed others."""
    generator = Generator(seed, f"z{uuid.uuid4().hex[:10]}", conflicts)
    ours.forget()
    theirs.forget()
    for _ in range(operations):
        operation = generator.next()
        request = MessageToString(operation.build(ours.side), as_one_line=True)
        mine, other = ours.run(operation), theirs.run(operation)
        generator.settle(operation, mine.code)
        report.operations[operation.method] += 1
        report.codes[mine.code] += 1
        if mine == other:
            continue
        difference = Difference(operation, request, mine, other)
        reason = next((reason for reason, applies in EXCUSES.items() if applies(difference)), None)
        if reason is None:
            report.differences.append(difference)
            return
        report.excused[reason] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("embedded")
    parser.add_argument("official")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--conflicts", type=float, default=0.0, help="in a thousand; each costs two seconds")
    arguments = parser.parse_args()
    report = compare(arguments.embedded, arguments.official, arguments.seed, arguments.operations, arguments.conflicts)
    print(f"{report.operations.total()} operations: {dict(report.operations)}")
    print(f"codes: {dict(report.codes)}")
    for reason, count in report.excused.items():
        print(f"excused {count}: {reason}")
    print(f"{len(report.differences)} differences")
    for difference in report.differences[:10]:
        print(difference)
    raise SystemExit(bool(report.differences))


if __name__ == "__main__":
    main()
