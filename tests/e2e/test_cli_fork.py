"""`fork` with a change, and `recover`: the run goes on live from another text, result or reply."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.driving import NOBODY, PROGRAM, InProcess, Processes, hold
from tests.e2e.traveller_for_cli import Trip, loop
from turnledger.ledger import Ledger, new_run_id

ROOT = Path(__file__).parents[2]
MODULE = "tests.e2e.traveller_for_cli"
APP = f"{MODULE}:loop"


@pytest.fixture(autouse=True)
def bookings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the agent books; the command finds the agent from the project's folder."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("AGENT_BOOKINGS", str(tmp_path / "bookings"))
    return tmp_path / "bookings"


def travelled(db: Path, dies: str = "") -> UUID:
    """A run of the agent's; if a call is named, in a process that is killed within it."""
    run_id = new_run_id()
    with Ledger.open(db) as ledger:
        if not dies:
            loop(ledger).execute(Trip(), run_id=run_id)
            return run_id
    done = subprocess.run(
        [sys.executable, "-m", MODULE, db, str(run_id)],
        env={**os.environ, "AGENT_DIES": dies},
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    return run_id


def log(cli: InProcess, run: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli("log", run, "-o", "json").json
    return found


def place(cli: InProcess, run: object, kind: str, role: str = "") -> int:
    """The version of a run's first event of a type, and of a role if it is a message."""
    return next(
        int(one["version"])
        for one in log(cli, run)
        if one["type"] == kind and one["data"].get("message", {}).get("role", "") == role
    )


def forked(cli: InProcess, run: object, at: int, *changes: str) -> str:
    sets = [word for change in changes for word in ("--set", change)]
    done = cli("fork", run, "--at", at, *sets)
    assert (done.code, done.err) == (0, "")
    return done.out.strip()


@pytest.mark.parametrize(
    ("kind", "role", "change", "answer", "booked"),
    [
        ("message.appended", "user", '/message/content="Book Porto instead"', "Porto", "b1 Porto"),
        ("message.appended", "tool", '/message/content="There is no room."', "No luck.", None),
        ("tool_call.completed", "", '/value={"room": 13}', "unlucky", None),
        ("message.appended", "assistant", "/message/tool_calls=[]", "I would rather not.", None),
    ],
)
def test_something_else_leads_to_another_answer(
    cli: InProcess,
    db: Path,
    bookings: Path,
    kind: str,
    role: str,
    change: str,
    answer: str,
    booked: str | None,
) -> None:
    """A user's text, a tool's text or value, a reply; what the parent did is not done again."""
    run = travelled(db)
    before = log(cli, run)
    at = place(cli, run, kind, role)
    more = ['/message/content="I would rather not."'] if role == "assistant" else []
    fork = forked(cli, run, at, change, *more)
    done = cli("recover", fork, "--app", APP, "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert done.json["run_id"] == fork
    assert answer in done.json["text"]
    assert bookings.read_text().splitlines() == ["b1 Lisbon", *([booked] if booked else [])]
    assert log(cli, run) == before
    assert cli("verify", fork).code == 0
    assert cli("show", fork, "-o", "json").json["parent"] == str(run)


def test_a_table_ends_with_the_answer(cli: InProcess, db: Path) -> None:
    """For people: which run, how it ended and what it says, without escape codes."""
    run = travelled(db)
    fork = forked(
        cli, run, place(cli, run, "message.appended", "tool"), '/message/content="\\u001b[31m"'
    )
    done = cli("recover", fork, "--app", APP)
    assert done.code == 0
    assert all(word in done.out for word in (fork, "completed", "Booked"))
    assert "\x1b" not in done.out


def test_another_request_begins_anew(cli: InProcess, db: Path, bookings: Path) -> None:
    """The run's own request is an event's data too."""
    run = travelled(db)
    fork = forked(cli, run, 1, '/request/city="Faro"')
    assert "Faro" in cli("recover", fork, "--app", APP).out
    assert bookings.read_text().splitlines() == ["b1 Lisbon", "b1 Faro"]


def test_a_call_in_doubt_runs_again_only_if_somebody_says_so(
    cli: InProcess, db: Path, bookings: Path
) -> None:
    """8 without --yes, though the tool would be retried; nothing is written by then."""
    run = travelled(db, dies="b1")
    with Ledger.open(db) as ledger:
        head = ledger.head(run)
    fork = cli("fork", run, "--at", head).out.strip()
    before = log(cli, fork)
    asked = cli("recover", fork, "--app", APP)
    assert (asked.code, asked.out) == (8, "")
    for word in ("b1", "turnledger resolve", "--yes"):
        assert word in asked.err
    assert log(cli, fork) == before
    done = cli("recover", fork, "--app", APP, "--yes", "-o", "json")
    assert done.code == 0
    assert "Lisbon" in done.json["text"]
    assert bookings.read_text().splitlines() == ["b1 Lisbon"] * 2
    (decision,) = [one["data"] for one in log(cli, fork) if one["type"] == "tool_call.decided"]
    assert decision["decision"] == "retry"
    with Ledger.open(db) as ledger:
        assert ledger.head(run) == head


def test_a_call_in_doubt_can_be_decided_instead(cli: InProcess, db: Path, bookings: Path) -> None:
    """With `resolve`, in the fork: the parent's call stays open."""
    run = travelled(db, dies="b1")
    with Ledger.open(db) as ledger:
        fork = str(ledger.fork(run, ledger.head(run)))
    assert cli("resolve", fork, "b1", "--completed", '{"room": 13}').code == 0
    assert "unlucky" in cli("recover", fork, "--app", APP).out
    assert bookings.read_text().splitlines() == ["b1 Lisbon"]
    assert [one["status"] for one in cli("pending", run, "-o", "json").json] == ["started"]


def test_an_interrupted_run_goes_on_by_the_tools_policy(
    cli: InProcess, db: Path, bookings: Path
) -> None:
    """A retried tool needs no --yes, unlike in a fork; with --yes one that would ask runs too."""
    retried, asking = travelled(db, dies="b1"), travelled(db, dies="b1")
    assert cli("recover", retried, "--app", APP).code == 0
    assert cli("recover", asking, "--app", APP, AGENT_POLICY="ask").code == 8
    assert cli("recover", asking, "--app", APP, "--yes", AGENT_POLICY="ask").code == 0
    assert bookings.read_text().splitlines() == ["b1 Lisbon"] * 4
    over = cli("recover", retried, "--app", APP, "--yes")
    assert (over.code, over.out) == (1, "")
    assert "completed" in over.err


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (("--user", "Book Porto instead."), "Porto"),
        (("--user", "Book Porto instead.", "--at", "turn:2"), "Porto"),
        (("--tool", "b1", "--result", "There is no room."), "No luck."),
        (("--at", "tool:b1", "--set", '/message/content="There is no room."'), "No luck."),
        (("--at", "turn:2", "--set", '/message/content="I am done."'), "I am done."),
    ],
)
def test_an_event_is_named_without_its_version(
    cli: InProcess, db: Path, change: tuple[str, ...], answer: str
) -> None:
    """The user's message, what was told of a call, a reply: as with its version and --set."""
    run = travelled(db)
    done = cli("fork", run, *change)
    assert (done.code, done.err) == (0, "")
    assert answer in cli("recover", done.out.strip(), "--app", APP, "-o", "json").json["text"]


def test_the_last_message_of_the_user_is_meant(cli: InProcess, db: Path) -> None:
    """Up to --at, if that is given; 3 where the user has said nothing yet."""
    run = travelled(db)
    user = place(cli, run, "message.appended", "user")
    fork = cli("fork", run, "--user", "Book Faro.", "--at", user).out.strip()
    assert log(cli, fork)[-1]["data"]["message"]["content"] == "Book Faro."
    done = cli("fork", run, "--user", "Book Faro.", "--at", user - 1)
    assert (done.code, done.out) == (3, "")


def test_a_named_event_in_a_commit_means_its_end(cli: InProcess, db: Path) -> None:
    """The version is told; by number it is refused, with the nearest that work."""
    run = travelled(db)
    reply = place(cli, run, "message.appended", "assistant")
    refused = cli("fork", run, "--at", reply, "-o", "json")
    assert (refused.code, refused.out) == (1, "")
    nearest = json.loads(refused.err)["nearest"]
    assert nearest[0] < reply < nearest[-1]
    for at in nearest:
        assert cli("fork", run, "--at", at).code == 0
    done = cli("fork", run, "--at", "turn:1", "-o", "json")
    assert done.json["parent_version"] == nearest[-1]
    assert f"version {nearest[-1]}" in done.err


def editor(folder: Path, program: str) -> str:
    """An editor that changes the text of its file with this Python expression of `text`."""
    script = folder / "editor.py"
    script.write_text(
        "import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\n"
        f"pathlib.Path({str(folder / 'seen')!r}).write_text(text)\n"
        f"file.write_text({program})\n"
        "import os; os.utime(file, (2**31, 2**31))\n"
    )
    return f"{sys.executable} {script}"


def test_an_event_is_changed_in_an_editor(cli: InProcess, db: Path, tmp_path: Path) -> None:
    """One text as text, all else as an object of pointers."""
    run = travelled(db)
    user = place(cli, run, "message.appended", "user")
    porto = editor(tmp_path, "text.replace('Lisbon', 'Porto')")
    fork = cli("fork", run, "--at", user, "--edit", VISUAL=porto).out.strip()
    assert (tmp_path / "seen").read_text() == "Book Lisbon.\n"
    assert "Porto" in cli("recover", fork, "--app", APP).out
    fork = cli("fork", run, "--at", "turn:1", "--edit", VISUAL=porto).out.strip()
    (calls,) = json.loads((tmp_path / "seen").read_text())["/message/tool_calls"]
    assert calls["name"] == "book"
    assert "Porto" in cli("recover", fork, "--app", APP).out


@pytest.mark.parametrize(
    ("program", "code"), [("text", 1), ("text.replace('}', '')", 2), ("'[1]'", 2)]
)
def test_a_useless_edit_makes_no_fork(
    cli: InProcess, db: Path, tmp_path: Path, program: str, code: int
) -> None:
    """Nothing changed, or no object of pointers any more."""
    run = travelled(db)
    done = cli("fork", run, "--at", "turn:1", "--edit", VISUAL=editor(tmp_path, program))
    assert (done.code, done.out) == (code, "")
    assert len(cli("runs", "-o", "json").json) == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("--edit",), 2),
        (("--at", "0"), 2),
        (("--at", "tool:"), 2),
        (("--at", "turn:x"), 2),
        (("--at", "step:1"), 2),
        (("--at", "tool:b9"), 3),
        (("--at", "turn:9"), 3),
        (("--tool", "b9", "--result", "x"), 3),
        (("--tool", "b1"), 2),
        (("--result", "x", "--at", "5"), 2),
        (("--tool", "b1", "--result", "x", "--at", "5"), 2),
        (("--user", "x", "--tool", "b1", "--result", "x"), 2),
        (("--user", "x", "--set", "/a=1"), 2),
        (("--at", "2", "--edit"), 1),
    ],
)
def test_fork_refuses_places_that_are_none(
    cli: InProcess, db: Path, arguments: tuple[str, ...], code: int
) -> None:
    """2 for a wrong command line, 3 for what the run does not have, 1 for what can't change."""
    run = travelled(db)
    done = cli("fork", run, *arguments)
    assert (done.code, done.out) == (code, "")
    assert "Error: " in done.err
    assert len(cli("runs", "-o", "json").json) == 1


