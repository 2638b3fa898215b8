"""`compare`: two runs side by side, where they part, and how the command ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import jsonpatch
import msgspec
import pytest

from tests.e2e.driving import NOBODY, InProcess, Processes, on_a_terminal
from tests.e2e.stories import CONTROL, MARKUP, UNSAFE, known, record, said, story
from turnledger.ledger import (
    CustomEvent,
    Event,
    MessageAppended,
    RunResumed,
    RunStarted,
    SliceEventApplied,
)

DIVERGED = 6


def with_text(version: int, text: str) -> list[Event]:
    """The story, but for what one of its messages says."""
    events = story()
    event = events[version - 1]
    assert isinstance(event, MessageAppended)
    message = msgspec.structs.replace(event.message, content=text)
    events[version - 1] = MessageAppended(message=message)
    return events


@pytest.fixture
def other(cli: InProcess) -> UUID:
    """The story with another question."""
    return record(cli, with_text(4, "How is Porto?"))


def test_two_runs_that_did_the_same(cli: InProcess, run: UUID) -> None:
    """One line for all, a note on stderr, and exit code 0."""
    done = cli("compare", run, record(cli, story()))
    assert done.code == 0
    assert done.out.splitlines()[1:] == ["  … 19 the same"]
    assert done.err == "The runs are equal.\n"


def test_the_first_divergence_is_marked_and_said_again(
    cli: InProcess, run: UUID, other: UUID
) -> None:
    """What is the same is folded; the last line says what differs."""
    done = cli("compare", run, other)
    assert (done.code, done.err) == (DIVERGED, "")
    change = '/content "How is Lisbon?" → "How is Porto?"'
    assert done.out.splitlines()[1:] == [
        "  … 3 the same",
        f"→ ~      4      4  message.appended     {change}",
        "  … 15 the same",
        "",
        "First divergence: message.appended, version 4 of run1 and 4 of run2",
        f"  ~ {change}",
    ]


def test_all_shows_every_event(cli: InProcess, run: UUID, other: UUID) -> None:
    """A sign, both versions, the tag and what was said."""
    lines = cli("compare", run, other, "--all").out.splitlines()
    assert [line[2] for line in lines[1:20]] == ["~" if n == 4 else "=" for n in range(1, 20)]
    shown = lines[6].split(maxsplit=4)
    assert shown[:4] == ["=", "6", "6", "message.appended"]
    assert shown[4].startswith('assistant: Let me look. weather({"city":"Lisbon"}) save({')
    assert lines[10].endswith("tool_call.completed  name=weather value=21 call=1")


def test_what_only_one_run_has(cli: InProcess, run: UUID) -> None:
    """< is the first's and > the second's; where each does something else, both are said."""
    note = CustomEvent(kind="test.note", data="only here")
    shorter = record(cli, story()[:18])
    assert "→ <     19         run.completed" in cli("compare", run, shorter).out
    assert "→ >            19  run.completed" in cli("compare", shorter, run).out
    elsewise = record(cli, [*story()[:18], note])
    lines, nineteen = cli("compare", run, elsewise).out.splitlines(), "version 19 of"
    assert lines[-3:] == [
        f"First divergence: run.completed, {nineteen} run1 only and custom, {nineteen} run2 only",
        '  < output={"ok":true}',
        "  > kind=test.note data=only here",
    ]


def test_bookkeeping_is_folded_and_makes_no_difference(cli: InProcess, run: UUID) -> None:
    """--all shows it, marked."""
    again = record(cli, [*story()[:7], RunResumed(attempt=1, from_version=7), *story()[7:]])
    done = cli("compare", run, again)
    assert (done.code, done.out.splitlines()[1:]) == (0, ["  … 19 the same, 1 bookkeeping"])
    assert "  >             8  run.resumed" in cli("compare", run, again, "--all").out
    assert "(bookkeeping)" in cli("compare", run, again, "--all").out


def test_a_fork_shares_its_beginning(cli: InProcess, run: UUID) -> None:
    """Its own start is bookkeeping, and what it has not done yet is its parent's only."""
    child = cli("fork", run, "--at", "8", "-o", "json").json["run_id"]
    found = cli("compare", run, child, "-o", "json").json
    assert (found["shared"], found["same"]) == (8, False)
    assert found["divergence"] == {"first": 9, "second": None, "rows": [8]}
    (own,) = [row for row in found["rows"] if row["kind"] == "only_second"]
    assert (own["tag"], own["second"], own["bookkeeping"]) == ("run.started", 9, True)


def test_programs_get_everything(cli: InProcess, run: UUID, other: UUID) -> None:
    """All rows, with stable names; both formats say the same, with the same exit code."""
    done = cli("compare", run, other, "-o", "json")
    assert done.code == DIVERGED
    found: dict[str, Any] = done.json
    assert cli("compare", run, other, "-o", "jsonl").lines == [found]
    assert list(found) == ["first", "second", "same", "shared", "counts", "divergence", "rows"]
    assert (found["first"], found["second"], found["same"]) == (str(run), str(other), False)
    assert found["divergence"] == {"first": 4, "second": 4, "rows": [3]}
    assert len(found["rows"]) == 19
    assert found["rows"][3] == {
        "kind": "changed",
        "first": 4,
        "second": 4,
        "tag": "message.appended",
        "bookkeeping": False,
        "text": "user: How is Lisbon?",
        "changes": [
            {
                "op": "replace",
                "path": "/content",
                "was": "How is Lisbon?",
                "value": "How is Porto?",
            }
        ],
    }


