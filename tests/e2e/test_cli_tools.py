"""`tools`, `usage` and `timeline`: what a run did, what it used, and when."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.e2e.driving import InProcess, Processes, on_a_terminal
from tests.e2e.stories import (
    CONTROL,
    MARKUP,
    MOMENT,
    UNSAFE,
    HeldClock,
    record,
    record_custom_only,
    said,
    stepped_story,
    story,
)
from turnledger.ledger import (
    NEW,
    Ledger,
    ModelCalled,
    ModelReplied,
    RunFailed,
    RunStarted,
    SliceEventApplied,
    TokenUsage,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    ToolCallStarted,
    new_run_id,
)
from turnledger.ledger.clock import new_message_id
from turnledger.ledger.events.messages import ToolCallRecord
from turnledger.projections import state_at


def table(text: str) -> list[list[str]]:
    """The rows of a table in cells, its headings first; blank cells are not seen."""
    return [line.split() for line in text.splitlines()]


# --- tools -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, []),
        (5, []),
        (6, [("c1", "pending", 0), ("c2", "pending", 0)]),
        (8, [("c1", "started", 1), ("c2", "pending", 0)]),
        (10, [("c1", "completed", 1), ("c2", "pending", 0)]),
        (13, [("c1", "completed", 1), ("c2", "failed", 1)]),
    ],
)
def test_tools_shows_how_calls_stand(
    cli: InProcess, run: UUID, version: int, expected: list[tuple[str, str, int]]
) -> None:
    """Each call is listed with its status at that version, the same in every format."""
    calls = cli("tools", run, "--at", version, "-o", "json").json
    assert [(c["call_id"], c["status"], c["attempts"]) for c in calls] == expected
    assert cli("tools", run, "--at", version, "-o", "jsonl").lines == calls
    shown = cli("tools", run, "--at", version)
    if not expected:
        assert (shown.out, shown.err) == ("", "The run has called no tool.\n")
        return
    rows = table(shown.out)
    assert rows[0] == ["call", "name", "status", "attempts", "took", "arguments", "result"]
    assert [(row[0], row[2], int(row[3])) for row in rows[1:]] == expected


def test_pending_leaves_out_what_is_over(cli: InProcess, run: UUID) -> None:
    """`--pending` lists calls that are neither completed nor failed."""
    left = cli("tools", run, "--pending", "--at", "10", "-o", "jsonl").lines
    assert [call["call_id"] for call in left] == ["c2"]
    assert len(cli("tools", run, "--pending", "--at", "10").out.splitlines()) == 2
    assert cli("tools", run, "--pending", "-o", "json").json == []


def test_a_call_in_full(cli: InProcess, run: UUID) -> None:
    """A program gets every field of a call, whatever its value."""
    call = cli("tools", run, "-o", "json").json[1]
    assert (call["name"], call["error_type"], call["result"]) == ("save", "OSError", "disk full")
    assert call["decision"] is None
    assert cli("tools", run, "--at", "6", "-o", "json").json[1]["status"] == "pending"
    row = cli("tools", run).out.splitlines()[1]
    assert "2.00s" in row
    assert "21 degrees\\nand sunny" in row


def test_a_long_result_is_shortened(cli: InProcess) -> None:
    """A table shows the beginning of arguments and result."""
    long = '{"text": "' + "word " * 100 + '"}'
    asked = said("assistant", "", 1, tool_calls=(ToolCallRecord("c", "look", long),))
    told = said("tool", "much " * 100, 2, tool_call_id="c")
    run = record(cli, [RunStarted(), said("user", "Go", 0), asked, told])
    row = cli("tools", run).out.splitlines()[1]
    assert (len(row) < 200, row.count("…")) == (True, 2)


def test_a_decision_is_shown(cli: InProcess) -> None:
    """A call in doubt shows what a person decided about it."""
    of: dict[str, Any] = {"evaluation_id": "first", "call_id": "c", "name": "pay"}
    decided = ToolCallDecided(call_id="c", decision="retry")
    run = record(cli, [RunStarted(), ToolCallStarted(**of), ToolCallInDoubt(**of), decided])
    assert "in_doubt (decided: retry)" in cli("tools", run, "--pending").out


def test_a_fork_doubts_what_its_parent_had_under_way(cli: InProcess, run: UUID) -> None:
    """A call that was started before the fork is in doubt in the fork."""
    child = cli("fork", run, "--at", "8").out.strip()
    calls = cli("tools", child, "-o", "jsonl").lines
    assert [(c["call_id"], c["status"]) for c in calls] == [("c1", "in_doubt"), ("c2", "pending")]


# --- usage -------------------------------------------------------------------------


def test_usage_of_a_run(cli: InProcess, run: UUID) -> None:
    """A run's tokens are given by model and turn, with sums; JSON is the view itself."""
    with cli.ledger() as ledger:
        expected = state_at(ledger, run).to_json()["usage"]
    assert cli("usage", run, "-o", "json").json == expected
    assert cli("usage", run, "-o", "jsonl").lines == [expected]
    counts = ["input", "cached", "output", "reasoning", "total"]
    assert table(cli("usage", run).out) == [
        ["model", "calls", *counts],
        ["small", "1", "10", "2", "5", "0", "15"],
        ["large", "1", "100", "0", "50", "7", "150"],
        ["all", "2", "110", "2", "55", "7", "165"],
        [],
        ["failed", "calls", "1"],
        [],
        ["evaluation", "turn", "model", *counts],
        ["first", "1", "small", "10", "2", "5", "0", "15"],
        ["first", "2", "large", "100", "0", "50", "7", "150"],
    ]


