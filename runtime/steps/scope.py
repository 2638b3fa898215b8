"""`StepScope`: where code asks for steps, found by context; and the two drivers of a step.

    receipt = perform(StepSpec(name="pay", arguments={"amount": 120}), lambda: pay(120), codec)

Outside of a run both drivers are a plain call. The context goes along with tasks, and with threads
that copy it (`asyncio.to_thread`, LangChain's executors); a plain thread has none.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from turnledger.ledger import ANY, Claim, Draft, Event, Ledger, Record, StoreUnavailableError
from turnledger.ledger.errors import error_text
from turnledger.ledger.runs.append import Entry
from turnledger.runtime.agent.run_control import at_the_disk
from turnledger.runtime.journal.journal import ATTEMPTS, Journal
from turnledger.runtime.journal.tool_scope import SCOPE, ToolScope, strand
from turnledger.runtime.steps.outcome import NO_OUTCOME, raise_outcome, raised_live
from turnledger.runtime.steps.record.index import StepIndex, StepOutcome
from turnledger.runtime.steps.record.open_step import OpenStep
from turnledger.runtime.steps.record.recorder import Place, StepRecorder
from turnledger.runtime.steps.spec import StepCodec, StepSpec

T = TypeVar("T")
Begun: TypeAlias = StepOutcome | OpenStep
# As many as AsyncLedger has: steps of many tasks share one flush of the disk.
THREADS = 64
# The recorded name of the error of a step that its caller cancelled; how many seconds a resume
# waits to be cancelled again, before such a step has failed.
CANCELLED = asyncio.CancelledError.__name__
MOST_WAIT = 600.0


class StepScope:
    """A place in a run's code where steps are asked for.

    Attributes:
        recorder: The steps of the run.
        place: The step that this is in, if any.
        step: That step.
    """

    def __init__(self, recorder: StepRecorder, place: Place, step: OpenStep | None = None) -> None:
        self.recorder, self.place, self.step = recorder, place, step

    @property
    def run_id(self) -> UUID:
        return self.recorder.run_id

    @property
    def ledger(self) -> Ledger:
        return self.recorder.ledger

    @property
    def is_replay(self) -> bool:
        """Whether nothing is performed and nothing written: a replay, or a run that has ended."""
        return self.recorder.mode != "live"

    @property
    def memory(self) -> dict[str, Any]:
        """What integrations remember of the run in this process."""
        return self.recorder.memory

    def append(self, events: Sequence[Event], blobs: Iterable[bytes] = ()) -> Sequence[Record]:
        """Append to the run under its claim; on disk when it returns."""
        return self.recorder.append(events, blobs)

    def begin(self, spec: StepSpec, events: Iterable[Event] = ()) -> Begun:
        """Ask for a step: its recorded outcome, or the step itself with its start on disk.

        An open step must be ended: `complete`, `fail`, `fail_with`, or `leave` if it was
        interrupted.

        Args:
            spec: The step.
            events: Recorded before its start, in the same commit.
        """
        return self.recorder.begin(self.recorder.reserve(spec, self.place), events)

    async def abegin(self, spec: StepSpec, events: Iterable[Event] = ()) -> Begun:
        """`begin` for an event loop: the id is given at once, the disk's part in a thread."""
        reserved = self.recorder.reserve(spec, self.place)
        begun: list[Begun] = []
        try:
            await off_loop(lambda: begun.append(self.recorder.begin(reserved, events)))
        except asyncio.CancelledError as error:
            for one in begun:
                if isinstance(one, OpenStep):
                    one.interrupted(error)
            self.recorder.closed(reserved.call_id)
            raise
        return begun[0]

    @contextmanager
    def inside(self, step: OpenStep) -> Iterator[None]:
        """Steps that are asked for in the block are inner steps of this one."""
        inner = StepScope(self.recorder, Place(step.call_id, strand()), step)
        token = SCOPE.set(inner)
        try:
            yield
        finally:
            SCOPE.reset(token)


def current_scope() -> StepScope | None:
    """Where steps of this code are recorded; None outside of a run."""
    found = SCOPE.get()
    if isinstance(found, ToolScope):
        return _in_tool(found)
    scope: StepScope | None = found
    return scope


def _in_tool(tool: ToolScope) -> StepScope:
    """The scope of a handler: steps in it are inner steps of its call."""
    journal = tool.journal
    with journal.lock:
        if journal.steps is None:
            journal.steps = StepRecorder(
                journal.ledger,
                journal.run_id,
                _index_of(journal),
                partial(_append_beside, journal),
                check_claim=journal.check_claim,
            )
        recorder: StepRecorder = journal.steps
        path = recorder.path_of_call(tool.call_id, tool.number, journal.state)
    return StepScope(recorder, Place(path, tool.strand, tool.call_id))


