"""`diff` and `blame`: what changed in a run's state, and which record changed it."""

from __future__ import annotations

from uuid import UUID

import jsonpatch
import pytest

from tests.e2e.driving import InProcess, Processes
from tests.e2e.test_cli_meaning import known, record, said, story
from tests.e2e.test_cli_safety import on_a_terminal
from turnledger.ledger import Event, RunStarted, SliceEventApplied


@pytest.fixture
def run(cli: InProcess) -> UUID:
    """The story."""
    return record(cli, story())


# --- diff --------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [(0, 19), (4, 8), (8, 4), (13, 19), (19, 0), (7, 7)])
def test_diff_leads_from_one_state_to_the_other(
    cli: InProcess, run: UUID, pair: tuple[int, int]
) -> None:
    """The patch applied to `state --at A` gives `state --at B`; each operation is a line."""
    patch = cli("diff", run, *pair, "-o", "json").json
    assert cli("diff", run, *pair, "-o", "jsonl").lines == patch
    assert jsonpatch.apply_patch(known(cli, run, pair[0]), patch) == known(cli, run, pair[1])
    lines = cli("diff", run, *pair).out.splitlines()
    marks = {"add": "+", "remove": "-", "replace": "~"}
    assert [line[0] for line in lines] == [marks[operation["op"]] for operation in patch]


def test_diff_reads_well(cli: InProcess, run: UUID) -> None:
    """A table names the path with what is new, what is gone, and what was and is."""
    forth = cli("diff", run, "6", "7").out.splitlines()
    assert "~ /usage/total/calls 0 → 1" in forth
    assert any(line.startswith('+ /usage/by_model/small {"cached_tokens":2,') for line in forth)
    back = cli("diff", run, "7", "6").out.splitlines()
    assert "~ /usage/total/calls 1 → 0" in back
    assert "- /usage/by_model/small" in back


def test_diff_shows_the_old_value_after_earlier_operations(cli: InProcess) -> None:
    """What a value was is looked up where the operations before it have moved it."""
    seeds = ([1, 2, 3], [2, 9])
    events = [
        SliceEventApplied(slice="s", event_type="s", operation="seed", payload=items)
        for items in seeds
    ]
    run = record(cli, [RunStarted(), *events])
    patch = cli("diff", run, "2", "3", "-o", "json").json
    replaced = [operation for operation in patch if operation["op"] == "replace"]
    lines = [line for line in cli("diff", run, "2", "3").out.splitlines() if line[0] == "~"]
    value = known(cli, run, 2)
    expected = []
    for operation in patch:
        if operation["op"] == "replace":
            old = value["slices"]["s"][int(operation["path"].rpartition("/")[2])]
            expected.append(f"~ {operation['path']} {old} → {operation['value']}")
        value = jsonpatch.apply_patch(value, [operation])
    assert (lines, len(lines)) == (expected, len(replaced))
    assert lines


def test_diff_shows_what_went_elsewhere_at_both_places(cli: InProcess) -> None:
    """A value that comes later in a list is gone from one place and new in another."""
    seeds = ([{"a": 1}, 2], [2, {"a": 1}])
    events = [
        SliceEventApplied(slice="s", event_type="s", operation="seed", payload=items)
        for items in seeds
    ]
    run = record(cli, [RunStarted(), *events])
    lines = cli("diff", run, "2", "3").out.splitlines()
    assert lines == ['~ /slices/s/0 {"a":1} → 2', '~ /slices/s/1 2 → {"a":1}']


def test_diff_shortens_long_values(cli: InProcess) -> None:
    """A line of a table is never long; a program gets everything."""
    events: list[Event] = [said("user", "word " * 1000, 0), said("system", "new " * 1000, 1)]
    run = record(cli, [RunStarted(), said("system", "old " * 1000, 0), *events])
    lines = cli("diff", run, "2", "4").out.splitlines()
    assert max(map(len, lines)) <= 240
    (changed,) = (line for line in lines if line.startswith("~ /history/system"))
    assert "old old" in changed.partition(" → ")[0]
    assert "new new" in changed.partition(" → ")[2]
    assert changed.count("…") == 2
    assert "word " * 1000 in cli("diff", run, "2", "4", "-o", "jsonl").out


def test_diff_of_equal_states_says_so(cli: InProcess, run: UUID) -> None:
    """Where nothing changed there is no data, and a note on stderr."""
    done = cli("diff", run, "7", "7")
    assert (done.code, done.out) == (0, "")
    assert "are equal" in done.err
    assert cli("diff", run, "7", "7", "-o", "json").json == []
    assert cli("diff", run, "7", "7", "-o", "jsonl").out == ""


# --- blame -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointer", "at", "version"),
    [
        ("/usage/total/calls", (), 18),
        ("/usage/total/calls", ("--at", "17"), 7),
        ("/usage/by_model/small", (), 7),
        ("/summary/status", (), 19),
        ("/summary/tags/team", (), 1),
        ("/history/system", (), 3),
        ("/history/turns/0", (), 4),
        ("/tools/0/status", ("--at", "8"), 8),
        ("/tools/1/error_message", (), 13),
    ],
)
def test_blame_is_the_record_that_set_it(
    cli: InProcess, run: UUID, pointer: str, at: tuple[str, ...], version: int
) -> None:
    """`blame` prints the record as `show` does, in every format."""
    assert cli("blame", run, pointer, *at).out == cli("show", run, version).out
    for form in ("json", "jsonl"):
        shown = cli("show", run, version, "-o", form).out
        assert cli("blame", run, pointer, *at, "-o", form).out == shown


def test_blame_agrees_with_state(cli: InProcess, run: UUID) -> None:
    """The value is there after the blamed record, and was not before it."""
    for pointer in ("/usage/total", "/tools/0", "/history/turns", "/timeline/spans/1", "/summary"):
        version = cli("blame", run, pointer).json["version"]
        now = cli("state", run, "--path", pointer).json
        assert cli("state", run, "--path", pointer, "--at", version).json == now
        before = cli("state", run, "--path", pointer, "--at", version - 1)
        assert before.code == 1 or before.json != now


def test_diff_is_coloured_on_a_terminal_only(processes: Processes) -> None:
    """Additions are green on a terminal, never with NO_COLOR, never in a pipe."""
    run = record(InProcess(processes.db), story())
    code, styled = on_a_terminal(processes, "diff", run, "6", "7")
    assert (code, b"\x1b[32m+ /usage" in styled) == (0, True)
    code, plain = on_a_terminal(processes, "diff", run, "6", "7", NO_COLOR="1")
    assert (code, b"\x1b" in plain) == (0, False)
    assert "\x1b" not in processes("diff", run, "6", "7", FORCE_COLOR="1").out
