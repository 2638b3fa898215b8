"""Command `chat`: talk with an agent in a terminal, turn by turn.

Each turn is a run of its own. The chat is found again by its name, a tag: after Ctrl-C or a kill
the same command first goes on with the last turn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import click

from turnledger.adapters.cli.operate.decide import user_name
from turnledger.adapters.cli.shared.command import command, open_ledger
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import loop_option
from turnledger.adapters.cli.shared.user_code import ending_on_sigterm, load_app
from turnledger.adapters.terminal_text import visible, visible_lines
from turnledger.ledger import ANY, Ledger, RunInfo, ToolCallDecided, TurnledgerError
from turnledger.projections import PendingTools, ToolCallView, fold

if TYPE_CHECKING:  # slow to import
    from turnledger.runtime.agents.agent import Agent

# The tag of the runs of a chat; its value is the chat's name.
CHAT_TAG = "turnledger.chat"
# Characters of a tool's arguments or result on its line.
SHOWN = 60


@command(
    example="""\
turnledger chat --app myagent:agent
turnledger chat --app myagent:agent --name invoices""",
    without=("output",),
)
@loop_option
@click.option(
    "--name",
    default="chat",
    metavar="NAME",
    help="The chat to begin or to go on with.",
    show_default=True,
)
def chat(app: str, name: str) -> None:
    """Talk with your agent in the terminal.

    Text is shown as it comes, tools as they run. A call that needs approval, or whose outcome is
    unknown, is asked about. Ctrl-D ends the chat. After Ctrl-C, or if the process was killed, the
    same command first goes on with the last turn. The chat is the runs with the tag
    turnledger.chat=NAME. The ledger is created if it does not exist.
    """
    agent = _agent(app)
    with open_ledger(create=True) as ledger, ending_on_sigterm():
        Chat(agent, ledger, name).talk()


def _agent(app: str) -> Agent[Any, Any]:
    from turnledger.runtime.agents.agent import Agent

    found = load_app(app)
    if not isinstance(found, Agent):
        raise click.BadParameter(
            f"{app!r} is a {type(found).__name__}, expected an Agent.", param_hint="--app"
        )
    return found


class Chat:
    """One chat: its agent, its ledger, and the runs that it consists of."""

    def __init__(self, agent: Agent[Any, Any], ledger: Ledger, name: str) -> None:
        self._agent = agent
        self._ledger = ledger
        self._tags = {CHAT_TAG: name}
        self._in_text = False

    def talk(self) -> None:
        """Go on with the last turn, then answer what is typed until the end of input."""
        newest, last = next(self._turns(), None), self._last()
        if newest is not None and newest.status in _LEFT_OUT:
            say(f"The last turn, run {newest.run_id}, is {newest.status}: it is left out.")
        if last is not None and last.status != "completed":
            say(f"Going on with the last turn, run {last.run_id}.")
            self._finish(last.run_id)
        if sys.stdin.isatty():
            say(f"Chat {self._tags[CHAT_TAG]!r} with {self._agent.name}. Ctrl-D ends it.")
        for text in _typed():
            run, last = UUID(self._ledger.clock.new_id()), self._last()
            try:
                self._agent.run(
                    text,
                    ledger=self._ledger,
                    run_id=run,
                    continues=last.run_id if last is not None else None,
                    tags=self._tags,
                    on_event=self._show,
                )
            except TurnledgerError as error:
                self._tell(run, error)
            self._end_line()

    def _last(self) -> RunInfo | None:
        """The newest turn that the chat can go on from; None if it has not begun."""
        return next((one for one in self._turns() if one.status not in _LEFT_OUT), None)

    def _turns(self) -> Iterator[RunInfo]:
        """The turns of the chat, newest first."""
        return self._ledger.runs(tags=self._tags, agent=self._agent.name)

    def _finish(self, run: UUID) -> None:
        """Recover a turn; one that fails again is left as it is, and the chat goes on."""
        try:
            self._agent.recover(run, ledger=self._ledger, on_event=self._show)
        except TurnledgerError as error:
            self._tell(run, error)
        self._end_line()

    def _tell(self, run: UUID, error: TurnledgerError) -> None:
        from turnledger.runtime import DecisionRequiredError
        from turnledger.runtime.recovery.approvals import ApprovalRefusedError

        self._end_line()
        if not isinstance(error, DecisionRequiredError):
            say(f"Error: {error}")
            return
        calls = fold(self._ledger.read(run), PendingTools()).pending()
        for call in calls:
            if call.call_id in error.call_ids:
                try:
                    self._decide(run, call)
                except ApprovalRefusedError as refused:
                    say(f"Error: {refused}")  # and it is asked again
                except click.Abort:
                    say("\nNothing was decided: the call waits, and the same command asks again.")
                    raise
        self._finish(run)

    def _decide(self, run: UUID, call: ToolCallView) -> None:
        """Ask about one call, and record what the person decides."""
        from turnledger.runtime.recovery import approvals

        approves = call.awaits_approval
        why = "needs your approval" if approves else "may or may not have happened"
        say(f"{call.name} {call.given_arguments} {why}.")
        chosen = _choose("approve", "deny", "edit") if approves else _choose(*_OUTCOMES)
        by, call_id = user_name(), call.call_id
        if chosen == "approve":
            approvals.approve(self._ledger, run, call_id, by=by)
        elif chosen == "deny":
            text = _ask("What the model is told", "A person denied this call.")
            approvals.deny(self._ledger, run, call_id, text, by=by)
        elif chosen == "edit":
            arguments = _ask("Arguments as JSON", call.given_arguments)
            approvals.edit(self._ledger, run, call_id, arguments, by=by)
        else:
            text = "" if chosen == "retry" else _ask("What the model is told", "")
            decision = ToolCallDecided(
                call_id=call_id,
                decision=_OUTCOMES[chosen],
                text=text,
                decided_by=by,
                attempt=call.attempts,
            )
            self._ledger.append(run, decision, ANY)

    # --- what is seen ---

    def _show(self, event: Any) -> None:
        from turnledger.runtime.loop.events import TextDelta, ToolEnded, ToolStarted

        if isinstance(event, TextDelta):
            self._write(visible_lines(event.text))
        elif isinstance(event, ToolStarted):
            self._end_line()
            say(f"  {visible(event.name)} {visible(event.arguments)[:SHOWN]}")
        elif isinstance(event, ToolEnded):
            mark = "done" if event.success else "failed"
            say(f"  {visible(event.name)} {mark}: {visible(str(event.result))[:SHOWN]}")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._in_text = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._in_text:
            self._write("\n")


# Turns that are not recovered any more: the chat goes on from the one before.
_LEFT_OUT = ("abandoned", "parked")
# What a person may say of a call whose outcome is unknown.
_OUTCOMES: dict[str, Literal["completed", "failed", "retry"]] = {
    "happened": "completed",
    "failed": "failed",
    "retry": "retry",
}


def _choose(*choices: str) -> str:
    chosen: str = click.prompt("Your decision", type=click.Choice(choices), err=True)
    return chosen


def _ask(question: str, default: str) -> str:
    answer: str = click.prompt(question, default=default, err=True, show_default=bool(default))
    return answer


def _typed() -> Iterator[str]:
    """The lines that are typed, until the end of input; empty ones are left out."""
    while True:
        if sys.stdin.isatty():
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = ""
        with suppress(EOFError):
            line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()