def test_fork_refuses(cli: InProcess, db: Path) -> None:
    """2 for a wrong command line, 3 for no such run or event, 1 for what makes no sense."""
    run = travelled(db)
    user = place(cli, run, "message.appended", "user")
    count = len(cli("runs", "-o", "json").json)
    for change in ("/message/content=Book Porto", "/message/content", "message/content=1", "=1"):
        done = cli("fork", run, "--at", user, "--set", change)
        assert (done.code, done.out) == (2, ""), change
    plain = cli("fork", run, "--at", user, "--set", "/message/content=Book Porto")
    assert "--set '/message/content=\"Book Porto\"'" in plain.err
    twice = ("--set", '/message/content="a"', "--set", '/message/content="b"')
    assert cli("fork", run, "--at", user, *twice).code == 2
    assert cli("fork", NOBODY, "--at", 1, "--set", "/a=1").code == 3
    assert cli("fork", run, "--at", 999, "--set", "/a=1").code == 3
    for at, change, why in (
        (user, "/message/content=7", "/message/content: The data of a"),
        (user, '/message/message_id="x"', "/message/message_id: this can't be changed"),
        (2, "/epoch=7", "run.claimed"),
    ):
        done = cli("fork", run, "--at", at, "--set", change)
        assert (done.code, done.out) == (1, "")
        assert why in done.err
    assert len(cli("runs", "-o", "json").json) == count


