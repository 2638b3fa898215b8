"""Replays, comparisons and forks of a chat turn: from its own first event, with all its past."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, calls
from tests.unit.runtime.chats import (
    Chat,
    Note,
    Nothing,
    conversation,
    dies,
    interrupted,
    never,
    reply_to,
    turn,
)
from turnledger.ledger import Ledger, new_run_id
from turnledger.projections import compare, state_at
from turnledger.runtime import (
    MarkdownSection,
    Prompt,
    Reply,
    Request,
    SectionVisibility,
    Session,
    replay,
    replay_live,
    what_if,
)


def test_a_turn_is_replayed_without_model_or_handler(ledger: Ledger) -> None:
    """All attempts of it, and nothing of the turns before it is executed again."""
    run = interrupted(ledger, "two", turn(ledger, "one"))
    Chat(ledger=ledger).recover(run)
    done = replay(ledger, run, loop=Chat(never, in_tool=never))
    assert (done.ok, done.attempts) == (True, 2)
    assert replay(ledger, run).ok


def test_a_changed_prompt_is_found_at_the_turns_own_event(ledger: Ledger) -> None:
    """The turns before it had prompts of their own, and are not compared."""
    first = turn(ledger, "one", system="Be terse.")
    run = turn(ledger, "two", first)
    assert replay(ledger, run, loop=Chat(never)).ok
    found = replay(ledger, run, loop=Chat(never, system="Be long.")).divergence
    assert found is not None
    assert found.version > ledger.head(first)


def test_create_prompt_is_replayed_against_the_state_where_it_ran(ledger: Ledger) -> None:
    """And what it changes in the session is recorded once, and compared."""

    class Counting(Chat):
        marks = "prompted"

        def create_prompt(self, request: str) -> Prompt[Any]:
            session = self.session
            self.system = f"You have {len(session[Note].all())} notes."
            session[Note].append(Note(self.marks))
            return super().create_prompt(request)

        def create_session(self) -> Session:
            self.session = super().create_session()
            return self.session

    def begun() -> UUID:
        chat = Counting(ledger=ledger)
        run = chat.execute("one")[0].run_id
        assert run is not None
        return run

    run = new_run_id()
    with pytest.raises(Crash):
        Counting(ledger=ledger, in_tool=dies).execute("two", run_id=run, continues=begun())
    _, session = Counting(ledger=ledger).recover(run)
    texts = [note.text for note in session[Note].all()]
    assert texts == ["seed", "prompted", "one", "prompted", "two"]
    assert replay(ledger, run, loop=Counting(never, in_tool=never)).ok
    other = Counting(never, in_tool=never)
    other.marks = "other"
    assert not replay(ledger, run, loop=other).ok


def test_changes_between_two_turns_of_one_session_belong_to_the_next(ledger: Ledger) -> None:
    """A session that is kept may be changed while no run has it; a replay takes that as it was."""

    class Kept(Chat):
        kept: Session | None = None

        def create_session(self) -> Session:
            self.kept = self.kept or super().create_session()
            return self.kept

    chat = Kept(ledger=ledger)
    response, session = chat.execute("one")
    session[Note].append(Note("between"))
    response, session = chat.execute("two", continues=response.run_id)
    texts = [note.text for note in session[Note].all()]
    assert texts == ["seed", "one", "between", "two"]
    assert response.run_id is not None
    assert replay(ledger, response.run_id, loop=Chat(never, in_tool=never)).ok


def test_a_fork_of_a_turn_goes_on_with_all_that_was_said(ledger: Ledger) -> None:
    """With another request, or with another answer of the model in the middle."""
    run = turn(ledger, "two", turn(ledger, "one"))
    at = ledger.run(run).parent_version + 1
    asked = what_if(ledger, run, at, {"/request": "deux"})
    assert Chat(ledger=ledger).recover(asked)[0].text == "7 turns: one, deux"
    said = next(r for r in ledger.read(run, after=at) if "Noted" in r.data)
    told = what_if(ledger, run, said.version, {"/message/content": "Noted nothing."})
    assert Chat(ledger=ledger).recover(told)[0].text == "7 turns: one, two"
    blocks = [block for one in state_at(ledger, told).history.to_list() for block in one.blocks]
    assert "Noted nothing." in [getattr(block, "content", "") for block in blocks]
    for fork in (asked, told):
        assert replay(ledger, fork, loop=Chat(never, in_tool=never)).ok
        assert Chat(ledger=ledger).execute("three", continues=fork)


def test_a_turn_is_replayed_with_a_live_model(ledger: Ledger) -> None:
    """In a fork of the turn: the model is shown the whole chat, the tool's result is recorded."""
    run = turn(ledger, "two", turn(ledger, "one"))
    found = replay_live(ledger, run, Chat(in_tool=never), live=["model"])
    assert found.status == "completed"
    assert found.response is not None
    assert found.response.text == "7 turns: one, two"
    assert found.first_difference is None
    assert found.forked_at > ledger.run(run).parent_version


def test_turns_of_two_chats_compare(ledger: Ledger) -> None:
    """Ids of evaluations are not a difference; what was said is."""
    runs = [conversation(ledger, "one", text)[-1] for text in ("two", "two", "deux")]
    assert compare(ledger, runs[0], runs[1]).same
    assert not compare(ledger, runs[0], runs[2]).same


def test_sections_opened_in_a_turn_keep_what_was_said(ledger: Ledger) -> None:
    """The evaluation that replaces the first goes on from the same one."""
    more = MarkdownSection[Nothing](
        title="More",
        template="All of it.",
        summary="In short.",
        key="more",
        visibility=SectionVisibility.SUMMARY,
    )

    def opens(request: Request) -> Reply:
        if "All of it." in request.system:
            return reply_to(request)
        return calls(("o1", "open_sections", '{"section_keys": ["more"], "reason": ""}'))

    first = turn(ledger, "one")
    run = turn(ledger, "two", first, replies=opens, more=[more])
    assert state_at(ledger, run).summary.evaluations == 2
    assert state_at(ledger, run).summary.status == "completed"
    response, _ = Chat(ledger=ledger).execute("three", continues=run)
    assert response.text == "11 turns: one, two, three"
    assert replay(ledger, run, loop=Chat(never, in_tool=never, more=[more])).ok