def _index_of(journal: Journal) -> StepIndex:
    index = StepIndex()
    version = journal.committed.version
    for record in journal.ledger.read(journal.run_id, until=version) if version else ():
        index.take(record)
    return index


def _append_beside(
    journal: Journal, events: Sequence[Event | Entry], blobs: Iterable[bytes] = ()
) -> Sequence[Record]:
    """Append beside what the loop has pending; the journal folds it at once."""
    with journal.lock:
        records = append_claimed(journal.ledger, journal.run_id, journal.claim, events, blobs)
        journal.refresh()
    return records


def append_claimed(
    ledger: Ledger,
    run_id: UUID,
    claim: Claim | None,
    events: Sequence[Event | Entry],
    blobs: Iterable[bytes] = (),
) -> Sequence[Record]:
    """Append at any version: the epoch keeps other workers out, and others may only comment.

    Args:
        ledger: Where the run is.
        run_id: The run.
        claim: The worker's claim.
        events: What to append.
        blobs: Bytes that the events name.
    """
    content = list(blobs)
    entries = [
        one if isinstance(one, Entry) else ledger.prepare(Draft(one, ledger.clock.new_id()))
        for one in events
    ]
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with at_the_disk():
                return ledger.append(
                    run_id,
                    entries,
                    expected_version=ANY,
                    epoch=claim.epoch if claim is not None else None,
                    blobs=content,
                ).records
        except StoreUnavailableError:
            # It may have been written: the same ids with the same bytes are safe to append again.
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def perform(spec: StepSpec, call: Callable[[], T], codec: StepCodec[T]) -> T:
    """Perform a step, or answer it from the record.

    Args:
        spec: The step.
        call: Performs it.
        codec: Its value to JSON and back.
    """
    scope = current_scope()
    if scope is None:
        return call()
    begun = scope.begin(replace(spec, takes=codec.decode))
    if isinstance(begun, StepOutcome):
        return _recorded(begun, spec, codec)
    try:
        with scope.inside(begun):
            value = call()
    except BaseException as error:
        raise_failure(scope, begun, error)
    return _live(scope, begun, value, codec)


async def aperform(spec: StepSpec, call: Callable[[], Awaitable[T]], codec: StepCodec[T]) -> T:
    """`perform` for an event loop; arguments as there."""
    scope = current_scope()
    if scope is None:
        return await call()
    begun = await scope.abegin(replace(spec, takes=codec.decode))
    if isinstance(begun, StepOutcome):
        if begun.error_type == CANCELLED:
            await _until_cancelled()
        return _recorded(begun, spec, codec)
    try:
        with scope.inside(begun):
            value = await call()
    except Exception as error:
        await off_loop(partial(raise_failure, scope, begun, error))
    except BaseException as error:
        begun.interrupted(error)
        raise
    return await off_loop(partial(_live, scope, begun, value, codec))


async def _until_cancelled() -> None:
    """Give no answer, as there was none: code that cancelled the step does so again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(MOST_WAIT):
            await asyncio.Event().wait()


def raise_failure(scope: StepScope, step: OpenStep, error: BaseException) -> Any:
    """Record what a step raised, and raise what a resume will raise too.

    An interruption, or an error that halts the run, leaves the step without an outcome.
    """
    halted = scope.recorder.halted
    if isinstance(error, Exception) and halted is not None:
        step.leave()
        scope.recorder.stop(halted, scope.place.parent)
        raise halted from error if halted is not error else None
    if not isinstance(error, Exception) or isinstance(error, NO_OUTCOME):
        step.interrupted(error)
        raise error
    raised_live(step, error)


def _recorded(outcome: StepOutcome, spec: StepSpec, codec: StepCodec[T]) -> T:
    raise_outcome(outcome, spec.raises)
    return codec.decode(outcome.value)


def _live(scope: StepScope, step: OpenStep, value: T, codec: StepCodec[T]) -> T:
    """Record a value, and give it as a resume will."""
    try:
        data = codec.encode(value)
        made = codec.decode(data)
    except Exception as error:
        outcome = step.unrecordable(error_text(error))
    else:
        outcome = step.complete(data)
    raise_outcome(outcome, step.spec.raises)
    return codec.decode(outcome.value) if step.is_redacted else made


async def off_loop(work: Callable[[], T]) -> T:
    """Do disk work in a thread. A cancelled task waits until the work has ended."""
    future = asyncio.get_running_loop().run_in_executor(_pool(), work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                continue
        if not future.cancelled():
            future.exception()  # it is retrieved
        raise


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "turnledger-steps")


# A process that was forked has the executor without its threads.
os.register_at_fork(after_in_child=_pool.cache_clear)
