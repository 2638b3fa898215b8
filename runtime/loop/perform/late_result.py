"""A tool that returns after its time was up: the result is recorded if the run waits for it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from turnledger.ledger import (
    ConcurrentAppendError,
    SliceChange,
    SliceEventApplied,
    ToolCallDecided,
)
from turnledger.ledger.errors import error_text
from turnledger.ledger.redaction.safe_logging import logger_of
from turnledger.projections import PendingTools, RunSummary, ToolCallView, fold
from turnledger.runtime.agent.tools.call import Invocation
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.session.overlay import Overlay

logger = logger_of("turnledger.tools")
BY = "the tool itself, late"


class LateResult:
    """Called with the outcome of a call that ran out of time, in the handler's thread.

    It takes the place of a person's decision about the call, as long as there is none and the
    run waits. Files that the tool changed are not carried: only the loop's thread records those.
    """

    def __init__(
        self, context: EvaluationContext[Any], call: ToolCallView, overlay: Overlay
    ) -> None:
        self._journal = context.journal
        self._call = call
        self._overlay = overlay

    def __call__(self, future: Future[Invocation]) -> None:
        self._overlay.close()
        name, call_id = self._call.name, self._call.call_id
        try:
            recorded = self._record(self._decision(future.result()))
        except BaseException as error:  # what the handler raised, or a ledger that is closed
            logger.warning("call %s of %s ended late: %s", call_id, name, error_text(error))
            return
        told = "is recorded" if recorded else "comes after the run went on, and is not recorded"
        logger.warning("call %s of %s ended late; its result %s", call_id, name, told)

    def _decision(self, outcome: Invocation) -> ToolCallDecided:
        changes = (e for e in self._overlay.events if isinstance(e, SliceEventApplied))
        done = outcome.succeeded
        return ToolCallDecided(
            call_id=self._call.call_id,
            attempt=self._call.attempts,
            decision="completed" if done else "failed",
            value=outcome.value,
            text=outcome.text,
            changes=tuple(
                SliceChange(
                    slice=one.slice,
                    event_type=one.event_type,
                    operation=one.operation,
                    payload=one.payload,
                )
                for one in changes
                if done
            ),
            decided_by=BY,
        )

    def _record(self, decision: ToolCallDecided) -> bool:
        """Append the decision while the call's outcome is unknown; False if it is not."""
        ledger, run_id = self._journal.ledger, self._journal.run_id
        while True:
            version = ledger.head(run_id)
            records = tuple(ledger.read(run_id, until=version))
            status = fold(records, RunSummary()).status
            call = fold(records, PendingTools()).get(self._call.call_id, self._call.evaluation_id)
            # The loop may not have written yet that the call is in doubt, or that it waits.
            is_open = call is not None and call.status in ("started", "in_doubt")
            if call is None or not is_open or status not in ("running", "waiting"):
                return False
            if call.superseded or call.decision or call.attempts != self._call.attempts:
                return False
            try:
                ledger.append(run_id, decision, version)
            except ConcurrentAppendError:
                continue
            return True
