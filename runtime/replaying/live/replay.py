"""`replay_live`: re-execute a run in a fork, with chosen parts live.

`--live tool:search`, `--live model`: these call the handler or the provider; everything else is
answered from the record. The run stays as it was. The fork begins before the first effect that is
live, and is a run like any other: it can be inspected, compared, recovered and replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from turnledger.ledger import (
    InvalidInputError,
    Ledger,
    Record,
    ToolCallStarted,
    TurnledgerError,
)
from turnledger.ledger.arguments import explain_arguments
from turnledger.ledger.runs.append_request import RunId, canonical_id
from turnledger.ledger.runs.names import LIVE_TAG
from turnledger.projections import PendingTools, fold_together
from turnledger.projections.views.tools import ToolsState
from turnledger.runtime.checkpoints.checkpoint import RecoveryConfig
from turnledger.runtime.loop.evaluation import evaluate_with
from turnledger.runtime.loop.events import PromptResponse
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.main_loop import MainLoop
from turnledger.runtime.recovery.find import agent_of, check_agent, request_event
from turnledger.runtime.recovery.recover import RecoveryOptions, recover_from_ledger
from turnledger.runtime.recovery.request_types import request_from
from turnledger.runtime.replaying.live.effects import Missing, PartlyLiveEffects, Stopped
from turnledger.runtime.replaying.live.outcomes import RecordedOutcomes
from turnledger.runtime.replaying.live.selection import (
    Live,
    LiveNews,
    Part,
    check_tools,
    live_parts_of,
    offered,
)
from turnledger.runtime.replaying.replay import check_chain
from turnledger.runtime.session.session import Session

if TYPE_CHECKING:
    from turnledger.projections.comparison.runs import Divergence

Status = Literal["completed", "failed", "waiting", "stopped"]


class NotRecordedError(TurnledgerError):
    """The loop needs an outcome that is neither live nor recorded; the fork stopped before it.

    `live` is the part that would have to be live too. The fork can be recovered; everything is
    live then.
    """

    def __init__(self, run_id: str, fork: UUID, missing: Missing) -> None:
        self.run_id, self.fork = run_id, fork
        self.live, self.asked = missing.live, missing.asked
        super().__init__(
            f"Run {run_id} has no record of {missing.asked}: the fork {fork} has stopped there. "
            f"Make that part live too: --live {missing.live}."
        )


@dataclass(frozen=True)
class LiveReplay:
    """The result of a live replay: the fork, and which of its effects were live.

    A fork that failed has its `error`, one that completed its `response`; one that "stopped"
    needed what was recorded after `until`. `first_difference` names the first events in which the
    run (`first`) and the fork (`second`) differ in substance; None if there is none.
    """

    run_id: UUID
    fork: UUID
    forked_at: int
    status: Status
    live: tuple[Part, ...]
    recorded: tuple[Part, ...]
    first_difference: Divergence | None = None
    response: PromptResponse[Any] | None = None
    error: Exception | None = None


@explain_arguments
def replay_live(
    ledger: Ledger,
    run_id: RunId,
    loop: MainLoop[Any, Any],
    *,
    live: Iterable[str],
    until: int | None = None,
) -> LiveReplay:
    """Re-execute a run in a fork: `live` parts for real, the rest from the record.

    Limits of time and tokens are off. InvalidInputError, and no fork, if nothing of the run would
    be live; NotRecordedError if the loop needs an outcome that is not on record.

    Args:
        ledger: Where the run is, and the fork will be.
        run_id: The run.
        loop: The loop to re-execute.
        live: `model`, `tool:NAME`, or several of these.
        until: A version of the run; the fork stops where it would need a later outcome.
    """
    run, chosen = UUID(canonical_id(run_id)), Live.of(live)
    check_chain(ledger, run)
    host = loop.loop_host
    check_agent(run, agent_of(ledger, run), host.name)
    request = _request(ledger, run, host)
    records = list(ledger.read(run))
    own = [record for record in records if str(record.run_id) == str(run)]
    session = host.create_session()
    if session.was_attached:
        raise InvalidInputError(
            "The loop keeps a session that was in a run already, and a replay would move it. "
            "Make another loop for the replay."
        )
    check_tools(run, chosen, records, lambda: offered(host, session, request))
    at = _fork_point(run, chosen, records, own, until)
    effects = PartlyLiveEffects(chosen, RecordedOutcomes(records, after=at), until)
    fork = ledger.fork(run, at, tags={LIVE_TAG: " ".join(chosen.names)})
    response, failure = None, None
    try:
        with _forks_host(host, ledger, effects, chosen) as forks:
            response, _ = recover_from_ledger(forks, fork, RecoveryOptions())
    except Stopped as stopped:
        if not stopped.missing.is_later:
            raise NotRecordedError(str(run), fork, stopped.missing) from None
    except Exception as error:
        if ledger.run(fork).status not in ("failed", "waiting"):
            error.add_note(f"The fork is {fork}.")
            raise
        failure = error
    found = ledger.run(fork).status
    status: Status = found if found in ("completed", "failed", "waiting") else "stopped"
    return LiveReplay(
        run_id=run,
        fork=fork,
        forked_at=at,
        status=status,
        live=tuple(live_parts_of(ledger.read(fork, after=at), chosen)),
        recorded=tuple(effects.recorded),
        first_difference=_first_difference(ledger, run, fork, status),
        response=response,
        error=failure,
    )


def _request(ledger: Ledger, run: UUID, host: LoopHost) -> Any:
    """The run's request; an error if it has none, or one that this loop does not take."""
    asked = request_event(ledger, run)
    if asked is None or asked.request_id is None:
        raise InvalidInputError(
            f"Run {run} has no request: it was not started by a loop and can't be re-executed."
        )
    return request_from(str(run), host.request_type, asked.request_type, asked.request)


