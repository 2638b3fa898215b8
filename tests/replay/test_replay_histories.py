"""Runs with a history: people, other processes, forks, files and sections. All run again alike."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from typing import Any, Literal
from uuid import UUID

import pytest

from tests.agent import Crash, says
from tests.matrices import cells, further
from tests.replay.farm import Farm
from tests.replay.shepherd import (
    DONE,
    Flock,
    Handler,
    Job,
    Sheep,
    Shepherd,
    Tally,
    asks,
    calls,
    check_again,
    remembers,
    rerun,
)
from turnledger.ledger import (
    ANY,
    CustomEvent,
    InnerMessage,
    InvalidInputError,
    Ledger,
    ToolCallDecided,
    TurnledgerError,
    new_run_id,
)
from turnledger.runtime import (
    CheckpointSaved,
    DeadlineExceededError,
    DecisionRequiredError,
    LedgerCheckpointBackend,
    MessageBuilder,
    PromptEvaluationError,
    PromptExecuted,
    PromptRendered,
    RecoveryConfig,
    RecoveryError,
    SectionVisibility,
    Session,
    SnapshotableFilesystem,
    ToolContext,
    ToolInvoked,
    ToolResult,
    VisibilityExpansionRequired,
)
from turnledger.runtime.replaying.replay import replay

THREE = [calls("a1"), calls("a2", "a3"), DONE]


def dies_in(*call_ids: str, error: type[BaseException] = Crash) -> Handler:
    """A handler that is interrupted in these calls."""

    def handler(params: Flock, context: ToolContext) -> Any:
        if context.call_id in call_ids:
            raise error
        return remembers(params, context)

    return handler


# --- people -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "text", "width"),
    cells(["completed", "failed", "retry"], ["", "I looked: all fine."], [1, 2]),
)
def test_a_person_decided(
    farm: Farm, decision: Literal["completed", "failed", "retry"], text: str, width: int
) -> None:
    """What became of a call in doubt, in words or with a value."""
    run = farm.record(Crash, replies=THREE, handler=dies_in("a2"), on_interrupt="ask", width=width)
    farm.recover(run, DecisionRequiredError, handler=remembers)
    farm.check(run, "tool_call.in_doubt", "run.waiting")
    decided = ToolCallDecided(
        call_id="a2", decision=decision, text=text, value={"n": 1}, decided_by="ann"
    )
    farm.ledger.append(run, decided, ANY)
    farm.check(run)
    farm.recover(run, handler=remembers)
    assert farm.check(run, "tool_call.decided", "run.completed").attempts == 3


def test_a_person_decided_before_anybody_asked(farm: Farm) -> None:
    """The call was under way when its outcome was told."""
    run = farm.record(Crash, replies=THREE, handler=dies_in("a1"), on_interrupt="ask")
    farm.ledger.append(run, ToolCallDecided(call_id="a1", decision="completed", text="ok"), ANY)
    farm.recover(run, handler=remembers)
    farm.check(run, "tool_call.decided", "run.completed")


@pytest.mark.parametrize(
    ("policy", "error", "width"),
    cells(["retry", "fail", "ask"], [Crash, KeyboardInterrupt, SystemExit], [1, 3]),
)
def test_an_interrupted_tool(
    farm: Farm, policy: str, error: type[BaseException], width: int
) -> None:
    """Ctrl-C and the like leave the call in doubt; what ran beside it is done."""
    run = farm.record(
        error,
        replies=[calls("a1", "a2", "a3", "a4"), DONE],
        handler=dies_in("a2", error=error),
        on_interrupt=policy,
        width=width,
    )
    farm.check(run)
    waits = DecisionRequiredError if policy == "ask" else None
    farm.recover(run, waits, handler=remembers)
    farm.check(run, "tool_call.in_doubt")


def test_comments_in_between(farm: Farm) -> None:
    """Anybody's events, in the middle of a tool, of a model call, and at the end."""
    runs: list[UUID] = []

    def comment() -> None:
        run = next(iter(farm.ledger.runs())).run_id
        runs.append(run)
        farm.ledger.append(run, CustomEvent(kind="test.note", data={"n": len(runs)}), ANY)

    def handler(params: Flock, context: ToolContext) -> Any:
        comment()
        return remembers(params, context)

    def reply(request: Any) -> Any:
        comment()
        return THREE[request.turn - 1]

    run = farm.record(replies=reply, handler=handler)
    comment()
    farm.check(run, "custom", "run.completed")
    assert farm.tags(run).count("custom") == 7
    assert farm.tags(run)[-1] == "custom"


