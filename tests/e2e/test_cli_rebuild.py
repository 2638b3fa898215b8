"""`rebuild`, `projections`, `usage --by-day` and `tools --all`: what is kept of all runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tests.e2e.driving import PROGRAM, InProcess, Processes, messages_on_a_terminal
from tests.e2e.stories import CONTROL, MARKUP, UNSAFE, record, story
from tests.tables import Notes, NotesV2, breaks, calls, note, replies, starts
from turnledger.ledger import ANY, Ledger, RunStarted
from turnledger.projections import ToolStatistics, catch_up, table_rows

BUILT_IN = ("tool-statistics", "usage-by-day")
OWN = """
from turnledger.ledger import ToolCallFailed
from turnledger.projections import Table

class Failures(Table[None]):
    name = "acme.failures"
    reads = (ToolCallFailed,)

    def adds(self, record):
        yield record.event.name, 1

ready = Failures()
number = 7
"""


@pytest.fixture
def run(run: UUID, cli: InProcess) -> UUID:
    """The story, twice; this is the second."""
    return record(cli, story())


def spoil(ledger: Ledger, table: str, place: str, text: str | None) -> None:
    """Change a row behind the back of its table."""
    ledger.derived_data(f"table:{table}").put({place: text})


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# --- rebuild -------------------------------------------------------------------------


def test_rebuild_makes_everything_that_comes_with_the_package(cli: InProcess, run: UUID) -> None:
    """Each table by its name, of how many events, up to which position."""
    done = cli("rebuild", "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert [report["name"] for report in done.json] == list(BUILT_IN)
    assert [(r["version"], r["events"], r["position"], r["ok"]) for r in done.json] == [
        (2, 38, 38, True),
        (2, 38, 38, True),
    ]
    assert cli("rebuild", "-o", "jsonl").lines == done.json
    assert cells(cli("rebuild").out) == [
        ["name", "version", "position", "events", "rows", "verdict"],
        ["tool-statistics", "2", "38", "38", "2", "rebuilt"],
        ["usage-by-day", "2", "38", "38", "2", "rebuilt"],
    ]


def test_rebuild_makes_one_by_name(cli: InProcess, run: UUID) -> None:
    """And leaves the others alone."""
    (report,) = cli("rebuild", "usage-by-day", "-o", "json").json
    assert (report["name"], report["rows"], report["verified"]) == ("usage-by-day", 2, False)
    kept = {t["name"]: t["position"] for t in cli("projections", "-o", "json").json[-2:]}
    assert kept == {"tool-statistics": None, "usage-by-day": 38}


def test_rebuild_takes_processes(processes: Processes, cli: InProcess, run: UUID) -> None:
    """`--workers` comes to the same rows, for a table of one's own too."""
    (processes.db.parent / "acme.py").write_text(OWN)
    (one,) = cli("rebuild", "tool-statistics", "-o", "json").json
    done = processes("rebuild", "tool-statistics", "--workers", "2", "-o", "json")
    assert (done.code, done.err, done.json) == (0, "", [one])
    assert processes("rebuild", "tool-statistics", "--verify").code == 0
    own = subprocess.run(
        [PROGRAM, "rebuild", "acme:Failures", "--workers=2"],
        cwd=processes.db.parent,
        env=processes.environment(),
        capture_output=True,
        timeout=60,
    )
    assert (own.returncode, own.stderr) == (0, b"")
    assert b"acme.failures" in own.stdout


