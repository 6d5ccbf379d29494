"""Modules base64, json, hash and uuid, and the two functions of text that turn strings to bytes and back."""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import hmac
import uuid

from .. import values
from ..errors import type_error, value_error
from ..runtime import Frame
from ..values import Value, checked_text, type_name
from .registry import ABSENT, flag, function, mapping, octets, text

_ALGORITHMS = ("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512")


@function("base64.encode", "data", "padding?")
def base64_encode(frame: Frame, data: Value, padding: Value) -> Value:
    encoded = base64.b64encode(octets("data", data)).decode()
    return checked_text(encoded if padding is ABSENT or flag("padding", padding) else encoded.rstrip("="))


@function("base64.decode", "data", "padding?")
def base64_decode(frame: Frame, data: Value, padding: Value) -> Value:
    """Bytes of standard base64. Without padding, none may be there. Raises ValueError."""
    encoded = text("data", data)
    if padding is not ABSENT and not flag("padding", padding):
        if encoded.endswith("="):
            raise value_error("base64.decode: the data is padded, and padding is false")
        encoded += "=" * (-len(encoded) % 4)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise value_error(f"base64.decode: {error}") from error


@function("json.decode", "data")
def json_decode(frame: Frame, data: Value) -> Value:
    """The value of JSON bytes (UTF-8) or of a JSON string. Raises ValueError."""
    if type(data) not in (bytes, str):
        raise type_error(f"data must be bytes or a string, not {type_name(data)}")
    try:
        return values.from_json(data)
    except (ValueError, RecursionError) as error:
        raise value_error(f"json.decode: {error}") from error


@function("json.encode", "data", "indent?")
def json_encode(frame: Frame, data: Value, indent: Value) -> Value:
    return _json(data, indent).encode()


@function("json.encode_to_string", "data", "indent?")
def json_encode_to_string(frame: Frame, data: Value, indent: Value) -> Value:
    return checked_text(_json(data, indent))


def _json(data: Value, indent: Value) -> str:
    """`indent` is a boolean, or a map with indent and prefix (of each line but the first)."""
    if indent is ABSENT or indent is False:
        return values.to_json(data)
    if indent is True:
        return values.to_json(data, indent="  ")
    options = mapping("indent", indent)
    unit, prefix = text("indent", options.get("indent", "  ")), text("prefix", options.get("prefix", ""))
    if not set(options) <= {"indent", "prefix"}:
        raise value_error("indent takes the keys indent and prefix")
    return values.to_json(data, indent=unit).replace("\n", f"\n{prefix}")


@function("text.encode", "text", "charset?")
def text_encode(frame: Frame, source: Value, charset: Value) -> Value:
    try:
        return text("text", source).encode(_charset(charset))
    except UnicodeError as error:
        raise value_error(f"text.encode: {error}") from error


@function("text.decode", "data", "charset?")
def text_decode(frame: Frame, data: Value, charset: Value) -> Value:
    try:
        return checked_text(octets("data", data).decode(_charset(charset)))
    except UnicodeError as error:
        raise value_error(f"text.decode: {error}") from error


def _charset(charset: Value) -> str:
    name = "UTF-8" if charset is ABSENT else text("charset", charset)
    try:
        info = codecs.lookup(name)
    except LookupError as error:
        raise value_error(f"unknown character set {name!r}") from error
    if not info._is_text_encoding:
        raise value_error(f"unknown character set {name!r}")
    return name


@function("hash.compute_checksum", "data", "algorithm")
def checksum(frame: Frame, data: Value, algorithm: Value) -> Value:
    return hashlib.new(_algorithm(algorithm), octets("data", data)).digest()


@function("hash.compute_hmac", "key", "data", "algorithm")
def keyed_hash(frame: Frame, key: Value, data: Value, algorithm: Value) -> Value:
    return hmac.digest(octets("key", key), octets("data", data), _algorithm(algorithm))


def _algorithm(algorithm: Value) -> str:
    if text("algorithm", algorithm) not in _ALGORITHMS:
        raise value_error(f"unknown algorithm {algorithm!r}: one of {', '.join(_ALGORITHMS)}")
    return str(algorithm).lower()


@function("uuid.generate")
def generate(frame: Frame) -> Value:
    """A random UUID (version 4)."""
    return str(uuid.UUID(int=frame.run.random_bits(128), version=4))
