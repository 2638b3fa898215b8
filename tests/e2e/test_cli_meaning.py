"""`state` and `projections`, forks and errors: what is known of a run, at any version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.e2e.driving import NOBODY, InProcess
from turnledger.ledger import (
    NEW,
    CustomEvent,
    EvaluationStarted,
    Event,
    InnerMessage,
    Ledger,
    MessageAppended,
    ModelCalled,
    ModelCallFailed,
    ModelReplied,
    RunCompleted,
    RunStarted,
    SliceEventApplied,
    TokenUsage,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    new_run_id,
)
from turnledger.ledger.clock import SystemClock
from turnledger.ledger.events.messages import ToolCallRecord
from turnledger.projections import state_at
from turnledger.projections.run_state.state import built_in

EVALUATION = "first"
VERSIONS = (0, 1, 4, 8, 13, 19)
MOMENT = 1_700_000_000_000_000


class HeldClock(SystemClock):
    """Shows the time that it was set to."""

    now = MOMENT

    def micros(self) -> int:
        return self.now


def said(role: Any, text: str, sequence: int, **more: Any) -> MessageAppended:
    return MessageAppended(
        message=InnerMessage(role, text, more.pop("evaluation", EVALUATION), sequence, **more)
    )


def story() -> list[Event]:
    """A run with two tools, one of which fails, and a model that is asked again."""
    calls = (
        ToolCallRecord("c1", "weather", '{"city": "Lisbon"}'),
        ToolCallRecord("c2", "save", '{"path": "a.py", "content": "def f():\\n    return 1\\n"}'),
    )
    asks = said("assistant", "Let me look.", 2, tool_calls=calls, turn=1)
    sunny = said("tool", "21 degrees\nand sunny", 3, tool_call_id="c1", tool_name="weather")
    full = said("tool", "disk full", 4, tool_call_id="c2", tool_name="save", is_error=True)
    answers = said("assistant", "It is sunny, but I could not save it.", 5, turn=2)
    of: dict[str, Any] = {"evaluation_id": EVALUATION}
    return [
        RunStarted(tags={"team": "blue"}),
        EvaluationStarted(**of, prompt_ns="demo", prompt_key="trip", prompt_digest="d"),
        said("system", "You plan trips.", 0),
        said("user", "How is Lisbon?", 1),
        ModelCalled(**of, turn=1, request_digest="-", model="small"),
        asks,
        ModelReplied(
            **of,
            turn=1,
            message_id=asks.message.message_id,
            model="small",
            usage=TokenUsage(input_tokens=10, output_tokens=5, cached_tokens=2),
        ),
        ToolCallStarted(**of, call_id="c1", name="weather"),
        sunny,
        ToolCallCompleted(
            **of, call_id="c1", name="weather", message_id=sunny.message.message_id, value=21
        ),
        ToolCallStarted(**of, call_id="c2", name="save"),
        full,
        ToolCallFailed(
            **of,
            call_id="c2",
            name="save",
            message_id=full.message.message_id,
            error_type="OSError",
            error_message="disk full",
        ),
        ModelCalled(**of, turn=2, request_digest="-", model="large"),
        ModelCallFailed(**of, turn=2, error_type="Busy", error_message="503", retryable=True),
        ModelCalled(**of, turn=2, request_digest="-", model="large", attempt=2),
        answers,
        ModelReplied(
            **of,
            turn=2,
            message_id=answers.message.message_id,
            model="large",
            usage=TokenUsage(input_tokens=100, output_tokens=50, reasoning_tokens=7),
        ),
        RunCompleted(output={"ok": True}),
    ]


def record(cli: InProcess, events: list[Event]) -> UUID:
    """A run of these events, recorded one a second."""
    run, clock = new_run_id(), HeldClock()
    with Ledger.open(cli.db, clock=clock) as ledger:
        for version, event in enumerate(events):
            clock.now = MOMENT + version * 1_000_000
            ledger.append(run, [event], version or NEW)
    return run


def record_custom_only(cli: InProcess) -> UUID:
    """A run that no view reads anything of."""
    return record(cli, [CustomEvent(kind="test.note", data=n) for n in range(3)])


@pytest.fixture
def run(cli: InProcess) -> UUID:
    """The story, in a ledger with another run beside it."""
    record_custom_only(cli)
    return record(cli, story())


def known(cli: InProcess, run: UUID | str, version: int | None = None) -> Any:
    """The state as the library gives it."""
    with cli.ledger() as ledger:
        return state_at(ledger, run, version).to_json()


# --- state -------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_state_is_the_fold_at_a_version(cli: InProcess, run: UUID, version: int) -> None:
    """`state --at` prints what the library folds, as JSON in every format."""
    expected = known(cli, run, version)
    table = cli("state", run, "--at", version)
    assert table.json == expected
    assert table.out == cli("state", run, "--at", version, "-o", "json").out
    assert cli("state", run, "--at", version, "-o", "jsonl").lines == [expected]


def test_state_is_of_the_last_version_by_default(cli: InProcess, run: UUID) -> None:
    """Without --at everything counts."""
    assert cli("state", run).json == known(cli, run, 19)


@pytest.mark.parametrize("view", [view.name for view in built_in()])
def test_state_of_one_view(cli: InProcess, run: UUID, view: str) -> None:
    """`--projection` prints one view's state, and a path into the whole state finds the same."""
    expected = known(cli, run, 12)[view]
    assert cli("state", run, "--at", "12", "--projection", view).json == expected
    assert cli("state", run, "--at", "12", "--path", f"/{view}").json == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--path", "/usage/total/calls"), 2),
        (("--path", "/usage/total/calls", "--at", "7"), 1),
        (("--path", "/summary/tags"), {"team": "blue"}),
        (("--path", "/tools/1/name"), "save"),
        (("--projection", "usage", "--path", "/by_model/large/calls"), 1),
        (("--projection", "history", "--path", "/system"), "You plan trips."),
        (("--projection", "slices", "--path", ""), {}),
    ],
)
def test_state_at_a_path(
    cli: InProcess, run: UUID, arguments: tuple[str, ...], expected: object
) -> None:
    """`--path` prints the value that a JSON Pointer names, and nothing else."""
    assert cli("state", run, *arguments).json == expected
    assert cli("state", run, *arguments, "-o", "jsonl").lines == [expected]


