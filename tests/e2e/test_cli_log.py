"""`runs`, `log`, `show` and `tail`: what they print, in each format, and what they filter."""

from __future__ import annotations

import json
import re
from uuid import UUID

import pytest

from tests.e2e.driving import NOBODY, PROGRAM, InProcess, Processes, on_a_terminal, tamper
from tests.e2e.stories import record, story
from tests.unit.runtime.clocks import StandingClock
from turnledger.adapters.cli.inspect import runs as listing
from turnledger.ledger import (
    NEW,
    CustomEvent,
    EvaluationStarted,
    Event,
    Ledger,
    RunCompleted,
    RunStarted,
    ToolCallStarted,
    new_run_id,
)

RECORD_FIELDS = [
    "run_id",
    "version",
    "position",
    "type",
    "event_id",
    "recorded_at",
    "digest",
    "data",
]


@pytest.fixture
def run(cli: InProcess) -> UUID:
    """A run of four events in four commits, and a completed one."""
    run, other = new_run_id(), new_run_id()
    tool = ToolCallStarted(evaluation_id="e", call_id="c", name="look")
    prompt = EvaluationStarted(
        evaluation_id="e", prompt_ns="demo", prompt_key="hello", prompt_digest="d"
    )
    with cli.ledger() as ledger:
        ledger.append(run, [RunStarted(tags={"team": "blue"})], NEW)
        events: list[Event] = [prompt, tool, CustomEvent(kind="a.b", data="é")]
        for version, event in enumerate(events, start=1):
            ledger.append(run, [event], version)
        ledger.append(other, [RunStarted(tags={"team": "red"}), RunCompleted()], NEW)
    return run


def test_a_record_on_the_outside(cli: InProcess, run: UUID) -> None:
    """A record has exactly the documented fields, in every JSON format and command."""
    with cli.ledger() as ledger:
        record = ledger.record(run, 4)
    expected = {
        "run_id": str(run),
        "version": 4,
        "position": record.position,
        "type": "custom",
        "event_id": str(record.event_id),
        "recorded_at": record.recorded_at.isoformat(timespec="microseconds")[:-6] + "Z",
        "digest": record.digest,
        "data": {"kind": "a.b", "data": "é"},
    }
    assert cli("show", run, "4").json == expected
    assert cli("show", run, "4", "-o", "jsonl").lines == [expected]
    assert cli("log", run, "-o", "json").json[3] == expected
    assert cli("log", run, "-o", "jsonl").lines[3] == expected
    assert cli("tail", "-o", "jsonl").lines[3] == expected
    assert list(cli("show", run, "4").json) == RECORD_FIELDS


@pytest.mark.parametrize(
    ("arguments", "versions"),
    [
        ((), [1, 2, 3, 4]),
        (("--after", "2"), [3, 4]),
        (("--until", "2"), [1, 2]),
        (("--after", "1", "--until", "3", "--reverse"), [3, 2]),
        (("--reverse",), [4, 3, 2, 1]),
        (("--type", "custom"), [4]),
        (("--type", "run.*", "--type", "tool_call.*"), [1, 3]),
        (("--type", "run.failed"), []),
        (("--after", "99"), []),
    ],
)
def test_log_chooses(
    cli: InProcess, run: UUID, arguments: tuple[str, ...], versions: list[int]
) -> None:
    """`log` shows the versions and types that are asked for, the same in every format."""
    assert [r["version"] for r in cli("log", run, *arguments, "-o", "jsonl").lines] == versions
    assert [r["version"] for r in cli("log", run, *arguments, "-o", "json").json] == versions
    table = cli("log", run, *arguments).out.splitlines()
    assert [int(line.split()[0]) for line in table] == versions


def test_log_of_a_fork_shows_its_lineage(cli: InProcess, run: UUID) -> None:
    """A fork's log begins with what it shares with its parent."""
    child = cli("fork", run, "--at", "2").out.strip()
    owners = [r["run_id"] for r in cli("log", child, "-o", "jsonl").lines]
    assert owners == [str(run), str(run), child]


