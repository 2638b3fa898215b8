"""Durable steps: recorded before and after, answered from the record on resume and in replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from tests.agent import Crash
from tests.unit.runtime.steps.book import RUN, Book
from turnledger.ledger import (
    ANY,
    InvalidInputError,
    Ledger,
    RedactedStateError,
    Redactor,
    RunAbandoned,
    RunClaimedError,
    RunParked,
    RunStarted,
    ToolCallCompleted,
    ToolCallDecided,
    ToolCallStarted,
)
from turnledger.runtime import DecisionRequiredError, RecoveryError, ReplayDivergedError
from turnledger.runtime.steps import (
    AmbiguousStepError,
    DecidedValueError,
    OutcomeUnknownError,
    RecordEndedError,
    StepDefinitionError,
    StepFailedError,
    UnrecordableResultError,
    current_run,
    run,
    step,
    workflow,
)


class Declined(Exception):  # noqa: N818 - as a user might name it
    """An error of the tests' own."""


@dataclass
class Receipt:
    number: str
    euros: int


class Struct(msgspec.Struct):
    when: datetime


class Model(BaseModel):
    names: tuple[str, ...]


def paying(book: Book, **settings: Any) -> Any:
    """A step that pays, and crashes for 13 euros."""

    @step("pay", **settings)
    def pay(euros: int) -> Receipt:
        book.done.append(euros)
        if euros == 13:
            raise Crash
        return Receipt(f"r-{euros}", euros)

    return pay


# --- what is recorded -----------------------------------------------------------------


def test_a_step_is_recorded_before_and_after_it_is_performed(book: Book) -> None:
    """Its start, with arguments and digest, is on disk when the function is called."""
    seen: list[str] = []

    @step(on_interrupt="ask")
    def pay(euros: int) -> int:
        seen.extend(book.tags()[-1:])
        return euros

    with book.run():
        assert pay(euros=12) == 12
    assert seen == ["tool_call.started"]
    started, completed = book.events("tool_call.started", "tool_call.completed")
    assert isinstance(started, ToolCallStarted)
    assert (started.call_id, started.name, started.arguments) == ("pay#1", "pay", '{"euros":12}')
    assert (started.on_interrupt, started.evaluation_id, len(started.digest)) == ("ask", "", 64)
    assert isinstance(completed, ToolCallCompleted)
    assert (completed.value, completed.message_id) == (12, None)
    assert book.status == "completed"


def test_a_resume_takes_what_is_recorded_and_performs_the_rest(book: Book) -> None:
    """After a crash between two steps, the first is not performed again."""
    pay = paying(book)

    def body(_: Any) -> list[Receipt]:
        return [pay(1), pay(13), pay(2)]

    book.crashed(body)
    assert book.did() == [1, 13]
    pay = paying(book)
    with book.run():
        first = pay(1)
        with pytest.raises(Crash):
            pay(13)
    assert first == Receipt("r-1", 1)
    assert book.did() == [13]


@pytest.mark.parametrize("replay", [None, True])
def test_a_completed_run_performs_nothing(book: Book, replay: bool | None) -> None:
    """Entering it again, or replaying it, gives the recorded values and writes nothing."""
    pay = paying(book)
    with book.run():
        live = pay(5)
    version = book.ledger.head(RUN)
    book.did()
    with book.run(replay=replay) as entered:
        assert entered.is_replay
        assert pay(5) == live
    assert book.did() == []
    assert book.ledger.head(RUN) == version


def test_outside_of_a_run_a_step_is_a_plain_call(book: Book) -> None:
    """Nothing is recorded, and the value is the function's own object."""
    given = object()

    @step
    def give() -> Any:
        return given

    assert give() is given
    assert current_run() is None


