"""Steps to closures, once at deploy: each takes the frame, acts, and answers the signal where to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from . import assigning, library
from .branching import branch_frame, concurrency, run_branches
from .checks import CONNECTORS
from .compiling import Compiler, Routine
from .errors import Position, WorkflowError, type_error, value_error
from .model import Assign, Call, Jump, Loop, Nested, Parallel, Raise, Retry, Return, Step, Switch, Try, Workflow
from .operators import boolean
from .retrying import Policy
from .runtime import BREAK, CONTINUE, UNSET, CallEvent, Frame, Result, Signal, StepCode, StepEvent, ValueCode
from .runtime import Jump as JumpSignal
from .scopes import Scope, Scopes
from .values import Value, integer, is_number, type_name

Invocation = Callable[[Frame, list[Value]], Value]
Targets = dict[str, JumpSignal]

_DESTINATIONS: dict[str, Signal] = {"end": Result(None), "break": BREAK, "continue": CONTINUE}


def compile_all(workflows: Mapping[str, Workflow], scopes: Scopes) -> dict[str, Routine]:
    """Every workflow of a checked source, ready to run."""
    routines = {name: _routine(workflow, scopes.of[workflow]) for name, workflow in workflows.items()}
    for name, workflow in workflows.items():
        compiler = _StepCompiler(routines, scopes)
        routines[name].code = compiler.block(workflow.steps, scopes.of[workflow], {})
    return routines


def _routine(workflow: Workflow, scope: Scope) -> Routine:
    defaults = [UNSET if param.default is None else param.default.value for param in workflow.params]
    names = [param.name for param in workflow.params]
    return Routine(workflow.name, names, [scope.names[name].slot for name in names], defaults, scope.space.size)


class _StepCompiler:
    """Compiles the steps of one workflow."""

    def __init__(self, routines: dict[str, Routine], scopes: Scopes) -> None:
        self._routines = routines
        self._scopes = scopes
        self._values = Compiler(routines)

    def block(self, steps: list[Step], scope: Scope, around: Targets) -> StepCode:
        """The code of a list of steps; `around` is where `next` may lead outside of it."""
        block = object()
        named = {step.name: JumpSignal(block, index) for index, step in enumerate(steps) if not step.inline}
        codes = [self.step(step, scope, {**around, **named}) for step in steps]
        if not named:
            return codes[0]
        count = len(codes)

        def run(frame: Frame) -> Signal:
            index = 0
            while index < count:
                signal = codes[index](frame)
                if signal is None:
                    index += 1
                elif type(signal) is JumpSignal and signal.block is block:
                    index = signal.index
                else:
                    return signal
            return None

        return run

    def step(self, step: Step, scope: Scope, targets: Targets) -> StepCode:
        code = self._body(step, scope, targets)
        if step.next is not None:
            code = _then(code, _DESTINATIONS.get(step.next) or targets[step.next])
        return code if step.inline else _entered(step, code)

    def _body(self, step: Step, scope: Scope, targets: Targets) -> StepCode:
        body = step.body
        match body:
            case Assign(entries=entries):
                names = set(self._routines)
                return _each([assigning.assignment(entry, scope, self._values, names) for entry in entries])
            case Call():
                return self._call(body, scope)
            case Switch():
                return self._switch(body, scope, targets)
            case Loop():
                return self._loop(body, scope, targets)
            case Parallel():
                return self._parallel(body, scope)
            case Raise(value=value):
                return _raise(self._values.value(value, scope))
            case Try():
                return self._try(body, scope, targets)
            case Return(value=value):
                code = self._values.value(value, scope)
                return lambda frame: Result(code(frame))
            case Nested(steps=steps):
                return self.block(steps, scope, targets)
            case Jump():
                return lambda frame: None

    def _call(self, body: Call, scope: Scope) -> StepCode:
        names = list(body.args)
        args = [self._values.value(node, scope) for node in body.args.values()]
        invoke = self._invocation(body.name, names)
        store = assigning.result(body.result, scope) if body.result is not None else None

        def run(frame: Frame) -> Signal:
            values = [arg(frame) for arg in args]
            if frame.run.world.calls is None:
                value = invoke(frame, values)
            else:
                value = _logged(frame, body.name, names, values, invoke)
            if store is not None:
                store(frame, value)
            return None

        return run

    def _invocation(self, name: str, names: list[str]) -> Invocation:
        """The code that takes the values of the arguments `names`."""
        routine = self._routines.get(name)
        if routine is not None:
            order = _order(routine.params, names)
            return lambda frame, values: routine.invoke(frame, _arranged(values, order, UNSET))
        if name.startswith(CONNECTORS):
            return lambda frame, values: _connect(frame, name, dict(zip(names, values, strict=True)))
        function = library.FUNCTIONS[name]
        code: Callable[..., Value] = function.code
        order = _order([param.name for param in function.params], names)
        return lambda frame, values: code(frame, *_arranged(values, order, library.ABSENT))

    def _switch(self, body: Switch, scope: Scope, targets: Targets) -> StepCode:
        cases = [
            (self._values.value(case.condition, scope), self.step(case.step, scope, targets)) for case in body.cases
        ]

        def run(frame: Frame) -> Signal:
            for condition, code in cases:
                if boolean("a condition", condition(frame)):
                    return code(frame)
            return None

        return run

    def _loop(self, body: Loop, scope: Scope, targets: Targets) -> StepCode:
        inner = self._scopes.of[body]
        source = self._sequence(body, scope)
        code = self.block(body.steps, inner, targets)
        value, index = _loop_slots(body, inner)

        def run(frame: Frame) -> Signal:
            slots = inner.slots()
            try:
                for position, item in enumerate(source(frame)):
                    frame.forget(slots)
                    frame.store(value, item)
                    if index is not None:
                        frame.store(index, position)
                    signal = code(frame)
                    if signal is BREAK:
                        return None
                    if signal is not None and signal is not CONTINUE:
                        return signal
            finally:
                frame.forget(slots)
            return None

        return run

    def _sequence(self, body: Loop, scope: Scope) -> Callable[[Frame], Iterator[Value]]:
        if body.items is not None:
            items = self._values.value(body.items, scope)
            return lambda frame: iter(_list(items(frame)))
        assert body.range is not None
        bounds = self._values.value(body.range, scope)
        return lambda frame: _range(bounds(frame))

    def _parallel(self, body: Parallel, scope: Scope) -> StepCode:
        limit = self._values.value(body.concurrency_limit, scope) if body.concurrency_limit is not None else None
        if body.loop is not None:
            return self._parallel_loop(body.loop, limit, scope)
        names = [branch.name for branch in body.branches]
        inner = [self._scopes.of[branch] for branch in body.branches]
        codes = [self.block(branch.steps, inner[at], {}) for at, branch in enumerate(body.branches)]

        def open_frame(index: int, outer: Frame) -> Frame:
            return branch_frame(outer, names[index], inner[index].space.size)

        def run(frame: Frame) -> Signal:
            run_branches(frame, names, concurrency(limit, frame), open_frame, codes.__getitem__)
            return None

        return run

    def _parallel_loop(self, loop: Loop, limit: ValueCode | None, scope: Scope) -> StepCode:
        inner = self._scopes.of[loop]
        source = self._sequence(loop, scope)
        code = self.block(loop.steps, inner, {})
        value, position = _loop_slots(loop, inner)

        def run(frame: Frame) -> Signal:
            items = list(source(frame))

            def open_frame(index: int, outer: Frame) -> Frame:
                branch = branch_frame(outer, str(index), inner.space.size)
                branch.store(value, items[index])
                if position is not None:
                    branch.store(position, index)
                return branch

            names = [str(index) for index in range(len(items))]
            run_branches(frame, names, concurrency(limit, frame), open_frame, lambda index: code)
            return None

        return run

    def _try(self, body: Try, scope: Scope, targets: Targets) -> StepCode:
        attempt = self.block(body.steps, scope, targets)
        if body.retry is not None:
            attempt = _retried(attempt, self._policy(body.retry, scope))
        if body.handler is None:
            return attempt
        handler = self._scopes.of[body.handler]
        variable = handler.names[body.handler.name].slot
        handle = self.block(body.handler.steps, handler, targets)

        def run(frame: Frame) -> Signal:
            try:
                return attempt(frame)
            except WorkflowError as error:
                if not error.catchable:
                    raise
                payload = error.payload
            slots = handler.slots()
            frame.forget(slots)
            try:
                frame.store(variable, payload)
                return handle(frame)
            finally:
                frame.forget(slots)

        return run

    def _policy(self, retry: Retry, scope: Scope) -> ValueCode:
        """The code of the policy's map."""
        if retry.policy is not None:
            return self._values.value(retry.policy, scope)
        assert retry.predicate and retry.max_retries and retry.backoff
        predicate = self._values.value(retry.predicate, scope)
        retries = self._values.value(retry.max_retries, scope)
        backoff = self._values.value(retry.backoff, scope)
        return lambda frame: {"predicate": predicate(frame), "max_retries": retries(frame), "backoff": backoff(frame)}