def test_tail_goes_over_all_runs_in_order(cli: InProcess, run: UUID) -> None:
    """`tail` prints the whole ledger by position, after one if asked."""
    everything = cli("tail", "-o", "jsonl").lines
    positions = [r["position"] for r in everything]
    assert positions == sorted(positions)
    assert len(everything) == 6
    assert cli("tail", "--after", positions[3], "-o", "jsonl").lines == everything[4:]
    assert len(cli("tail", "--type", "run.started").out.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ((), 2),
        (("--status", "completed"), 1),
        (("--tag", "team"), 2),
        (("--tag", "team=blue"), 1),
        (("--tag", "team=green"), 0),
        (("--prompt", "demo/hello"), 1),
        (("--since", "2020-01-01", "--until", "2999-01-01T00:00Z"), 2),
        (("--until", "2020-01-01"), 0),
        (("--limit", "1"), 1),
    ],
)
def test_runs_chooses(cli: InProcess, run: UUID, arguments: tuple[str, ...], count: int) -> None:
    """`runs` filters by status, tag, prompt and time, the same in every format."""
    assert len(cli("runs", *arguments, "-o", "jsonl").lines) == count
    assert len(cli("runs", *arguments, "-o", "json").json) == count
    table = cli("runs", *arguments)
    assert len(table.out.splitlines()) == (1 + count if count else 0)
    assert ("No runs found." in table.err) == (count == 0)


def test_runs_says_when_there_are_more(cli: InProcess) -> None:
    """A table of runs is cut at 50, with a note on stderr; programs get all."""
    with cli.ledger() as ledger:
        for _ in range(51):
            ledger.append(new_run_id(), [RunStarted()], NEW)
    done = cli("runs")
    assert len(done.out.splitlines()) == 51
    assert "--limit" in done.err
    assert len(cli("runs", "-o", "jsonl").lines) == 51


def test_runs_shows_a_run_that_has_been_quiet_for_long(cli: InProcess) -> None:
    """A tool that does not come back, or a worker that is gone, is seen in the list."""
    with Ledger.open(cli.db, clock=StandingClock()) as ledger:
        ledger.append(new_run_id(), RunStarted(), NEW)
    assert re.search(r"\bquiet \d+[dy]\b", cli("runs").out)
    with cli.ledger() as ledger:
        ledger.append(next(ledger.runs()).run_id, CustomEvent(kind="a.b"), 1)
    assert "quiet" not in cli("runs").out


def cells(cli: InProcess, run: object) -> dict[str, str]:
    """The cells of a run in the table of runs, by heading; cells here have no spaces."""
    heading, *lines = cli("runs").out.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", heading)]
    line = next(line for line in lines if line.startswith(str(run)))
    # Numbers are on the right of their columns.
    words = dict.fromkeys(heading.split(), "")
    for match in re.finditer(r"\S+", line):
        place = max(n for n, start in enumerate(starts) if start < match.end())
        words[heading.split()[place]] = match[0]
    return words


def test_runs_adds_up_tokens_and_time(cli: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run's own calls: a fork's parent has its own. Of a long run they are not known."""
    run = record(cli, story())
    with cli.ledger() as ledger:
        fork = ledger.fork(run, 10)
    assert cells(cli, run) | {"started": ""} == {
        "run": str(run),
        "status": "completed",
        "prompt": "demo/trip",
        "started": "",
        "events": "19",
        "tokens": "165",
        "took": "18.00s",
        "tags": "team=blue",
    }
    assert (cells(cli, fork)["tokens"], cells(cli, fork)["took"]) == ("0", "")
    monkeypatch.setattr(listing, "MOST_READ_OF_ONE", 18)
    assert cells(cli, run)["tokens"] == ""
    monkeypatch.setattr(listing, "MOST_READ_OF_ONE", 19)
    monkeypatch.setattr(listing, "MOST_READ", 19)
    assert (cells(cli, fork)["tokens"], cells(cli, run)["tokens"]) == ("0", "")


def test_log_has_a_summary_of_each_event(cli: InProcess) -> None:
    """Who said what, and which call; of an event that can't be read, its data."""
    run = record(cli, story())
    lines = [line.split("Z  ")[1] for line in cli("log", run).out.splitlines()]
    assert lines[3] == "message.appended       user: How is Lisbon?"
    assert lines[5].startswith("message.appended       assistant: Let me look. weather(")
    assert lines[8].endswith("c1 tool: 21 degrees\\nand sunny")
    assert lines[9] == "tool_call.completed    c1 name=weather value=21"
    tamper(cli.db, "UPDATE events SET data = ? WHERE version = 10", '{"odd": "\\u001b[31m"}')
    damaged = cli("log", run)
    assert damaged.code == 0
    assert damaged.out.splitlines()[9].endswith('tool_call.completed    {"odd": "\\u001b[31m"}')


def test_log_is_coloured_by_kind(processes: Processes, cli: InProcess) -> None:
    """Tools are yellow, what failed is red, on a terminal; the date stands above."""
    run = record(cli, story())
    _, shown = on_a_terminal(processes, "log", run)
    lines = shown.decode().split("\r\n")
    assert "2023-11-14 (UTC)" in lines[0]
    assert "\x1b[33mtool_call.started" in lines[8]
    assert "\x1b[31mtool_call.failed" in lines[13]
    assert "22:13:20" in lines[1]


def test_show_says_what_is_known_of_a_run(cli: InProcess, run: UUID) -> None:
    """`show RUN` gives the index's row, and the lease if there is one."""
    shown = cli("show", run, "-o", "json").json
    assert (shown["status"], shown["version"], shown["prompt"]) == ("running", 4, "demo/hello")
    assert shown["lease"] is None
    with cli.ledger() as ledger, ledger.claim(run, worker="me"):
        lease = cli("show", run, "-o", "json").json["lease"]
        assert (lease["worker"], lease["epoch"]) == ("me", 1)
        assert "me (epoch 1)" in cli("show", run).out
    assert "team=blue" in cli("show", run).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("log", NOBODY),
        ("log", NOBODY, "-f"),
        ("show", NOBODY),
        ("show", NOBODY, "1"),
        ("verify", NOBODY),
        ("export", NOBODY),
        ("fork", NOBODY, "--at", "1"),
    ],
)
def test_an_unknown_run_exits_3(cli: InProcess, run: UUID, arguments: tuple[str, ...]) -> None:
    """A run that is not there is 3 for every command that needs one."""
    done = cli(*arguments)
    assert done.code == 3
    assert NOBODY in done.err


