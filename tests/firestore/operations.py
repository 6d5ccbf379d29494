"""Random operations on Firestore, the same for every server that they are sent to.

An `Operation` is a method and a function that builds its request for one `Side`: what differs between servers, update
times and transaction ids, is named symbolically ("the last but one update time of document a") and filled in there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.emulators.firestore import values
from tools.emulators.firestore.filters import RANGES
from tools.emulators.firestore.messages import (
    Direction,
    Document,
    FieldOperator,
    Message,
    StructuredQuery,
    UnaryOperator,
    Value,
    Write,
    of_method,
)

DATABASE = "projects/fuzz/databases/(default)"
DOCUMENTS = f"{DATABASE}/documents"
FIELDS = ("f", "g", "m.x", "l", "`q.r`")
IDS = "abcdefgh"
OPERATORS = [each for each in vars(FieldOperator)["_member_map_"].values() if each]
SPECIAL = (values.NULL, values.NAN)
"""Compared with by unary filters only: so the clients send it."""
UNARY = [each for each in vars(UnaryOperator)["_member_map_"].values() if each]


@dataclass
class Side:
    """What one server has answered so far."""

    times: dict[str, list[Message]] = field(default_factory=dict)
    """Update times by document, in their order."""
    transactions: dict[int, bytes] = field(default_factory=dict)
    """Ids of transactions by the number that the operations give them."""

    def time(self, name: str, back: int) -> Message | None:
        known = self.times.get(name, [])
        return known[-1 - back] if back < len(known) else None


@dataclass(frozen=True)
class Operation:
    """`begins`, `ends`: the number of the transaction that it opens or commits. `touches`: the documents it writes."""

    method: str
    build: Callable[[Side], Message]
    begins: int | None = None
    touches: tuple[str, ...] = ()
    ends: int | None = None


@dataclass
class OpenTransaction:
    read_only: bool
    read: set[str] = field(default_factory=set)
    """Documents it has read, or "*" after a query: what Google's emulator locks."""


class Values:
    """Random values and documents, mostly from a small set so that they meet."""

    def __init__(self, rng: random.Random, root: str) -> None:
        self._rng = rng
        self._root = root

    def scalar(self) -> Message:
        rng = self._rng
        match rng.randrange(12):
            case 0:
                return Value(null_value=0)
            case 1:
                return Value(boolean_value=rng.random() < 0.5)
            case 2 | 3 | 4:
                return Value(integer_value=rng.choice((-2, -1, 0, 1, 2, 3, 2**53 + 1, 2**63 - 1, -(2**63))))
            case 5 | 6:
                return Value(
                    double_value=rng.choice((-1.5, -0.0, 0.5, 1.0, 2.0, 2.0**53, math.nan, math.inf, -math.inf))
                )
            case 7:
                return Value(string_value=rng.choice(("", "a", "b", "é", "\U0001f600", "￮", "aa")))
            case 8:
                return Value(bytes_value=rng.choice((b"", b"\x00", b"a")))
            case 9:
                value = Value()
                value.timestamp_value.seconds = 1_700_000_000 + rng.randrange(2)
                value.timestamp_value.nanos = rng.choice((0, 1_000, 999_999_999))
                return value
            case 10:
                value = Value()
                value.geo_point_value.latitude, value.geo_point_value.longitude = rng.randrange(2), rng.randrange(2)
                return value
            case _:
                return Value(reference_value=f"{DOCUMENTS}/{self._root}/{rng.choice('pq')}")

    def any(self, depth: int = 0) -> Message:
        kind = self._rng.randrange(10) if depth < 2 else 0
        if kind == 8:
            return self.array([self.any(depth=2) for _ in range(self._rng.randrange(4))])
        if kind == 9:
            value = Value()
            value.map_value.SetInParent()
            for name in self._rng.sample("xyz", self._rng.randrange(3)):
                value.map_value.fields[name].CopyFrom(self.any(depth + 1))
            return value
        return self.scalar()

    @staticmethod
    def array(elements: Sequence[Message]) -> Message:
        value = Value()
        value.array_value.SetInParent()
        value.array_value.values.extend(elements)
        return value

    def document(self, name: str) -> Message:
        document = Document(name=name)
        for key in self._rng.sample(("f", "g", "m", "l", "q.r"), self._rng.randint(0, 4)):
            if key == "m":
                document.fields["m"].map_value.fields["x"].CopyFrom(self.any(1))
                document.fields["m"].map_value.fields["y"].integer_value = 1
            elif key == "l":
                document.fields["l"].CopyFrom(self.array([self.scalar() for _ in range(self._rng.randrange(4))]))
            elif key == "g":
                document.fields["g"].integer_value = self._rng.randrange(4)
            else:
                document.fields[key].CopyFrom(self.any())
        if self._rng.random() < 0.02:
            self._spoil(document)
        return document

    def _spoil(self, document: Message) -> None:
        """Something that has to be refused."""
        if self._rng.random() < 0.5:
            document.fields["f"].CopyFrom(self.array([self.array([Value(null_value=0)])]))
        else:
            document.fields["__x__"].integer_value = 1


