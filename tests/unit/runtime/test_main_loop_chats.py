"""`execute(continues=)`: the next turn of a chat, a run of its own with the past of another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash, says
from tests.unit.runtime.chats import Chat, Note, conversation, dies, interrupted, turn
from turnledger.ledger import (
    ANY,
    EvaluationStarted,
    InvalidInputError,
    Ledger,
    RunAbandoned,
    RunFailed,
    RunNotFoundError,
    RunParked,
    RunStarted,
    RunWaiting,
    new_run_id,
)
from turnledger.projections import RunState, state_at
from turnledger.runtime import (
    Budget,
    FilesystemCheckpointBackend,
    LedgerCheckpointBackend,
    MainLoopConfig,
    Prompt,
    PromptEvaluationError,
    RecoveryConfig,
    RecoveryError,
    Reply,
    Request,
    Session,
    SnapshotableFilesystem,
    ToolContext,
    replay,
)
from turnledger.runtime.errors import AgentMismatchError, ChatTurnRefusedError

STORES = ("memory", "sqlite")


def started(ledger: Ledger, run: UUID) -> RunStarted:
    event = ledger.record(run, ledger.run(run).parent_version + 1).event
    assert isinstance(event, RunStarted)
    return event


# --- what a turn has -----------------------------------------------------------------


def test_the_model_sees_what_was_said_and_tools_see_the_state(ledger: Ledger) -> None:
    """Over three turns; what create_session seeds is there once."""
    first = turn(ledger, "one")
    second = turn(ledger, "two", first)
    response, session = Chat(ledger=ledger).execute("three", continues=second)
    assert response.text == "11 turns: one, two, three"
    assert [note.text for note in session[Note].all()] == ["seed", "one", "two", "three"]


def test_a_turn_is_a_run_that_names_its_parent(ledger: Ledger) -> None:
    """Its own request, and the session of the run that it goes on from, at its end."""
    first = turn(ledger, "one")
    head = ledger.head(first)
    run = turn(ledger, "two", first)
    event = started(ledger, run)
    assert (event.kind, event.parent, event.at, event.request) == ("turn", first, head, "two")
    assert event.session_id == started(ledger, first).session_id
    begun = [r.event for r in ledger.read(run) if isinstance(r.event, EvaluationStarted)]
    assert [one.after for one in begun] == ["", begun[0].evaluation_id]
    own = [r.event for r in ledger.read(run, after=head)]
    numbers = [e.message.sequence for e in own if e.tag == "message.appended"]
    assert numbers == list(range(len(numbers)))


def test_two_turns_of_one_run_are_two_branches(ledger: Ledger) -> None:
    """Both are kept, and neither knows of the other."""
    first = turn(ledger, "one")
    branches = [Chat(ledger=ledger).execute(text, continues=first) for text in ("a", "b")]
    assert [response.text for response, _ in branches] == ["7 turns: one, a", "7 turns: one, b"]
    assert ledger.verify_all().ok


def test_a_turn_has_its_own_system_message(ledger: Ledger) -> None:
    """The agent's instructions may have changed since the turn before."""
    run = turn(ledger, "two", turn(ledger, "one"), system="Be kind.")
    assert "Be kind." in state_at(ledger, run).history.system


def test_what_providers_sent_beyond_messages_goes_back_in_later_turns(ledger: Ledger) -> None:
    """A reasoning signature of the first turn is in the requests of the third, at its place."""
    runs = conversation(ledger, "one", "two")
    seen: list[dict[int, Any]] = []

    def notes(request: Request) -> Reply:
        seen.append(dict(request.provider_data))
        return says("ok")

    Chat(notes, ledger=ledger).execute("three", continues=runs[-1])
    assert seen == [{4: {"seen": 1}, 8: {"seen": 2}}]


def test_limits_count_for_the_turn_alone(ledger: Ledger) -> None:
    """A chat of three turns fits into limits that each of them keeps to by itself."""
    config = MainLoopConfig(max_turns=2, budget=Budget(max_total_tokens=26))
    run = turn(ledger, "one", config=config)
    for text in ("two", "three"):
        run = turn(ledger, text, run, config=config)
    assert state_at(ledger, run).usage.total.total_tokens == 26


def test_files_of_the_turn_before_are_there(ledger: Ledger, tmp_path: Path) -> None:
    """In another directory, as in another process."""

    def in_folder(name: str, write: str = "") -> dict[str, Any]:
        folder = SnapshotableFilesystem(tmp_path / name)

        def tool(context: ToolContext) -> None:
            if write:
                (tmp_path / name / "plan.txt").write_text(write)
            found.append([path.name for path in (tmp_path / name).iterdir()])

        (tmp_path / name).mkdir(exist_ok=True)
        return {"resources": {"workspace": folder}, "in_tool": tool}

    found: list[list[str]] = []
    first = turn(ledger, "one", **in_folder("a", "1"))
    second = turn(ledger, "two", first, **in_folder("b"))
    assert (tmp_path / "b" / "plan.txt").read_text() == "1"
    assert found[-1] == ["plan.txt"]
    assert replay(ledger, second, loop=Chat()).ok


