"""Values: their order, their size and the paths to them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from tools.emulators.firestore import limits, names
from tools.emulators.firestore.errors import InvalidArgument, Unimplemented
from tools.emulators.firestore.messages import Document, Message, Value

Key = tuple[Any, ...]
"""Values sort as their keys do, across all types: (rank of the type, what it is compared by)."""

FieldPath = tuple[str, ...]

NULL: Key = (0,)
NAN: Key = (2, 0)

_SEGMENT = re.compile(r"`((?:[^`\\]|\\.)+)`|([A-Za-z_][A-Za-z_0-9]*)")


def key(value: Message) -> Key:
    """The sort key of a value, by Firestore's "Data types" page: NaN is the least number, 1 and 1.0 are equal."""
    match value.WhichOneof("value_type"):
        case "string_value":
            return (4, value.string_value)  # by code point, which is the order of the UTF-8 bytes
        case "integer_value":
            return (2, 1, value.integer_value)
        case "double_value":
            return NAN if math.isnan(value.double_value) else (2, 1, value.double_value)
        case "boolean_value":
            return (1, value.boolean_value)
        case "timestamp_value":
            return (3, value.timestamp_value.seconds, value.timestamp_value.nanos)
        case "bytes_value":
            return (5, value.bytes_value)
        case "reference_value":
            return (6, value.reference_value.split("/"))
        case "geo_point_value":
            return (7, value.geo_point_value.latitude, value.geo_point_value.longitude)
        case "array_value":
            return (8, [key(element) for element in value.array_value.values])
        case "map_value":
            return (9, [(name, key(member)) for name, member in sorted(value.map_value.fields.items())])
        case _:
            return NULL


@lru_cache(maxsize=4096)
def field_path(text: str) -> FieldPath:
    """``a.`b.c`.d`` -> ("a", "b.c", "d"). Raises InvalidArgument."""
    segments, position = [], 0
    while True:
        found = _SEGMENT.match(text, position)
        if found is None:
            raise InvalidArgument(f'Property path "{text}" is invalid.')
        quoted, plain = found.groups()
        segments.append(plain or re.sub(r"\\(.)", r"\1", quoted))
        position = found.end()
        if position == len(text):
            return tuple(segments)
        if text[position] != ".":
            raise InvalidArgument(f'Property path "{text}" is invalid.')
        position += 1


def get(fields: Message, path: FieldPath) -> Message | None:
    """The value at a path, None if there is none."""
    for name in path[:-1]:
        if name not in fields or fields[name].WhichOneof("value_type") != "map_value":
            return None
        fields = fields[name].map_value.fields
    return fields.get(path[-1])


def put(fields: Message, path: FieldPath, value: Message | None) -> None:
    """Set the value at a path, replacing what is not a map on the way; None deletes it."""
    for name in path[:-1]:
        if name not in fields or fields[name].WhichOneof("value_type") != "map_value":
            if value is None:
                return
            fields[name].Clear()
            fields[name].map_value.SetInParent()
        fields = fields[name].map_value.fields
    if value is None:
        fields.pop(path[-1], None)
    else:
        fields[path[-1]].CopyFrom(value)


def project(document: Message, paths: Iterator[str]) -> Message:
    """The document with only the fields at these paths; its name and times remain."""
    chosen = Document(name=document.name, create_time=document.create_time, update_time=document.update_time)
    for text in paths:
        if text == "__name__":
            continue
        path = field_path(text)
        if (value := get(document.fields, path)) is not None:
            put(chosen.fields, path, value)
    return chosen


def number(value: Message | None) -> int | float | None:
    """The number in a value, None if it holds none."""
    if value is None:
        return None
    match value.WhichOneof("value_type"):
        case "integer_value":
            return int(value.integer_value)
        case "double_value":
            return float(value.double_value)
        case _:
            return None


def of_number(number: float) -> Message:
    return Value(integer_value=number) if isinstance(number, int) else Value(double_value=number)


class Measure(NamedTuple):
    """What the fields of a document count: bytes, bytes of the longest value, entries in the automatic indexes."""

    size: int
    longest: int
    entries: int


