"""A chat to be continued: what the user says is a message, and a tool counts in the session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, ScriptedLoop, calls, says, task
from turnledger.ledger import Ledger, new_run_id
from turnledger.runtime import (
    Message,
    MessageBuilder,
    Prompt,
    Reply,
    Request,
    Session,
    Tool,
    ToolContext,
    ToolResult,
)


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Nothing:
    pass


def reply_to(request: Request) -> Reply:
    """Note what the user said last, then answer with what the model was shown."""
    said = [
        block.text
        for turn in request.turns
        if turn.role == "user"
        for block in turn.blocks
        if hasattr(block, "text")
    ]
    if request.turn == 1:
        number = len(said)
        return calls((f"c{number}", "note", f'{{"text": "{said[-1]}"}}'))
    return says(f"{len(request.turns)} turns: {', '.join(said)}", provider_data={"seen": len(said)})


class Chat(ScriptedLoop[str, Any]):
    """Its tool notes a text in the session; `in_tool` is called within it."""

    def __init__(
        self,
        replies: Sequence[Any] | Callable[[Any], Reply] = reply_to,
        *,
        in_tool: Callable[[ToolContext], object] = lambda context: None,
        system: str = "Be brief.",
        more: Sequence[Any] = (),
        **options: Any,
    ) -> None:
        self.in_tool = in_tool
        self.system = system
        self.more = more
        self.ran: list[str] = []
        super().__init__(replies, **options)

    def create_session(self) -> Session:
        session = Session(bus=self._bus, clock=self._clock)
        session[Note].seed([Note("seed")])
        return session

    def create_prompt(self, request: str) -> Prompt[Any]:
        tool = Tool[Note, Any](name="note", description="Note a text.", handler=self._note)
        prompt = task(Nothing(), self.system, [tool], name="tests/chat", more=self.more)
        return prompt.with_messages(user(request))

    def _note(self, params: Note, *, context: ToolContext) -> ToolResult[Any]:
        self.in_tool(context)
        self.ran.append(context.call_id)
        assert context.session is not None
        context.session[Note].append(params)
        return ToolResult(f"Noted {params.text}.")


def user(text: str) -> Message:
    """A message of the user."""
    return MessageBuilder().add_text(text).to_message()


def turn(ledger: Ledger, text: str, continues: UUID | None = None, **options: Any) -> UUID:
    """A run of the chat, by a loop of its own, as another process would make it."""
    run = Chat(ledger=ledger, **options).execute(text, continues=continues)[0].run_id
    assert run is not None
    return run


def conversation(ledger: Ledger, *texts: str) -> list[UUID]:
    """The runs of a chat."""
    runs: list[UUID] = []
    for text in texts:
        runs.append(turn(ledger, text, runs[-1] if runs else None))
    return runs


def dies(context: ToolContext) -> None:
    """A tool in which the process dies."""
    raise Crash


def interrupted(ledger: Ledger, text: str, continues: UUID | None = None) -> UUID:
    """A turn that died in its tool."""
    run = new_run_id()
    with pytest.raises(Crash):
        Chat(ledger=ledger, in_tool=dies).execute(text, run_id=run, continues=continues)
    return run


def never(*_: Any) -> Any:
    """For a model or a tool that a replay must not reach."""
    raise AssertionError("an effect was performed in a replay")
