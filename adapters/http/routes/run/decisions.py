"""Decisions about calls in doubt, and about calls that need approval."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.answers import NEVER, Json, etag
from turnledger.adapters.http.protocol.api import Answer, Api
from turnledger.adapters.http.protocol.bodies import JSON, read_struct
from turnledger.adapters.http.protocol.parameters import IfMatch, RunPath
from turnledger.adapters.http.protocol.problems import Kind, ProblemError
from turnledger.adapters.http.served import Served
from turnledger.ledger import InvalidInputError, SliceChange
from turnledger.ledger.arguments import INT64
from turnledger.ledger.errors import error_message
from turnledger.runtime.recovery import approvals, doubts

Decision = Literal["completed", "failed", "retry", "approve", "deny", "edit"]


class DecisionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision about a call.

    A call in doubt: "completed" (with `value`, `text` and `changes` as the tool would have given
    them), "failed" (`text` is the reason) or "retry". A call that needs approval: "approve",
    "deny" (`text` is what the model is told) or "edit" (with other `arguments`).
    """

    call_id: Annotated[str, msgspec.Meta(max_length=10_000)]
    decision: Decision
    event_id: UUID
    value: Any = None
    text: str = ""
    changes: list[SliceChange] = []
    arguments: dict[str, Any] = {}
    by: str = ""


class Decided(msgspec.Struct, frozen=True):
    """A decision that is recorded; `version` is the run's now."""

    run_id: UUID
    call_id: str
    decision: Decision
    version: int


class Decisions:
    """The operation that decides about calls."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ledger = served.ledger

    def add_to(self, api: Api) -> None:
        """Add the operation."""
        api.add(
            "POST",
            "/v1/runs/{run}/resolve",
            self.resolve_call,
            role="writer",
            body={JSON: DecisionRequest},
            answers={200: Answer("The decision is recorded", {JSON: Decided}, ("etag",))},
            refuses=(
                problems.CONDITION_REQUIRED,
                problems.RUN_NOT_FOUND,
                problems.CALL_NOT_FOUND,
                problems.CALL_CHANGED,
                problems.RUN_CLAIMED,
                problems.ID_CONFLICT,
                problems.STREAM_KIND,
                problems.REFUSED,
            ),
        )

    async def resolve_call(
        self, request: Request, run: RunPath, if_match: IfMatch = None
    ) -> Response:
        """Decide about a call in doubt, or about one that needs approval.

        `If-Match` has the version of the run that the person saw. The run may have grown since,
        as long as the call is unchanged. The decision is used when the run is recovered. Sending
        the same request again is safe.
        """
        if if_match is None:
            raise ProblemError(
                problems.CONDITION_REQUIRED, 'Expected If-Match: "N", the version that was shown.'
            )
        asked = await read_struct(request, DecisionRequest)
        at = min(int(if_match.strip('"')), INT64.stop - 1)
        version = await self._served.work.append(lambda: self._decide(run, asked, at))
        answer = Decided(run, asked.call_id, asked.decision, version)
        return Json(answer, headers={"etag": etag(version), **NEVER})

    def _decide(self, run: UUID, asked: DecisionRequest, at: int) -> int:
        head = self._ledger.head(run)
        if at > head:  # the version of another run, perhaps: nothing was shown with it
            raise ProblemError(
                problems.CALL_CHANGED, f"The run is at version {head}; it has no version {at}."
            )
        try:
            self._record(run, asked, at)
        except approvals.CallNotFoundError as error:
            raise _problem(problems.CALL_NOT_FOUND, error) from None
        except approvals.CallChangedError as error:
            raise _problem(problems.CALL_CHANGED, error) from None
        except approvals.ApprovalRefusedError as error:
            raise _problem(problems.REFUSED, error) from None
        except InvalidInputError as error:
            if type(error) is not InvalidInputError:
                raise
            raise _problem(problems.REFUSED, error) from None  # what it decides does not fit
        return self._ledger.head(run)

    def _record(self, run: UUID, asked: DecisionRequest, at: int) -> None:
        ledger, call, event_id = self._ledger, asked.call_id, asked.event_id
        if asked.decision == "approve":
            approvals.approve(ledger, run, call, by=asked.by, at=at, event_id=event_id)
        elif asked.decision == "deny":
            approvals.deny(ledger, run, call, asked.text, by=asked.by, at=at, event_id=event_id)
        elif asked.decision == "edit":
            arguments = asked.arguments
            approvals.edit(ledger, run, call, arguments, by=asked.by, at=at, event_id=event_id)
        else:
            doubts.decide(
                ledger,
                run,
                call,
                asked.decision,
                value=asked.value,
                text=asked.text,
                changes=asked.changes,
                by=asked.by,
                at=at,
                event_id=event_id,
            )


def _problem(kind: Kind, error: Exception) -> ProblemError:
    return ProblemError(kind, error_message(error))
