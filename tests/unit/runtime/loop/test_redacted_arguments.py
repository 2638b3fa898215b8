"""Calls whose arguments had a secret: not made, and the model is told; or made, by a setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.agent import Crash
from tests.unit.runtime.loops import ANSWER, Goal, Planner, asks, crash_in
from turnledger.ledger import (
    InvalidInputError,
    Ledger,
    Redactor,
    ToolCallCompleted,
    ToolCallFailed,
    new_run_id,
)
from turnledger.runtime import ToolCall, replay
from turnledger.runtime.agent.tools.redacted_arguments import refused_as_redacted

# Made here, so that no file has it.
KEY = "ghp_" + "a1B2" * 9
MARK = "[redacted: github-token]"
REPLIES = [asks(ToolCall("c1", "step", json.dumps({"name": f"use {KEY}"}))), ANSWER]
REFUSES, WARNS = Redactor(), Redactor(on_redacted="warn")


def ended(ledger: Ledger, run: UUID) -> ToolCallCompleted | ToolCallFailed:
    """The end of the only call."""
    events = [record.event for record in ledger.read(run)]
    [end] = [one for one in events if isinstance(one, ToolCallCompleted | ToolCallFailed)]
    return end


def told(ledger: Ledger, run: UUID) -> str:
    """All that the model was told, as it is recorded."""
    return " ".join(record.data for record in ledger.read(run))


def test_a_call_whose_arguments_had_a_secret_is_not_made(ledger: Ledger) -> None:
    """Its result has failed, and names the argument and the format; a replay agrees."""
    loop, run = Planner(REPLIES, ledger=ledger), new_run_id()
    loop.execute(Goal(), run_id=run)
    assert loop.ran == []
    assert "tool_call.started" not in [record.tag for record in ledger.read(run)]
    end = ended(ledger, run)
    assert isinstance(end, ToolCallFailed)
    assert end.error_type == "RedactedArguments"
    assert f"name has {MARK}" in end.error_message
    assert replay(ledger, run, loop=Planner(REPLIES)).divergence is None


def test_by_the_setting_it_is_made(caplog: pytest.LogCaptureFixture) -> None:
    """With the mark in place of the secret, as it is recorded, and the log says so once."""
    with Ledger.open("memory://", redactor=WARNS) as ledger:
        loop, run = Planner(REPLIES, ledger=ledger), new_run_id()
        loop.execute(Goal(), run_id=run)
        assert loop.ran == ["c1"]
        assert isinstance(ended(ledger, run), ToolCallCompleted)
        assert f"Did use {MARK}." in told(ledger, run)
        [warning] = [one for one in caplog.records if one.name == "turnledger.redaction"]
        assert f"call c1: name has {MARK}" in warning.getMessage()
        assert replay(ledger, run, loop=Planner(REPLIES)).divergence is None


def test_a_call_in_doubt_is_not_called_failed(tmp_path: Path) -> None:
    """It was started under the other setting and may have happened: its policy decides."""
    run = new_run_id()
    with Ledger.open(tmp_path / "a.db", redactor=WARNS) as ledger, pytest.raises(Crash):
        Planner(REPLIES, ledger=ledger, in_tool=crash_in("c1")).execute(Goal(), run_id=run)
    with Ledger.open(tmp_path / "a.db") as ledger:
        loop = Planner(REPLIES, ledger=ledger)
        loop.recover(run)
        assert loop.ran == ["c1"]
        assert isinstance(ended(ledger, run), ToolCallCompleted)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"a": {"b": ["x", f"-{MARK}-"]}}, f"a.b[1] has {MARK},"),
        ({MARK: 1}, f"a key of the arguments has {MARK},"),
        ({str(n): MARK for n in range(7)}, f"4 has {MARK}, and 2 more,"),
    ],
)
def test_places_are_named(arguments: object, said: str) -> None:
    """By their path, in values and keys; of many, the first ones."""
    refusal = refused_as_redacted("write", json.dumps(arguments), REFUSES)
    assert refusal is not None
    assert said in refusal.text


@pytest.mark.parametrize("arguments", [None, "", "{}", '{"a": "[redacted]"}', f'{{"a": "{MARK}'])
def test_others_are_left_to_their_own_checks(arguments: str | None) -> None:
    """Arguments without a mark, and those that are not JSON."""
    assert refused_as_redacted("write", arguments, REFUSES) is None


@pytest.mark.parametrize("given", ["maybe", None, ["warn"]])
def test_an_unknown_setting_is_refused(given: Any, tmp_path: Path) -> None:
    """The error says what is expected, also of a file of rules."""
    with pytest.raises(InvalidInputError, match=r"on_redacted: .*'refuse', 'warn'"):
        Redactor(on_redacted=given)
    rules = tmp_path / "redactor.toml"
    rules.write_text('on_redacted = "maybe"')
    with pytest.raises(InvalidInputError, match=r"redactor\.toml: .*on_redacted: got 'maybe'"):
        Redactor.read(rules)
    rules.write_text('on_redacted = "warn"')
    assert Redactor.read(rules).on_redacted == "warn"