def test_decisions_and_comments_on_a_run_under_way(farm: Farm) -> None:
    """A decision about a call that is at work changes nothing about its own outcome."""

    def handler(params: Flock, context: ToolContext) -> Any:
        run = next(iter(farm.ledger.runs())).run_id
        decided = ToolCallDecided(call_id=context.call_id, decision="failed", text="too slow")
        farm.ledger.append(run, decided, ANY)
        return remembers(params, context)

    run = farm.record(replies=[calls("a1"), DONE], handler=handler)
    farm.check(run, "tool_call.decided", "run.completed")


# --- processes --------------------------------------------------------------------------------


def test_a_parked_run(farm: Farm) -> None:
    """It was tried too often and got nowhere."""
    once = RecoveryConfig(max_attempts=1)
    run = farm.record(Crash, replies=THREE, handler=dies_in("a1"), recovery=once)
    farm.recover(run, Crash)
    farm.recover(run, RecoveryError)
    farm.check(run, "run.parked")
    farm.ledger.append(run, CustomEvent(kind="test.note", data="a pity"), ANY)
    farm.check(run)


@pytest.mark.parametrize("dies", ["a1", "a2", "a3"])
def test_an_abandoned_run_that_had_died(farm: Farm, dies: str) -> None:
    """In the middle of a tool; nobody resumed it."""
    run = farm.record(Crash, replies=THREE, handler=dies_in(dies))
    farm.loop().abandon(run, reason="no use")
    farm.check(run, "run.abandoned", "checkpoint.cleared")


def test_an_abandoned_run_that_had_died_in_a_model_call(farm: Farm) -> None:
    """The request was out, and nothing came back."""

    def reply(request: Any) -> Any:
        raise Crash

    run = farm.record(Crash, replies=reply)
    farm.loop().abandon(run)
    farm.check(run, "run.abandoned")


def test_an_abandoned_run_that_waited(farm: Farm) -> None:
    """For a decision that never came."""
    run = farm.record(Crash, replies=THREE, handler=dies_in("a1"), on_interrupt="ask")
    farm.recover(run, DecisionRequiredError)
    farm.loop().abandon(run)
    farm.check(run, "run.waiting", "run.abandoned")


def test_an_abandoned_run_that_had_failed(farm: Farm) -> None:
    """Nobody tries it again."""
    run = farm.record(PromptEvaluationError, replies=[says("")])
    farm.loop().abandon(run)
    farm.check(run, "run.failed", "run.abandoned")


def test_a_parked_run_that_is_abandoned(farm: Farm) -> None:
    """Both are on record."""
    once = RecoveryConfig(max_attempts=1)
    run = farm.record(Crash, replies=THREE, handler=dies_in("a2"), recovery=once)
    farm.recover(run, Crash)
    farm.recover(run, RecoveryError)
    farm.loop().abandon(run)
    farm.check(run, "run.parked", "run.abandoned")


def test_many_attempts(farm: Farm) -> None:
    """Each gets a little further."""
    often = RecoveryConfig(max_attempts=50)
    run = farm.record(Crash, replies=THREE, handler=dies_in("a1"), recovery=often)
    farm.recover(run, Crash, handler=dies_in("a1"))
    farm.recover(run, Crash, handler=dies_in("a2"))
    farm.recover(run, Crash, handler=dies_in("a3"))
    farm.recover(run, handler=remembers)
    assert farm.check(run, "run.completed").attempts == 5