def _entered(step: Step, code: StepCode) -> StepCode:
    """Count the step, tell the observer, and place an error that passes."""
    name, routine, kind = step.name, step.routine, step.kind
    place = Position(name, routine, step.at.line, step.at.column)

    def run(frame: Frame) -> Signal:
        number = frame.run.enter()
        frame.step = name
        world = frame.run.world
        observe = world.observe
        if observe is not None:
            observe(StepEvent(number, name, routine, kind, "IN_PROGRESS", world.clock.now(), frame.branch))
        try:
            signal = code(frame)
        except WorkflowError as error:
            if not error.placed:
                error.placed = True
                error.stack.append(place)
            if observe is not None:
                observe(StepEvent(number, name, routine, kind, "FAILED", world.clock.now(), frame.branch, error))
            raise
        if observe is not None:
            observe(StepEvent(number, name, routine, kind, "SUCCEEDED", world.clock.now(), frame.branch))
        return signal

    return run


def _then(code: StepCode, destination: Signal) -> StepCode:
    """`next`, where the body itself does not lead elsewhere."""

    def run(frame: Frame) -> Signal:
        signal = code(frame)
        return destination if signal is None else signal

    return run


def _each(writes: list[assigning.Write]) -> StepCode:
    if len(writes) == 1:
        return writes[0]

    def run(frame: Frame) -> Signal:
        for write in writes:
            write(frame)
        return None

    return run