class Generator:
    """Operations in a random order that depends on the seed alone.

    Some may wait for each other in Google's emulator for seconds: a write to what another open transaction has read.
    They are left out but for `conflicts` in a thousand.
    """

    def __init__(self, seed: int, root: str, conflicts: float = 0.0) -> None:
        self._rng = random.Random(seed)
        self._root = root
        self._values = Values(self._rng, root)
        self._conflicts = conflicts / 1000
        self._open: dict[int, OpenTransaction] = {}
        self._count = 0
        self._unsettled: int | None = None

    def settle(self, operation: Operation, code: str) -> None:
        """A commit that was refused for its form leaves its transaction open, with all its locks: roll it back next."""
        if operation.ends is not None and code == "INVALID_ARGUMENT":
            self._unsettled = operation.ends

    def next(self) -> Operation:
        if self._unsettled is not None:
            number, self._unsettled = self._unsettled, None
            return self._rollback(number)
        while True:
            kinds = (
                (self.commit, 24),
                (self.query, 22),
                (self.aggregation, 5),
                (self.batch_get, 8),
                (self.get, 3),
                (self.create, 3),
                (self.update, 4),
                (self.delete, 3),
                (self.batch_write, 4),
                (self.list_documents, 3),
                (self.list_collections, 1),
                (self.begin, 5),
                (self.commit_transaction, 8),
                (self.rollback, 2),
            )
            make = self._rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
            operation = make()
            if operation is not None:
                return operation

    # -- names, preconditions, masks

    def _path(self) -> str:
        path = f"{self._root}/{self._rng.choice(IDS)}"
        if self._rng.random() < 0.2:
            path += f"/{self._root}_{self._rng.choice(('s', 't'))}/{self._rng.choice('ab')}"
        return path

    def _name(self) -> str:
        return f"{DOCUMENTS}/{self._path()}"

    def _precondition(self, name: str) -> Callable[[Message, Side], None]:
        """Fills in `current_document` of a write or of a request."""
        kind, back = self._rng.random(), self._rng.choice((0, 0, 0, 1, 2))

        def fill(target: Message, side: Side) -> None:
            time = side.time(name, back)
            if kind < 0.12:
                target.current_document.exists = kind < 0.06
            elif kind < 0.3 and time is not None:
                target.current_document.update_time.CopyFrom(time)

        return fill

    def _mask(self) -> list[str] | None:
        if self._rng.random() < 0.5:
            return None
        paths = self._rng.sample(("f", "g", "m.x", "m", "l", "`q.r`", "n.e.w"), self._rng.randint(0, 3))
        return [path for path in paths if not (path == "m.x" and "m" in paths)]

    def _write(self, name: str) -> Callable[[Side], Message]:
        write = Write()
        kind = self._rng.random()
        if kind < 0.15:
            write.delete = name
        elif kind < 0.22:
            write.transform.document = name
            write.transform.field_transforms.extend(self._transforms())
        else:
            write.update.CopyFrom(self._values.document(name))
            mask = self._mask()
            if mask is not None:
                write.update_mask.SetInParent()
                write.update_mask.field_paths.extend(mask)
            if self._rng.random() < 0.25:
                write.update_transforms.extend(self._transforms())
        fill = self._precondition(name)

        def build(side: Side) -> Message:
            copy = Write()
            copy.CopyFrom(write)
            fill(copy, side)
            return copy

        return build

    def _transforms(self) -> list[Message]:
        transforms = []
        for path in self._rng.sample(("g", "n", "m.x", "l"), self._rng.randint(1, 2)):
            transform = Write().update_transforms.add()
            transform.field_path = path
            match self._rng.randrange(6):
                case 0:
                    transform.set_to_server_value = transform.REQUEST_TIME
                case 1:
                    transform.increment.CopyFrom(self._values.scalar())
                case 2:
                    transform.maximum.CopyFrom(self._values.scalar())
                case 3:
                    transform.minimum.CopyFrom(self._values.scalar())
                case 4:
                    transform.append_missing_elements.values.extend(self._elements())
                case _:
                    transform.remove_all_from_array.values.extend(self._elements())
            transforms.append(transform)
        return transforms

    def _elements(self) -> list[Message]:
        """No arrays: Google's emulator would put one into the other, which the documentation excludes."""
        return [self._values.scalar() for _ in range(self._rng.randint(1, 3))]

    # -- transactions

    def _locked_for(self, writer: int | None, names: Sequence[str]) -> bool:
        """A lock of another open transaction is in the way, and this is not one of the conflicts wanted.

        Only locks of documents make wanted conflicts: a query locks collections below its own in Google's emulator.
        """
        others = [other.read for number, other in self._open.items() if number != writer and not other.read_only]
        if any("*" in read for read in others):
            return True
        return any(read & set(names) for read in others) and self._rng.random() >= self._conflicts

    def _reader(self, read: Sequence[str]) -> Callable[[Message, Side], None]:
        """Fills in the consistency selector of a request that reads these documents."""
        kind, back = self._rng.random(), self._rng.choice((0, 1, 2))
        number = self._rng.choice(list(self._open)) if self._open else None
        if kind < 0.35 and number is not None:
            if not self._open[number].read_only:
                self._open[number].read.update(read)
            return lambda request, side: setattr(request, "transaction", side.transactions[number])
        name = f"{DOCUMENTS}/{self._root}/{self._rng.choice(IDS)}"

        def fill(request: Message, side: Side) -> None:
            time = side.time(name, back)
            if kind > 0.9 and time is not None:
                request.read_time.CopyFrom(time)

        return fill

    def begin(self) -> Operation | None:
        if len(self._open) >= 3:
            return None
        self._count += 1
        read_only = self._rng.random() < 0.4
        self._open[self._count] = OpenTransaction(read_only)
        request = of_method("BeginTransaction", "Request")(database=DATABASE)
        if read_only:
            request.options.read_only.SetInParent()
        else:
            request.options.read_write.SetInParent()
        return Operation("BeginTransaction", lambda side: request, begins=self._count)

    def commit_transaction(self) -> Operation | None:
        if not self._open:
            return None
        number = self._rng.choice(list(self._open))
        names = [self._name() for _ in range(self._rng.randint(0, 3))]
        if not self._open[number].read_only and self._locked_for(number, names):
            return None
        writes = [self._write(name) for name in names]
        del self._open[number]

        def build(side: Side) -> Message:
            return of_method("Commit", "Request")(
                database=DATABASE,
                transaction=side.transactions[number],
                writes=[write(side) for write in writes],
            )

        return Operation("Commit", build, touches=tuple(names), ends=number)

    def rollback(self) -> Operation | None:
        if not self._count:
            return None
        number = self._rng.choice([*self._open, self._rng.randint(1, self._count)])
        self._open.pop(number, None)
        return self._rollback(number)

    @staticmethod
    def _rollback(number: int) -> Operation:
        return Operation(
            "Rollback",
            lambda side: of_method("Rollback", "Request")(database=DATABASE, transaction=side.transactions[number]),
        )

    # -- writing

    def commit(self) -> Operation | None:
        names = [self._name() for _ in range(self._rng.choice((1, 1, 1, 2, 3, 4)))]
        if self._locked_for(None, names):
            return None
        writes = [self._write(name) for name in names]

        def build(side: Side) -> Message:
            return of_method("Commit", "Request")(database=DATABASE, writes=[write(side) for write in writes])

        return Operation("Commit", build, touches=tuple(names))

    def batch_write(self) -> Operation | None:
        names = [self._name() for _ in range(self._rng.randint(1, 3))]
        if self._locked_for(None, names):
            return None
        writes = [self._write(name) for name in names]

        def build(side: Side) -> Message:
            return of_method("BatchWrite", "Request")(database=DATABASE, writes=[write(side) for write in writes])

        return Operation("BatchWrite", build, touches=tuple(names))

    def create(self) -> Operation | None:
        name = f"{DOCUMENTS}/{self._root}/{self._rng.choice(IDS)}"
        if self._locked_for(None, [name]):
            return None
        parent, collection, identifier = name.rsplit("/", 2)
        request = of_method("CreateDocument", "Request")(
            parent=parent, collection_id=collection, document_id=identifier, document=self._values.document("")
        )
        return Operation("CreateDocument", lambda side: request, touches=(name,))

    def update(self) -> Operation | None:
        name = self._name()
        if self._locked_for(None, [name]):
            return None
        document, mask, fill = self._values.document(name), self._mask(), self._precondition(name)

        def build(side: Side) -> Message:
            request = of_method("UpdateDocument", "Request")(document=document)
            if mask is not None:
                request.update_mask.SetInParent()
                request.update_mask.field_paths.extend(mask)
            fill(request, side)
            return request

        return Operation("UpdateDocument", build, touches=(name,))

    def delete(self) -> Operation | None:
        name = self._name()
        if self._locked_for(None, [name]):
            return None
        fill = self._precondition(name)

        def build(side: Side) -> Message:
            request = of_method("DeleteDocument", "Request")(name=name)
            fill(request, side)
            return request

        return Operation("DeleteDocument", build, touches=(name,))

    # -- reading

    def get(self) -> Operation:
        name = self._name()
        return self._reading("GetDocument", of_method("GetDocument", "Request")(name=name), [name], mask=True)

    def batch_get(self) -> Operation:
        names = [self._name() for _ in range(self._rng.randint(1, 3))]
        request = of_method("BatchGetDocuments", "Request")(database=DATABASE, documents=names)
        return self._reading("BatchGetDocuments", request, names, mask=True)

    def list_documents(self) -> Operation:
        request = of_method("ListDocuments", "Request")(
            parent=DOCUMENTS,
            collection_id=self._root,
            page_size=self._rng.choice((0, 2, 20)),
            show_missing=self._rng.random() < 0.5,
        )
        return Operation("ListDocuments", lambda side: request)

    def list_collections(self) -> Operation:
        name = f"{DOCUMENTS}/{self._root}/{self._rng.choice(IDS)}"
        request = of_method("ListCollectionIds", "Request")(parent=name)
        return Operation("ListCollectionIds", lambda side: request)

    def query(self) -> Operation:
        parent, query = self._structured()
        request = of_method("RunQuery", "Request")(parent=parent, structured_query=query)
        if self._rng.random() < 0.2:
            request.structured_query.select.fields.add().field_path = self._rng.choice((*FIELDS, "__name__"))
        return self._reading("RunQuery", request, ["*"])

    def aggregation(self) -> Operation:
        parent, query = self._structured(by_name=False)
        request = of_method("RunAggregationQuery", "Request")(parent=parent)
        asked = request.structured_aggregation_query
        asked.structured_query.CopyFrom(query)
        for alias in self._rng.sample(("c", "s", "a"), self._rng.randint(1, 3)):
            part = asked.aggregations.add()
            part.alias = alias
            if alias == "c":
                part.count.SetInParent()
                if self._rng.random() < 0.3:
                    part.count.up_to.value = 2
            else:
                getattr(part, "sum" if alias == "s" else "avg").field.field_path = self._rng.choice(FIELDS[:3])
        return self._reading("RunAggregationQuery", request, ["*"])

    def _reading(self, method: str, request: Message, read: Sequence[str], mask: bool = False) -> Operation:
        paths = self._mask() if mask else None
        if paths is not None:
            request.mask.SetInParent()
            request.mask.field_paths.extend(paths)
        fill = self._reader(read)

        def build(side: Side) -> Message:
            copy: Any = type(request)()
            copy.CopyFrom(request)
            fill(copy, side)
            return copy

        return Operation(method, build)

    def _structured(self, by_name: bool = True) -> tuple[str, Message]:
        """A query below a parent."""
        rng, query, parent = self._rng, StructuredQuery(), DOCUMENTS
        selector = query.from_.add()
        selector.collection_id = self._root
        if rng.random() < 0.2:
            selector.collection_id, selector.all_descendants = f"{self._root}_s", True
        elif rng.random() < 0.1:
            parent, selector.collection_id = f"{DOCUMENTS}/{self._root}/{rng.choice(IDS)}", f"{self._root}_s"
        drawn = [self._filter() for _ in range(rng.choice((0, 0, 1, 1, 2, 2, 3)))]
        # Equal ones count once in Google's emulator, also where only one of a kind is allowed.
        filters = [each for index, each in enumerate(drawn) if each not in drawn[:index]]
        if by_name and rng.random() < 0.06:
            filters = [self._name_filter()]
        if len(filters) == 1:
            query.where.CopyFrom(filters[0])
        elif filters:
            query.where.composite_filter.op = rng.choice((1, 1, 2))
            query.where.composite_filter.filters.extend(filters)
        fields = rng.sample(FIELDS, rng.choice((0, 0, 1, 2)))
        for path in fields:
            order = query.order_by.add()
            order.field.field_path = path
            order.direction = rng.choice((Direction.ASCENDING, Direction.DESCENDING))
        for cursor in (query.start_at, query.end_at):
            if fields and rng.random() < 0.25:
                cursor.before = rng.random() < 0.5
                cursor.values.extend(self._values.any(1) for _ in fields)
        if rng.random() < 0.4:
            query.limit.value = rng.choice((1, 3))
        query.offset = rng.choice((0, 0, 0, 1))
        return parent, query

    def _name_filter(self) -> Message:
        rng, found = self._rng, StructuredQuery.Filter()
        simple = found.field_filter
        simple.field.field_path = "__name__"
        names = [Value(reference_value=f"{DOCUMENTS}/{self._root}/{rng.choice(IDS)}") for _ in range(2)]
        if rng.random() < 0.3:
            simple.op = rng.choice((FieldOperator.IN, FieldOperator.NOT_IN))
            simple.value.CopyFrom(self._values.array(names))
        else:
            simple.op = rng.choice((*RANGES, FieldOperator.EQUAL, FieldOperator.NOT_EQUAL))
            simple.value.CopyFrom(names[0])
        return found

    def _filter(self) -> Message:
        rng, found = self._rng, StructuredQuery.Filter()
        if rng.random() < 0.12:
            found.unary_filter.field.field_path = rng.choice(FIELDS)
            found.unary_filter.op = rng.choice(UNARY)
            return found
        simple = found.field_filter
        simple.field.field_path = rng.choice(FIELDS)
        simple.op = rng.choice(OPERATORS)
        lists = (FieldOperator.IN, FieldOperator.NOT_IN, FieldOperator.ARRAY_CONTAINS_ANY)
        if simple.op in lists:
            simple.value.CopyFrom(self._values.array([self._values.any(2) for _ in range(rng.randint(1, 3))]))
        else:
            simple.value.CopyFrom(self._values.any(1))
            is_member = simple.op == FieldOperator.ARRAY_CONTAINS
            if not is_member and values.key(simple.value) in SPECIAL:
                simple.value.integer_value = 0
        return found