def test_texts_of_several_lines_differ_line_by_line(cli: InProcess, run: UUID) -> None:
    """Only lines that differ are shown, and those beside them."""
    old = "\n".join(f"line {n}" for n in range(50))
    runs = [record(cli, with_text(4, text)) for text in (old, old.replace("line 30\n", "LINE\n"))]
    lines = cli("compare", *runs).out.splitlines()
    start = lines.index("  ~ /content")
    assert lines[start + 1 :] == [
        "      @@ -30,3 +30,3 @@",
        "       line 29",
        "      -line 30",
        "      +LINE",
        "       line 31",
    ]


def test_of_long_texts_the_place_that_differs_is_shown(cli: InProcess) -> None:
    """However far from the beginning; no line is long."""
    runs = [record(cli, with_text(4, "word " * 500 + end)) for end in ("Lisbon", "Porto")]
    done = cli("compare", *runs)
    assert max(map(len, done.out.splitlines())) <= 240
    assert done.out.count("Lisbon") == done.out.count("Porto") == 2


def test_runs_of_two_ledgers(cli: InProcess, run: UUID, tmp_path: Path) -> None:
    """--other-db is where the second is; one that is not there is not made."""
    elsewhere = InProcess(tmp_path / "other.db")
    theirs = record(elsewhere, with_text(4, "How is Porto?"))
    assert cli("compare", run, theirs, "--other-db", elsewhere.db).code == DIVERGED
    assert cli("compare", run, theirs).code == 3
    missing = tmp_path / "missing.db"
    assert cli("compare", run, theirs, "--other-db", missing).code != 0
    assert not missing.exists()


def test_states_at_a_version_each(cli: InProcess, run: UUID, other: UUID) -> None:
    """The changes are a JSON Patch from one state to the other."""
    done = cli("compare", run, other, "--state", "4:4", "-o", "json")
    assert (done.code, done.json["same"]) == (DIVERGED, False)
    patched = jsonpatch.apply_patch(known(cli, run, 4), done.json["changes"])
    assert patched == known(cli, other, 4)
    shown = cli("compare", run, other, "--state", "4:4").out.splitlines()
    assert '~ /history/turns/0/blocks/0/text "How is Lisbon?" → "How is Porto?"' in shown


def test_states_with_the_same_outcome(cli: InProcess, run: UUID, other: UUID) -> None:
    """Ids alone make no difference; the same state is said to be the same."""
    before = cli("compare", run, other, "--state", "3:3")
    assert (before.code, before.err) == (0, "The outcome is the same.\n")
    assert "/history/messages/0/message_id" in before.out
    assert cli("compare", run, run, "--state", "7:7").err == "The states are equal.\n"


@pytest.mark.parametrize("pair", ["", "4", "4:", "a:b", "1:2:3", "-1:2", "1" * 20 + ":1"])
def test_versions_are_written_in_one_way(cli: InProcess, run: UUID, pair: str) -> None:
    """Anything else is a usage error that says how."""
    done = cli("compare", run, run, "--state", pair)
    assert done.code == 2
    assert "V1:V2" in done.err


def test_what_is_not_there_is_an_error(cli: InProcess, run: UUID) -> None:
    """A run, or a version."""
    assert cli("compare", run, NOBODY).code == 3
    assert cli("compare", NOBODY, run).code == 3
    assert cli("compare", run, run, "--state", "4:99").code == 3


def test_plans_that_differ_are_states_that_differ(cli: InProcess) -> None:
    """The reducers of the package's own slices are known here, without the program."""
    one, other = (
        record(
            cli,
            [
                RunStarted(),
                SliceEventApplied(
                    slice="turnledger.Plan",
                    event_type="turnledger.SetupPlan",
                    payload={"objective": objective, "steps": []},
                ),
            ],
        )
        for objective in ("Review it", "Publish it")
    )
    done = cli("compare", one, other, "--state", "2:2", "-o", "json")
    assert done.code == DIVERGED
    assert "/slices/turnledger.Plan/0/objective" in done.out


@pytest.mark.parametrize("more", [(), ("--all",), ("--state", "3:3"), ("-o", "json")])
def test_no_control_character_is_printed(cli: InProcess, more: tuple[str, ...]) -> None:
    """Whatever the runs hold, in every form of output."""
    runs = [
        record(
            cli,
            [
                RunStarted(tags={UNSAFE: MARKUP + end}),
                said("user", f"{UNSAFE}{MARKUP}{end}\nand more", 0),
                CustomEvent(kind="a.b", data={UNSAFE: MARKUP + end}),
            ],
        )
        for end in ("1", "2")
    ]
    done = cli("compare", *runs, *more)
    assert done.code == DIVERGED
    assert CONTROL.findall(done.out) == []
    assert "not markup" in done.out


def test_colours_are_for_a_terminal(processes: Processes) -> None:
    """The first divergence is bold there; a pipe gets no escape code."""
    cli = InProcess(processes.db)
    runs = [record(cli, story()), record(cli, with_text(4, "How is Porto?"))]
    code, styled = on_a_terminal(processes, "compare", *runs)
    assert (code, b"\x1b[1;33m\xe2\x86\x92 ~" in styled) == (DIVERGED, True)
    code, plain = on_a_terminal(processes, "compare", *runs, NO_COLOR="1")
    assert (code, b"\x1b" in plain) == (DIVERGED, False)
    assert "\x1b" not in processes("compare", *runs, FORCE_COLOR="1").out


def test_help_says_how_it_ends(cli: InProcess) -> None:
    """Exit code 6 is in the help."""
    assert "with 6 if not" in " ".join(cli("compare", "--help").out.split())