@pytest.mark.parametrize("interval", [1, 2, 5])
def test_checkpoints_at_other_intervals(farm: Farm, interval: int) -> None:
    """They come after every so many tools."""
    every = RecoveryConfig(checkpoint_interval=interval, cleanup_on_success=False)
    run = farm.record(replies=THREE, recovery=every)
    farm.check(run, "run.completed")


def test_a_checkpoint_that_was_stored_by_hand(farm: Farm) -> None:
    """A run goes on from the checkpoint that a user saved."""
    run = farm.record(Crash, replies=THREE, handler=dies_in("a2"))
    session = farm.loop().loop_host.create_session()
    backend = LedgerCheckpointBackend(farm.ledger, session.declarations)
    kept = backend.load(run)
    assert kept is not None
    backend.save(run, kept)
    farm.check(run, "checkpoint.stored")
    farm.recover(run, handler=remembers)
    farm.check(run, "checkpoint.stored", "run.completed")


# --- forks and continuations -----------------------------------------------------------------


def _forks(farm: Farm, run: UUID) -> list[UUID]:
    """A fork at every version where there can be one."""
    made = []
    for at in range(1, farm.ledger.head(run) + 1):
        try:
            made.append(farm.ledger.fork(run, at=at))
        except TurnledgerError:
            continue
    return made


@pytest.mark.parametrize("seeds", further(True, False))
def test_forks_at_every_version(farm: Farm, seeds: bool) -> None:
    """Each is recovered, if it can be, and runs again on its own record."""

    def prepares(session: Session) -> None:
        session.install(Sheep)
        if seeds:
            session[Sheep].seed([Sheep("dolly")])

    run = farm.record(replies=THREE, session=prepares)
    forks = _forks(farm, run)
    assert len(forks) > 5
    recovered = 0
    for fork in forks:
        farm.check(fork)
        loop = farm.loop()
        try:
            loop.recover(fork)
        except DecisionRequiredError as waits:
            for call_id in waits.call_ids:
                farm.ledger.append(fork, ToolCallDecided(call_id=call_id, decision="retry"), ANY)
            loop.recover(fork)
        except TurnledgerError:
            continue
        recovered += 1
        farm.check(fork, "run.resumed", "run.completed")
    assert recovered > 3


def test_a_fork_of_a_fork(farm: Farm) -> None:
    """Its record is three runs long."""
    run = farm.record(Crash, replies=THREE, handler=dies_in("a2"))
    for _ in range(2):
        run = farm.ledger.fork(run, at=farm.ledger.head(run))
        decided = ToolCallDecided(call_id="a2", decision="completed", text="ok")
        farm.ledger.append(run, decided, ANY)
    farm.recover(run, handler=remembers)
    farm.check(run, "run.completed")


def test_a_session_that_goes_on(farm: Farm) -> None:
    """Three runs of one session: each run again on its own, by a fresh agent."""
    farm.options = {"replies": THREE, "reuses": True}
    loop = farm.loop()
    runs = [new_run_id() for _ in range(3)]
    for number, run in enumerate(runs):
        loop.execute(Job(f"count {number}"), run_id=run)
    for run in runs:
        farm.check(run, "run.completed")


def test_a_session_that_was_changed_between_two_runs(farm: Farm) -> None:
    """What was changed since is the beginning of the next run."""
    farm.options = {"replies": THREE, "reuses": True}
    loop = farm.loop()
    _, session = loop.execute(Job())
    session[Sheep].append(Sheep("in between"))
    run = new_run_id()
    loop.execute(Job(), run_id=run)
    farm.check(run, "run.completed")


def test_a_continuation_that_died(farm: Farm) -> None:
    """And another process recovered it."""
    farm.options = {"replies": THREE, "reuses": True, "handler": dies_in("a3")}
    loop, run = farm.loop(), new_run_id()
    loop.handler = remembers
    loop.execute(Job())
    loop.handler = dies_in("a3")
    with pytest.raises(Crash):
        loop.execute(Job(), run_id=run)
    farm.check(run)
    farm.recover(run, handler=remembers)
    farm.check(run, "run.resumed", "run.completed")