def test_usage_of_all_runs(cli: InProcess, run: UUID) -> None:
    """Without a run everything is summed by model, the largest first, forks counted once."""
    record(cli, story())
    child = cli("fork", run, "--at", "18").out.strip()
    replied = ModelReplied(
        evaluation_id="x",
        turn=1,
        message_id=new_message_id(),
        model="small",
        usage=TokenUsage(input_tokens=1000),
    )
    with cli.ledger() as ledger:
        ledger.append(child, [replied], 19)
    assert cli("usage", child, "-o", "json").json["total"]["input_tokens"] == 1000
    done = cli("usage", "-o", "json").json
    assert list(done) == ["total", "by_model", "failed_calls"]
    assert list(done["by_model"]) == ["small", "large"]
    assert (done["total"]["calls"], done["failed_calls"]) == (5, 2)
    assert done["by_model"]["small"]["input_tokens"] == 1020
    assert cli("usage", "-o", "jsonl").lines == [done]
    assert table(cli("usage").out)[1:4] == [
        ["small", "3", "1020", "4", "10", "0", "1030"],
        ["large", "2", "200", "0", "100", "14", "300"],
        ["all", "5", "1220", "4", "110", "14", "1330"],
    ]


def test_nothing_was_used(cli: InProcess) -> None:
    """Runs that called no model have used nothing, without an error."""
    run = record_custom_only(cli)
    for arguments in (("usage",), ("usage", run)):
        assert table(cli(*arguments).out)[1:] == [["all", "0", "0", "0", "0", "0", "0"]]
        assert cli(*arguments, "-o", "json").json["by_model"] == {}


# --- timeline ----------------------------------------------------------------------

SPANS = [
    ("model", "small", "ok", 4.0, 2.0),
    ("gap", "", "", 6.0, 1.0),
    ("tool", "weather", "ok", 7.0, 2.0),
    ("gap", "", "", 9.0, 1.0),
    ("tool", "save", "failed", 10.0, 2.0),
    ("gap", "", "", 12.0, 1.0),
    ("model", "large", "failed", 13.0, 1.0),
    ("gap", "", "", 14.0, 1.0),
    ("model", "large", "ok", 15.0, 2.0),
]


