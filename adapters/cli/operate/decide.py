"""Commands `pending` and `resolve`: tool calls that wait for a person, and decisions about them."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Sequence
from typing import Any, Literal
from uuid import UUID

import click
import msgspec

from turnledger.adapters.cli.operate.begun_by import how_to_continue, is_block
from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.output import run_name, say, shortened
from turnledger.adapters.cli.shared.parameters import (
    flag,
    name_of,
    optional_run_argument,
    run_argument,
    version_option,
)
from turnledger.adapters.cli.shared.views import arguments_text, without_performed
from turnledger.adapters.terminal_text import visible
from turnledger.ledger import (
    Ledger,
    ResourceSnapshotted,
    SliceChange,
    SliceEventApplied,
)
from turnledger.ledger.clock import moment_text, to_micros
from turnledger.ledger.errors import DAMAGE
from turnledger.ledger.runs.index import RunStatus
from turnledger.projections import PendingTools, ToolCallView, fold
from turnledger.projections.views.tools import ToolsState

# Width of a call's arguments in a table.
CELL = 60


@command(example="turnledger pending -o json")
@optional_run_argument
def pending(run: UUID | None) -> None:
    """List tool calls that have not ended.

    Of one run, or of all runs that have not ended. A call that needs approval runs only when a
    person approved it. A call in doubt was started and its outcome is unknown; if its run waits,
    a person has to decide. Both are decided with `turnledger resolve`. -o json has more fields,
    such as how often a call was started. A step of a block goes on when the block's script is run
    again.
    Of all runs, damaged ones are skipped and named, and the exit code is 5.
    """
    skipped = SkippedRuns()
    with open_ledger() as ledger:
        found = [_shown(*one) for one in _unfinished(ledger, run, skipped)]
        steps = dict.fromkeys(UUID(call["run_id"]) for call in found if call["is_step"])
        blocks = [one for one in steps if is_block(ledger, one)]
        names = [name_of(ledger.run(one)) or str(one) for one in blocks]
    headings = ("run", "version", "call", "tool", "state", "since", "arguments")
    printer().listing(found, headings, _row, nothing="No tool call is open.")
    if names:
        say(f"Continued when their scripts are run again: {visible(', '.join(names))}.")
    finish(skipped.code)


def _row(call: dict[str, Any]) -> list[Any]:
    # A step that another one is open in does not wait itself, and has begun again.
    lost = ("in_doubt",) if call["is_step"] else ("started", "in_doubt")
    asked = call["run_status"] == "waiting" and call["status"] in lost
    waits = ", waits" if asked and not call["decision"] else ""
    decided = f", decided: {call['decision']}" if call["decision"] else ""
    cells = [call[name] for name in ("run_id", "version", "call_id", "name")]
    cells += [call["status"] + waits + decided, call["started_at"]]
    return [*cells, shortened(visible(call["arguments"]), CELL)]


def _unfinished(
    ledger: Ledger, run: UUID | None, skipped: SkippedRuns
) -> Iterator[tuple[UUID, str, int, ToolCallView]]:
    if run is not None:
        version = ledger.head(run)
        tools = fold(ledger.read(run, until=version), PendingTools())
        status = ledger.run(run).status
        yield from ((run, status, version, call) for call in _left(tools))
        return
    statuses: tuple[RunStatus, ...] = ("waiting", "running", "failed", "parked")
    for status in statuses:
        for info in ledger.runs(status=status, on_damage=skipped):
            try:
                # With checks: a call that is not shown because its record is lost may be repeated.
                check = ledger.checked(info.run_id)
                tools = fold(check.read_on(), PendingTools())
            except DAMAGE as error:
                skipped(str(info.run_id), error)
                continue
            yield from ((info.run_id, status, check.version, call) for call in _left(tools))


def _left(tools: ToolsState) -> list[ToolCallView]:
    return without_performed(tools.pending(), tools)


def _shown(run_id: UUID, status: str, version: int, call: ToolCallView) -> dict[str, Any]:
    names = ("call_id", "name", "kind", "is_step", "parent", "attempts")
    decided = call.approval if call.approval in ("approved", "denied", "edited") else None
    return {
        "run_id": str(run_id),
        "run_status": status,
        "version": version,
        **{name: getattr(call, name) for name in names},
        "status": "needs approval" if call.awaits_approval else call.status,
        "arguments": arguments_text(call),
        "started_at": call.started_at and moment_text(to_micros(call.started_at)),
        "decision": call.lasting_decision or decided,
    }


@command(
    example="""\