def test_a_live_agent_is_not_touched_by_a_replay(farm: Farm) -> None:
    """One that keeps its session is refused: the session goes on where it was."""
    farm.options = {"replies": THREE, "reuses": True}
    loop, first, second = farm.loop(), new_run_id(), new_run_id()
    _, session = loop.execute(Job(), run_id=first)
    before = (session.session_id, session[Sheep].all(), session.journal)
    with pytest.raises(InvalidInputError, match="another loop"):
        replay(farm.ledger, first, loop=loop, until=5)
    assert (session.session_id, session[Sheep].all(), session.journal) == before
    loop.execute(Job(), run_id=second)
    info = farm.ledger.run(second)
    assert (info.parent, info.parent_version) == (first, farm.ledger.head(first))
    assert len(session[Sheep].all()) == 6
    farm.check(second, "run.completed")


def test_an_agent_that_makes_its_sessions_may_replay_its_own_runs(farm: Farm) -> None:
    """While it works, and as often as one likes."""
    farm.options = {"replies": THREE}
    loop, runs = farm.loop(), []
    for _ in range(2):
        runs.append(new_run_id())
        _, session = loop.execute(Job(), run_id=runs[-1])
        asked = (list(loop.called), loop.sent)
        for run in runs:
            assert replay(farm.ledger, run, loop=loop).divergence is None
        assert (loop.called, loop.sent) == asked
        assert len(session[Sheep].all()) == 3


# --- state and files ----------------------------------------------------------------------------


