"""Filters of a query: checked, then turned into functions on documents.

A field that a document lacks matches no filter, and values of another type match no comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tools.emulators.firestore import limits, values
from tools.emulators.firestore.errors import InvalidArgument, Unimplemented
from tools.emulators.firestore.messages import CompositeOperator, FieldOperator, Message, UnaryOperator, Value
from tools.emulators.firestore.values import NAN, NULL, Key

Predicate = Callable[[Message], bool]
"""Of a document."""

Test = Callable[[Key, Message], bool]
"""Of a field's key and value."""

NAME = "__name__"

LIST_OPERATORS = (FieldOperator.IN, FieldOperator.NOT_IN, FieldOperator.ARRAY_CONTAINS_ANY)
RANGES: dict[int, Callable[[Key, Key], bool]] = {
    FieldOperator.LESS_THAN: lambda a, b: a < b,
    FieldOperator.LESS_THAN_OR_EQUAL: lambda a, b: a <= b,
    FieldOperator.GREATER_THAN: lambda a, b: a > b,
    FieldOperator.GREATER_THAN_OR_EQUAL: lambda a, b: a >= b,
}
INEQUALITIES = {*RANGES, FieldOperator.NOT_EQUAL, FieldOperator.NOT_IN}
NEGATIONS = {
    ("field_filter", FieldOperator.NOT_EQUAL),
    ("field_filter", FieldOperator.NOT_IN),
    ("unary_filter", UnaryOperator.IS_NOT_NAN),
    ("unary_filter", UnaryOperator.IS_NOT_NULL),
}


def field_of(document: Message, path: str) -> Message | None:
    """The value of a field, or the document's reference for `__name__`; None if it has no such field."""
    if path == NAME:
        return Value(reference_value=document.name)
    return values.get(document.fields, values.field_path(path))


def predicate(filter_: Message) -> Predicate:
    """The filter as a function. Raises InvalidArgument, Unimplemented."""
    match filter_.WhichOneof("filter_type"):
        case "composite_filter":
            return _composite(filter_.composite_filter)
        case "unary_filter":
            return _on_field(filter_.unary_filter.field.field_path, _unary(filter_.unary_filter.op))
        case "field_filter":
            simple = filter_.field_filter
            return _on_field(simple.field.field_path, _comparison(simple.op, simple.value))
        case _:
            raise InvalidArgument("A filter has to be a field, a unary or a composite filter.")


def _composite(composite: Message) -> Predicate:
    parts = [predicate(part) for part in composite.filters]
    if not parts:
        raise InvalidArgument("A composite filter needs at least one filter.")
    match composite.op:
        case CompositeOperator.AND:
            return lambda document: all(part(document) for part in parts)
        case CompositeOperator.OR:
            return lambda document: any(part(document) for part in parts)
        case _:
            raise InvalidArgument("A composite filter has to be AND or OR.")


def _on_field(path: str, test: Test) -> Predicate:
    if path == NAME:
        return lambda document: test(values.key(Value(reference_value=document.name)), None)
    segments = values.field_path(path)

    def matches(document: Message) -> bool:
        value = values.get(document.fields, segments)
        return value is not None and test(values.key(value), value)

    return matches


def _unary(operator: int) -> Test:
    match operator:
        case UnaryOperator.IS_NULL:
            return lambda key, _: key == NULL
        case UnaryOperator.IS_NAN:
            return lambda key, _: key == NAN
        case UnaryOperator.IS_NOT_NULL:
            return lambda key, _: key != NULL
        case UnaryOperator.IS_NOT_NAN:
            return lambda key, _: key not in (NULL, NAN)
        case _:
            raise InvalidArgument("A unary filter needs an operator.")


def _comparison(operator: int, operand: Message) -> Test:
    """Equality and membership never match null or NaN, which have unary filters of their own."""
    if operator in LIST_OPERATORS:
        return _membership(operator, operand)
    wanted = values.key(operand)
    match operator:
        case FieldOperator.EQUAL:
            return lambda key, _: key == wanted and key != NAN
        case FieldOperator.NOT_EQUAL:
            return lambda key, _: key not in (wanted, NULL)
        case FieldOperator.ARRAY_CONTAINS:
            return lambda _, value: wanted not in (NULL, NAN) and wanted in _element_keys(value)
        case _ if operator in RANGES:
            compare = RANGES[operator]
            return lambda key, _: _comparable(key, wanted) and compare(key, wanted)
        case _:
            raise Unimplemented(f"the filter operator {operator} is not implemented by this emulator")


