"""`append` and `fork`: what comes in, and what is refused and why."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.e2e.driving import NOBODY, InProcess, Processes, hold, json_lines, note
from turnledger.ledger import NEW, CustomEvent, Ledger, RunStarted


def test_new_mints_a_run_and_says_where_everything_stands(processes: Processes) -> None:
    """`append new` makes a run and reports ids, versions, positions and digests."""
    done = processes("append", "new", "-o", "json", stdin=json_lines(note("a"), note("b")))
    assert (done.code, done.err) == (0, "")
    report = done.json
    with Ledger.open(processes.db, create=False) as ledger:
        records = list(ledger.read(report["run_id"]))
    assert report["version"] == 2
    assert report["duplicate"] is False
    assert [(r["version"], r["position"], r["digest"]) for r in report["records"]] == [
        (r.version, r.position, r.digest) for r in records
    ]
    assert report["digest"] == records[-1].digest


@pytest.mark.parametrize(
    "text",
    [
        json_lines(note(1), note(2)),
        json.dumps([note(1), note(2)]),
        json.dumps([note(1), note(2)], indent=2),
        "\n\n" + json_lines(note(1)) + "\n" + json_lines(note(2)).strip(),
    ],
)
def test_lines_and_arrays_are_accepted(cli: InProcess, text: str) -> None:
    """Events may come one per line or as an array, in any layout."""
    assert cli("append", "new", "-o", "json", stdin=text).json["version"] == 2


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_may_be_spread_over_lines(cli: InProcess, indent: int | None) -> None:
    """A single event object is accepted on one line or many."""
    text = json.dumps(note(1), indent=indent)
    assert cli("append", "new", "-o", "json", stdin=text).json["version"] == 1


def test_reads_a_file(cli: InProcess, tmp_path: Path) -> None:
    """FILE is read instead of stdin."""
    path = tmp_path / "events.jsonl"
    path.write_text(json_lines(note(1)))
    assert cli("append", NOBODY, path, "--expect", "new").code == 0
    with cli.ledger() as ledger:
        assert ledger.head(NOBODY) == 1


def test_the_same_ids_again_are_a_duplicate(cli: InProcess) -> None:
    """Appending the same events with the same ids changes nothing and says so."""
    text = json_lines(note(1, event_id=str(uuid4())))
    first = cli("append", NOBODY, "--expect", "new", "-o", "json", stdin=text)
    again = cli("append", NOBODY, "--expect", "new", "-o", "json", stdin=text)
    assert again.code == 0
    assert again.json == {**first.json, "duplicate": True}
    assert "recorded before" in again.err


def test_a_stale_expectation_exits_4(cli: InProcess) -> None:
    """A run that has moved on is a version conflict, and nothing is written."""
    cli("append", NOBODY, "--expect", "new", stdin=json_lines(note(1), note(2)))
    done = cli("append", NOBODY, "--expect", "1", stdin=json_lines(note(3)))
    assert (done.code, done.out) == (4, "")
    assert "at version 1" in done.err
    assert "at version 2" in done.err
    with cli.ledger() as ledger:
        assert ledger.head(NOBODY) == 2


def test_any_takes_the_run_as_it_is(cli: InProcess) -> None:
    """`--expect any` appends wherever the run stands."""
    for version in (1, 2):
        done = cli("append", NOBODY, "--expect", "any", "-o", "json", stdin=json_lines(note()))
        assert done.json["version"] == version


@pytest.mark.parametrize(
    "arguments",
    [
        (NOBODY,),
        (NOBODY, "--expect", "-1"),
        (NOBODY, "--expect", "soon"),
        ("new", "--expect", "3"),
        ("@no-run", "--expect", "any"),
        (NOBODY, "/nowhere/events", "--expect", "any"),
        (NOBODY, "--expect", "any", "--blob", "/nowhere/blob"),
    ],
)
def test_usage_errors_exit_2(cli: InProcess, arguments: tuple[str, ...]) -> None:
    """What is wrong with the command line is a usage error, and no ledger comes of it."""
    done = cli("append", *arguments, stdin=json_lines(note()))
    assert (done.code, done.out) == (2, "")
    assert "Usage: turnledger append" in done.err
    assert not cli.db.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("no event",)),
        (json_lines(note(), {**note(), "colour": 1}), ("line 2", "`colour`")),
        (json_lines(note(), {**note(), "type": 7}), ("line 2", "$.type")),
        (json_lines(note(), {"data": {}}), ("line 2", "`type`")),
        (json_lines(note(), {"type": "custom.x"}), ("line 2", "type", "'custom.x'")),
        (json_lines(note(), {"type": "custom", "data": {}}), ("line 2", "data", "`kind`")),
        (json_lines(note(), {"type": "custom", "data": {"kind": 1}}), ("line 2", "$.kind")),
        (json_lines(note(), {**note(), "event_id": "x"}), ("line 2", "$.event_id")),
        (json_lines(note(), [note()]), ("line 2", "object")),
        (json_lines(note()) + "{oops}\n", ("line 2", "not JSON")),
        ("{oops}\n" + json_lines(note()), ("line 1", "not JSON")),
        ('{\n  "type": "custom",\n  "data": {"kind" "a.b"}\n}', ("line 3", "column")),
        ('[{"type": "custom"},\n {"type": }]', ("line 2", "column")),
        (json.dumps([note(), {"type": "nope"}]), ("event 2", "'nope'")),
        (json_lines(note(), {"type": "run.claimed", "data": {"worker": "w", "epoch": 1}}), ()),
        (json_lines(note()) + "\x00\n", ("line 2",)),
        (json_lines(note()) + "[" * 100_000, ("line 2",)),
    ],
)
def test_bad_input_names_the_place_and_writes_nothing(
    cli: InProcess, text: str, words: tuple[str, ...]
) -> None:
    """One bad event of several is named by line and field, and none is written."""
    cli("append", NOBODY, "--expect", "new", stdin=json_lines(note()))
    done = cli("append", NOBODY, "--expect", "any", stdin=text)
    assert (done.code, done.out) == (1, "")
    assert all(word in done.err for word in words), done.err
    with cli.ledger() as ledger:
        assert ledger.head(NOBODY) == 1


def test_input_that_is_not_text_is_refused(cli: InProcess) -> None:
    """Bytes that are no UTF-8 are an error about the input, not a traceback."""
    done = cli("append", "new", stdin=b'{"type":"custom","data":{"kind":"a.b","data":"\xff"}}')
    assert (done.code, done.out) == (1, "")
    assert "line 1" in done.err


def test_an_event_with_an_id_must_be_complete(cli: InProcess) -> None:
    """An id promises that the event can be appended again, so nothing of it is made up."""
    message = {"role": "user", "content": "x", "evaluation_id": "e", "sequence": 0}
    event = {"type": "message.appended", "data": {"message": message}}
    assert cli("append", "new", stdin=json_lines(event)).code == 0
    done = cli("append", "new", stdin=json_lines({**event, "event_id": str(uuid4())}))
    assert done.code == 1
    assert "message.created_at, message.message_id" in done.err


def test_blobs_go_with_the_event_that_names_them(cli: InProcess, tmp_path: Path) -> None:
    """`--blob` hands over bytes; without them the event is refused as not found."""
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"pixels")
    name = "sha256:" + hashlib.sha256(b"pixels").hexdigest()
    event = {
        "type": "resource.snapshotted",
        "data": {"resource": "disk", "files": {"picture.png": name}},
    }
    assert cli("append", "new", stdin=json_lines(event)).code == 3
    done = cli("append", "new", "--blob", picture, stdin=json_lines(event))
    assert done.code == 0
    assert name in done.err
    with cli.ledger() as ledger:
        assert ledger.blob(name) == b"pixels"


def test_a_run_that_a_living_worker_holds_exits_7(processes: Processes, cli: InProcess) -> None:
    """While another process has claimed the run, appends and stale epochs exit with 7."""
    with Ledger.open(processes.db) as ledger:
        ledger.append(NOBODY, [RunStarted()], NEW)
    epoch = hold(processes, NOBODY)
    completed = json_lines({"type": "run.completed"})
    refused = cli("append", NOBODY, "--expect", "any", stdin=completed)
    stale = cli("append", NOBODY, "--expect", "any", "--epoch", epoch - 1, stdin=completed)
    free = cli("append", NOBODY, "--expect", "any", stdin=json_lines(note()))
    fenced = cli("append", NOBODY, "--expect", "any", "--epoch", epoch, stdin=completed)
    assert (refused.code, stale.code, free.code, fenced.code) == (7, 7, 0, 0)
    assert "holder" in refused.err


def test_what_steers_a_terminal_is_written_out_in_errors(cli: InProcess) -> None:
    """An escape code in bad input does not reach the terminal through the error message."""
    done = cli("append", "new", stdin=json_lines({**note(), "a\x1b]0;evil\x07\x9b\u202e": 1}))
    assert done.code == 1
    assert not set("\x1b\x07\x9b\u202e") & set(done.err)
    assert "\\x1b]0;evil\\x07\\x9b\\u202e" in done.err


def test_fork_prints_the_new_run(cli: InProcess) -> None:
    """`fork` prints just the new run's id, which shares the parent's events."""
    with cli.ledger() as ledger:
        ledger.append(NOBODY, [RunStarted()], NEW)
        ledger.append(NOBODY, [CustomEvent(kind="a.b")], 1)
    done = cli("fork", NOBODY, "--at", "1", "--tag", "why=what if", "--tag", "n=")
    assert (done.code, done.err) == (0, "")
    child = UUID(done.out.strip())
    shown = cli("show", child, "-o", "json").json
    assert shown["tags"] == {"n": "", "why": "what if"}
    assert (shown["parent"], shown["parent_version"], shown["version"]) == (NOBODY, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((NOBODY, "--at", "1"), 1),
        ((NOBODY, "--at", "9"), 1),
        ((NOBODY, "--at", "0"), 2),
        ((NOBODY,), 2),
        ((NOBODY, "--at", "2", "--tag", "x"), 2),
        (("01890a5d-ac96-774b-bcce-b302099a8058", "--at", "1"), 3),
    ],
)
def test_fork_refuses(cli: InProcess, arguments: tuple[str, ...], code: int) -> None:
    """A fork point must exist and end a commit."""
    with cli.ledger() as ledger:
        ledger.append(NOBODY, [RunStarted(), CustomEvent(kind="a.b")], NEW)
    done = cli("fork", *arguments)
    assert (done.code, done.out) == (code, "")
    assert "Error:" in done.err
