"""The result as one HTML page that needs nothing else: the grid, and behind each failed cell its story."""

from __future__ import annotations

from html import escape
from pathlib import Path

from .cells import COLUMNS
from .grid import replay, summary, table
from .proof import FAILED, HELD, OK, Proof, Verdict

WORDS = {OK: "ok", HELD: "held", FAILED: "failed"}

STYLE = """
:root { color-scheme: light dark; --line: #8884; --ok: #1a7f37; --held: #9a6700; --failed: #cf222e; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: center; white-space: nowrap; }
thead th { white-space: normal; vertical-align: bottom; font-weight: 600; max-width: 5.5rem; }
tbody th { text-align: left; font-weight: 400; font-family: ui-monospace, monospace; font-size: 13px; }
.ok { color: var(--ok); } .held { color: var(--held); } .failed { color: var(--failed); font-weight: 700; }
.none { color: #8888; } a.failed { text-decoration: underline; }
pre { background: #8881; padding: .8rem; overflow-x: auto; font-size: 12.5px; }
.verdict { font-weight: 700; }
"""


def write(proof: Proof, title: str, file: Path) -> None:
    """Raises OSError."""
    file.write_text(_page(proof, title), encoding="utf-8")


def _page(proof: Proof, title: str) -> str:
    sum_ = summary(proof).plain
    style = "ok" if proof.holds else "failed"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}: proof</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}: under every fault</h1><p class='verdict {style}'>{escape(sum_)}</p>",
        *(f"<p class=failed>{escape(problem)}</p>" for problem in proof.problems),
        _grid(proof),
        *(_failure(verdict) for verdict in proof.failed),
        "</html>",
    ]
    return "\n".join(parts)


def _grid(proof: Proof) -> str:
    rows = table(proof.verdicts)
    if not rows:
        return ""
    used = [column for column in COLUMNS if any(column in row for row in rows.values())]
    head = "".join(f"<th scope=col>{escape(column)}</th>" for column in used)
    body = "\n".join(
        f"<tr><th scope=row>{escape(hop.name)}</th>{''.join(_cell(row.get(column)) for column in used)}</tr>"
        for hop, row in rows.items()
    )
    return f"<div class=wide><table><thead><tr><th></th>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return "<td class=none>–</td>"
    word = WORDS[verdict.status]
    if verdict.status == FAILED:
        return f"<td><a class=failed href='#{escape(verdict.trouble.id, quote=True)}'>{word}</a></td>"
    return f"<td class={verdict.status}>{word}</td>"


def _failure(verdict: Verdict) -> str:
    title = " + ".join(f"{cell.hop.name}: {cell.column}" for cell in verdict.trouble.cells)
    differences = "".join(f"<li>{escape(difference)}</li>" for difference in verdict.differences)
    story = escape("\n".join(verdict.story))
    return (
        f"<h2 id='{escape(verdict.trouble.id, quote=True)}' class=failed>{escape(title)}</h2><ul>{differences}</ul>"
        f"<pre>{story}</pre><p>Again: <code>{escape(replay(verdict))}</code></p>"
    )
