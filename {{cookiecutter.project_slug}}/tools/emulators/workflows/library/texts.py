"""Module text, but for encode and decode. Positions count characters from 0."""

from __future__ import annotations

import re
import urllib.parse

from ..errors import WorkflowError, value_error
from ..runtime import Frame
from ..values import Value, checked_text
from . import regex
from .registry import function, text, whole

_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")


@function("text.find_all", "source", "substr")
def find_all(frame: Frame, source: Value, substr: Value) -> Value:
    """Where `substr` begins, without overlaps; an empty one is found at the start and after each character."""
    whole_text, part = text("source", source), text("substr", substr)
    return [match.start() for match in re.finditer(re.escape(part), whole_text)]


@function("text.find_all_regex", "source", "regexp")
def find_all_regex(frame: Frame, source: Value, regexp: Value) -> Value:
    subject = text("source", source)
    matches = regex.compiled(text("regexp", regexp)).find_all(subject)
    return [{"index": start, "match": subject[start:end]} for start, end in matches]


@function("text.match_regex", "source", "regexp")
def match_regex(frame: Frame, source: Value, regexp: Value) -> Value:
    """Whether the expression matches anywhere."""
    subject = text("source", source)
    return regex.compiled(text("regexp", regexp)).search(subject, 0) is not None


@function("text.replace_all", "source", "substr", "repl")
def replace_all(frame: Frame, source: Value, substr: Value, repl: Value) -> Value:
    return checked_text(text("source", source).replace(text("substr", substr), text("repl", repl)))


@function("text.replace_all_regex", "source", "regexp", "repl")
def replace_all_regex(frame: Frame, source: Value, regexp: Value, repl: Value) -> Value:
    """Every leftmost, longest match becomes `repl`, which is taken as it is: there are no back-references."""
    subject, replacement = text("source", source), text("repl", repl)
    parts, position = [], 0
    for start, end in regex.compiled(text("regexp", regexp)).find_all(subject):
        parts += [subject[position:start], replacement]
        position = end
    return checked_text("".join([*parts, subject[position:]]))


@function("text.split", "source", "separator")
def split(frame: Frame, source: Value, separator: Value) -> Value:
    """The parts between separators; an empty separator gives the characters."""
    subject, between = text("source", source), text("separator", separator)
    return subject.split(between) if between else list(subject)


@function("text.substring", "source", "start", "end")
def substring(frame: Frame, source: Value, start: Value, end: Value) -> Value:
    """The characters from `start` up to, not including, `end`. Raises IndexError outside of the string."""
    subject, first, last = text("source", source), whole("start", start), whole("end", end)
    if not 0 <= first <= last <= len(subject):
        message = f"substring {first} to {last} is out of range of a string of {len(subject)} characters"
        raise WorkflowError.of("IndexError", message)
    return subject[first:last]


@function("text.to_lower", "source")
def to_lower(frame: Frame, source: Value) -> Value:
    return checked_text(text("source", source).lower())


@function("text.to_upper", "source")
def to_upper(frame: Frame, source: Value) -> Value:
    return checked_text(text("source", source).upper())


@function("text.url_decode", "source")
def url_decode(frame: Frame, source: Value) -> Value:
    """Pluses to spaces and %XX to UTF-8. Raises ValueError for a broken escape."""
    encoded = text("source", source)
    if _ESCAPE.search(encoded):
        raise value_error(f"text.url_decode: {encoded!r} has a % without two hexadecimal digits")
    try:
        return urllib.parse.unquote_plus(encoded, errors="strict")
    except UnicodeError as error:
        raise value_error(f"text.url_decode: {error}") from error


@function("text.url_encode", "source")
def url_encode(frame: Frame, source: Value) -> Value:
    """Everything but letters, digits and ``-_.~`` as %XX, a space too."""
    return checked_text(urllib.parse.quote(text("source", source), safe=""))


@function("text.url_encode_plus", "source")
def url_encode_plus(frame: Frame, source: Value) -> Value:
    """As text.url_encode, with a space as +."""
    return checked_text(urllib.parse.quote_plus(text("source", source), safe=""))