def test_an_evaluation_after_a_turn_is_a_new_conversation(ledger: Ledger) -> None:
    """`evaluate` in the session of a turn that ended does not go on from the turn before it."""
    chat = Chat(ledger=ledger)
    _, session = chat.execute("two", continues=turn(ledger, "one"))
    prompt = chat.create_prompt("alone")
    answer = chat._adapter.evaluate(prompt, session=session)
    assert answer.text == "3 turns: alone"


def test_a_turn_without_a_users_message_is_refused(ledger: Ledger) -> None:
    """The model would be asked to go on from its own answer."""

    class Silent(Chat):
        def create_prompt(self, request: str) -> Prompt[Any]:
            prompt = super().create_prompt(request)
            return Prompt(prompt.template).bind(*prompt.params)

    first = turn(ledger, "one")
    with pytest.raises(PromptEvaluationError, match="with_messages"):
        Silent(ledger=ledger).execute("two", continues=first)


# --- which runs can be continued -----------------------------------------------------


def waits(ledger: Ledger, run: UUID) -> None:
    ledger.append(run, RunWaiting(reason="in doubt", call_ids=("c1",)), ANY)


def parks(ledger: Ledger, run: UUID) -> None:
    ledger.append(run, RunParked(reason="it got nowhere", attempts=3), ANY)


def abandons(ledger: Ledger, run: UUID) -> None:
    ledger.append(run, RunAbandoned(), ANY)


@pytest.mark.parametrize(
    ("end", "status", "command"),
    [
        (lambda ledger, run: None, "running", "turnledger recover {run} --app"),
        (waits, "waiting", "turnledger pending {run}"),
        (parks, "parked", "turnledger log {run}"),
        (abandons, "abandoned", "Continue the run before it"),
    ],
    ids=["interrupted", "waiting", "parked", "abandoned"],
)
def test_a_run_that_has_not_ended_is_not_continued(
    ledger: Ledger, end: Callable[[Ledger, UUID], None], status: str, command: str
) -> None:
    """The error names what to do first; nothing is written and no code of the user's is called."""
    run = interrupted(ledger, "one")
    end(ledger, run)
    before = [record.row for record in ledger.tail()]
    with pytest.raises(ChatTurnRefusedError) as refused:
        _Untouched(ledger=ledger).execute("two", continues=run)
    assert (refused.value.run_id, refused.value.status) == (str(run), status)
    assert command.format(run=run) in str(refused.value)
    assert [record.row for record in ledger.tail()] == before


def test_a_run_that_a_worker_has_is_not_continued(ledger: Ledger) -> None:
    """Whoever asks is told to wait: there is nothing to recover."""
    refusals: list[str] = []

    def ask(context: ToolContext) -> None:
        run = next(iter(ledger.runs())).run_id
        with pytest.raises(ChatTurnRefusedError) as refused:
            Chat(ledger=ledger).execute("two", continues=run)
        refusals.append(str(refused.value))

    turn(ledger, "one", in_tool=ask)
    assert "wait until it has ended" in refusals[0]


class _Untouched(Chat):
    def create_session(self) -> Session:
        raise AssertionError("create_session was called")


def test_a_failed_run_with_a_call_open_is_not_continued(ledger: Ledger) -> None:
    """Whether the call happened is unknown."""
    run = interrupted(ledger, "one")
    ledger.append(run, RunFailed(error_type="E", error_message="lost"), ANY)
    with pytest.raises(ChatTurnRefusedError, match=r"calls open \(c1\)") as refused:
        _Untouched(ledger=ledger).execute("two", continues=run)
    assert refused.value.call_ids == ("c1",)


def test_a_failed_run_without_one_is_continued(ledger: Ledger) -> None:
    """What the user said there is part of the chat."""
    run = new_run_id()
    with pytest.raises(PromptEvaluationError):
        Chat([RuntimeError("no")], ledger=ledger).execute("one", run_id=run)
    assert Chat(ledger=ledger).execute("two", continues=run)[0].text == "3 turns: one, two"