def measure(fields: Message) -> Measure:
    """Bring fields into the form that is stored, and refuse what is malformed, whatever becomes of it.

    Timestamps are cut to microseconds. Raises InvalidArgument.
    """
    check = _Check()
    return Measure(check.map(fields, 0, 0), check.longest, check.entries)


def check_lengths(measured: Measure) -> None:
    """Raises InvalidArgument for a value that is too long in any document."""
    if measured.longest > limits.VALUE_BYTES:
        raise InvalidArgument(f"The value of a property is longer than {limits.VALUE_BYTES} bytes.")


def check_document(path: str, measured: Measure) -> None:
    """Raises InvalidArgument for a document that is too large, as a whole or in one value."""
    check_lengths(measured)
    size = names.size_of(path) + 32 + measured.size
    if size > limits.DOCUMENT_BYTES:
        raise InvalidArgument(
            f"Document '{path}' cannot be written because its size ({size:,} bytes) exceeds the maximum allowed size "
            f"of {limits.DOCUMENT_BYTES:,} bytes."
        )
    if measured.entries > limits.INDEX_ENTRIES:
        raise InvalidArgument(f"too many index entries for document '{path}': {measured.entries:,}")


class _Check:
    """Walks the fields of one document."""

    def __init__(self) -> None:
        self.longest = 0
        self.entries = 0

    def map(self, fields: Message, depth: int, prefix: int) -> int:
        """Bytes of a map. `depth` counts the maps and arrays around its members, `prefix` the bytes of their path."""
        if depth > limits.VALUE_DEPTH:
            raise InvalidArgument(f"Maps and arrays are nested more than {limits.VALUE_DEPTH} levels deep.")
        size = 0
        for name, value in fields.items():
            length = len(name.encode())
            if not length or names.is_reserved(name):
                if name == "__type__":
                    raise Unimplemented("vectors are not implemented by this emulator")
                raise InvalidArgument(f'Property name "{name[:60]}" is invalid because it is reserved or empty.')
            if length > limits.FIELD_NAME_BYTES:
                raise InvalidArgument(f"A property name is longer than {limits.FIELD_NAME_BYTES} bytes.")
            if prefix + length > limits.FIELD_PATH_BYTES:
                raise InvalidArgument(f"A property path is longer than {limits.FIELD_PATH_BYTES} bytes.")
            size += length + 1 + self.value(value, depth, prefix + length + 1)
        return size

    def value(self, value: Message, depth: int, prefix: int) -> int:
        """Bytes of a value."""
        match value.WhichOneof("value_type"):
            case "map_value":
                return self.map(value.map_value.fields, depth + 1, prefix)
            case "array_value":
                return self.array(value.array_value.values, depth + 1)
        self.entries += 2
        return self.scalar(value)

    def array(self, elements: Message, depth: int) -> int:
        if depth > limits.VALUE_DEPTH:
            raise InvalidArgument(f"Maps and arrays are nested more than {limits.VALUE_DEPTH} levels deep.")
        size = 0
        for element in elements:
            match element.WhichOneof("value_type"):
                case "array_value":
                    raise InvalidArgument("Cannot convert an array value in an array value.")
                case "map_value":
                    entries = self.entries
                    size += self.map(element.map_value.fields, depth + 1, 0)
                    self.entries = entries  # members of an element have none of their own
                case _:
                    size += self.scalar(element)
        if len(elements) > limits.INDEX_ENTRIES - self.entries:
            self.entries += len({element.SerializeToString(deterministic=True) for element in elements})
        else:
            self.entries += len(elements)
        return size

    def scalar(self, value: Message) -> int:
        match value.WhichOneof("value_type"):
            case "timestamp_value":
                value.timestamp_value.nanos -= value.timestamp_value.nanos % 1000
                return 8
            case "string_value":
                return self._long(len(value.string_value.encode())) + 1
            case "bytes_value":
                return self._long(len(value.bytes_value))
            case "reference_value":
                return names.size_of(names.split(value.reference_value)[1])
            case "geo_point_value":
                return 16
            case "integer_value" | "double_value":
                return 8
            case "null_value" | "boolean_value" | None:
                return 1
            case kind:
                raise Unimplemented(f"{kind} is not implemented by this emulator")

    def _long(self, size: int) -> int:
        self.longest = max(self.longest, size)
        return size