def test_the_environment_makes_a_block_a_replay(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TURNLEDGER_REPLAY=1 is enough to replay a script."""
    pay = paying(book)
    with book.run():
        pay(5)
    monkeypatch.setenv("TURNLEDGER_REPLAY", "1")
    book.did()
    with book.run() as entered:
        assert entered.is_replay
        pay(5)
    assert book.did() == []


# --- values ------------------------------------------------------------------------------


def _receipt() -> Receipt:
    return Receipt("r", 1)


def _struct() -> Struct:
    return Struct(datetime(2026, 1, 2, tzinfo=UTC))


def _model() -> Model:
    return Model(names=("a", "b"))


def _pair() -> tuple[int, str]:
    return (1, "a")


def _plain():  # type: ignore[no-untyped-def]
    return (1, 2)


def _none() -> None:
    return None


@pytest.mark.parametrize("function", [_receipt, _struct, _model, _pair, _plain, _none])
def test_live_and_resumed_code_get_the_same_value(book: Book, function: Any) -> None:
    """It has gone through JSON and the return annotation, in the live run already."""
    with book.run() as live:
        first = live.step("make", function)
    with book.run() as again:
        second = again.step("make", function)
    assert (first, type(first)) == (second, type(second))
    assert first == ([1, 2] if function is _plain else function())


def test_a_value_that_is_no_json_is_an_outcome_of_its_own(book: Book) -> None:
    """The step happened: it is neither in doubt nor performed again, and says so each time."""

    def make() -> Any:
        book.done.append("made")
        return object()

    with pytest.raises(UnrecordableResultError, match="has happened"), book.run() as live:
        live.step("make", make)
    assert book.status == "failed"
    with pytest.raises(UnrecordableResultError, match="has happened"), book.run() as again:
        again.step("make", make)
    assert book.did() == ["made"]


def test_a_value_with_a_secret_is_not_replaced_in_silence() -> None:
    """A resume would get another value than the live run: the outcome says why there is none."""
    secret = "sk-" + "a1B2" * 12
    with Ledger.open("memory://") as ledger:
        with pytest.raises(UnrecordableResultError), run("keys", ledger=ledger) as live:
            live.step("key", lambda: {"key": secret})
        stored = "".join(str(record.row.data) for record in ledger.read(live.run_id))
        assert secret not in stored


def test_an_input_with_a_secret_begins_no_workflow() -> None:
    """A recovery would call it with another input than the live run had."""
    with Ledger.open("memory://") as ledger:
        with pytest.raises(RedactedStateError):
            workflow("a/b")(lambda text: None).run("sk-" + "a1B2" * 12, ledger=ledger)  # type: ignore[arg-type, misc]
        assert list(ledger.runs()) == []


@pytest.mark.parametrize("on_redacted", ["refuse", "warn"])
def test_live_code_gets_the_value_that_a_resume_gets(
    tmp_path: Path, on_redacted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a step with a secret, a workflow's input and its output: with a mark, or an error."""
    secret, path = "ghp_" + "a1B2" * 9, tmp_path / "a.db"
    redactor = Redactor(on_redacted=on_redacted)
    given: list[str] = []

    @workflow("a/keys")
    def keys(asked: str) -> str:
        given.append(asked)
        live = current_run()
        assert live is not None
        given.append(live.step("key", lambda: f"{asked}, {secret}"))
        return f"{given[-1]}, {secret}"

    with Ledger.open(path, redactor=redactor) as ledger:
        if on_redacted == "refuse":
            with pytest.raises(RedactedStateError, match=r"RunStarted\.request"):
                keys.run(f"find {secret}", ledger=ledger, run_id="x")
            for _ in range(2):
                with pytest.raises(UnrecordableResultError, match=r"ToolCallCompleted\.value"):
                    keys.run("find", ledger=ledger, run_id="y")
            with pytest.raises(RedactedStateError, match=r"RunCompleted\.output"):
                workflow("a/out")(lambda text: secret).run("a", ledger=ledger)  # type: ignore[arg-type, misc]
        else:
            mark = "[redacted: github-token]"
            for _ in range(2):
                made = keys.run(f"find {secret}", ledger=ledger, run_id="x")
                assert made.output == f"find {mark}, {mark}, {mark}"
            assert given == [f"find {mark}", f"find {mark}, {mark}"] * 2
            keys.replay("x", ledger=ledger).check()
            said = [r.getMessage() for r in caplog.records if r.name == "turnledger.redaction"]
            assert [one.split(" (github")[0].split()[-1] for one in said] == [
                "RunStarted.request",
                "ToolCallCompleted.value",
                "RunCompleted.output",
            ]
    assert secret not in caplog.text
    assert not any(
        secret.encode() in one.read_bytes() for one in tmp_path.glob("a.db*") if one.is_file()
    )


def test_changing_the_value_changes_nothing_on_record(book: Book) -> None:
    """A caller that changes what it got does not change what a resume gets."""
    with book.run() as live:
        for _ in range(2):
            got = live.step("list", lambda: [1], key="one")
            assert got == [1]
            got.append(2)
    with book.run() as again:
        for _ in range(2):
            got = again.step("list", lambda: [0], key="one")
            assert got == [1]
            got.append(2)


# --- errors ------------------------------------------------------------------------------


def _raised(book: Book, error: Exception, **settings: Any) -> list[Exception]:
    """What a step that raises raises live and on resume."""

    @step("fails", **settings)
    def fails() -> None:
        book.done.append("failed")
        raise error

    found = []
    for _ in range(2):
        with pytest.raises(Exception) as caught, book.run():
            fails()
        found.append(caught.value)
    return found


@pytest.mark.parametrize(
    ("error", "raises", "kind", "text"),
    [
        (Declined("no"), (Declined,), Declined, "no"),
        (KeyError("x"), (), KeyError, "'x'"),
        (TimeoutError("slow"), (), TimeoutError, "slow"),
        (Declined("no"), (), StepFailedError, "Step fails#1 failed: Declined: no"),
        (UnicodeDecodeError("utf8", b"x", 0, 1, "bad"), (), StepFailedError, None),
    ],
)
def test_live_and_resumed_code_take_the_same_except(
    book: Book, error: Exception, raises: Any, kind: type, text: str | None
) -> None:
    """The class of that name among `raises` and the built-ins; any other is StepFailedError."""
    live, resumed = _raised(book, error, raises=raises)
    assert type(live) is type(resumed) is kind
    assert str(live) == str(resumed)
    assert text is None or str(live) == text
    assert live.__cause__ is error
    assert book.did() == ["failed"]


def test_an_error_that_is_caught_is_caught_again(book: Book) -> None:
    """A program that handles a failed step takes the same way on every resume."""

    @step(raises=(Declined,))
    def pay(card: str) -> str:
        book.done.append(card)
        if card == "bad":
            raise Declined("no money")
        return card

    def body() -> str:
        try:
            return pay("bad")
        except Declined:
            return pay("good")

    for expected in (["bad", "good"], []):
        with book.run():
            assert body() == "good"
        assert book.did() == expected


# --- in doubt ----------------------------------------------------------------------------


def test_retry_performs_a_step_in_doubt_again(book: Book) -> None:
    """It is recorded that it was in doubt, and that this is the second attempt."""
    attempts = []

    @step
    def flaky() -> str:
        here = current_run()
        assert here is not None
        attempts.append((here.call_id, here.is_resume))
        if len(attempts) == 1:
            raise Crash
        return "done"

    book.crashed(lambda _: flaky())
    with book.run():
        assert flaky() == "done"
    assert attempts == [("flaky#1", False), ("flaky#1", True)]
    assert book.tags()[-5:] == [
        "run.resumed",
        "tool_call.in_doubt",
        "tool_call.started",
        "tool_call.completed",
        "run.completed",
    ]


def test_fail_is_never_repeated(book: Book) -> None:
    """The code gets OutcomeUnknownError, now and on every later resume."""
    pay = paying(book, on_interrupt="fail")
    book.crashed(lambda _: pay(13))
    for _ in range(2):
        with book.run(), pytest.raises(OutcomeUnknownError):
            pay(13)
    assert book.did() == [13]


def _waits(book: Book, pay: Any) -> None:
    with pytest.raises(DecisionRequiredError) as waits, book.run():
        pay(13)
    assert waits.value.call_ids == ("pay#1",)
    assert book.status == "waiting"


def test_ask_waits_for_a_person(book: Book) -> None:
    """Until a decision nothing is performed, however often the script is run."""
    pay = paying(book, on_interrupt="ask")
    book.crashed(lambda _: pay(13))
    _waits(book, pay)
    _waits(book, pay)
    assert book.did() == [13]


@pytest.mark.parametrize("decision", ["completed", "failed", "retry"])
def test_a_decision_is_carried_out_once(book: Book, decision: Any) -> None:
    """Its value is what the code gets; a retry is the next attempt."""
    pay = paying(book, on_interrupt="ask")
    book.crashed(lambda _: pay(13))
    _waits(book, pay)
    book.did()
    decided = ToolCallDecided(
        call_id="pay#1",
        decision=decision,
        attempt=1,
        value={"number": "by hand", "euros": 13} if decision == "completed" else None,
        text="it bounced" if decision == "failed" else "",
    )
    book.ledger.append(RUN, decided, ANY)
    if decision == "retry":
        book.crashed(lambda _: pay(13))
        assert book.did() == [13]
        _waits(book, pay)  # that attempt is in doubt too, and the decision is used up
        return
    for _ in range(2):
        with book.run():
            if decision == "completed":
                assert pay(13) == Receipt("by hand", 13)
            else:
                with pytest.raises(StepFailedError, match="it bounced"):
                    pay(13)
    assert book.did() == []


def test_a_decided_value_of_another_type_is_refused(book: Book) -> None:
    """Nothing of it is recorded as the outcome: the person decides again."""
    pay = paying(book, on_interrupt="ask")
    book.crashed(lambda _: pay(13))
    _waits(book, pay)
    for value in ("wrong", {"number": "by hand", "euros": 13}):
        decided = ToolCallDecided(call_id="pay#1", decision="completed", attempt=1, value=value)
        book.ledger.append(RUN, decided, ANY)
        if value == "wrong":
            with pytest.raises(DecidedValueError, match="Decide again"), book.run():
                pay(13)
            assert book.status == "running"
    with book.run():
        assert pay(13) == Receipt("by hand", 13)
    assert book.did() == [13]


def test_the_more_careful_policy_holds(book: Book) -> None:
    """A program that asks no longer still asks about a step that was begun with "ask"."""
    book.crashed(lambda _: paying(book, on_interrupt="ask")(13))
    _waits(book, paying(book, on_interrupt="retry"))


def test_code_that_swallows_a_wait_does_not_go_on(book: Book) -> None:
    """Frameworks catch errors of tools: no further step is performed, and the run stays waiting."""
    pay = paying(book, on_interrupt="ask")
    book.crashed(lambda _: pay(13))
    with pytest.raises(DecisionRequiredError), book.run():  # noqa: PT012
        with pytest.raises(DecisionRequiredError):
            pay(13)
        with pytest.raises(DecisionRequiredError):
            pay(1)
    assert book.did() == [13]
    assert book.status == "waiting"


# --- inner steps ---------------------------------------------------------------------------


def _checkout(book: Book, *, dies: bool) -> Any:
    pay = paying(book)

    @step
    def checkout(euros: int) -> int:
        book.done.append("checkout")
        pay(euros)
        if dies:
            raise Crash
        return euros

    return checkout


def test_a_step_in_doubt_takes_its_inner_ones_that_ended(book: Book) -> None:
    """The outer function runs again, the payment in it does not."""
    book.crashed(lambda _: _checkout(book, dies=True)(5))
    assert book.did() == ["checkout", 5]
    with book.run():
        assert _checkout(book, dies=False)(5) == 5
    assert book.did() == ["checkout"]
    assert [e.call_id for e in book.events("tool_call.started")] == [  # type: ignore[union-attr]
        "checkout#1",
        "checkout#1/pay#1",
        "checkout#1",
    ]


def test_the_inner_steps_of_an_answered_one_are_not_asked_for(book: Book) -> None:
    """The run completes, though nothing asks for them."""
    checkout = _checkout(book, dies=False)
    for _ in range(2):
        with book.run():
            assert checkout(5) == 5
    assert book.did() == ["checkout", 5]


# --- ids -----------------------------------------------------------------------------------


def test_a_key_names_one_step(book: Book) -> None:
    """The same key gives the same result; with other arguments it is refused."""
    pay = paying(book, key=lambda euros: "once")
    with book.run():
        assert pay(1) == pay(1)
        with pytest.raises(AmbiguousStepError, match="other arguments"):
            pay(2)
    assert book.did() == [1]


@pytest.mark.parametrize("key", ["", "line\nbreak", 3, "sk-" + "a1B2" * 12])
def test_a_key_that_can_be_no_part_of_an_id_is_refused(book: Book, key: Any) -> None:
    """Before anything is performed; a secret is not stored as an id."""
    with book.run() as live, pytest.raises(InvalidInputError):
        live.step("pay", book.done.append, 1, key=key)
    assert book.did() == []


def test_arguments_that_are_no_data_are_refused(book: Book) -> None:
    """The error names the argument, and nothing is performed."""
    with book.run() as live, pytest.raises(InvalidInputError, match="client"):
        live.step("send", lambda client: book.done.append(client), object())
    assert book.did() == []


def test_names_and_keys_do_not_run_into_each_other(book: Book) -> None:
    """Signs that divide an id are escaped in its parts."""
    with book.run() as live:
        live.step("a/b", lambda: 1, key="c#1")
        live.step("a", lambda: 2, key="b:c/1")
    started = book.events("tool_call.started")
    assert [e.call_id for e in started] == ["a%2Fb:c#1", "a:b:c%2F1"]  # type: ignore[union-attr]


def _generator() -> Iterator[int]:
    yield 1


class Opaque:
    """A class that JSON can't hold."""


def _opaque() -> Opaque:
    return Opaque()


def test_generators_are_refused_when_they_are_decorated() -> None:
    """And so are classes, and wrong settings."""
    for wrong, settings in (
        (_generator, {}),
        (Receipt, {}),
        (_opaque, {"on_interrupt": "perhaps"}),
        (_opaque, {"raises": ("Declined",)}),
    ):
        with pytest.raises(StepDefinitionError):
            step("x", **settings)(wrong)  # type: ignore[call-overload]


def test_a_return_type_that_json_can_not_hold_is_refused_before_the_call(book: Book) -> None:
    """Nothing happens that could not be recorded."""
    with book.run() as live, pytest.raises(StepDefinitionError, match="return type"):
        live.step("opaque", _opaque)
    assert "tool_call.started" not in book.tags()


# --- divergences ---------------------------------------------------------------------------


def _two(book: Book) -> None:
    with book.run() as live:
        live.step("first", book.done.append, 1)
        live.step("second", book.done.append, 2)
    book.did()


CHANGES: dict[str, tuple[Any, str, int]] = {
    "arguments": (lambda r, d: (r.step("first", d, 9), r.step("second", d, 2)), "step arg", 3),
    "name": (lambda r, d: (r.step("other", d, 1), r.step("second", d, 2)), "step changed", 3),
    "key": (lambda r, d: (r.step("first", d, 1), r.step("second", d, 2, key="k")), "step", 5),
    "order": (lambda r, d: (r.step("second", d, 2), r.step("first", d, 1)), "order of calls", 3),
    "removed first": (lambda r, d: (r.step("second", d, 2),), "order of calls", 3),
    "removed last": (lambda r, d: (r.step("first", d, 1),), "step removed", 5),
    "added last": (
        lambda r, d: (r.step("first", d, 1), r.step("second", d, 2), r.step("third", d, 3)),
        "step added",
        7,
    ),
    "twice": (
        lambda r, d: (r.step("first", d, 1), r.step("first", d, 1), r.step("second", d, 2)),
        "step changed",
        5,
    ),
    "in an argument": (
        lambda r, d: (r.step("first", lambda item: d(item), 1), r.step("second", d, 2)),
        "step arguments changed",
        3,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("replay", [None, True])
def test_a_change_is_found_at_its_event(book: Book, change: str, replay: bool | None) -> None:
    """A replay, or a resume, of changed code performs nothing and names version and cause."""
    _two(book)
    code, cause, version = CHANGES[change]
    with pytest.raises(ReplayDivergedError) as diverged, book.run(replay=replay) as again:
        code(again, book.done.append)
    assert diverged.value.divergence.version == version
    assert diverged.value.divergence.cause.startswith(cause)
    assert book.did() == []


def test_a_resume_of_changed_code_performs_nothing(book: Book) -> None:
    """The step that comes next on record is not the one that is asked for: it is not begun."""

    def live(entered: Any) -> None:
        entered.step("first", book.done.append, 1)
        entered.step("second", book.done.append, 2)
        raise Crash

    book.crashed(live)
    version = book.ledger.head(RUN)
    book.did()
    with pytest.raises(ReplayDivergedError), book.run() as again:  # noqa: PT012
        again.step("first", book.done.append, 1)
        again.step("another", book.done.append, 3)
    assert book.did() == []
    assert book.ledger.head(RUN) == version + 2  # claimed and resumed
    assert book.status == "running"


def test_a_replay_of_an_interrupted_run_ends_where_its_record_does(book: Book) -> None:
    """That is no divergence: nothing of it differs."""
    pay = paying(book)
    book.crashed(lambda _: (pay(1), pay(13)))
    book.did()
    with pytest.raises(RecordEndedError, match="pay#2"), book.run(replay=True):  # noqa: PT012
        pay(1)
        pay(13)
    assert book.did() == []


def test_a_failed_run_replays_to_the_same_failure(book: Book) -> None:
    """The same error passes; a run that does not fail any more is a divergence."""
    with pytest.raises(ZeroDivisionError), book.run():
        _ = 1 / 0
    with pytest.raises(ZeroDivisionError), book.run(replay=True):
        _ = 1 / 0
    with pytest.raises(ReplayDivergedError) as diverged, book.run(replay=True):
        pass
    assert diverged.value.divergence.cause == "failure changed"


# --- entering and leaving --------------------------------------------------------------------


def test_a_failed_run_is_gone_on_with(book: Book) -> None:
    """An exception ends it as failed; running the script again goes on after what is recorded."""
    pay = paying(book)
    with pytest.raises(ValueError, match="later"), book.run():  # noqa: PT012
        pay(1)
        raise ValueError("later")
    assert book.status == "failed"
    with book.run():
        pay(1)
        pay(2)
    assert book.did() == [1, 2]
    assert book.status == "completed"


def test_a_base_exception_leaves_the_run_as_it_is(book: Book) -> None:
    """Ctrl-C is no failure, and the claim is released."""
    with pytest.raises(KeyboardInterrupt), book.run():
        raise KeyboardInterrupt
    assert book.status == "running"
    assert book.ledger.worker_of(RUN) is None


def test_a_claimed_run_is_refused(book: Book) -> None:
    """Two processes can't be in the same run."""
    with book.run(), pytest.raises(RunClaimedError), book.run():
        pass


@pytest.mark.parametrize("event", [RunParked(reason="x"), RunAbandoned()])
def test_a_run_that_was_given_up_is_refused(book: Book, event: Any) -> None:
    """The error says what became of it, and nothing is written."""
    with pytest.raises(KeyboardInterrupt), book.run():
        raise KeyboardInterrupt
    book.ledger.append(RUN, event, ANY)
    version = book.ledger.head(RUN)
    with pytest.raises(RecoveryError, match=r"parked|abandoned"), book.run():
        pass
    assert book.ledger.head(RUN) == version


def test_a_run_that_something_else_began_is_refused(book: Book) -> None:
    """A block does not go on with an agent's run of the same id."""
    book.ledger.append(RUN, RunStarted(agent="support/triage"), ANY)
    with pytest.raises(RecoveryError, match="support/triage"), book.run():
        pass


def test_a_replay_of_nothing_is_refused(book: Book) -> None:
    """It does not begin a run."""
    with pytest.raises(RecoveryError, match="no run"), book.run(replay=True):
        pass
    assert book.ledger.head(RUN) == 0


def test_a_block_is_entered_once(book: Book) -> None:
    """A second `with` on the same object would mix two attempts."""
    block = book.run()
    with block:
        pass
    with pytest.raises(InvalidInputError), block:
        pass