@pytest.mark.parametrize(
    ("version", "count"), [(0, 0), (4, 0), (7, 1), (10, 3), (13, 5), (15, 7), (19, 9)]
)
def test_timeline_has_spans_and_gaps(cli: InProcess, run: UUID, version: int, count: int) -> None:
    """Spans and gaps come in their order, with offsets from the start and durations."""
    rows = cli("timeline", run, "--at", version, "-o", "json").json
    found = [(r["kind"], r["name"], r["outcome"], r["offset"], r["seconds"]) for r in rows]
    assert found == SPANS[:count]
    assert cli("timeline", run, "--at", version, "-o", "jsonl").lines == rows
    drawn = cli("timeline", run, "--at", version)
    assert len(drawn.out.splitlines()) == (count + 1 if count else 0)
    assert bool(drawn.err) == (count == 0)


def test_timeline_is_grouped_by_steps(cli: InProcess) -> None:
    """S1-7: a call is in the step of the message before it; a step is named at its first call."""
    run = record(cli, stepped_story())
    rows = cli("timeline", run, "-o", "json").json
    steps = [row["step_num"] for row in rows if row["kind"] != "gap"]
    assert steps == [1, 1, 1, 2, 2]
    headings, *lines = cli("timeline", run).out.splitlines()
    assert headings.split()[0] == "step"
    assert [line[0] for line in lines if line[0] != " "] == ["1", "2"]


def bars(text: str) -> list[str]:
    """What is drawn at the end of each row, with the blanks before it."""
    start = len(text.splitlines()[0].partition("outcome")[0]) + len("ok (attempt 2)  ")
    return [line[start:] for line in text.splitlines()[1:]]


def test_timeline_is_drawn(cli: InProcess, run: UUID) -> None:
    """A bar lies where its span lies in the run; failures and gaps look different."""
    text = cli("timeline", run).out
    assert text.splitlines()[1].split()[:5] == ["+4.00s", "2.00s", "model", "small", "ok"]
    drawn = bars(text)
    assert [bar.strip()[0] for bar in drawn] == ["█", "·", "█", "·", "▓", "·", "▓", "·", "█"]
    begins = [len(bar) - len(bar.lstrip()) for bar in drawn]
    assert begins == [int(offset / 18 * 40) for _, _, _, offset, _ in SPANS]
    assert [len(bar.strip()) for bar in drawn if "█" in bar] == [5, 5, 5]
    assert "(attempt 2)" in text.splitlines()[-1]


def test_a_bar_uses_the_terminal(processes: Processes) -> None:
    """On a terminal the drawing fills the screen and no line is broken; NO_COLOR counts."""
    run = record(InProcess(processes.db), story())
    code, plain = on_a_terminal(processes, "timeline", run, NO_COLOR="1")
    assert (code, b"\x1b" in plain) == (0, False)
    lines = plain.decode().splitlines()
    assert len(lines) == 1 + len(SPANS)
    assert 150 < max(map(len, lines)) <= 200
    code, styled = on_a_terminal(processes, "timeline", run)
    assert (code, b"\x1b[1m" in styled) == (0, True)


def test_what_has_no_end_has_no_duration(cli: InProcess, run: UUID) -> None:
    """A span that is under way has an offset only."""
    (row,) = cli("timeline", run, "--at", "5", "-o", "jsonl").lines
    assert (row["outcome"], row["offset"], row["seconds"]) == ("running", 4.0, None)
    assert row["ended_at"] is None
    assert table(cli("timeline", run, "--at", "5").out)[1][:4] == [
        "+4.00s",
        "model",
        "small",
        "running",
    ]


def test_a_single_moment_can_be_drawn(cli: InProcess) -> None:
    """A run that took no time at all has a timeline too."""
    called = ModelCalled(evaluation_id="e", turn=1, request_digest="-", model="m")
    run = record(cli, [called])
    assert table(cli("timeline", run).out)[1] == ["+0ms", "model", "m", "running", "▒"]


def test_a_fork_counts_from_its_parents_start(cli: InProcess, run: UUID) -> None:
    """Shared spans are in a fork's timeline, with the same offsets."""
    child = cli("fork", run, "--at", "10").out.strip()
    assert (
        cli("timeline", child, "-o", "json").json
        == cli("timeline", run, "--at", "10", "-o", "json").json
    )