def _membership(operator: int, operand: Message) -> Test:
    if operand.WhichOneof("value_type") != "array_value" or not operand.array_value.values:
        raise InvalidArgument(f"'{FieldOperator(operator).name}' requires a non-empty ArrayValue.")
    wanted = [values.key(element) for element in operand.array_value.values]
    sought = [key for key in wanted if key not in (NULL, NAN)]
    match operator:
        case FieldOperator.IN:
            return lambda key, _: key in sought
        case FieldOperator.NOT_IN:
            return lambda key, _: key != NULL and NULL not in wanted and key not in wanted
        case _:
            return lambda _, value: any(key in sought for key in _element_keys(value))


def _comparable(key: Key, other: Key) -> bool:
    """Of one type; NaN is in the order of nothing but itself."""
    return key[0] == other[0] and (NAN not in (key, other) or key == other)


def _element_keys(value: Message | None) -> list[Key]:
    if value is None or value.WhichOneof("value_type") != "array_value":
        return []
    return [values.key(element) for element in value.array_value.values]


@dataclass(frozen=True)
class _Shape:
    """What the rules of a whole filter are about."""

    leaves: tuple[tuple[str, int], ...]
    array_filters: int  # in the disjunct that has most
    disjuncts: int
    has_or: bool


def check(filter_: Message) -> None:
    """The rules that concern several filters of one query. Raises InvalidArgument."""
    shape = _shape(filter_)
    negations = [leaf for leaf in shape.leaves if leaf in NEGATIONS]
    if len(negations) > 1:
        raise InvalidArgument(
            "Only a single 'NOT_EQUAL', 'NOT_IN', 'IS_NOT_NAN', or 'IS_NOT_NULL' filter allowed per query."
        )
    if shape.array_filters > 1:
        raise InvalidArgument("A maximum of 1 'ARRAY_CONTAINS' filter is allowed per disjunction.")
    lists = {("field_filter", FieldOperator.IN), ("field_filter", FieldOperator.ARRAY_CONTAINS_ANY)}
    if ("field_filter", FieldOperator.NOT_IN) in negations and (shape.has_or or lists.intersection(shape.leaves)):
        raise InvalidArgument("'NOT_IN' cannot be used in the same query with 'IN', 'ARRAY_CONTAINS_ANY' or 'OR'.")
    if shape.disjuncts > limits.DISJUNCTIONS:
        raise InvalidArgument(f"The query has {shape.disjuncts} disjunctions; {limits.DISJUNCTIONS} are allowed.")
    if len(shape.leaves) > limits.FILTERS:
        raise InvalidArgument(f"The query has {len(shape.leaves)} filters; {limits.FILTERS} are allowed.")


def _shape(filter_: Message) -> _Shape:
    kind = filter_.WhichOneof("filter_type")
    if kind != "composite_filter":
        simple = getattr(filter_, kind)
        return _leaf_shape(kind, simple)
    parts = [_shape(part) for part in filter_.composite_filter.filters]
    is_or = filter_.composite_filter.op == CompositeOperator.OR
    disjuncts = 0 if is_or else 1
    for part in parts:
        disjuncts = disjuncts + part.disjuncts if is_or else disjuncts * part.disjuncts
    arrays = [part.array_filters for part in parts]
    return _Shape(
        leaves=tuple(leaf for part in parts for leaf in part.leaves),
        array_filters=(max if is_or else sum)(arrays),
        disjuncts=disjuncts,
        has_or=is_or or any(part.has_or for part in parts),
    )


def _leaf_shape(kind: str, simple: Message) -> _Shape:
    is_field = kind == "field_filter"
    count = len(simple.value.array_value.values) if is_field and simple.op in LIST_OPERATORS else 1
    if is_field and simple.op == FieldOperator.NOT_IN:
        if count > limits.NOT_IN_VALUES:
            raise InvalidArgument(f"'NOT_IN' supports up to {limits.NOT_IN_VALUES} comparison values.")
        count = 1
    of_array = is_field and simple.op in (FieldOperator.ARRAY_CONTAINS, FieldOperator.ARRAY_CONTAINS_ANY)
    return _Shape(((kind, simple.op),), int(of_array), count, has_or=False)


def inequality_fields(filter_: Message) -> set[str]:
    """The fields by which the results are ordered implicitly."""
    match filter_.WhichOneof("filter_type"):
        case "composite_filter":
            return set().union(*(inequality_fields(part) for part in filter_.composite_filter.filters))
        case "field_filter":
            simple = filter_.field_filter
            return {simple.field.field_path} if simple.op in INEQUALITIES else set()
        case _:
            simple = filter_.unary_filter
            negative = simple.op in (UnaryOperator.IS_NOT_NULL, UnaryOperator.IS_NOT_NAN)
            return {simple.field.field_path} if negative else set()
