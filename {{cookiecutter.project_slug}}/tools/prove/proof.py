"""Two clean runs, then every cell, on several chains at once: each chain in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tools.errors import UserError
from tools.settings import Settings

from .cells import ZOMBIE, Cell, Trouble, cells
from .oracle import Oracle
from .story import story
from .trial import Observation, Subject, stage

A_DAY_AHEAD = 26 * 3600.0
"""Seconds by which the clocks of the second chain's processes are ahead: another day in every time zone of theirs."""

OK = "ok"
HELD = "held"
FAILED = "failed"


@dataclass(frozen=True)
class Verdict:
    """What became of one trouble.

    status: OK; HELD: a step ended held, was resolved, and then all was as in a clean run; FAILED. differences: what was
    wrong, in words. story: the events in order, for a failed one. seconds: real ones.
    """

    trouble: Trouble
    status: str
    differences: tuple[str, ...] = ()
    story: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass
class Proof:
    """What has been shown. `problems` are those of the clean runs: with any, no cell is tried."""

    cells: list[Cell]
    problems: list[str]
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failed(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.status == FAILED]

    @property
    def holds(self) -> bool:
        return not self.problems and not self.failed


Choose = Callable[[list[Cell]], list[Trouble]]
Tell = Callable[[int, int, Verdict | None], None]
"""(done, of, the last verdict), after each trouble."""


class Worker:
    """A process with one chain. Calls are answered one at a time."""

    def __init__(self, subject: Subject, state: Path, ahead: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(subject, state, ahead, theirs), daemon=False)
        self._process.start()
        theirs.close()

    def ask(self, *words: Any) -> Any:
        """Raises UserError where the worker says that a person can put it right, or is gone."""
        try:
            self._pipe.send(words)
            kind, answer = self._pipe.recv()
        except (EOFError, OSError):
            raise UserError("a chain has died; nothing more can be proved") from None
        if kind == "error":
            raise UserError(answer)
        return answer

    def stop(self) -> None:
        """Let it stop its chain; after some seconds, end it (its guard ends the rest)."""
        self._pipe.close()
        self._process.join(15)
        self._process.kill()


def _serve(subject: Subject, state: Path, ahead: float, pipe: Connection) -> None:
    """The worker's process: one stage, until the pipe closes."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which closes the pipe
    oracle: Oracle | None = None
    try:
        with stage(subject, state, ahead) as here:
            while True:
                word, *rest = pipe.recv()
                if word == "clean":
                    pipe.send(("ok", here.clean()))
                elif word == "oracle":
                    oracle = rest[0]
                    pipe.send(("ok", None))
                else:
                    assert oracle is not None
                    pipe.send(("ok", _try(here, rest[0], oracle)))
    except EOFError:
        return
    except UserError as error:
        pipe.send(("error", str(error)))
    except Exception:
        pipe.send(("error", f"a chain broke down:\n{traceback.format_exc()}"))


def _try(here: Any, trouble: Trouble, oracle: Oracle) -> Verdict:
    """One trouble, and once more if the fault found no call to happen to."""
    began = time.monotonic()
    results = {place: json.loads(record["result"] or "null") for place, record in oracle.clean.records.items()}
    zombies = any(cell.column == ZOMBIE for cell in trouble.cells)
    seen: Observation = here.disturbed([cell.fault for cell in trouble.cells], results)
    if seen.pending and len(trouble.cells) == 1:
        seen = here.disturbed([cell.fault for cell in trouble.cells], results)
    if len(trouble.cells) > 1:  # of several faults one may keep another from happening
        seen.pending = []
    differences = oracle.compare(seen, zombies=zombies)
    status = FAILED if differences else HELD if seen.resolved else OK
    told = story(seen, trouble) if differences else []
    return Verdict(trouble, status, tuple(differences), tuple(told), tuple(seen.resolved), time.monotonic() - began)


@contextmanager
def _workers(subject: Subject, state: Path, count: int) -> Iterator[list[Worker]]:
    found = [Worker(subject, state / f"chain-{n + 1}", A_DAY_AHEAD * n) for n in range(count)]
    try:
        yield found
    finally:
        stops = [threading.Thread(target=worker.stop) for worker in found]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()


def prove(
    subject: Subject,
    settings: Settings,
    state: Path,
    *,
    jobs: int,
    ignore: Sequence[str],
    choose: Choose,
    say: Callable[[str], None],
    tell: Tell,
) -> Proof:
    """Raises UserError. `choose` picks what is tried from the cells there are; at least two chains are used."""
    began = time.monotonic()
    with _workers(subject, state, max(2, jobs)) as workers:
        say("two clean runs, the second with the processes' clocks a day ahead")
        clean, again = _both(lambda: workers[0].ask("clean"), lambda: workers[1].ask("clean"))
        oracle = Oracle(clean, again, ignore)
        found = cells(clean.calls, settings)
        proof = Proof(found, oracle.problems)
        if proof.problems:
            proof.seconds = time.monotonic() - began
            return proof
        troubles = choose(found)
        say(
            f"{len(troubles)} of {len(found)} cells" if troubles and len(troubles[0].cells) == 1 else f"{len(troubles)}"
        )
        for worker in workers:
            worker.ask("oracle", oracle)
        proof.verdicts = _all(workers[: max(1, jobs)], troubles, tell)
    proof.seconds = time.monotonic() - began
    return proof


def _both(first: Callable[[], Observation], second: Callable[[], Observation]) -> tuple[Observation, Observation]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        left, right = pool.submit(first), pool.submit(second)
        return left.result(), right.result()


def _all(workers: Sequence[Worker], troubles: Sequence[Trouble], tell: Tell) -> list[Verdict]:
    """Every trouble's verdict, in the order of the troubles."""
    waiting: queue.SimpleQueue[tuple[int, Trouble]] = queue.SimpleQueue()
    for numbered in enumerate(troubles):
        waiting.put(numbered)
    verdicts: dict[int, Verdict] = {}
    broken: list[UserError] = []
    lock = threading.Lock()

    def work(worker: Worker) -> None:
        while not broken:
            try:
                number, trouble = waiting.get_nowait()
                verdict = worker.ask("try", trouble)
            except queue.Empty:
                return
            except UserError as error:
                broken.append(error)
                return
            with lock:
                verdicts[number] = verdict
                tell(len(verdicts), len(troubles), verdict)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():  # a join without a limit would not notice Ctrl-C
            thread.join(0.2)
    if broken:
        raise broken[0]
    return [verdicts[number] for number in sorted(verdicts)]
