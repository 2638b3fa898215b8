"""Random programs of durable steps, run with crashes and outages, and what must hold of them.

A program is a tree of steps: nested, side by side, failing, with values that JSON can't hold. Its
world counts what each step did, and sees every append: it kills the process before or after one
of them, or inside a function, or takes the store away.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from threading import Lock
from typing import Any, Literal, TypeAlias, get_args

from tests.agent import Crash
from turnledger.ledger import (
    ANY,
    Ledger,
    StoreUnavailableError,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallStarted,
    run_id_for,
)
from turnledger.runtime import DecisionRequiredError, ReplayDivergedError
from turnledger.runtime.steps import RecordEndedError, RunBlock, current_run, run, step

NAME = "order-17"
RUN = run_id_for(NAME)
Ends: TypeAlias = Literal["value", "builtin", "declared", "undeclared", "unrecordable"]
Colour: TypeAlias = Literal["sync", "async"]
# Seconds after which a caller gives a step up.
LIMIT = 0.05
_NAMES = ("pay", "look", "mail")
# The error types of steps whose code did not come to its end.
_UNKNOWN = ("CancelledError", "OutcomeUnknown", "DecidedFailed")
_POLICIES = ("retry", "fail", "ask")


class Declined(Exception):  # noqa: N818 - as a user might name it
    """An error that the steps declare."""


class Unheard(Exception):  # noqa: N818
    """An error that they do not."""


@dataclass(frozen=True)
class Node:
    """A step: what it is asked for by, what it does, and the steps that are in it."""

    number: int
    name: str
    key: str | None
    policy: Any
    argument: int
    ends: Ends
    # Groups of one are asked for in turn, the others side by side.
    groups: tuple[tuple[Node, ...], ...] = ()
    # Whether its code goes on whatever the steps in it raise.
    catches: bool = False
    # On an event loop: whether its caller gives it up, and whether it is tried again then.
    hangs: Literal["", "once", "always"] = ""

    def all(self) -> Iterator[Node]:
        yield self
        for group in self.groups:
            for one in group:
                yield from one.all()


def program(random: Random) -> Node:
    """A program: a node that is not a step itself."""
    numbers = iter(range(1, 10_000))

    def made(depth: int, *, aside: bool) -> Node:
        number = next(numbers)
        has_key, hangs = aside or random.random() < 0.3, random.random() < 0.15
        count = random.choice((0, 0, 1, 2)) if depth < 3 else 0
        return Node(
            number=number,
            name=random.choice(_NAMES),
            key=f"k{number}" if has_key else None,
            policy=random.choice(_POLICIES),
            argument=random.randrange(3),
            ends=random.choice(("value", "value", *get_args(Ends))),
            groups=tuple(grouped(depth + 1) for _ in range(count)),
            catches=hangs or random.random() < 0.5,
            hangs=random.choice(("once", "always") if has_key else ("always",)) if hangs else "",
        )

    def grouped(depth: int) -> tuple[Node, ...]:
        count = random.choice((1, 1, 1, 2, 3))
        return tuple(made(depth, aside=count > 1) for _ in range(count))

    groups = tuple(grouped(1) for _ in range(random.randrange(1, 5)))
    return Node(0, "", None, "retry", 0, "value", groups, catches=random.random() < 0.7)


def changed(root: Node, random: Random) -> Node:
    """The program with a change that a replay must find."""
    groups = list(root.groups)
    place = random.randrange(len(groups))
    kind = random.choice(("argument", "name", "removed", "added"))
    first = groups[place][0]
    if kind == "argument":
        groups[place] = (replace(first, argument=first.argument + 10), *groups[place][1:])
    elif kind == "name":
        groups[place] = (replace(first, name="other"), *groups[place][1:])
    elif kind == "removed":
        del groups[place]
    else:
        groups.insert(place, (replace(first, number=9999, key="added", groups=()),))
    return replace(root, groups=tuple(groups))


class World:
    """What was done and recorded, who kills the process when, and what was wrong."""

    def __init__(self, ledger: Ledger, random: Random) -> None:
        self.ledger, self._random, self._lock = ledger, random, Lock()
        self.problems: list[str] = []
        self.outcomes: set[str] = set()
        self.starts: Counter[str] = Counter()
        self.policies: dict[str, str] = {}
        self.permits: Counter[str] = Counter()
        self.seen: dict[int, str] = {}
        self.ids: dict[int, str] = {}
        self._append = ledger.append
        ledger.append = self._appending  # type: ignore[method-assign]
        self.begin_attempt(0, "crash")

    def begin_attempt(self, left: int, fault: str) -> None:
        """A process, in which a fault happens at the `left`th place; 0 is none."""
        self._left, self._fault, self.is_dead, self._is_out = left, fault, False, False
        self.performed: Counter[str] = Counter()

    def place(self) -> bool:
        """A place where the fault may happen; whether it does just now."""
        with self._lock:
            if self.is_dead:
                raise Crash
            self._left -= 1
            if self._left != 0:
                return False
            self.is_dead = self._fault == "crash"
            self._is_out = not self.is_dead
        if self.is_dead:
            raise Crash
        return True

    def _appending(self, *args: Any, **more: Any) -> Any:
        is_now = self.place()
        if self._is_out and not (is_now and self._fault == "written"):
            raise StoreUnavailableError("the store does not answer")
        appended = self._append(*args, **more)
        with self._lock:
            for record in appended.records:
                event = record.event
                if isinstance(event, ToolCallStarted):
                    self.starts[event.call_id] += 1
                elif isinstance(event, ToolCallCompleted | ToolCallFailed):
                    self.outcomes.add(event.call_id)
                    if getattr(event, "error_type", "") not in _UNKNOWN:
                        self._check_inner(event.call_id)
        if self._is_out:
            raise StoreUnavailableError("the store did not answer")
        self.place()
        return appended

    def _check_inner(self, call_id: str) -> None:
        """A step whose code has ended has none in it of which nobody knows how it ended."""
        for one in self.starts if self.performed[call_id] else ():
            if one.rpartition("/")[0] == call_id and one not in self.outcomes:
                self.problems.append(f"{call_id} ended before {one} did")

    def perform(self, node: Node) -> bool:
        """The effect of a step; whether it is the first time in this process."""
        self.place()
        here = current_run()
        assert here is not None
        call_id = here.call_id
        with self._lock:
            self.performed[call_id] += 1
            self.policies[call_id] = node.policy
            if self.ids.setdefault(node.number, call_id) != call_id:
                self.problems.append(f"{call_id} was {self.ids[node.number]} before")
            if not self.starts[call_id]:
                self.problems.append(f"{call_id} was performed before its start was on disk")
            if call_id in self.outcomes:
                self.problems.append(f"{call_id} was performed again, and had an outcome")
            if self.starts[call_id] > 1 and node.policy != "retry":
                if not self.permits[call_id]:
                    self.problems.append(f"{call_id} ({node.policy}) was repeated undecided")
                self.permits[call_id] -= 1
        self.place()
        return self.performed[call_id] == 1

    def saw(self, node: Node, result: str) -> None:
        """What the caller of a step got: the same in every attempt."""
        with self._lock:
            before = self.seen.setdefault(node.number, result)
            if before != result:
                self.problems.append(f"{node.name} {node.number}: {before}, then {result}")

    def decide(self) -> None:
        """A person decides about the steps that the run waits for, or leaves some."""
        for call in self.ledger_pending():
            decision = self._random.choice(("retry", "completed", "failed"))
            self.permits[call] += decision == "retry"
            more = {"value": {"by": "hand"}} if decision == "completed" else {}
            decided: Any = ToolCallDecided(call_id=call, decision=decision, text="so", **more)
            self._append(RUN, decided, ANY)

    def ledger_pending(self) -> list[str]:
        waits = [one for one in self.starts if one not in self.outcomes]
        return [one for one in waits if self.policies.get(one, "ask") == "ask"]


_HALTS = (DecisionRequiredError, RecordEndedError, ReplayDivergedError, StoreUnavailableError)


def _end(node: Node) -> Any:
    if node.ends == "builtin":
        raise LookupError(f"no {node.number}")
    if node.ends == "declared":
        raise Declined(f"no {node.number}")
    if node.ends == "undeclared":
        raise Unheard(f"no {node.number}")
    return object() if node.ends == "unrecordable" else {"number": node.number}


class Runner:
    """Runs a program as code would: calls its steps, catches or hands on what they raise."""

    def __init__(self, world: World, colour: Colour) -> None:
        self._world, self._colour = world, colour

    def block(self, root: Node, block: RunBlock) -> None:
        if self._colour == "sync":
            with block:
                self._inner(root)
        else:
            asyncio.run(self._in_loop(root, block))

    async def _in_loop(self, root: Node, block: RunBlock) -> None:
        async with block:
            await self._ainner(root)

    def _told(self, node: Node, error: Exception) -> None:
        if not isinstance(error, _HALTS):
            cause = f"{type(error).__name__}: {error}"
            self._world.saw(node, cause)

    def _step(self, node: Node, body: Any) -> Callable[[int], Any]:
        decorate = step(node.name, key=node.key, on_interrupt=node.policy, raises=(Declined,))
        made: Callable[[int], Any] = decorate(body)
        return made

    def _inner(self, node: Node) -> None:
        for group in node.groups:
            if len(group) == 1:
                self._guarded(node, partial(self._call, group[0]))
                continue
            with ThreadPoolExecutor(len(group)) as pool:
                jobs = [pool.submit(copy_context().run, self._call, one) for one in group]
            for job in jobs:
                self._guarded(node, job.result)

    def _guarded(self, node: Node, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            if not node.catches:
                raise

    def _call(self, node: Node) -> None:
        def body(argument: int) -> Any:
            self._world.perform(node)
            self._inner(node)
            return _end(node)

        try:
            value = self._step(node, body)(node.argument)
        except Exception as error:
            self._told(node, error)
            raise
        self._world.saw(node, repr(value))

    async def _ainner(self, node: Node) -> None:
        for group in node.groups:
            jobs = [self._acall(one) for one in group]
            if len(jobs) == 1:
                found: Any = [None]
                try:
                    await jobs[0]
                except Exception as error:
                    found = [error]
            else:
                found = await asyncio.gather(*jobs, return_exceptions=True)
            for one in found:
                if isinstance(one, BaseException) and not (
                    isinstance(one, Exception) and node.catches
                ):
                    raise one

    async def _acall(self, node: Node) -> None:
        async def body(argument: int) -> Any:
            is_first = self._world.perform(node)
            await self._ainner(node)
            if node.hangs == "always" or (node.hangs and is_first):
                await asyncio.Event().wait()
            return _end(node)

        called = self._step(node, body)
        try:
            value = await (self._limited(node, called) if node.hangs else called(node.argument))
        except TimeoutError:
            raise  # when it comes is left to chance
        except Exception as error:
            self._told(node, error)
            raise
        self._world.saw(node, repr(value))

    async def _limited(self, node: Node, called: Any) -> Any:
        try:
            return await asyncio.wait_for(called(node.argument), LIMIT)
        except TimeoutError:
            if node.hangs == "always":
                raise
        return await called(node.argument)


def play(ledger: Ledger, seed: int) -> list[str]:
    """Run the program of a seed to its end through faults; what was wrong."""
    random = Random(seed)
    root, colour = program(random), random.choice(get_args(Colour))
    world = World(ledger, random)
    runner = Runner(world, colour)
    for _ in range(12):
        fault = random.choice(("crash", "crash", "unwritten", "written"))
        world.begin_attempt(random.randrange(1, 25), fault)
        if _attempt(world, runner, root) or world.problems:
            break
        if random.random() < 0.3:
            _check_replay(world, runner, root, random)
        if random.random() < 0.7:
            world.decide()
    for _ in range(40):
        world.begin_attempt(0, "crash")
        if _attempt(world, runner, root) or world.problems:
            break
        world.decide()
    else:
        world.problems.append("it never came to its end")
    if not world.problems:
        _check_replay(world, runner, root, random)
    return world.problems


def _attempt(world: World, runner: Runner, root: Node) -> bool:
    """One process; whether the run has ended."""
    try:
        runner.block(root, run(NAME, ledger=world.ledger))
    except (Crash, StoreUnavailableError):
        return False
    except DecisionRequiredError:
        return False
    except ReplayDivergedError as error:
        world.problems.append(f"the program did not change: {error}")
    except (LookupError, TimeoutError, Declined):
        return True
    except Exception as error:
        if type(error).__module__.startswith("turnledger.runtime.steps"):
            return True
        world.problems.append(f"{type(error).__name__}: {error}")
    return True


def _check_replay(world: World, runner: Runner, root: Node, random: Random) -> None:
    """A replay performs and writes nothing; that of a changed program says so."""
    if not world.ledger.head(RUN):
        return
    has_ended = world.ledger.run(RUN).status == "completed"
    for which in (root, changed(root, random)):
        world.begin_attempt(0, "crash")
        seen, head = world.seen, world.ledger.head(RUN)
        world.seen = seen if which is root else {}
        diverged, told = False, ""
        try:
            runner.block(which, run(NAME, ledger=world.ledger, replay=True))
        except ReplayDivergedError as error:
            diverged = True
            told = str(error)
        except Exception as error:
            if has_ended:
                world.problems.append(f"a replay: {type(error).__name__}: {error}")
        if world.performed or world.ledger.head(RUN) != head:
            world.problems.append("a replay performed or wrote something")
        if which is root and diverged:
            world.problems.append(f"a replay of the same program: {told}")
        if which is not root and has_ended and not diverged:
            world.problems.append("a replay of a changed program did not diverge")
        world.seen = seen
