"""Field transforms: values that the server computes from what is stored."""

from __future__ import annotations

import math

from tools.emulators.firestore import values
from tools.emulators.firestore.errors import InvalidArgument, Unimplemented
from tools.emulators.firestore.messages import Message, Value, timestamp

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def check(transform: Message) -> None:
    """What can be said before the document is known. Raises InvalidArgument, Unimplemented."""
    values.field_path(transform.field_path)
    match transform.WhichOneof("transform_type"):
        case "set_to_server_value":
            if transform.set_to_server_value != transform.REQUEST_TIME:
                raise InvalidArgument("The server value of a transform has to be REQUEST_TIME.")
        case "increment" | "maximum" | "minimum" as kind:
            if values.number(getattr(transform, kind)) is None:
                raise InvalidArgument("The operand of a numeric transform has to be a number.")
        case "append_missing_elements" | "remove_all_from_array":
            pass
        case kind:
            raise Unimplemented(f"the transform {kind} is not implemented by this emulator")


def apply(fields: Message, transform: Message, request_time: int) -> Message:
    """Carry out one transform, which has passed `check`, on the fields of a document; what the client gets for it.

    `request_time` is the commit's, in microseconds; a server timestamp has its milliseconds only.
    """
    path = values.field_path(transform.field_path)
    current = values.get(fields, path)
    match transform.WhichOneof("transform_type"):
        case "set_to_server_value":
            new = result = Value(timestamp_value=timestamp(request_time // 1000 * 1000))
        case "increment":
            new = result = _increment(current, transform.increment)
        case "maximum":
            new = result = _pick(current, transform.maximum, larger=True)
        case "minimum":
            new = result = _pick(current, transform.minimum, larger=False)
        case "append_missing_elements":
            new, result = _append(current, transform.append_missing_elements.values), Value(null_value=0)
        case _:
            new, result = _remove(current, transform.remove_all_from_array.values), Value(null_value=0)
    copy = Value()  # `new` may be a part of `fields`, which `put` changes
    copy.CopyFrom(new)
    values.put(fields, path, copy)
    return result


def _increment(current: Message | None, operand: Message) -> Message:
    """A field that is no number counts as absent; integers stay within 64 bits."""
    by, now = values.number(operand), values.number(current)
    if now is None or by is None:
        return operand
    total = now + by
    return values.of_number(min(max(total, INT64_MIN), INT64_MAX) if isinstance(total, int) else total)


def _pick(current: Message | None, operand: Message, *, larger: bool) -> Message:
    """Equal values leave the field as it is; NaN wins over every number."""
    other, now = values.number(operand), values.number(current)
    if now is None or other is None:
        return operand
    if math.isnan(other) or (other > now if larger else other < now):
        return operand
    return current


def _elements(current: Message | None) -> list[Message]:
    is_array = current is not None and current.WhichOneof("value_type") == "array_value"
    return list(current.array_value.values) if current is not None and is_array else []


def _append(current: Message | None, elements: Message) -> Message:
    kept = _elements(current)
    seen = [values.key(element) for element in kept]
    for element in elements:
        if (key := values.key(element)) not in seen:
            seen.append(key)
            kept.append(element)
    return _array(kept)


def _remove(current: Message | None, elements: Message) -> Message:
    removed = [values.key(element) for element in elements]
    return _array([element for element in _elements(current) if values.key(element) not in removed])


def _array(elements: list[Message]) -> Message:
    array = Value()
    array.array_value.SetInParent()
    array.array_value.values.extend(elements)
    return array
