"""Columns of text, of any length: a table of thousands of rows is a matter of milliseconds."""

from __future__ import annotations

from collections.abc import Sequence

import click

Cell = str | tuple[str, str]
"""A text, or a text and its colour."""


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Each column as wide as its longest cell, the last one without an end. Colours only reach a terminal."""
    texts = [[cell if isinstance(cell, str) else cell[0] for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    lines = [click.style(_line([*head], widths), dim=True)]
    lines += [_line(row, widths) for row in rows]
    return "\n".join(lines)


def _line(row: Sequence[Cell], widths: Sequence[int]) -> str:
    """Spaces at its end are left out."""
    parts, gap = [], ""
    for cell, width in zip(row, widths, strict=True):
        text, colour = (cell, None) if isinstance(cell, str) else cell
        if text:
            parts.append(gap + (click.style(text, fg=colour, bold=colour == "red") if colour else text))
            gap = ""
        gap += " " * (width - len(text) + 2)
    return "".join(parts)