def test_a_continuation_counts_from_its_own_start(cli: InProcess, run: UUID) -> None:
    """A continuation leaves its parent's spans behind, and the parent's time with them."""
    clock = HeldClock()
    with Ledger.open(cli.db, clock=clock) as ledger:
        clock.now = MOMENT + 100_000_000
        child = ledger.continuation(run)
        clock.now += 5_000_000
        called = ModelCalled(evaluation_id="e", turn=1, request_digest="-", model="m")
        ledger.append(child, [called], 20)
    (row,) = cli("timeline", child, "-o", "jsonl").lines
    assert row["offset"] == 5.0


def test_a_run_without_spans(cli: InProcess) -> None:
    """Where no model or tool was called there is nothing to draw, and a note says so."""
    done = cli("timeline", record_custom_only(cli))
    assert (done.code, done.out) == (0, "")
    assert "no model and no tool" in done.err


# --- content that would steer a terminal ---------------------------------------------


def hostile(cli: InProcess) -> UUID:
    """A run whose names and values try everything."""
    of: dict[str, Any] = {"evaluation_id": UNSAFE}
    asked = (ToolCallRecord(UNSAFE, UNSAFE + MARKUP, UNSAFE),)
    return record(
        cli,
        [
            RunStarted(tags={UNSAFE: UNSAFE}),
            said("user", UNSAFE, 0, evaluation=UNSAFE),
            ModelCalled(**of, turn=1, request_digest="-", model=UNSAFE),
            said("assistant", UNSAFE, 1, evaluation=UNSAFE, tool_calls=asked),
            ModelReplied(**of, turn=1, message_id=new_message_id(), model=UNSAFE + MARKUP),
            ToolCallStarted(**of, call_id=UNSAFE, name=UNSAFE),
            said("tool", UNSAFE, 2, evaluation=UNSAFE, tool_call_id=UNSAFE),
            SliceEventApplied(slice=UNSAFE, event_type="x", operation="append", payload=UNSAFE),
            SliceEventApplied(slice=UNSAFE, event_type="x", operation="seed", payload=[MARKUP]),
        ],
    )


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("state", "RUN"),
        ("tools", "RUN"),
        ("usage",),
        ("usage", "RUN"),
        ("timeline", "RUN"),
        ("diff", "RUN", "0", "9"),
        ("diff", "RUN", "8", "9"),
        ("blame", "RUN", "/slices"),
    ],
)
def test_no_control_character_is_printed(
    cli: InProcess, arguments: tuple[str, ...], form: str
) -> None:
    """Names of models, tools and slices are written out, in every command and format."""
    run = str(hostile(cli))
    done = cli(*(run if argument == "RUN" else argument for argument in arguments), "-o", form)
    assert (done.code, done.err) == (0, "")
    assert CONTROL.findall(done.out) == []
    assert "evil" in done.out


def test_tracebacks_are_shown(cli: InProcess) -> None:
    """Of a tool by `tools` and `timeline -v`, of a failed run by `show`; in JSON always."""
    run, where = new_run_id(), 'Traceback (most recent call last):\n  File "pay.py", \x1b[31m'
    of: dict[str, Any] = {"evaluation_id": "e1", "call_id": "c1", "name": "pay"}
    with cli.ledger() as ledger:
        ledger.append(
            run,
            [
                RunStarted(),
                ToolCallStarted(**of),
                ToolCallFailed(
                    **of,
                    message_id=new_run_id(),
                    error_type="E",
                    error_message="m",
                    traceback=f"{where}in tool",
                ),
                RunFailed(error_type="E", error_message="m", traceback=f"{where}in run"),
            ],
            NEW,
        )
    tools, shown = cli("tools", run), cli("show", run)
    quiet, verbose = cli("timeline", run), cli("timeline", run, "-v")
    assert "in tool" in tools.out
    assert "in run" in shown.out
    assert "E: m" in shown.out
    assert "Traceback" not in quiet.out
    assert verbose.out.index("in tool") < verbose.out.index("in run")
    assert not any("\x1b" in one.out for one in (tools, shown, verbose))
    assert cli("tools", run, "-o", "json").json[0]["traceback"] == f"{where}in tool"
    assert cli("show", run, "-o", "json").json["traceback"] == f"{where}in run"
