"""python -m tests.model [--large] [NAME...]: explore, and print how many orders of events were tried."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "{{cookiecutter.project_slug}}"))  # last: PYTHONPATH may name another

from .cases import CASES, LARGE
from .explorer import Violation


def main(words: list[str]) -> int:
    setups = {**CASES, **LARGE} if "--large" in words else CASES
    names = [word for word in words if not word.startswith("--")] or list(setups)
    total = 0
    for name in names:
        try:
            interleavings, states = setups[name].explore()
        except Violation as violation:
            print(f"{name}: broken: {violation}")
            return 1
        total += interleavings
        print(f"{name}: {interleavings:,} interleavings over {states:,} states", flush=True)
    print(f"{total:,} interleavings, every promise holds")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