def _raise(code: ValueCode) -> StepCode:
    def run(frame: Frame) -> Signal:
        value = code(frame)
        if type(value) not in (str, dict):
            raise type_error(f"raise takes a string or a map, not {type_name(value)}")
        raise WorkflowError(value)

    return run


def _retried(attempt: StepCode, policy: ValueCode) -> StepCode:
    """The whole block again, for as long as the policy wants it."""

    def run(frame: Frame) -> Signal:
        rule: Policy | None = None
        delays: Iterator[float] = iter(())
        while True:
            try:
                return attempt(frame)
            except WorkflowError as error:
                if not error.catchable:
                    raise
                if rule is None:
                    rule = Policy.of(policy(frame))
                    delays = rule.delays()
                delay = next(delays, None)
                if delay is None or not rule.wants(frame, error):
                    raise
            frame.run.sleep(delay)

    return run


def _logged(frame: Frame, name: str, names: list[str], values: list[Value], invoke: Invocation) -> Value:
    """The call, told to the log of calls."""
    step, world = frame.step, frame.run.world
    assert world.calls is not None
    args = dict(zip(names, values, strict=True))
    try:
        value = invoke(frame, values)
    except WorkflowError as error:
        world.calls(CallEvent(name, args, None, error, step, frame.routine, world.clock.now()))
        raise
    world.calls(CallEvent(name, args, value, None, step, frame.routine, world.clock.now()))
    return value


def _connect(frame: Frame, name: str, args: dict[str, Value]) -> Value:
    world = frame.run.world
    value = world.connector(name, args, world)
    frame.run.require_going()
    return value


def _loop_slots(loop: Loop, scope: Scope) -> tuple[int, int | None]:
    return scope.names[loop.value].slot, scope.names[loop.index].slot if loop.index else None


def _order(params: list[str], names: list[str]) -> list[int | None]:
    return [names.index(param) if param in names else None for param in params]


def _arranged(values: list[Value], order: list[int | None], absent: Value) -> list[Value]:
    return [absent if index is None else values[index] for index in order]


def _list(value: Value) -> list[Value]:
    if type(value) is list:
        return value
    hint = ": use keys(...)" if type(value) is dict else ""
    raise type_error(f"for needs a list, not {type_name(value)}{hint}")


def _range(bounds: Value) -> Iterator[Value]:
    """Both ends included, in steps of one; doubles when one end is a double."""
    if type(bounds) is not list or len(bounds) != 2 or not all(map(is_number, bounds)):
        raise type_error("range takes a list of two numbers, the first and the last")
    first, last = bounds
    if type(first) is int and type(last) is int:
        yield from range(first, last + 1)
        return
    count = 0
    while (value := float(first) + count) <= last:
        if value + 1 == value:
            raise value_error("range is too large to count in doubles")
        yield value
        count = integer(count + 1)
