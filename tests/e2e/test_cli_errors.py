"""Errors on stderr: messages for people, JSON for programs, with the same exit codes."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.driving import NOBODY, InProcess, note
from turnledger.ledger import NEW, CustomEvent, RunStarted, new_run_id


def told(cli: InProcess, *args: object, stdin: str = "") -> dict[str, Any]:
    """The JSON object that a failing command prints, the last line of stderr."""
    done = cli(*args, stdin=stdin)
    found: dict[str, Any] = json.loads(done.err.splitlines()[-1])
    assert found["exit_code"] == done.code
    assert done.code != 0
    return found


@pytest.fixture
def run(cli: InProcess) -> UUID:
    run = new_run_id()
    with cli.ledger() as ledger:
        ledger.append(run, [RunStarted(), CustomEvent(kind="a.b")], NEW)
    return run


@pytest.mark.parametrize("form", [("-o", "json"), ("-ojsonl",), ("--output=json",)])
def test_an_error_is_json_where_json_is_asked_for(
    cli: InProcess, run: UUID, form: tuple[str, ...]
) -> None:
    """Its type, its message and exit code, and what the error knows beside them."""
    found = told(cli, "log", NOBODY, *form)
    assert found["error"] == "RunNotFoundError"
    assert found["message"].startswith(f"There is no run {NOBODY}")
    assert (found["exit_code"], found["run_id"]) == (3, NOBODY)
    assert told(cli, *form, "log", NOBODY) == found


def test_the_fields_of_an_error_are_kept(cli: InProcess, run: UUID) -> None:
    """Versions as numbers, lists as lists."""
    event = json.dumps(note())
    conflict = told(cli, "append", run, "--expect", "7", "-o", "json", stdin=event)
    assert (conflict["error"], conflict["exit_code"]) == ("ConcurrentAppendError", 4)
    assert 7 in conflict.values()
    assert 2 in conflict.values()
    middle = told(cli, "fork", run, "--at", "1", "-o", "json")
    assert (middle["error"], middle["nearest"]) == ("ForkPointError", [2])


@pytest.mark.parametrize(
    "arguments",
    [
        ("log", "-o", "json"),
        ("-o", "json", "fly"),
        ("-o", "json", "--fly"),
        ("log", NOBODY, "--fly", "-o", "json"),
        ("log", "@xyz", "-o", "json"),
        ("runs", "--status", "happy", "-o", "json"),
        ("resolve", NOBODY, "c1", "-o", "json"),
    ],
)
def test_usage_errors_are_json_too(cli: InProcess, run: UUID, arguments: tuple[str, ...]) -> None:
    """Wherever -o stands, and whatever fails first."""
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    found = json.loads(line)
    assert found["exit_code"] == 2
    assert found["message"]


def test_errors_of_a_commands_own_are_json_too(cli: InProcess, run: UUID) -> None:
    """Those that are no exception of the library."""
    for arguments in (
        ("resolve", run, "c1", "--retry"),
        ("prompts", "show", "a/b"),
        ("messages", run, "--evaluation", "none"),
        ("fork", run, "--at", "turn:3"),
    ):
        assert told(cli, *arguments, "-o", "json")["exit_code"] == 3
        assert cli(*arguments).err.splitlines()[-1].startswith("Error: ")


def test_the_last_form_counts(cli: InProcess, run: UUID) -> None:
    """As for the data: the option after the command wins."""
    assert cli("-o", "json", "log", NOBODY, "-o", "table").err.startswith("Error: ")


def test_errors_in_json_are_masked_and_safe(cli: InProcess, run: UUID) -> None:
    """No secret and no escape code in them either."""
    key = "sk-proj-" + "a1B2" * 12
    done = cli("log", f"@x\x1b[31m{key}", "-o", "json")
    assert done.code == 2
    assert key not in done.err
    assert "\x1b" not in done.err
    assert json.loads(done.err)["error"] == "BadParameter"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("runs", "--status", "failed"), "No runs found."),
        (("pending",), "No tool call is open."),
        (("log", "@last", "--type", "run.failed"), "No such events."),
        (("tail", "--type", "run.failed"), "No such events."),
        (("tools", "@last"), "The run has called no tool."),
        (("tools", "--all"), "No tool was called."),
        (("usage", "--by-day"), "No model was called."),
        (("timeline", "@last"), "The run has called no model and no tool."),
        (("prompts", "list"), "No prompt has overrides."),
        (("prompts", "runs", "a/b"), "No run has used a/b."),
    ],
)
def test_nothing_is_said_to_be_nothing(
    cli: InProcess, run: UUID, arguments: tuple[str, ...], said: str
) -> None:
    """An empty table is a line on stderr, in JSON an empty list and no line."""
    done = cli(*arguments)
    assert (done.code, done.out, done.err) == (0, "", f"{said}\n")
    empty = cli(*arguments, "-o", "json")
    assert (empty.code, empty.json, empty.err) == (0, [], "")


def test_summaries_of_export_and_seal_are_json_on_stderr(cli: InProcess, run: UUID) -> None:
    """Their data is on stdout, or in a file; -o is about the summary."""
    done = cli("export", run, "-o", "json")
    assert json.loads(done.err) == {"runs": 1, "records": 2, "blobs": 0, "sealed_at": None}
    assert done.out == cli("export", run).out
    done = cli("seal", "-o", "json")
    assert json.loads(done.err) == {"runs": 1, "events": 2, "position": 2, "signed": False}
    path = cli.db.with_name("run.jsonl")
    assert json.loads(cli("export", run, "-O", path, "-o", "jsonl").err)["records"] == 2
    assert cli("import", path, "-o", "json").json["already_there"] == 2
