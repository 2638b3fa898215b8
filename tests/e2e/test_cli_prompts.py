"""`prompts`: who changed a prompt, when and to what, and which runs used which text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.driving import InProcess
from turnledger.ledger import (
    ANY,
    NEW,
    EvaluationStarted,
    PromptOverrideCleared,
    PromptOverrideSet,
    PromptTagMoved,
    RunStarted,
    UsedOverrides,
    new_run_id,
    prompt_stream_id,
)

PROMPT = "acme/support/answer"
NAMED: dict[str, Any] = {"prompt_ns": "acme/support", "prompt_key": "answer"}
STREAM = prompt_stream_id("acme/support", "answer")
TEXT = "Be brief.\nBe kind."


@pytest.fixture
def prompt(cli: InProcess) -> str:
    """A prompt that its program seeded with two texts; `stable` names the second version."""
    events = [
        PromptOverrideSet(path="tone", body="Be polite.\nBe kind.", replaces="d1", **NAMED),
        PromptOverrideSet(path="tool:search", body="Searches.", replaces="d2", **NAMED),
        PromptTagMoved(tag_name="stable", version=2, **NAMED),
    ]
    with cli.ledger() as ledger:
        for expected, event in enumerate(events):
            ledger.append(STREAM, event, expected)
    return PROMPT


@pytest.fixture
def changed(cli: InProcess, prompt: str) -> str:
    """The same prompt with a text that was set at version 4."""
    done = cli("prompts", "set", prompt, "tone", TEXT, "--note", "too long", "--by", "ann")
    assert (done.code, done.out, done.err) == (0, f"{prompt} is at version 4.\n", "")
    return prompt


def test_list_has_the_prompts_with_their_texts_and_tags(cli: InProcess, changed: str) -> None:
    """By name, and no run among them; `runs` has no prompt among its runs."""
    cli("prompts", "set", "acme/a", "intro", "Hello.")
    with cli.ledger() as ledger:
        ledger.append(new_run_id(), RunStarted(), NEW)
    listed = cli("prompts", "list", "-o", "json").json
    assert [one["prompt"] for one in listed] == ["acme/a", PROMPT]
    shown = {name: listed[1][name] for name in ("stream", "version", "overrides", "tags")}
    assert shown == {
        "stream": str(STREAM),
        "version": 4,
        "overrides": {"tone": 4, "tool:search": 2},
        "tags": {"stable": 2},
    }
    (row,) = [line for line in cli("prompts", "list").out.splitlines() if PROMPT in line]
    assert row.split()[:5] == [PROMPT, "4", "tone", "tool:search", "stable=2"]
    assert len(cli("runs", "-o", "json").json) == 1


def test_show_prints_the_texts_at_a_version_or_tag(cli: InProcess, changed: str) -> None:
    """The last ones by default, each with its origin."""
    assert cli("prompts", "show", changed).out.splitlines() == [
        "tone  version 4, set by ann: too long",
        "  Be brief.",
        "  Be kind.",
        "",
        "tool:search  version 2",
        "  Searches.",
    ]
    for at in ("stable", "2"):
        value = cli("prompts", "show", changed, "--at", at, "-o", "json").json
        assert (value["prompt"], value["version"], value["tags"]) == (changed, 2, {})
        assert value["overrides"]["tone"]["body"] == "Be polite.\nBe kind."
    first = cli("prompts", "show", changed, "--at", "0")
    assert (first.code, first.out) == (0, "")
    assert "its own texts count" in first.err


@pytest.mark.parametrize("source", ["stdin", "file"])
def test_set_reads_the_text_from_a_file_or_stdin(
    cli: InProcess, prompt: str, tmp_path: Path, source: str
) -> None:
    """Without the line break at its end; the user's name is recorded, and what it replaces."""
    file = tmp_path / "tone.md"
    file.write_text(f"{TEXT}\n")
    if source == "stdin":
        done = cli("prompts", "set", prompt, "tone", stdin=f"{TEXT}\n", LOGNAME="bob")
    else:
        done = cli("prompts", "set", prompt, "tone", "--file", file, "-o", "json", LOGNAME="bob")
        assert done.json == {"prompt": prompt, "version": 4}
    assert done.code == 0
    with cli.ledger() as ledger:
        event = ledger.record(STREAM, 4).event
    assert event == PromptOverrideSet(path="tone", body=TEXT, replaces="d1", set_by="bob", **NAMED)