def test_an_unknown_version_exits_3(cli: InProcess, run: UUID) -> None:
    """A version that is not there is not found, and the message says which there are."""
    done = cli("show", run, "5")
    assert (done.code, done.out) == (3, "")
    assert "from 1 to 4" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("log", "@no-run"),
        ("log", NOBODY, "--type", "tool_call.starte"),
        ("log", NOBODY, "--after", "-1"),
        ("log", NOBODY, "-f", "--reverse"),
        ("log", NOBODY, "-f", "-o", "json"),
        ("tail", "-f", "-o", "json"),
        ("show", NOBODY, "0"),
        ("runs", "--status", "happy"),
        ("runs", "--since", "yesterday"),
        ("runs", "-o", "xml"),
        ("verify", NOBODY, "--all"),
        ("runs", "--db", "mysql://x"),
        ("fly",),
    ],
)
def test_usage_errors_exit_2(cli: InProcess, run: UUID, arguments: tuple[str, ...]) -> None:
    """A command line that makes no sense exits with 2 and says why on stderr."""
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    if arguments[-2:] == ("-o", "json"):
        assert json.loads(done.err)["error"] == "UsageError"
    else:
        assert "Error:" in done.err


def test_reading_creates_nothing(cli: InProcess) -> None:
    """Where there is no ledger, commands that read say so and leave it at that."""
    for arguments in (
        *(("runs",), ("tail",), ("log", NOBODY), ("show", NOBODY), ("verify",), ("doctor",)),
        *(("export", "--all"), ("fork", NOBODY, "--at", "1"), ("rebuild-index",)),
    ):
        done = cli(*arguments)
        assert (done.code, done.out) == (1, "")
        assert "There is no ledger at" in done.err
    assert list(cli.db.parent.iterdir()) == []


def test_the_default_ledger_is_runs_db_here(processes: Processes) -> None:
    """Without --db and TURNLEDGER_DB the ledger is runs.db in the current folder."""
    command = (PROGRAM, "append", "new", "-o", "json")
    process = processes.start("env", "-u", "TURNLEDGER_DB", *command, cwd=processes.db.parent)
    out, _ = process.communicate(b'{"type":"run.started"}', timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["version"] == 1
    assert processes.db.exists()


def test_db_and_output_work_before_and_after_the_command(cli: InProcess, run: UUID) -> None:
    """The option after the command counts more than the one before, and that than the variable."""
    path = str(cli.db)
    expected = cli("runs", "-o", "json").out
    nowhere = "/nowhere/at/all.db"
    assert cli("--db", path, "-o", "json", "runs", TURNLEDGER_DB=nowhere).out == expected
    assert cli("--db", nowhere, "-o", "table", "runs", "--db", path, "-o", "json").out == expected
    assert cli("runs", "-o", "json", TURNLEDGER_DB=f"sqlite:///{path}").out == expected


def test_a_file_that_is_no_ledger_is_an_error(cli: InProcess) -> None:
    """A file of another kind is named and left as it was, without a traceback."""
    cli.db.write_text("not a database, but long enough to be taken for one" * 100)
    done = cli("runs")
    assert (done.code, done.out) == (1, "")
    assert "Error:" in done.err
    assert cli.db.read_text().startswith("not a database")
