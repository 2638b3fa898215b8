"""`search` and `shape`: events that have a text, and a run as one character an event."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.e2e.driving import NOBODY, InProcess, Processes, on_a_terminal, tamper
from tests.e2e.stories import CONTROL, UNSAFE, HeldClock, record, story
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    Ledger,
    RunResumed,
    RunStarted,
    ToolCallInDoubt,
    ToolCallStarted,
    new_run_id,
    run_id_for,
)
from turnledger.projections import SHAPE_CHARACTERS

HIT_FIELDS = ["run_id", "version", "position", "type", "recorded_at", "excerpt"]


def notes(cli: InProcess, *texts: str) -> UUID:
    run = new_run_id()
    with cli.ledger() as ledger:
        events = [CustomEvent(kind="a.note", data=text) for text in texts]
        ledger.append(run, [RunStarted(), *events], NEW)
    return run


def test_a_run_or_all_runs_are_searched_newest_first(cli: InProcess) -> None:
    """With the fields of a record that name it, and one line around the text."""
    first, second = notes(cli, 'a "b"\nc', "B"), notes(cli, "hay", "b")
    hits = cli("search", '"B"\nc', "-o", "json").json
    assert [list(hit) for hit in hits] == [HIT_FIELDS]
    assert (hits[0]["run_id"], hits[0]["version"], hits[0]["type"]) == (str(first), 2, "custom")
    assert hits[0]["excerpt"] == 'a "b" c'
    rows = cli("search", "b", "-o", "jsonl").lines
    assert [(row["run_id"], row["version"]) for row in rows] == [
        (str(second), 3),
        (str(first), 3),
        (str(first), 2),
    ]
    assert [row["version"] for row in cli("search", "b", first, "-o", "jsonl").lines] == [3, 2]
    lines = cli("search", "b", first).out.splitlines()
    assert lines[0].split() == ["run", "version", "type", "recorded", "text"]
    assert lines[1].split()[:3] == [str(first), "3", "custom"]


def test_a_long_list_goes_on_where_it_ended(cli: InProcess) -> None:
    """A table has 50 events and says how to go on; JSON has all of them."""
    run = notes(cli, *(f"needle {number}" for number in range(600)))
    assert len(cli("search", "needle", run, "-o", "jsonl").lines) == 600
    assert len(cli("search", "needle", "-o", "jsonl").lines) == 600
    shown = cli("search", "needle", run)
    assert len(shown.out.splitlines()) == 51
    assert "--before 552" in shown.err
    more = cli("search", "needle", run, "--before", "552", "--limit", "2", "-o", "json").json
    assert [row["version"] for row in more] == [551, 550]
    everything = cli("search", "needle", "--limit", "2", "-o", "json").json
    below = everything[-1]["position"]
    after = cli("search", "needle", "--before", below, "--limit", "1", "-o", "json").json
    assert after[0]["version"] == everything[-1]["version"] - 1
    last = cli("search", "needle 0", run)
    assert (len(last.out.splitlines()), last.err) == (2, "")


def test_text_that_is_not_there_and_wrong_words(cli: InProcess) -> None:
    """Nothing found is no error; an empty text and an unknown run are."""
    run = notes(cli, "hay")
    none = cli("search", "needle")
    assert (none.code, none.out, none.err) == (0, "", "No event has this text.\n")
    assert cli("search", "needle", "-o", "json").json == []
    assert cli("search", "", run).code == 1
    assert cli("search", "a", NOBODY).code == 3
    assert cli("shape", NOBODY).code == 3


def test_damaged_records_are_named(cli: InProcess) -> None:
    """The others are searched, and the exit code tells it."""
    bad, good = notes(cli, "needle"), notes(cli, "needle")
    tamper(cli.db, "UPDATE events SET data='{needle' WHERE run_id=? AND version=2", str(bad))
    done = cli("search", "needle", "-o", "jsonl")
    assert [row["run_id"] for row in done.lines] == [str(good)]
    assert done.code == 5
    assert f"Skipped run {bad}" in done.err


def test_what_was_found_does_not_steer_the_terminal(cli: InProcess) -> None:
    """Escape codes and line breaks in events are shown, not obeyed."""
    run = notes(cli, f"needle {UNSAFE}")
    for form in ("table", "json", "jsonl"):
        out = cli("search", "needle", run, "-o", form).out
        assert "needle" in out
        assert not CONTROL.search(out)


def test_a_shape_is_one_line(cli: InProcess, processes: Processes) -> None:
    """In a pipe; on a terminal it is broken at the width. The legend is in the help."""
    run = record(cli, story())
    text = cli("shape", run).out
    assert text == "^eccmcrtcdtcTmMmcr$\n"
    found = cli("shape", run, "-o", "json").json
    assert found == {"run_id": str(run), "version": len(text) - 1, "text": text[:-1]}
    long = notes(cli, *("x" for _ in range(449)))
    assert len(cli("shape", long).out) == 451
    code, shown = on_a_terminal(processes, "shape", long)
    assert (code, [len(line) for line in shown.split()]) == (0, [200, 200, 50])
    legend = cli("shape", "--help").out
    for entry in SHAPE_CHARACTERS:
        assert f"{entry.character}  {entry.meaning}" in legend


@pytest.mark.parametrize("form", ["table", "json"])
def test_the_timeline_shows_workers_and_dead_time(cli: InProcess, form: str) -> None:
    """A worker that died inside a call, and the time until the next one claimed the run."""
    run, clock = run_id_for("order"), HeldClock()
    of = {"evaluation_id": "e", "call_id": "c", "name": "pay"}
    with Ledger.open(cli.db, clock=clock) as ledger:
        ledger.append(run, RunStarted(tags={"name": "order"}), NEW)
        with ledger.claim(run, worker="first") as claim:
            clock.now += 1_000_000
            ledger.append(run, ToolCallStarted(**of), ANY, claim.epoch)  # type: ignore[arg-type]
        clock.now += 60_000_000
        with ledger.claim(run, worker="second") as claim:
            resumed = RunResumed(attempt=1, from_version=4)
            doubted = ToolCallInDoubt(**of)  # type: ignore[arg-type]
            clock.now += 1_000_000
            ledger.append(run, [resumed, doubted], ANY, claim.epoch)
    if form == "json":
        rows = cli("timeline", "order", "-o", "json").json
        found = [(r["kind"], r["name"], r["outcome"], r["from_version"]) for r in rows]
        assert found == [
            ("worker", "first", "died", 2),
            ("tool", "pay", "in_doubt", 3),
            ("gap", "first", "dead", None),
            ("worker", "second", "working", 4),
        ]
        assert rows[2]["seconds"] == 60.0
    else:
        lines = [line.split() for line in cli("timeline", "order").out.splitlines()[1:]]
        assert [line[-1][0] for line in lines] == ["─", "▒", "x", "─"]
        assert lines[2][:5] == ["+1.00s", "1m00s", "gap", "first", "dead"]