def test_set_of_a_text_that_no_program_set_counts_in_any_case(cli: InProcess, prompt: str) -> None:
    """And says so; after a text was cleared, what it replaces is still known."""
    done = cli("prompts", "set", prompt, "intro", "Hello.")
    assert (done.code, "it counts whatever text it replaces" in done.err) == (0, True)
    with cli.ledger() as ledger:
        ledger.append(STREAM, PromptOverrideCleared(path="tone", **NAMED), 4)
    assert cli("prompts", "set", prompt, "tone", TEXT).err == ""
    overrides = cli("prompts", "show", prompt, "-o", "json").json["overrides"]
    assert [overrides[path]["replaces"] for path in ("intro", "tone")] == ["", "d1"]


def test_a_conflict_is_told_and_nothing_is_set(cli: InProcess, changed: str) -> None:
    """Exit code 4, for a text and for a tag, with both versions."""
    for args in (("set", changed, "tone", "Mine."), ("tag", changed, "stable", "1")):
        done = cli("prompts", *args, "--expect", "3")
        assert (done.code, done.out) == (4, "")
        assert "expected at version 3, but it is at version 4" in done.err
    assert cli("prompts", "list", "-o", "json").json[0]["version"] == 4
    assert cli("prompts", "set", changed, "tone", "Mine.", "--expect", "4").code == 0


def test_tag_moves_a_tag_to_a_version_or_another_tag(cli: InProcess, changed: str) -> None:
    """Who moved it, and why, is recorded."""
    done = cli("prompts", "tag", changed, "stable", "latest", "--by", "ann", "--note", "good")
    assert (done.code, done.out) == (0, f"{changed} is at version 5.\n")
    assert cli("prompts", "show", changed, "--at", "stable", "-o", "json").json["version"] == 4
    with cli.ledger() as ledger:
        event = ledger.record(STREAM, 5).event
    moved = PromptTagMoved(tag_name="stable", version=4, moved_by="ann", note="good", **NAMED)
    assert event == moved


def test_diff_shows_the_texts_that_differ(cli: InProcess, changed: str) -> None:
    """Between versions or tags, as a text diff; in JSON, a text that is not overridden is null."""
    assert cli("prompts", "diff", changed, "stable", "latest").out.splitlines() == [
        "--- tone at stable",
        "+++ tone at latest",
        "@@ -1,2 +1,2 @@",
        "-Be polite.",
        "+Be brief.",
        " Be kind.",
    ]
    assert cli("prompts", "diff", changed, "1", "2").out.splitlines() == [
        "--- tool:search at 1",
        "+++ tool:search at 2",
        "@@ -0,0 +1 @@",
        "+Searches.",
    ]
    assert cli("prompts", "diff", changed, "2", "1", "-o", "json").json == [
        {"path": "tool:search", "before": "Searches.", "after": None}
    ]
    equal = cli("prompts", "diff", changed, "2", "stable")
    assert (equal.out, equal.code) == ("", 0)
    assert "are equal" in equal.err


def test_blame_names_the_event_that_set_a_text(cli: InProcess, changed: str) -> None:
    """Its version, time, author and note; at an earlier version the earlier event."""
    done = cli("prompts", "blame", changed, "tone")
    with cli.ledger() as ledger:
        record = ledger.record(STREAM, 4)
    for expected in ("version  4", "set by   ann", "note     too long", str(record.event_id)):
        assert expected in done.out
    shown = cli("prompts", "blame", changed, "tone", "-o", "json").json
    assert shown == cli("show", STREAM, "4", "-o", "json").json
    earlier = cli("prompts", "blame", changed, "tone", "--at", "stable", "-o", "json").json
    assert (earlier["version"], earlier["data"]["replaces"]) == (1, "d1")