def test_files_are_not_touched(farm: Farm, tmp_path: Path) -> None:
    """What they were is on record; where they were is nothing any more."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("one")

    def handler(params: Flock, context: ToolContext) -> Any:
        (folder / f"{context.call_id}.txt").write_text(params.name)
        if context.call_id == "a2":
            raise RuntimeError("undone")
        return remembers(params, context)

    resources = {"files": SnapshotableFilesystem(folder)}
    run = farm.record(replies=THREE, handler=handler, resources=resources)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    farm.check(run, "resource.snapshotted", "run.completed")
    assert not folder.exists()


def test_files_of_a_run_that_died(farm: Farm, tmp_path: Path) -> None:
    """They were put back by whoever recovered it."""
    folder = tmp_path / "files"
    folder.mkdir()

    def handler(params: Flock, context: ToolContext) -> Any:
        (folder / "log.txt").write_text(context.call_id)
        return dies_in("a2")(params, context)

    resources = {"files": SnapshotableFilesystem(folder)}
    run = farm.record(Crash, replies=THREE, handler=handler, resources=resources)
    farm.recover(run, handler=remembers)
    (folder / "log.txt").write_text("mine")
    farm.check(run, "resource.snapshotted", "run.completed")
    assert (folder / "log.txt").read_text() == "mine"


def _message(session: Session, text: str) -> InnerMessage:
    latest = session[InnerMessage].all()[-1]
    return InnerMessage(
        role="user",
        content=text,
        evaluation_id=latest.evaluation_id,
        sequence=latest.sequence + 1,
        turn=latest.turn,
        prompt_ns=latest.prompt_ns,
        prompt_key=latest.prompt_key,
    )


_CHANGES: dict[str, Callable[[Session], object]] = {
    "append": lambda session: session[Sheep].append(Sheep("x")),
    "seed": lambda session: session[Sheep].seed([Sheep("x"), Sheep("y")]),
    "clear": lambda session: session[Sheep].clear(),
    "reset": lambda session: session.mutate().reset(),
    "restore": lambda session: session.restore(session.snapshot()),
    "a new slice": lambda session: session[Tally].append(Tally(1)),
    "a message": lambda session: session[InnerMessage].append(_message(session, "psst")),
}


@pytest.mark.parametrize(("name", "width"), cells(list(_CHANGES), [1, 3]))
def test_whatever_a_tool_changes(farm: Farm, name: str, width: int) -> None:
    """In the session, in every way that there is."""

    def handler(params: Flock, context: ToolContext) -> Any:
        if context.call_id in ("a1", "a3"):
            _CHANGES[name](context.session)
        return ToolResult("Done it.")

    run = farm.record(
        replies=THREE,
        handler=handler,
        session=lambda session: (session.install(Sheep), session.install(Tally)),
        width=width,
    )
    farm.check(run, "run.completed")


@pytest.mark.parametrize("name", [one for one in _CHANGES if one != "a message"])
def test_whatever_a_session_begins_with(farm: Farm, name: str) -> None:
    """In the session, in every way that there is, before the run."""

    def prepares(session: Session) -> None:
        session.install(Sheep)
        session.install(Tally)
        session[Sheep].seed([Sheep("dolly")])
        _CHANGES[name](session)

    run = farm.record(replies=THREE, session=prepares)
    farm.check(run, "run.completed")


class Noting(Shepherd):
    """Changes its session when it makes the prompt."""

    def create_prompt(self, request: Job) -> Any:
        assert self._kept is not None
        self._kept[Sheep].append(Sheep(f"of {len(self._kept[Sheep].all())}"))
        return super().create_prompt(request)


def test_a_prompt_that_changes_the_session(farm: Farm) -> None:
    """Once, and as it stood when it was first made."""
    run = new_run_id()
    with pytest.raises(Crash):
        Noting(farm.ledger, THREE, handler=dies_in("a2")).execute(Job(), run_id=run)
    Noting(farm.ledger, THREE).recover(run)
    check_again(farm.ledger, run, lambda: Noting(Ledger.open("memory://"), THREE, live=False))


@pytest.mark.parametrize("kind", [PromptRendered, PromptExecuted, CheckpointSaved])
def test_a_listener_of_the_loop_that_takes_notes(farm: Farm, kind: type) -> None:
    """What it notes stands in the record where it was noted."""
    kept: list[Session] = []

    def prepares(session: Session) -> None:
        session.install(Sheep)
        kept.append(session)

    def notes(event: Any) -> None:
        kept[-1][Sheep].append(Sheep("noted"))

    run = farm.record(replies=THREE, session=prepares, listeners={kind: notes})
    farm.check(run, "run.completed")


def test_listeners_of_the_agent_that_replays_are_told_nothing(farm: Farm) -> None:
    """X28: listeners were told when the run was live; a replay publishes only to itself."""
    told: list[Any] = []
    kinds = (PromptRendered, ToolInvoked, CheckpointSaved, PromptExecuted)
    farm.options = {"replies": THREE, "listeners": dict.fromkeys(kinds, told.append)}
    loop, run = farm.loop(), new_run_id()
    loop.execute(Job(), run_id=run)
    assert {type(event) for event in told} == set(kinds)
    told.clear()
    assert replay(farm.ledger, run, loop=loop).divergence is None
    assert told == []


# --- what the conversation is made of ---------------------------------------------------------


def _opening(prompt: Any) -> Any:
    said = MessageBuilder.next_step(None).add_text("Look at this.")
    return prompt.with_messages(said.add_image("a sheep", data=b"\x89PNG sheep", mime="image/png"))


def test_a_conversation_that_opens_with_a_picture(farm: Farm) -> None:
    """Its bytes are in the ledger."""
    run = farm.record(replies=THREE, opens_with=_opening)
    farm.check(run, "run.completed")


def opens(call_id: str, *keys: str) -> tuple[str, str, str]:
    names = ", ".join(f'"{key}"' for key in keys)
    return call_id, "open_sections", f'{{"section_keys": [{names}], "reason": "look"}}'


def count(call_id: str) -> tuple[str, str, str]:
    return call_id, "count", "{}"


_TURNS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "alone": (opens("o1", "rams"),),
    "first": (opens("o1", "rams"), count("c1"), count("c2")),
    "last": (count("c1"), count("c2"), opens("o1", "rams")),
    "twice the same": (opens("o1", "rams"), opens("o2", "rams"), count("c1")),
    "two": (opens("o1", "rams"), count("c1"), opens("o2", "ewes")),
    "beside a refused one": (("r1", "count", "[]"), opens("o1", "rams"), ("r2", "shear", "{}")),
    "what is not there": (opens("o1", "goats"), count("c1")),
    "more than fit": (count("c1"), opens("o1", "rams"), count("c2"), count("c3"), count("c4")),
}


@pytest.mark.parametrize(("name", "width"), cells(list(_TURNS), [1, 2, 3]))
def test_sections_that_are_opened(farm: Farm, name: str, width: int) -> None:
    """Alone and beside other calls, which are done all the same."""

    def reply(request: Any) -> Any:
        if "All about rams" in request.system:
            return [calls("z1", "z2"), DONE][request.turn - 1]
        return [asks(*_TURNS[name]), asks(opens("p1", "rams"))][request.turn - 1]

    run = farm.record(replies=reply, summarised=("rams", "ewes"), width=width)
    farm.check(run, "evaluation.superseded", "run.completed")


def test_a_tool_beside_an_opened_section_that_says_something(farm: Farm) -> None:
    """A message of its own, recorded after the sections were asked for."""

    def handler(params: Flock, context: ToolContext) -> Any:
        context.session[InnerMessage].append(_message(context.session, "psst"))
        return remembers(params, context)

    def reply(request: Any) -> Any:
        if "All about rams" in request.system:
            return DONE
        return asks(opens("o1", "rams"), count("c1"))

    run = farm.record(replies=reply, handler=handler, summarised=("rams",), width=3)
    farm.check(run, "evaluation.superseded", "run.completed")


@pytest.mark.parametrize("width", [1, 3])
def test_a_run_that_died_beside_an_opened_section(farm: Farm, width: int) -> None:
    """And was recovered."""

    def reply(request: Any) -> Any:
        if "All about rams" in request.system:
            return DONE
        return asks(count("c1"), opens("o1", "rams"), count("c2"))

    run = farm.record(
        Crash, replies=reply, handler=dies_in("c1", "c2"), summarised=("rams",), width=width
    )
    farm.check(run)
    farm.recover(run, handler=remembers)
    farm.check(run, "run.completed")


@pytest.mark.parametrize("first", ["late", "open"])
def test_a_deadline_beside_an_opened_section(farm: Farm, first: str) -> None:
    """Two calls that each end the evaluation: the one that ends first decides how."""
    begun = Flag()

    def handler(params: Flock, context: ToolContext) -> Any:
        if context.call_id == "a2":
            assert begun.wait(30)
        begun.set()
        if (context.call_id == "a1") == (first == "late"):
            raise DeadlineExceededError("no time left")
        raise VisibilityExpansionRequired({"rams": SectionVisibility.FULL}, reason="look")

    def reply(request: Any) -> Any:
        return DONE if "All about rams" in request.system else calls("a1", "a2")

    farm.options = {
        "replies": reply,
        "handler": handler,
        "summarised": ("rams",),
        "width": 2,
    }
    run = new_run_id()
    with suppress(PromptEvaluationError):  # which one is first is up to the threads, in the end
        farm.loop().execute(Job(), run_id=run)
    farm.check(run, "evaluation.superseded", "tool_call.failed")


def test_sections_that_are_opened_for_ever(farm: Farm) -> None:
    """A model that asks too often ends the run."""
    names = [f"part{number}" for number in range(12)]

    def reply(request: Any) -> Any:
        closed = [one for one in names if f"All about {one}," not in request.system]
        return asks(opens("o1", closed[0])) if closed else DONE

    run = farm.record(PromptEvaluationError, replies=reply, summarised=names)
    farm.check(run, "evaluation.superseded", "run.failed")


def test_up_to_each_version_of_one_run(farm: Farm) -> None:
    """The state is the one of that version, whichever it is."""
    run = farm.record(Crash, replies=THREE, handler=dies_in("a2"))
    farm.recover(run, handler=remembers)
    for until in range(1, farm.ledger.head(run) + 1):
        found = rerun(farm.ledger, run, farm.dead, until)
        folded = replay(farm.ledger, run, until=until, declarations=_declared(farm))
        assert (found.state.version, folded.state.version) == (until, until)
        assert found.state.state_digest == folded.state.state_digest


def _declared(farm: Farm) -> Any:
    return farm.dead().loop_host.create_session().declarations
