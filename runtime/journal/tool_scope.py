"""The tool call that code runs in, by context: durable steps in a handler belong to its call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import get_ident
from typing import Any, TypeAlias

from turnledger.projections import ToolCallView
from turnledger.runtime.agent.run_control import RunHalted
from turnledger.runtime.journal.journal import Journal

# A thread and the asyncio task in it, 0 without one.
Strand: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class ToolScope:
    """A tool call whose handler runs, and the run that it is of."""

    journal: Journal
    call_id: str
    # Of the call among those of the run: models may use an id several times.
    number: int
    strand: Strand


# Where steps are recorded: a ToolScope, or a `runtime.steps.scope.StepScope`; None outside of both.
SCOPE: ContextVar[Any] = ContextVar("turnledger_steps", default=None)


@contextmanager
def tool_scope(journal: Journal, call: ToolCallView) -> Iterator[None]:
    """A block in which steps are inner steps of a tool call.

    RunHalted at its end if one of them halted the run, whatever the handler made of that.
    """
    scope = ToolScope(journal, call.call_id, call.number, strand())
    token = SCOPE.set(scope)
    try:
        yield
    except Exception:
        _settle(scope)
        raise
    else:
        _settle(scope)
    finally:
        SCOPE.reset(token)
        halted = journal.steps.halted if journal.steps is not None else None
        if halted is not None:
            raise RunHalted(halted)


def _settle(scope: ToolScope) -> None:
    """The handler has ended: what it left behind of its steps has, too."""
    steps = scope.journal.steps
    if steps is not None:
        steps.settle_left_in(steps.path_of_call(scope.call_id, scope.number, scope.journal.state))


def strand() -> Strand:
    """The thread and the asyncio task that this code runs in."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return get_ident(), id(task) if task is not None else 0


def is_strand(opener: Strand | None) -> bool:
    """Whether this code runs where its parent was opened, and not beside it.

    An event loop that was started by synchronous code, with a single task, is where that code is.
    """
    here = strand()
    if opener is None or here == opener:
        return opener is not None
    return here[0] == opener[0] and opener[1] == 0 and len(asyncio.all_tasks()) == 1