def test_recover_refuses(cli: InProcess, db: Path) -> None:
    """2 for a wrong command line or app, 3 for no such run."""
    run = travelled(db)
    for wrong in ((run,), ("--app", APP), (run, "--app", "nowhere:loop")):
        assert cli("recover", *wrong).code == 2, wrong
    assert cli("recover", "--all", "--app", APP, "--yes").code == 2
    assert cli("recover", NOBODY, "--app", APP).code == 3


def test_another_workers_fork_is_left_alone(processes: Processes) -> None:
    """7, with --yes too: a call that a worker is running is not in doubt."""
    run = travelled(processes.db, dies="b1")
    with Ledger.open(processes.db) as ledger:
        fork = ledger.fork(run, ledger.head(run))
    hold(processes, fork)
    with Ledger.open(processes.db) as ledger:
        head = ledger.head(fork)
    assert processes("recover", fork, "--app", APP).code == 7
    assert processes("recover", fork, "--app", APP, "--yes").code == 7
    with Ledger.open(processes.db) as ledger:
        assert ledger.head(fork) == head


def test_a_signal_leaves_a_fork_that_can_be_run(processes: Processes, bookings: Path) -> None:
    """Within a tool: 143, and --yes goes on."""
    run = travelled(processes.db, dies="b1")
    with Ledger.open(processes.db) as ledger:
        fork = ledger.fork(run, ledger.head(run))
    os.environ["AGENT_WAITS"] = "b1"
    try:
        worker = processes.start(PROGRAM, "recover", fork, "--app", APP, "--yes", cwd=ROOT)
    finally:
        del os.environ["AGENT_WAITS"]
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"waits\n"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=30) == 143
    assert processes("recover", fork, "--app", APP).code == 8
    done = processes("recover", fork, "--app", APP, "--yes", "-o", "json")
    assert done.code == 0
    assert json.loads(done.out)["run_id"] == str(fork)
    assert bookings.read_text().splitlines() == ["b1 Lisbon"] * 3
