"""Structured queries and aggregations: checked once, then run over the documents of their collection."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tools.emulators.firestore import filters, limits, names, transforms, values
from tools.emulators.firestore.errors import InvalidArgument, Unimplemented
from tools.emulators.firestore.filters import NAME
from tools.emulators.firestore.messages import Direction, Message, Value
from tools.emulators.firestore.storage import Found, Storage
from tools.emulators.firestore.values import Key


class Query:
    """A StructuredQuery below `parent` (a document's path, or empty).

    `required`: fields that a document needs to be among the results at all, before offset and limit.

    Raises InvalidArgument for a query that Firestore refuses, Unimplemented for what this emulator does not know.
    """

    def __init__(self, database: str, parent: str, query: Message, required: Sequence[str] = ()) -> None:
        _check_known(query)
        selector = query.from_[0]
        self._database = database
        self._parent = names.check_parent(parent)
        self._collection: str = selector.collection_id
        self._descendants: bool = selector.all_descendants
        if self._collection:
            names.check_id(self._collection)
        self._required = required
        self._filter = None
        if query.HasField("where"):
            filters.check(query.where)
            self._filter = filters.predicate(query.where)
        self._orders = _orders(query, required)
        self._start = _cursor(query, "start_at", self._orders)
        self._end = _cursor(query, "end_at", self._orders)
        self._offset: int = query.offset
        self._limit: int | None = query.limit.value if query.HasField("limit") else None
        self.fields: list[str] | None = None
        if query.HasField("select"):
            self.fields = [field.field_path for field in query.select.fields]

    @property
    def scope(self) -> str:
        """What `Storage.changed` has to be asked for: commits outside of it do not change the result."""
        return f"*{self._collection}" if self._descendants else names.join(self._parent, self._collection)

    def run(self, storage: Storage, at: int | None) -> list[Found]:
        """The results in their order, as of a read time (None: now)."""
        found = self._candidates(storage, at)
        if self._filter is not None:
            matches = self._filter
            found = (each for each in found if matches(each.document))
        if self._required:
            found = (each for each in found if self._has_required(each.document))
        results = list(found) if self._is_stored_order() else self._sorted(found)
        results = results[self._offset :]
        return results if self._limit is None else results[: self._limit]

    def _has_required(self, document: Message) -> bool:
        return all(filters.field_of(document, path) is not None for path in self._required)

    def _candidates(self, storage: Storage, at: int | None) -> Iterable[Found]:
        if not self._descendants:
            return storage.collection(self._database, names.join(self._parent, self._collection), at)
        return storage.below(self._database, self._parent, self._collection, at)

    def _is_stored_order(self) -> bool:
        """One collection by name, with no cursor."""
        return self._orders == [(NAME, False)] and not (self._descendants or self._start or self._end)

    def _sorted(self, found: Iterable[Found]) -> list[Found]:
        rows: list[tuple[list[Key], Found]] = []
        for each in found:
            fields = [filters.field_of(each.document, path) for path, _ in self._orders]
            if all(field is not None for field in fields):
                rows.append(([values.key(field) for field in fields], each))
        for index, (_, descending) in reversed(list(enumerate(self._orders))):
            rows.sort(key=lambda row: row[0][index], reverse=descending)
        if self._start is not None:
            keys, before = self._start
            rows = [row for row in rows if self._side(row[0], keys) >= (0 if before else 1)]
        if self._end is not None:
            keys, before = self._end
            rows = [row for row in rows if self._side(row[0], keys) < (0 if before else 1)]
        return [each for _, each in rows]

    def _side(self, row: Sequence[Key], cursor: Sequence[Key]) -> int:
        """-1, 0 or 1: before the cursor, at it, or after it."""
        for mine, other, (_, descending) in zip(row, cursor, self._orders, strict=False):
            if mine != other:
                return -1 if (mine < other) != descending else 1
        return 0


def _check_known(query: Message) -> None:
    if query.HasField("find_nearest"):
        raise Unimplemented("find_nearest is not implemented by this emulator")
    if len(query.from_) != 1:
        raise InvalidArgument("A query needs exactly one collection selector.")
    selector = query.from_[0]
    if not selector.collection_id and not selector.all_descendants:
        raise InvalidArgument("A query without a collection id has to be for all descendants.")
    if query.offset < 0 or (query.HasField("limit") and query.limit.value < 0):
        raise InvalidArgument("limit and offset cannot be negative.")


def _orders(query: Message, required: Sequence[str]) -> list[tuple[str, bool]]:
    """Field and "descending", the implied ones included: fields with inequalities, aggregated fields, then the name."""
    orders = []
    for order in query.order_by:
        if order.field.field_path != NAME:
            values.field_path(order.field.field_path)
        orders.append((order.field.field_path, order.direction == Direction.DESCENDING))
    if len(orders) > limits.FILTERS:
        raise InvalidArgument(f"The query has more than {limits.FILTERS} orders.")
    last = orders[-1][1] if orders else False
    given = {field for field, _ in orders}
    implied = filters.inequality_fields(query.where) if query.HasField("where") else set()
    for fields in (implied - {NAME}, set(required)):
        orders += [(field, last) for field in sorted(fields - given, key=values.field_path)]
        given |= fields
    if NAME not in given:
        orders.append((NAME, last))
    return orders


def _cursor(query: Message, name: str, orders: list[tuple[str, bool]]) -> tuple[list[Key], bool] | None:
    if not query.HasField(name):
        return None
    cursor = getattr(query, name)
    if len(cursor.values) > len(orders):
        raise InvalidArgument("The cursor has too many values.")
    return [values.key(value) for value in cursor.values], cursor.before


class Aggregation:
    """Counts, sums and averages over the results of a query, by alias. Raises as Query does.

    `required`: the fields that are summed or averaged; documents without one of them count for no aggregation.
    """

    def __init__(self, aggregations: Sequence[Message]) -> None:
        if not 1 <= len(aggregations) <= limits.AGGREGATIONS:
            raise InvalidArgument(f"1 to {limits.AGGREGATIONS} aggregations are allowed.")
        self._parts: dict[str, Message] = {}
        for index, part in enumerate(aggregations, 1):
            alias = part.alias or f"field_{index}"
            if alias in self._parts:
                raise InvalidArgument(f"The alias {alias} is used twice.")
            if part.WhichOneof("operator") not in ("count", "sum", "avg"):
                raise Unimplemented(f"the aggregation {part.WhichOneof('operator')} is not implemented")
            self._parts[alias] = part
        self.required = sorted({path for part in self._parts.values() if (path := _summed(part)) is not None})

    def of(self, results: Sequence[Found]) -> dict[str, Message]:
        """`results` of a query with `required`."""
        return {alias: self._one(part, results) for alias, part in self._parts.items()}

    @staticmethod
    def _one(part: Message, results: Sequence[Found]) -> Message:
        operator, path = part.WhichOneof("operator"), _summed(part)
        if path is None:
            up_to = part.count.up_to.value if part.count.HasField("up_to") else len(results)
            return Value(integer_value=min(len(results), up_to))
        found = (values.number(filters.field_of(each.document, path)) for each in results)
        numbers = [number for number in found if number is not None]
        if operator == "sum":
            return _sum(numbers)
        return Value(double_value=_total(numbers) / len(numbers)) if numbers else Value(null_value=0)


def _summed(part: Message) -> str | None:
    """The path of the field that an aggregation is about; a count is about none."""
    operator = part.WhichOneof("operator")
    return None if operator == "count" else str(getattr(part, operator).field.field_path)


def _sum(numbers: list[int | float]) -> Message:
    """An integer as long as all are integers and the sum has 64 bits, else a double."""
    total = _total(numbers)
    is_integer = isinstance(total, int) and transforms.INT64_MIN <= total <= transforms.INT64_MAX
    return values.of_number(total if is_integer else float(total))


def _total(numbers: list[int | float]) -> int | float:
    if all(isinstance(number, int) for number in numbers):
        return sum(numbers)
    try:
        return math.fsum(numbers)
    except (OverflowError, ValueError):  # infinities of both signs, or a partial sum beyond the doubles
        return sum(float(number) for number in numbers)
