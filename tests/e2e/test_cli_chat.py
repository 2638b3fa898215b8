"""The commands on a chat: `messages` has all that was said, `usage` the turn or the lineage."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.driving import InProcess
from tests.unit.runtime.chats import Chat
from turnledger.adapters.transcripts import Wanted, export_transcript
from turnledger.adapters.transcripts.export import _Replies
from turnledger.ledger import export_runs
from turnledger.projections import Conversation, fold_together, state_at
from turnledger.runtime.journal.loop_progress import ProviderData


@pytest.fixture
def chat(cli: InProcess) -> list[UUID]:
    """The runs of a chat of three turns."""
    runs: list[UUID] = []
    with cli.ledger() as ledger:
        for text in ("one", "two", "three"):
            loop = Chat(ledger=ledger, system=f"System of {text}.")
            run = loop.execute(text, continues=runs[-1] if runs else None)[0].run_id
            assert run is not None
            runs.append(run)
    return runs


def test_messages_of_a_turn_are_those_of_the_whole_chat(cli: InProcess, chat: list[UUID]) -> None:
    """In their order, under the turn's own system text; earlier turns are not "other"."""
    shown = cli("messages", chat[-1])
    said = ["System of three.", "one", "3 turns: one", "two", "7 turns: one, two", "three"]
    places = [shown.out.index(f"    {text}\n") for text in said]
    assert places == sorted(places)
    assert "System of one." not in shown.out
    assert "Other evaluations" not in shown.err
    turns = cli("messages", chat[-1], "-o", "jsonl").lines
    with cli.ledger() as ledger:
        assert len(turns) == len(state_at(ledger, chat[-1]).history.to_list()) == 12
        first = next(r for r in ledger.read(chat[0]) if r.tag == "evaluation.started")
        name: Any = first.event
    alone = cli("messages", chat[-1], "--evaluation", name.evaluation_id, "-o", "jsonl").lines
    assert alone == cli("messages", chat[0], "-o", "jsonl").lines


def test_usage_is_of_the_turn_and_with_lineage_of_all(cli: InProcess, chat: list[UUID]) -> None:
    """Each turn has two model calls of 13 tokens."""
    counts = [
        cli("usage", chat[-1], *options, "-o", "json").json["total"]["total_tokens"]
        for options in ([], ["--lineage"])
    ]
    assert counts == [26, 78]
    assert cli("usage", "-o", "json").json["total"]["total_tokens"] == 78
    assert cli("usage", "--lineage").code == 2


def test_a_timeline_begins_with_the_turn(cli: InProcess, chat: list[UUID]) -> None:
    """What the turns before it did is in theirs."""
    rows = cli("timeline", chat[-1], "-o", "jsonl").lines
    with cli.ledger() as ledger:
        at = ledger.run(chat[-1]).parent_version
    assert all(row["from_version"] is None or row["from_version"] > at for row in rows)
    assert 0 <= rows[0]["offset"] < 5


def test_a_transcript_is_of_the_whole_chat(cli: InProcess, chat: list[UUID]) -> None:
    """With what providers sent beyond messages, in whatever turn; an export has the lineage."""
    with cli.ledger() as ledger:
        body = export_transcript(ledger, chat[-1], Wanted(format="openai-chat"))
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["system", *["user", "assistant", "tool", "assistant"] * 3]
        conversation, replies = fold_together(ledger.read(chat[-1]), (Conversation(), _Replies()))
        beyond = dict(ProviderData(replies.beyond[conversation.latest]))
        assert beyond == {4: {"seen": 1}, 8: {"seen": 2}, 12: {"seen": 3}}
        out = io.BytesIO()
        export_runs(ledger, out, [chat[-1]])
    assert all(str(run).encode() in out.getvalue() for run in chat)