def test_rebuild_takes_a_table_of_ones_own(
    cli: InProcess, run: UUID, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class or an object, found from the current folder; then it is listed with the rest."""
    (tmp_path / "acme_tables.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("acme_tables:Failures", "acme_tables:ready"):
        (report,) = cli("rebuild", name, "-o", "json").json
        assert (report["name"], report["rows"]) == ("acme.failures", 1)
    assert cli("rebuild", "acme_tables:Failures", "--verify").code == 0
    listed = cli("projections", "-o", "json").json[-1]
    assert (listed["name"], listed["kind"], listed["position"]) == ("acme.failures", "table", 38)
    assert listed["reads"] == ["tool_call.failed"]
    for name in ("acme_tables:number", "acme_tables:nothing"):
        done = cli("rebuild", name)
        assert (done.code, done.out) == (2, "")
        assert "is not a Table" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("tool-statistic",), 2, "Did you mean tool-statistics?"),
        (("nothing",), 2, "module:Class"),
        (("nowhere_at_all:Table",), 2, "No module named 'nowhere_at_all'"),
        ((":Table",), 2, "Can't import"),
        (("--workers", "0"), 2, "--workers"),
        (("usage-by-day", "--verify"), 3, "turnledger rebuild usage-by-day"),
    ],
)
def test_what_is_wrong_is_said(
    cli: InProcess, run: UUID, arguments: tuple[str, ...], code: int, text: str
) -> None:
    """Each mistake has its exit code and a message; nothing goes to stdout."""
    done = cli("rebuild", *arguments)
    assert (done.code, done.out) == (code, "")
    assert text in done.err


def test_nothing_is_created_where_no_ledger_is(cli: InProcess) -> None:
    """The commands say so; `projections` lists what there could be."""
    for arguments in (("rebuild",), ("usage", "--by-day"), ("tools", "--all")):
        done = cli(*arguments)
        assert (done.code, done.out) == (1, "")
        assert "There is no ledger at" in done.err
    done = cli("projections", "-o", "json")
    assert (done.code, done.json[-1]["position"]) == (0, None)
    assert "There is no ledger at" in done.err
    assert not cli.db.exists()


def test_a_worker_that_dies_is_no_riddle(cli: InProcess, run: UUID) -> None:
    """It is said, and the table is what it was."""
    with cli.ledger() as ledger:
        ledger.append(run, [note()], ANY)
        catch_up(ledger, Notes())
        before = table_rows(ledger, Notes())
    done = cli("rebuild", "tests.tables:Deadly", "--workers", "2")
    assert (done.code, done.out) == (1, "")
    assert "A worker process died" in done.err
    with cli.ledger() as ledger:
        assert table_rows(ledger, Notes()) == before


# --- verify --------------------------------------------------------------------------


def test_verify_says_what_differs(cli: InProcess, run: UUID) -> None:
    """By table and key, with what is kept and what the events say; it exits with 5."""
    cli("rebuild")
    assert cells(cli("rebuild", "--verify").out)[1][-1] == "ok"
    with cli.ledger() as ledger:
        spoil(ledger, "tool-statistics", "row/save", '{"started":99}')
        spoil(ledger, "usage-by-day", "row/2023-11-14 large", None)
    done = cli("rebuild", "--verify", "-o", "json")
    assert done.code == 5
    found = {
        report["name"]: [(d["kind"], d["key"], d["stored"]) for d in report["differences"]]
        for report in done.json
    }
    assert found == {
        "tool-statistics": [("row", "save", {"started": 99})],
        "usage-by-day": [("row", "2023-11-14 large", None)],
    }
    text = cli("rebuild", "tool-statistics", "--verify")
    assert (text.code, '{"started":99}' in text.out) == (5, True)
    assert "1 DIFFERENCES" in text.out
    again = cli("rebuild")
    assert again.code == 0
    assert cli("rebuild", "--verify").code == 0


def test_verify_skips_what_was_never_made(cli: InProcess, run: UUID) -> None:
    """Unless it was asked for by name."""
    cli("rebuild", "usage-by-day")
    done = cli("rebuild", "--verify", "-o", "json")
    assert (done.code, [report["name"] for report in done.json]) == (0, ["usage-by-day"])
    assert "no table tool-statistics" in done.err


def test_a_damaged_table_is_not_shown(cli: InProcess, run: UUID) -> None:
    """The commands that would show it exit with 5 and say how to fix it."""
    cli("rebuild")
    with cli.ledger() as ledger:
        spoil(ledger, "tool-statistics", "row/save", None)
    done = cli("tools", "--all")
    assert (done.code, done.out) == (5, "")
    assert "turnledger rebuild tool-statistics" in done.err
    cli("rebuild", "tool-statistics")
    assert cli("tools", "--all").code == 0


# --- projections ---------------------------------------------------------------------


def test_projections_says_how_far_tables_are(cli: InProcess, run: UUID) -> None:
    """Their position and how many events came since; those that were never made have none."""
    with cli.ledger() as ledger:
        catch_up(ledger, ToolStatistics())
        ledger.append(run, [note(), note()], ANY)
    first, second = cli("projections", "-o", "json").json[-2:]
    assert (first["name"], first["position"], first["behind"]) == ("tool-statistics", 38, 2)
    assert (second["name"], second["position"], second["behind"]) == ("usage-by-day", None, None)
    table = cells(cli("projections").out)
    assert table[-2][:5] == ["tool-statistics", "table", "2", "38", "2"]
    assert table[-1][:3] == ["usage-by-day", "table", "2"]


def test_projections_shows_what_another_program_keeps(cli: InProcess) -> None:
    """With the version that is kept; one that was edited gives no distance."""
    record(cli, [RunStarted(), note()])
    with cli.ledger() as ledger:
        catch_up(ledger, NotesV2())
        catch_up(ledger, Notes2())
        data = ledger.derived_data("table:test.other")
        watermark = data.watermark()
        assert watermark is not None
        assert data.advance(watermark, watermark._replace(position=1), {})
    others = cli("projections", "-o", "json").json[-2:]
    assert [(t["name"], t["version"], t["behind"]) for t in others] == [
        ("test.notes", 2, 0),
        ("test.other", 1, None),
    ]


class Notes2(Notes):
    """A table of some other program."""

    name = "test.other"


# --- what the tables hold --------------------------------------------------------------


def test_usage_by_day(cli: InProcess, run: UUID) -> None:
    """By day and model, up to date each time; the sums are those of `usage`."""
    day = "2023-11-14"
    days = cli("usage", "--by-day", "-o", "json").json
    assert [(d["day"], d["model"], d["calls"], d["failed_calls"]) for d in days] == [
        (day, "large", 2, 2),
        (day, "small", 2, 0),
    ]
    whole = cli("usage", "-o", "json").json
    for name in ("calls", "input_tokens", "output_tokens", "cached_tokens", "total_tokens"):
        assert sum(d[name] for d in days) == whole["total"][name]
    assert cli("usage", "--by-day", "-o", "jsonl").lines == days
    assert cells(cli("usage", "--by-day").out)[1:] == [
        [day, "large", "2", "2", "200", "0", "100", "14", "300"],
        [day, "small", "2", "0", "20", "4", "10", "0", "30"],
    ]
    with cli.ledger() as ledger:
        ledger.append(run, [replies(9, "new", input_tokens=5)], ANY)
    assert cli("usage", "--by-day", "-o", "json").json[-1]["model"] == "new"


def test_usage_says_what_is_estimated(cli: InProcess, run: UUID) -> None:
    """A column counts the calls whose provider sent no usage, wherever there is one."""
    heads = [cells(cli("usage", *which).out)[0] for which in ((), ("--by-day",))]
    assert not any("estimated" in head for head in heads)
    with cli.ledger() as ledger:
        ledger.append(run, [replies(9, "new", input_tokens=5, estimated=True)], ANY)
    for which in ((), (str(run),), ("--by-day",)):
        head, *rows = cells(cli("usage", *which).out)
        assert head[-1] == "estimated"
        assert next(row[-1] for row in rows if "new" in row) == "1"
    assert cli("usage", "-o", "json").json["total"]["estimated_calls"] == 1


def test_tools_of_all_runs(cli: InProcess, run: UUID) -> None:
    """Starts, outcomes and times by tool, up to date each time."""
    rows = cli("tools", "--all", "-o", "json").json
    assert [(r["name"], r["started"], r["completed"], r["failed"]) for r in rows] == [
        ("save", 2, 0, 2),
        ("weather", 2, 2, 0),
    ]
    assert {(r["total_micros"], r["longest_micros"]) for r in rows} == {(4_000_000, 2_000_000)}
    assert cli("tools", "--all", "-o", "jsonl").lines == rows
    with cli.ledger() as ledger:
        ledger.append(run, [starts("x", "open")], ANY)
    assert cells(cli("tools", "--all").out) == [
        ["name", "started", "completed", "failed", "in_doubt", "mean", "longest"],
        ["open", "1", "0", "0", "0"],
        ["save", "2", "0", "2", "0", "2.00s", "2.00s"],
        ["weather", "2", "2", "0", "0", "2.00s", "2.00s"],
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("usage", "RUN", "--by-day"), "can't be combined"),
        (("tools", "RUN", "--all"), "can't be combined"),
        (("tools", "--all", "--pending"), "can't be combined"),
        (("tools", "--all", "--at", "3"), "can't be combined"),
        (("tools",), "Use --all for all runs"),
        (("tools", "--pending"), "Use --all for all runs"),
    ],
)
def test_a_run_or_all(cli: InProcess, run: UUID, arguments: tuple[str, ...], words: str) -> None:
    """Both at once are a usage error, and so is neither."""
    done = cli(*(str(run) if argument == "RUN" else argument for argument in arguments))
    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
def test_no_control_character_is_printed(cli: InProcess, form: str) -> None:
    """Names of tools and models are written out, and so are damaged rows."""
    name = UNSAFE + MARKUP
    record(cli, [RunStarted(), calls(1, name), breaks(1), replies(2, name), starts("c", name)])
    for arguments in (("usage", "--by-day"), ("tools", "--all")):
        done = cli(*arguments, "-o", form)
        assert (done.code, done.err) == (0, "")
        assert CONTROL.findall(done.out) == []
        assert "evil" in done.out
    with cli.ledger() as ledger:
        spoil(ledger, "tool-statistics", f"row/{MARKUP}", UNSAFE.replace("\0", ""))
    done = cli("rebuild", "tool-statistics", "--verify", "-o", form)
    assert (done.code, CONTROL.findall(done.out)) == (5, [])
    assert "evil" in done.out


def test_a_bar_is_drawn_on_a_terminal_only(processes: Processes, cli: InProcess) -> None:
    """A person sees progress; a program gets nothing but data."""
    record(cli, story())
    for arguments, title in (
        (("rebuild", "usage-by-day"), "usage-by-day"),
        (("tools", "--all"), "tool-statistics"),
    ):
        out, messages = messages_on_a_terminal(processes, *arguments)
        assert "\x1b" not in out
        assert title in messages
        assert "19/19" in messages
    assert processes("rebuild").err == ""