def test_a_path_spells_slashes_and_tildes(cli: InProcess) -> None:
    """Names with / and ~ are reached as RFC 6901 says, here and by `blame`."""
    event = SliceEventApplied(slice="a/b~c", event_type="x", operation="append", payload=[7])
    run = record(cli, [RunStarted(), event])
    assert cli("state", run, "--path", "/slices/a~1b~0c/0/0").json == 7
    assert cli("blame", run, "/slices/a~1b~0c/0/0").json["version"] == 2


# --- forks and runs without meaning ---------------------------------------------------


def test_a_fork_knows_what_its_parent_knew(cli: InProcess, run: UUID) -> None:
    """Up to the fork both states are the same, and a shared record may be to blame."""
    child = cli("fork", run, "--at", "9").out.strip()
    for version in (0, 4, 9):
        assert known(cli, run, version) == cli("state", child, "--at", version).json
    assert cli("state", child).json == known(cli, child)
    assert cli("state", child, "--path", "/summary/kind").json == "fork"
    assert cli("diff", child, "9", "10", "-o", "json").json != []
    assert cli("blame", child, "/history/turns/0").out == cli("show", run, "4").out
    assert cli("blame", child, "/summary/kind").json["run_id"] == child


def test_a_run_without_meaning_has_a_state(cli: InProcess) -> None:
    """A run of custom events only is as known as one before its first event."""
    run = record_custom_only(cli)
    assert cli("state", run).json == known(cli, run, 0)
    assert cli("state", run, "--path", "/usage/total/calls").json == 0
    assert cli("diff", run, "0", "3", "-o", "json").json == []
    done = cli("blame", run, "/usage/total/calls")
    assert (done.code, done.out) == (1, "")
    assert "No event" in done.err


# --- projections --------------------------------------------------------------------