turnledger resolve 099a8057 call_7 --completed '{"paid": true}'
turnledger resolve 099a8057 call_7 --completed --text "Paid 5."
turnledger resolve 099a8057 call_7 --failed "the bank refused"
turnledger resolve 099a8057 call_7 --retry
turnledger resolve 099a8057 call_8 --approve
turnledger resolve 099a8057 call_8 --deny "Ask the customer first."
turnledger resolve 099a8057 call_8 --edit '{"euros": 5}'""",
)
@run_argument
@click.argument("call_id")
@click.option(
    "--completed",
    is_flag=False,
    flag_value="",
    metavar="[JSON]",
    help="The call happened, with this result (or that of --value, --text and --change).",
)
@click.option("--failed", metavar="TEXT", help="The call did not happen, for this reason.")
@flag("--retry", help="Run the call again.")
@flag("--approve", help="The call needs approval: let it run.")
@click.option("--deny", metavar="TEXT", help="It must not run; the model is told this.")
@click.option("--edit", metavar="JSON", help="Let it run with these arguments instead.")
@click.option("--text", metavar="TEXT", help="What the model is told. Default: the value.")
@click.option("--value", metavar="JSON", help="The result as data.")
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="JSON",
    help='A session change: {"slice": NAME, "event_type": NAME, "operation": "apply", "append", '
    '"seed" or "clear", "payload": JSON}. Can be repeated.',
)
@version_option(
    "--at",
    least=1,
    metavar="VERSION",
    help="The version that `pending` showed: refuse if the call changed since.",
)
@click.option(
    "--by", metavar="NAME", help="Name of the person who decides. Default: your user name."
)
def resolve(
    run: UUID,
    call_id: str,
    completed: str | None,
    failed: str | None,
    retry: bool,
    approve: bool,
    deny: str | None,
    edit: str | None,
    text: str | None,
    value: str | None,
    changes: tuple[str, ...],
    at: int | None,
    by: str | None,
) -> None:
    """Approve or deny a tool call, or decide one in doubt.

    A call that needs approval takes --approve, --deny or --edit, for its next attempt and in this
    run only. The arguments of --edit are checked against the schema that the model was sent.
    A call in doubt takes --completed, --failed or --retry.

    The decision is recorded, and used when the run is recovered. It is about the attempt of the
    call that is in doubt now: --retry is used up by one attempt. Nothing is recorded if the call
    changed meanwhile, or since version --at, and exits with 4 then.

    With --completed, --text and --value are what the tool would have said, and each --change is
    what it would have changed in the session; they are recorded with the result, all or none.
    Not carried: files and other resources, which stay as they were before the call, and messages
    that the tool would have added. A change is checked when the run is recovered, as its types
    are your program's.

    A durable step has no model that is told anything, and no session: the JSON of --completed or
    --value is what your code gets as the step's value, null without one.
    """
    approval = approve + (deny is not None) + (edit is not None)
    if (completed is not None) + (failed is not None) + retry + approval != 1:
        raise click.UsageError(
            "Give exactly one of --approve, --deny and --edit, or of --completed, --failed and "
            "--retry."
        )
    if completed is None and (text is not None or value is not None or changes):
        raise click.UsageError("--text, --value and --change need --completed.")
    if completed and value is not None:
        raise click.UsageError("Give the value with --completed or with --value, not with both.")
    if approval:
        _resolve_approval(run, call_id, deny=deny, edit=edit, at=at, by=by or user_name())
        return
    option = "--completed" if completed else "--value"
    result = _json(completed or value, Any, option) if completed or value is not None else None
    carried = tuple(_json(one, SliceChange, "--change") for one in changes)
    from turnledger.runtime.recovery.doubts import NotForStepsError, decide  # slow to import

    with open_ledger() as ledger:
        outcome: Literal["completed", "failed", "retry"] = (
            "retry" if retry else "completed" if failed is None else "failed"
        )
        try:
            call = decide(
                ledger,
                run,
                call_id,
                outcome,
                value=result,
                text=failed or text or "",
                changes=carried,
                by=by or user_name(),
                at=at,
            )
        except NotForStepsError as error:
            raise click.UsageError(str(error)) from None
        if completed is not None and not call.is_step:
            _say_not_carried(ledger, run, carried)
        continuing = f"turnledger recover {run_name(run)} --app module:agent"
        if call.is_step:
            continuing = how_to_continue(ledger, run)
    say(
        f"Recorded for call {visible(call_id)} ({visible(call.name)}), attempt {call.attempts}: "
        f"{outcome}. Continue the run: {visible(continuing)}"
    )


def _resolve_approval(
    run: UUID, call_id: str, *, deny: str | None, edit: str | None, at: int | None, by: str
) -> None:
    """Record a decision about a call that needs approval."""
    from turnledger.runtime.recovery import approvals  # slow to import

    with open_ledger() as ledger:
        if edit is not None:
            call, done = approvals.edit(ledger, run, call_id, edit, by=by, at=at), "edited"
        elif deny is not None:
            call, done = approvals.deny(ledger, run, call_id, deny, by=by, at=at), "denied"
        else:
            call, done = approvals.approve(ledger, run, call_id, by=by, at=at), "approved"
    say(
        f"Recorded for call {visible(call_id)} ({visible(call.name)}): {done}. Continue the run: "
        f"turnledger recover {run} --app module:agent"
    )


def _json(text: str | None, kind: Any, option: str) -> Any:
    """An option's value, decoded."""
    try:
        return msgspec.json.decode(text or "", type=kind)
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"not a session change: {error}", param_hint=option) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        advice = " Text for the model is given with --text." if option == "--completed" else ""
        raise click.BadParameter(f"not JSON: {error}.{advice}", param_hint=option) from None


def _say_not_carried(ledger: Ledger, run: UUID, changes: Sequence[SliceChange]) -> None:
    """Name what a decision leaves as it was before the call."""
    resources, slices = dict[str, None](), dict[str, None]()
    tags = (ResourceSnapshotted.tag, SliceEventApplied.tag)
    for event in (record.event for record in ledger.read(run) if record.tag in tags):
        if isinstance(event, ResourceSnapshotted):
            resources[event.resource] = None
        elif isinstance(event, SliceEventApplied):
            slices[event.slice] = None
    if resources:
        say(
            f"Not carried: what the call changed in {visible(', '.join(resources))}. These files "
            "stay as they were before the call."
        )
    unknown = [change.slice for change in changes if change.slice not in slices]
    if unknown:
        say(
            f"Note: the run has not used the slice {visible(', '.join(unknown))} so far. Slices "
            f"that it has used: {visible(', '.join(slices) or 'none')}."
        )


def user_name() -> str:
    """The name of the operating system's user; "" if it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