def test_a_turn_that_failed_before_its_evaluation_hands_on_the_one_before(ledger: Ledger) -> None:
    """Its prompt could not be made: the next turn goes on from what the failed one would have."""

    class Failing(Chat):
        def create_prompt(self, request: str) -> Prompt[Any]:
            raise ValueError("no prompt")

    run = new_run_id()
    with pytest.raises(ValueError, match="no prompt"):
        Failing(ledger=ledger).execute("lost", run_id=run, continues=turn(ledger, "one"))
    assert Chat(ledger=ledger).execute("two", continues=run)[0].text == "7 turns: one, two"


def test_a_run_of_another_agent_or_of_no_ledger_is_not_continued(ledger: Ledger) -> None:
    """Each with an error that says what to do; an unknown run is not found."""
    run = turn(ledger, "one", name="triage")
    with pytest.raises(AgentMismatchError, match="triage"):
        _Untouched(ledger=ledger, name="sales").execute("two", continues=run)
    with pytest.raises(InvalidInputError, match="ledger"):
        _Untouched(name="triage").execute("two", continues=run)
    with pytest.raises(RunNotFoundError):
        _Untouched(ledger=ledger).execute("two", continues=new_run_id())


# --- interrupted turns ---------------------------------------------------------------


def test_a_turn_that_died_in_a_tool_is_recovered_by_its_policy(ledger: Ledger) -> None:
    """As a run is: it is listed, its call is run again, and its attempts are its own."""
    first = turn(ledger, "one")
    run = interrupted(ledger, "two", first)
    chat = Chat(ledger=ledger)
    assert [found.run_id for found in chat.list_recoverable()] == [run]
    response, session = chat.recover(run)
    assert (response.text, chat.ran) == ("7 turns: one, two", ["c2"])
    assert [note.text for note in session[Note].all()] == ["seed", "one", "two"]
    summary = state_at(ledger, run).summary
    assert (summary.attempts, summary.kind) == (1, "turn")
    third = Chat(ledger=ledger).execute("three", continues=run)[0]
    assert third.text == "11 turns: one, two, three"


def test_a_turn_that_died_before_its_prompt_begins_again(ledger: Ledger) -> None:
    """What it goes on from is still known, and so is the state."""

    class Dying(Chat):
        def create_prompt(self, request: str) -> Prompt[Any]:
            raise Crash

    first, run = turn(ledger, "one"), new_run_id()
    with pytest.raises(Crash):
        Dying(ledger=ledger).execute("two", run_id=run, continues=first)
    assert Chat(ledger=ledger).recover(run)[0].text == "7 turns: one, two"


def test_the_outcome_is_that_of_an_uninterrupted_turn(ledger: Ledger) -> None:
    """Requirement of recovery: the same outcome digest, conversation of the past included."""
    first = turn(ledger, "one")
    whole, broken = turn(ledger, "two", first), interrupted(ledger, "two", first)
    Chat(ledger=ledger).recover(broken)
    digests = {state_at(ledger, run).outcome_digest for run in (whole, broken)}
    assert len(digests) == 1


def test_a_turn_is_not_recovered_from_a_checkpoint_file_alone(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Its past is in the ledger: a loop that has only files neither lists nor takes it."""
    recovery, run = RecoveryConfig(backend=FilesystemCheckpointBackend(tmp_path)), new_run_id()
    first, chat = turn(ledger, "one"), Chat(ledger=ledger, recovery=recovery, in_tool=dies)
    with pytest.raises(Crash):
        chat.execute("two", run_id=run, continues=first)
    for other in (None, Ledger.open("memory://")):
        loop = _Untouched(recovery=recovery, ledger=other)
        assert not loop.list_recoverable()
        with pytest.raises(RecoveryError, match="Recover it with that ledger"):
            loop.recover(run)
    assert Chat(ledger=ledger, recovery=recovery).recover(run)[0].text == "7 turns: one, two"


def test_a_turn_goes_back_to_a_checkpoint_of_its_own(ledger: Ledger) -> None:
    """One that was saved by a user in the middle of the turn, with all that was said."""
    backend = LedgerCheckpointBackend(ledger)
    run = interrupted(ledger, "two", turn(ledger, "one"))
    saved = backend.load(run)
    assert saved is not None
    backend.save(run, saved)
    assert Chat(ledger=ledger).recover(run)[0].text == "7 turns: one, two"


# --- what it costs -------------------------------------------------------------------


def test_a_turn_folds_its_past_once(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer chat adds its records once to a turn's price, and nothing to a step's."""
    folds: list[int] = []
    after = RunState.after

    def counted(self: RunState, records: Any) -> RunState:
        page = list(records)
        folds.append(len(page))
        return after(self, page)

    monkeypatch.setattr(RunState, "after", counted)
    run, prices = turn(ledger, "0"), []
    for text in "123456":
        past = ledger.head(run)
        folds.clear()
        run = turn(ledger, text, run)
        prices.append(sum(folds) - past)
    assert len(set(prices)) == 1
