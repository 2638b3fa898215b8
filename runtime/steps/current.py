"""`Run` and `current_run`: the run that code is in, and steps of functions without `@step`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from turnledger.ledger import Ledger
from turnledger.runtime.steps.decorator import acall_step, call_step
from turnledger.runtime.steps.record.open_step import OpenStep
from turnledger.runtime.steps.scope import StepScope, current_scope

R = TypeVar("R")


class Run:
    """The run that code is in: what `with turnledger.run(...) as run` and `current_run()` give."""

    def __init__(self, scope: StepScope) -> None:
        self._scope = scope

    @property
    def run_id(self) -> UUID:
        return self._scope.run_id

    @property
    def ledger(self) -> Ledger:
        return self._scope.ledger

    @property
    def is_replay(self) -> bool:
        """Whether nothing is performed: in a replay, or as the run is completed."""
        return self._scope.is_replay

    @property
    def call_id(self) -> str:
        """The id of the step that this is in, the same in every attempt: an idempotency key."""
        return self._scope.place.parent

    @property
    def is_resume(self) -> bool:
        """Whether an earlier attempt of the step that this is in was interrupted."""
        step = self._scope.step
        return isinstance(step, OpenStep) and step.is_resume

    def step(
        self, name: str, fn: Callable[..., R], /, *args: Any, key: str | None = None, **kwargs: Any
    ) -> R:
        """Call a function as a step of the run.

        Args:
            name: The step's name.
            fn: The function; of one with `@step` its settings hold.
            args: Its arguments.
            key: Tells the step from others of that name; by default it is its ordinal.
            kwargs: Its arguments by keyword.
        """
        made: R = call_step(fn, args, kwargs, name=name, key=key, scope=self._here())
        return made

    async def astep(
        self,
        name: str,
        fn: Callable[..., Awaitable[R]],
        /,
        *args: Any,
        key: str | None = None,
        **kwargs: Any,
    ) -> R:
        """`step` for an `async def` function; arguments as there."""
        made: R = await acall_step(fn, args, kwargs, name=name, key=key, scope=self._here())
        return made

    def _here(self) -> StepScope:
        """Where the caller is: in this run, it may be inside of another step."""
        here = current_scope()
        return here if here is not None and here.recorder is self._scope.recorder else self._scope


def current_run() -> Run | None:
    """The run that this code is in; None outside of one."""
    scope = current_scope()
    return Run(scope) if scope is not None else None