def test_runs_lists_each_use_of_a_prompt_with_its_pin(cli: InProcess, changed: str) -> None:
    """Every evaluation of it, also in a run that went on with another prompt."""
    pin = UsedOverrides("ledger", "stable", "d" * 64, "a" * 64, 2, ("tone", "tool:search"))
    runs = [new_run_id() for _ in range(3)]
    other = EvaluationStarted(
        evaluation_id="e2", prompt_ns="acme", prompt_key="other", prompt_digest="p"
    )
    with cli.ledger() as ledger:
        for run, used in zip(runs, (pin, None, None), strict=True):
            use = EvaluationStarted(evaluation_id="e1", prompt_digest="p", overrides=used, **NAMED)
            ledger.append(run, [RunStarted(), use] if run is not runs[2] else [RunStarted()], NEW)
            ledger.append(run, other, ANY)
    uses = cli("prompts", "runs", changed, "-o", "jsonl").lines
    found = [(use["run_id"], use["version"], use["prompt_digest"]) for use in uses]
    assert found == [(str(run), 2, "p") for run in runs[:2]]
    assert [use["overrides"] for use in uses] == [json.loads(msgspec.json.encode(pin)), None]
    _, first, second = cli("prompts", "runs", changed).out.splitlines()
    pinned = ["ledger", "stable", "2", "tone", "tool:search", "d" * 12]
    assert first.split() == [str(runs[0]), uses[0]["recorded_at"], *pinned]
    assert second.split() == [str(runs[1]), uses[1]["recorded_at"]]
    assert cli("prompts", "runs", "acme/unheard-of", "-o", "json").json == []


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("show", "acme/other"), 3, "Prompt acme/other has no overrides in this ledger."),
        (("show", PROMPT, "--at", "9"), 3, "9"),
        (("show", PROMPT, "--at", "beta"), 3, "no tag 'beta'. Its tags are: latest, stable."),
        (("blame", PROMPT, "outro"), 3, "Overridden are: tone, tool:search."),
        (("diff", PROMPT, "1", "beta"), 3, "no tag 'beta'"),
        (("tag", PROMPT, "beta", "9"), 1, "Invalid version 9"),
        (("tag", PROMPT, "7", "1"), 2, "a number is a version"),
        (("tag", PROMPT, "latest", "1"), 1, "latest"),
        (("show", "answer"), 2, "Invalid prompt 'answer': expected NS/KEY."),
        (("set", PROMPT, "tone", "x", "--file", __file__), 2, "can't be combined"),
    ],
)
def test_mistakes_are_told(
    cli: InProcess, prompt: str, args: tuple[str, ...], code: int, message: str
) -> None:
    """With the exit code of their kind, and nothing is written."""
    done = cli("prompts", *args)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert cli("prompts", "list", "-o", "json").json[0]["version"] == 3


def test_a_text_that_is_not_utf8_is_refused(cli: InProcess, prompt: str) -> None:
    """Before anything is written."""
    done = cli("prompts", "set", prompt, "tone", stdin=b"\xff")
    assert (done.code, done.out) == (1, "")
    assert "The text is not UTF-8" in done.err


def test_the_ledger_can_be_named_before_the_command_too(cli: InProcess, changed: str) -> None:
    """Also between the two names of the command, whatever the environment says."""
    listed = cli("prompts", "list", "-o", "json").out
    for args in (("--db", cli.db, "prompts", "list"), ("prompts", "--db", cli.db, "list")):
        assert cli(*args, "-o", "json", TURNLEDGER_DB="/nowhere.db").out == listed