def test_projections_lists_the_views(cli: InProcess) -> None:
    """Each built-in view is there with its version and what it reads, without a ledger."""
    found = cli("projections", "-o", "json").json
    assert found == cli("projections", "-o", "jsonl").lines
    views = [thing for thing in found if thing["kind"] == "view"]
    assert [(v["name"], v["version"]) for v in views] == [(v.name, v.version) for v in built_in()]
    by_name = {view["name"]: view["reads"] for view in views}
    assert by_name["usage"] == ["run.started", "model.replied", "model.call_failed"]
    table = cli("projections").out.splitlines()
    assert [line.split() for line in table[1 : 1 + len(views)]] == [
        [view["name"], "view", str(view["version"]), *view["reads"]] for view in views
    ]
    assert not cli.db.exists()


# --- errors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("state", NOBODY), 3, NOBODY),
        (("state", NOBODY, "--projection", "usage"), 3, NOBODY),
        (("state", NOBODY, "--at", "0"), 3, NOBODY),
        (("diff", NOBODY, "0", "1"), 3, NOBODY),
        (("blame", NOBODY, "/usage"), 3, NOBODY),
        (("messages", NOBODY), 3, NOBODY),
        (("tools", NOBODY), 3, NOBODY),
        (("usage", NOBODY), 3, NOBODY),
        (("timeline", NOBODY), 3, NOBODY),
        (("state", "RUN", "--at", "20"), 3, "from 1 to 19"),
        (("state", "RUN", "--at", "20", "--path", "/usage"), 3, "from 1 to 19"),
        (("diff", "RUN", "1", "20"), 3, "from 1 to 19"),
        (("diff", "RUN", "20", "1"), 3, "from 1 to 19"),
        (("blame", "RUN", "/usage", "--at", "20"), 3, "from 1 to 19"),
        (("messages", "RUN", "--at", "20"), 3, "from 1 to 19"),
        (("tools", "RUN", "--at", "99999999999999999999999"), 3, "from 1 to 19"),
        (("timeline", "RUN", "--at", "20"), 3, "from 1 to 19"),
        (("messages", "RUN", "--evaluation", "second"), 3, "'second'"),
        (("state", "RUN", "--path", "/usage/nothing"), 1, "no value at"),
        (("state", "RUN", "--path", "/tools/2"), 1, "no value at"),
        (("state", "RUN", "--path", "/tools/-"), 1, "no value at"),
        (("state", "RUN", "--path", "/tools/00"), 1, "no value at"),
        (("state", "RUN", "--path", "/history/system/0"), 1, "no value at"),
        (("state", "RUN", "--projection", "usage", "--path", "/usage"), 1, "view usage"),
        (("blame", "RUN", "/usage/nothing"), 1, "no value at"),
        (("blame", "RUN", "/tools/-"), 1, "no value at"),
        (("blame", "RUN", "/history/turns/2", "--at", "4"), 1, "no value at"),
        (("state", "RUN", "--path", "usage"), 2, "begins with '/'"),
        (("state", "RUN", "--path", "/usage/~2"), 2, "~0"),
        (("state", "RUN", "--path", "/usag"), 2, "Did you mean /usage?"),
        (("state", "RUN", "--projection", "usag"), 2, "usage"),
        (("state", "RUN", "--at", "-1"), 2, "--at"),
        (("blame", "RUN", "usage"), 2, "begins with '/'"),
        (("blame", "RUN", ""), 2, "must begin with a view"),
        (("blame", "RUN", "/nothing"), 2, "must begin with a view"),
        (("diff", "RUN", "1"), 2, "'B'"),
        (("diff", "RUN", "one", "2"), 2, "'A'"),
    ],
)
def test_what_is_wrong_is_said(
    cli: InProcess, run: UUID, arguments: tuple[str, ...], code: int, text: str
) -> None:
    """Each mistake has its exit code and a message; nothing goes to stdout."""
    done = cli(*(str(run) if argument == "RUN" else argument for argument in arguments))
    assert (done.code, done.out) == (code, "")
    assert "Error:" in done.err
    assert text in done.err


def test_looking_creates_nothing(cli: InProcess) -> None:
    """Where there is no ledger, these commands say so and leave it at that."""
    for arguments in (
        *(("state", NOBODY), ("messages", NOBODY), ("tools", NOBODY), ("usage",)),
        *(("timeline", NOBODY), ("diff", NOBODY, "0", "1"), ("blame", NOBODY, "/usage")),
    ):
        done = cli(*arguments)
        assert (done.code, done.out) == (1, "")
        assert "There is no ledger at" in done.err
    assert not cli.db.exists()
