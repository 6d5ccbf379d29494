"""Carries out the faults of a plan on one HTTP call (see faults.py for what each means)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tools.emulators.clock import Clock
from tools.emulators.faults import Action, Call, Fault, Plan, Processes
from tools.emulators.hosting import Host

Answer = Response | None
Deliver = Callable[[], Awaitable[Answer]]


class HttpFaults:
    """`carry` a call to its end under the faults that the plan has for it.

    `caller_is_a_process`: whoever calls is a function whose request the front counts as work in flight; where a fault
    keeps it waiting, that work only waits.
    """

    def __init__(self, host: Host, plan: Plan, clock: Clock, processes: Processes, caller_is_a_process: bool) -> None:
        self._host = host
        self._plan = plan
        self._clock = clock
        self._processes = processes
        self._caller_is_a_process = caller_is_a_process

    async def carry(self, request: Request, call: Call, deliver: Deliver) -> Answer:
        """The answer that the caller gets; None: its connection breaks."""
        for fault in reversed(self._plan.at(call)):
            deliver = self._wrap(fault, call, deliver)
        with self._host.waiting(request):
            return await deliver()

    def _wrap(self, fault: Fault, call: Call, deliver: Deliver) -> Deliver:
        async def wrapped() -> Answer:
            return await self._apply(fault, call, deliver)

        return wrapped

    async def _apply(self, fault: Fault, call: Call, deliver: Deliver) -> Answer:
        match fault.action:
            case Action.LOSE_REQUEST:
                return _broken(fault)
            case Action.LOSE_ANSWER | Action.DROP:
                await deliver()
                return _broken(fault)
            case Action.TWICE:
                return await self._twice(deliver)
            case Action.AGAIN:
                answer = await deliver()
                self._host.background(_run(deliver))
                return answer
            case Action.DELAY:
                await self._sleep(fault.seconds)
                return await deliver()
            case Action.DELAY_ANSWER:
                answer = await deliver()
                await self._sleep(fault.seconds)
                return answer
            case Action.LATE:
                self._host.background(self._late(fault.seconds, deliver))
                return _broken(fault)
            case Action.HANG:
                await self._hang()
                return None
            case Action.KILL_BEFORE:
                await self._host.blocking(self._processes.kill, call.caller)
                return None
            case Action.KILL_AFTER:
                await deliver()
                await self._host.blocking(self._processes.kill, call.caller)
                return None
            case Action.KILL_CALLEE:
                return await self._kill_at_work(call, deliver)
            case Action.FREEZE:
                return await self._freeze(fault.seconds, call, deliver)

    async def _twice(self, deliver: Deliver) -> Answer:
        both = [asyncio.ensure_future(_run(deliver)) for _ in range(2)]
        done, rest = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            self._host.background(_join(task))
        return done.pop().result()

    async def _late(self, seconds: float, deliver: Deliver) -> None:
        await self._host.sleep(seconds)
        await deliver()

    async def _sleep(self, seconds: float) -> None:
        if self._caller_is_a_process:
            with self._clock.waiting():
                await self._host.sleep(seconds)
        else:
            await self._host.sleep(seconds)

    async def _hang(self) -> None:
        """Until the chain stops: the caller's own deadline ends it for the caller."""
        if self._caller_is_a_process:
            with self._clock.waiting():
                await asyncio.get_running_loop().create_future()
        await asyncio.get_running_loop().create_future()

    async def _kill_at_work(self, call: Call, deliver: Deliver) -> Answer:
        """Kill the callee once it has made its next call of its own, or else before its answer is passed on."""
        before = self._plan.count(call.callee)
        working = asyncio.ensure_future(_run(deliver))
        while not working.done() and self._plan.count(call.callee) == before:
            await asyncio.sleep(0.001)
        await self._host.blocking(self._processes.kill, call.callee)
        answer = await working
        return None if answer is not None and answer.status_code < 500 else answer

    async def _freeze(self, seconds: float, call: Call, deliver: Deliver) -> Answer:
        answer = await deliver()
        await self._host.blocking(self._processes.freeze, call.caller)
        await self._host.sleep(seconds)
        await self._host.blocking(self._processes.resume, call.caller)
        return answer


async def _run(deliver: Deliver) -> Answer:
    return await deliver()


async def _join(task: asyncio.Future[Answer]) -> None:
    await task


def _broken(fault: Fault) -> Answer:
    if fault.code is None:
        return None
    return JSONResponse({"error": {"code": fault.code, "message": "injected"}}, status_code=int(fault.code))