# --- where the fork begins ---------------------------------------------------------------


def _fork_point(
    run: UUID, live: Live, records: Sequence[Record], own: Sequence[Record], until: int | None
) -> int:
    """Where to fork: at the last commit before the first live effect with no call under way.

    A call that was started there would be in doubt in the fork, though its end is on record. The
    part that a run shares with its parent can't be forked here: it is the parent's.
    """
    point, projections = None, (PendingTools(),)
    states = fold_together(records[: len(records) - len(own)], projections)
    for _, group in groupby(own, lambda record: record.commit):
        commit = list(group)
        first = next((record for record in commit if live.begins_at(record)), None)
        if first is not None and (until is None or first.version <= until):
            if point is not None:
                return point
            raise InvalidInputError(
                f"Version {first.version} of run {run} would be live, and no commit of the run "
                "ends before it with no call under way: there is no version to fork at."
            )
        states = fold_together(commit, projections, states)
        if not _under_way(*states):
            point = commit[-1].version
    called = dict.fromkeys(r.event.name for r in own if isinstance(r.event, ToolCallStarted))
    where = f" up to version {until}" if until is not None else ""
    before = ", which went on from another run," if own[0].version > 1 else ""
    raise InvalidInputError(
        f"Nothing in run {run}{before}{where} would be live with {' '.join(live.names)}. "
        f"The tools that were called in it: {', '.join(called) or 'none'}."
    )


def _under_way(state: ToolsState) -> bool:
    """Whether a call has no outcome; a decision to retry it counts for one run only."""
    return any(
        call.status in ("started", "in_doubt") and call.decision not in ("completed", "failed")
        for call in state.pending()
    )


# --- running it --------------------------------------------------------------------------


@contextmanager
def _forks_host(
    host: LoopHost, ledger: Ledger, effects: PartlyLiveEffects, live: Live
) -> Iterator[LoopHost]:
    """The user's loop for the fork: only live parts reach its listeners and resources."""
    with ExitStack() as stack:

        def create_session() -> Session:
            session = host.create_session()
            stack.enter_context(session.unobserved())
            return session

        yield replace(
            host,
            ledger=ledger,
            bus=LiveNews(live, host.bus),
            create_session=create_session,
            # For tools that are live. The files that the others left are on record.
            resources=host.resources if live.tools else dict,
            prepare=host.prepare if live.tools else lambda prompt, state: None,
            needs_optimization=lambda session: live.model and host.needs_optimization(session),
            recovery=host.recovery or RecoveryConfig(),
            backend=None,
            evaluate=evaluate_with(effects, host.adapter),
        )


def _first_difference(ledger: Ledger, run: UUID, fork: UUID, status: Status) -> Divergence | None:
    from turnledger.projections.comparison.runs import compare  # only needed with a fork

    found = compare(ledger, run, fork).divergence
    if found is not None and found.second is None and status == "stopped":
        return None  # the fork only did not come as far
    return found
