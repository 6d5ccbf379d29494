"""Where lines and nodes begin and end in a text, and putting changes into it."""

from __future__ import annotations

from typing import NamedTuple

import yaml


class Change(NamedTuple):
    """The characters from `start` to `end` give way to `text`."""

    start: int
    end: int
    text: str


def apply(text: str, changes: list[Change]) -> str:
    """The text after changes that do not overlap."""
    for change in sorted(changes, reverse=True):
        text = text[: change.start] + change.text + text[change.end :]
    return text


def newline(text: str, index: int) -> str:
    """The line break in use before `index`, or else the first one of the text."""
    end = text.rfind("\n", 0, index)
    if end < 0:
        end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def next_line(text: str, index: int) -> int:
    """The start of the line after the one that `index` ends; `index` itself where a line begins."""
    if index and text[index - 1] == "\n":
        return index
    end = text.find("\n", index)
    return len(text) if end < 0 else end + 1


def content_end(node: yaml.Node) -> int:
    """Where the last token of a node ends. (A block collection's own end mark lies behind the comments that follow.)"""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return content_end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def block_end(text: str, node: yaml.Node, column: int) -> int:
    """The start of the line behind an entry whose dash or key is in `column`, and behind its own (deeper) comments."""
    end = at = next_line(text, content_end(node))
    while at < len(text):
        after = next_line(text, at + 1)
        line = text[at:after].rstrip("\r\n")
        stripped = line.lstrip(" ")
        if stripped.startswith("#"):
            if len(line) - len(stripped) <= column:
                break
            end = after
        elif stripped.strip():
            break
        at = after
    return end


def insertion(text: str, index: int, lines: list[str], indent: str) -> Change:
    """Whole lines put in where a line starts; a text that lacks the last line break still does afterwards."""
    broken = newline(text, index)
    block = broken.join(indent + line if line else line for line in lines)
    unfinished = index == len(text) and index > 0 and text[-1] != "\n"
    return Change(index, index, broken + block if unfinished else block + broken)


def deletion(text: str, start: int, end: int) -> Change:
    """Whole lines cut out; at the end of a text that lacks the last line break it still does."""
    if end == len(text) and text[-1:] != "\n" and start > 0:
        start -= len(newline(text, start))
    return Change(start, end, "")
