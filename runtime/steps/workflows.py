"""`@workflow`: a function of one input as a durable run, with the surface of an Agent.

    @turnledger.workflow("orders/pay")
    def pay_order(order: Order) -> Receipt: ...

    pay_order.run(order, ledger="runs.db")

Name and input are recorded with the run, so that another process can recover and replay it.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any, Generic, TypeAlias, TypeVar, Unpack, cast, get_type_hints, overload
from uuid import UUID

from turnledger.ledger import (
    InvalidInputError,
    Ledger,
    RunInfo,
    RunStarted,
    new_run_id,
)
from turnledger.ledger.arguments import explain_methods
from turnledger.ledger.errors import error_message, short_repr
from turnledger.ledger.ledger import OnDamage
from turnledger.ledger.runs.names import NAME_TAG, run_id_for
from turnledger.projections import state_at
from turnledger.runtime.agent.schema.schema import decode, json_schema
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.errors import DataDecodeError, DataEncodeError, RecoveryError, SchemaError
from turnledger.runtime.journal.heartbeat import LeaseHeartbeat
from turnledger.runtime.recovery.find import request_event
from turnledger.runtime.replaying.replay import ReplayDivergedError, Replayed
from turnledger.runtime.steps.block import (
    WORKFLOW,
    AnyLedger,
    Resuming,
    RunBlock,
    check_begun_by,
    opened,
)
from turnledger.runtime.steps.decorator import TypedValue, value_of
from turnledger.runtime.steps.errors import (
    RecordEndedError,
    StepDefinitionError,
    UnrecordableResultError,
)

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")
# Of a run that nobody watches, as RecoveryConfig has it.
MAX_ATTEMPTS = 3
_NAME = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*"


@dataclass(frozen=True)
class WorkflowResult(Generic[OutputT]):
    """A completed run of a workflow: its id, and what the function returned."""

    run_id: UUID
    output: OutputT


AnyRun: TypeAlias = UUID | str | WorkflowResult[Any]


@explain_methods(skip=("arun", "arecover"))
class Workflow(Generic[InputT, OutputT]):
    """A function as a durable run, made by `@workflow`. Calling it calls the function.

    A run belongs to the workflow's name: only a workflow of that name recovers or replays it.
    """

    def __init__(self, name: str, function: Callable[[InputT], Any]) -> None:
        _check_name(name)
        self.name, self.function = name, function
        self.is_async = inspect.iscoroutinefunction(function)
        self._input = _input_type(function, name)
        self._value: TypedValue = value_of(function)
        update_wrapper(self, function)

    def __call__(self, input: InputT) -> Any:  # noqa: A002
        """Call the function, as it was written; its steps are plain calls outside of a run."""
        return self.function(input)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r})"

    # --- running ---

    def run(
        self,
        input: InputT,  # noqa: A002
        *,
        ledger: AnyLedger,
        run_id: UUID | str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> WorkflowResult[OutputT]:
        """Run the workflow to its end; an interrupted run of that id goes on.

        Args:
            input: The function's argument, JSON-able.
            ledger: An open Ledger, a path or a URL.
            run_id: The run's id or name; by default a new one.
            tags: Text by text, recorded with the run.
        """
        return self._sync(self._block(input, ledger, run_id, tags), input)

    async def arun(
        self,
        input: InputT,  # noqa: A002
        *,
        ledger: AnyLedger,
        run_id: UUID | str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> WorkflowResult[OutputT]:
        """`run` for an event loop; arguments as there."""
        return await self._async(self._block(input, ledger, run_id, tags), input)

    def enqueue(
        self,
        input: InputT,  # noqa: A002
        *,
        ledger: AnyLedger,
        tags: Mapping[str, str] | None = None,
    ) -> UUID:
        """Request a run, and return its id: a worker takes it (`turnledger worker`).

        Args:
            input: The function's argument, JSON-able.
            ledger: Where it is recorded, and where the workers look.
            tags: Text by text, recorded with the run.
        """
        return self._block(input, ledger, None, tags).enqueue()

    def recover(
        self, run: AnyRun, *, ledger: AnyLedger, **options: Unpack[Resuming]
    ) -> WorkflowResult[OutputT]:
        """Run an interrupted run of this workflow to its end, with its recorded input.

        Args:
            run: The run, by id or name.
            ledger: Where it is recorded.
            options: As of `Resuming`: retry_in_doubt, decided_by, max_attempts.
        """
        block, value = self._recorded(run, ledger, **options)
        return self._sync(block, value)

    async def arecover(
        self, run: AnyRun, *, ledger: AnyLedger, **options: Unpack[Resuming]
    ) -> WorkflowResult[OutputT]:
        """`recover` for an event loop; arguments as there."""
        block, value = self._recorded(run, ledger, **options)
        return await self._async(block, value)

    def take(self, held: LeaseHeartbeat, ledger: Ledger) -> WorkflowResult[OutputT]:
        """Run a run to its end that a worker took from the queue.

        Args:
            held: The worker's claim of the run, which is released at the end.
            ledger: Where it is.
        """
        run = held.claim.run_id
        return self.recover(run, ledger=ledger, max_attempts=MAX_ATTEMPTS, held=held)

    # --- looking back ---

    def replay(self, run: AnyRun, *, ledger: AnyLedger) -> Replayed:
        """Run the function against the record of a run: nothing is performed.

        `Replayed.check()` raises at the first difference.
        """
        block, value = self._recorded(run, ledger, replay=True)
        divergence, version = None, 0
        book = opened(ledger)
        try:
            self._sync(block, value)
        except ReplayDivergedError as error:
            divergence, version = error.divergence, error.divergence.version
        except RecordEndedError as ended:
            version = ended.version
        except Exception:
            if not block.agrees:
                raise
        state = state_at(book, block.run_id, version or None)
        return Replayed(block.run_id, "execute", state.version, state, divergence, 1)

    def list_recoverable(
        self, *, ledger: AnyLedger, on_damage: OnDamage | None = None
    ) -> Sequence[RunInfo]:
        """The interrupted runs of this workflow that no worker has claimed, oldest first.

        Args:
            ledger: Where its runs are.
            on_damage: Called with the id and the error of each damaged run, which is left out.
        """
        book = opened(ledger)
        found = [
            info
            for status in ("running", "failed")
            for info in book.runs(status=status, agent=self.name, on_damage=on_damage)
            if book.worker_of(info.run_id) is None
        ]
        return sorted(found, key=lambda info: (info.started_at, info.run_id))

    # --- inside ---

    @property
    def takes_text(self) -> bool:
        """Whether its input is text, and not JSON of another type."""
        return self._input is str

    def input_from(self, data: Any) -> Any:
        """The input that JSON data stands for; DataDecodeError if it is none."""
        return data if self._input is Any else decode(self._input, data)

    def _block(
        self,
        value: Any,
        ledger: AnyLedger,
        run_id: UUID | str | None,
        tags: Mapping[str, str] | None,
    ) -> RunBlock:
        try:
            request = to_plain(value)
            self.input_from(request)
        except (DataEncodeError, DataDecodeError) as error:
            raise InvalidInputError(
                f"Invalid input {short_repr(value)} for workflow {self.name!r}: {error}."
            ) from error
        name = str(run_id) if run_id is not None else str(new_run_id())
        named = {NAME_TAG: name} if str(run_id_for(name)) != name else {}
        started = RunStarted(
            agent=self.name,
            request_type=WORKFLOW,
            request=request,
            request_id=new_run_id(),
            tags={**(tags or {}), **named},
        )
        return RunBlock(partial(opened, ledger), run_id_for(name), started, takes=self.input_from)

    def _recorded(
        self,
        run: AnyRun,
        ledger: AnyLedger,
        *,
        replay: bool = False,
        **options: Unpack[Resuming],
    ) -> tuple[RunBlock, Any]:
        run_id = run.run_id if isinstance(run, WorkflowResult) else run_id_for(str(run))
        book = opened(ledger)
        found = request_event(book, run_id)
        request = found.request if found is not None else None
        mine = RunStarted(agent=self.name, request_type=WORKFLOW, request=request)
        check_begun_by(run_id, found, mine)
        block = RunBlock(partial(opened, book), run_id, mine, replay=replay, **options)
        return block, self._input_of(request, run_id)

    def _input_of(self, request: Any, run_id: UUID) -> Any:
        try:
            return self.input_from(request)
        except DataDecodeError as error:
            raise RecoveryError(
                f"The recorded input of run {run_id} is not one of workflow {self.name!r} any "
                f"more: {error}.",
                run_id=str(run_id),
            ) from error

    def _sync(self, block: RunBlock, value: Any) -> WorkflowResult[OutputT]:
        if self.is_async:
            return self._on_a_loop(block, value)
        with block:
            made = self._output(block, self.function(self._given(block, value)))
        return WorkflowResult(block.run_id, made)

    def _on_a_loop(self, block: RunBlock, value: Any) -> WorkflowResult[OutputT]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._async(block, value))
        raise InvalidInputError(
            f"The workflow {self.name!r} is `async def`, and an event loop is running here: await "
            "arun or arecover."
        )

    async def _async(self, block: RunBlock, value: Any) -> WorkflowResult[OutputT]:
        async with block:
            found = self.function(self._given(block, value))
            made = self._output(block, await found if self.is_async else found)
        return WorkflowResult(block.run_id, made)

    def _given(self, block: RunBlock, value: Any) -> Any:
        """The input, as a recovery will give it."""
        recorded = block.redacted_request
        return value if recorded is None else self._input_of(recorded, block.run_id)

    def _output(self, block: RunBlock, value: Any) -> OutputT:
        try:
            return cast(OutputT, self._value.decode(block.end_with(self._value.encode(value))))
        except SchemaError as error:
            raise UnrecordableResultError(f"{self.name} (its result)", str(error)) from error


@overload
def workflow(
    name: str,
) -> Callable[
    [Callable[[InputT], Coroutine[Any, Any, OutputT]] | Callable[[InputT], OutputT]],
    Workflow[InputT, OutputT],
]: ...


@overload
def workflow(name: str, function: None = None) -> Any: ...


def workflow(name: str, function: None = None) -> Any:
    """Make a durable workflow of a function of one JSON-able input: `@workflow("orders/pay")`.

    The result has the surface of an Agent: run, arun, recover, arecover, replay. The function may
    be `async def`. What it does to the world it does in steps (`@step`) and by wrapped clients;
    the code between them runs again on every resume.
    """
    _check_name(name)
    return partial(Workflow, name)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise InvalidInputError(
            f"Invalid workflow name {short_repr(name)}: expected letters, digits, '.', '_' and "
            "'-', in parts between '/': 'orders/pay'."
        )


def _input_type(function: Any, name: str) -> Any:
    if not inspect.isfunction(function):
        raise StepDefinitionError(f"@workflow takes a function, got {short_repr(function)}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise StepDefinitionError("it is a generator: return a list instead.", name=name)
    parameters = list(inspect.signature(function).parameters.values())
    required = [one for one in parameters if one.default is inspect.Parameter.empty]
    if not parameters or len(required) > 1:
        raise StepDefinitionError(
            "a workflow takes one input: give it a dataclass for more.", name=name
        )
    try:
        kind = get_type_hints(function).get(parameters[0].name, Any)
        if kind is not Any:
            json_schema(kind)
    except Exception as error:
        raise StepDefinitionError(
            f"its input type can't be recorded: {error_message(error)}", name=name
        ) from error
    return kind
