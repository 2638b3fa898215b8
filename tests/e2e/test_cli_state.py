"""`state`, `changes`, `diff`, `blame`, `projections`: a run's state, and what changed it."""

from __future__ import annotations

from uuid import UUID

import jsonpatch
import pytest

from tests.e2e.driving import NOBODY, InProcess, Processes, on_a_terminal
from tests.e2e.stories import known, record, record_custom_only, said, story
from turnledger.ledger import Event, RunStarted, SliceEventApplied
from turnledger.projections.run_state.state import built_in

VERSIONS = (0, 1, 4, 8, 13, 19)


@pytest.fixture
def run(run: UUID, cli: InProcess) -> UUID:
    """The story, in a ledger with another run beside it."""
    record_custom_only(cli)
    return run


# --- state -------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_state_is_the_fold_at_a_version(cli: InProcess, run: UUID, version: int) -> None:
    """`state --at` prints what the library folds, as JSON in every format."""
    expected = known(cli, run, version)
    table = cli("state", run, "--at", version)
    assert table.json == expected
    assert table.out == cli("state", run, "--at", version, "-o", "json").out
    assert cli("state", run, "--at", version, "-o", "jsonl").lines == [expected]


def test_state_is_of_the_last_version_by_default(cli: InProcess, run: UUID) -> None:
    """Without --at everything counts."""
    assert cli("state", run).json == known(cli, run, 19)


@pytest.mark.parametrize("view", [view.name for view in built_in() if view.name != "prompt"])
def test_state_of_one_view(cli: InProcess, run: UUID, view: str) -> None:
    """`--projection` prints one view's state, and a path into the whole state finds the same."""
    expected = known(cli, run, 12)[view]
    assert cli("state", run, "--at", "12", "--projection", view).json == expected
    assert cli("state", run, "--at", "12", "--path", f"/{view}").json == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--path", "/usage/total/calls"), 2),
        (("--path", "/usage/total/calls", "--at", "7"), 1),
        (("--path", "/summary/tags"), {"team": "blue"}),
        (("--path", "/tools/1/name"), "save"),
        (("--projection", "usage", "--path", "/by_model/large/calls"), 1),
        (("--projection", "history", "--path", "/system"), "You plan trips."),
        (("--projection", "slices", "--path", ""), {}),
    ],
)
def test_state_at_a_path(
    cli: InProcess, run: UUID, arguments: tuple[str, ...], expected: object
) -> None:
    """`--path` prints the value that a JSON Pointer names, and nothing else."""
    assert cli("state", run, *arguments).json == expected
    assert cli("state", run, *arguments, "-o", "jsonl").lines == [expected]


def test_a_path_spells_slashes_and_tildes(cli: InProcess) -> None:
    """Names with / and ~ are reached as RFC 6901 says, here and by `blame`."""
    event = SliceEventApplied(slice="a/b~c", event_type="x", operation="append", payload=[7])
    run = record(cli, [RunStarted(), event])
    assert cli("state", run, "--path", "/slices/a~1b~0c/0/0").json == 7
    assert cli("blame", run, "/slices/a~1b~0c/0/0").json["version"] == 2


# --- forks and runs without meaning ---------------------------------------------------


def test_a_fork_knows_what_its_parent_knew(cli: InProcess, run: UUID) -> None:
    """Up to the fork both states are the same, and a shared record may be to blame."""
    child = cli("fork", run, "--at", "9").out.strip()
    for version in (0, 4, 9):
        assert known(cli, run, version) == cli("state", child, "--at", version).json
    assert cli("state", child).json == known(cli, child)
    assert cli("state", child, "--path", "/summary/kind").json == "fork"
    assert cli("diff", child, "9", "10", "-o", "json").json != []
    assert cli("blame", child, "/history/turns/0").out == cli("show", run, "4").out
    assert cli("blame", child, "/summary/kind").json["run_id"] == child


def test_a_run_without_meaning_has_a_state(cli: InProcess) -> None:
    """A run of custom events only is as known as one before its first event."""
    run = record_custom_only(cli)
    assert cli("state", run).json == known(cli, run, 0)
    assert cli("state", run, "--path", "/usage/total/calls").json == 0
    assert cli("diff", run, "0", "3", "-o", "json").json == []
    done = cli("blame", run, "/usage/total/calls")
    assert (done.code, done.out) == (1, "")
    assert "No event" in done.err


# --- projections --------------------------------------------------------------------


def test_projections_lists_the_views(cli: InProcess) -> None:
    """Each built-in view is there with its version and what it reads, without a ledger."""
    found = cli("projections", "-o", "json").json
    assert found == cli("projections", "-o", "jsonl").lines
    views = [thing for thing in found if thing["kind"] == "view"]
    assert [(v["name"], v["version"]) for v in views] == [(v.name, v.version) for v in built_in()]
    by_name = {view["name"]: view["reads"] for view in views}
    assert by_name["usage"] == ["run.started", "model.replied", "model.call_failed"]
    table = cli("projections").out.splitlines()
    assert [line.split() for line in table[1 : 1 + len(views)]] == [
        [view["name"], "view", str(view["version"]), *view["reads"]] for view in views
    ]
    assert not cli.db.exists()


# --- errors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("state", NOBODY), 3, NOBODY),
        (("state", NOBODY, "--projection", "usage"), 3, NOBODY),
        (("state", NOBODY, "--at", "0"), 3, NOBODY),
        (("diff", NOBODY, "0", "1"), 3, NOBODY),
        (("changes", NOBODY, "1"), 3, NOBODY),
        (("blame", NOBODY, "/usage"), 3, NOBODY),
        (("messages", NOBODY), 3, NOBODY),
        (("tools", NOBODY), 3, NOBODY),
        (("usage", NOBODY), 3, NOBODY),
        (("timeline", NOBODY), 3, NOBODY),
        (("state", "RUN", "--at", "20"), 3, "from 1 to 19"),
        (("state", "RUN", "--at", "20", "--path", "/usage"), 3, "from 1 to 19"),
        (("diff", "RUN", "1", "20"), 3, "from 1 to 19"),
        (("diff", "RUN", "20", "1"), 3, "from 1 to 19"),
        (("changes", "RUN", "20"), 3, "from 1 to 19"),
        (("blame", "RUN", "/usage", "--at", "20"), 3, "from 1 to 19"),
        (("messages", "RUN", "--at", "20"), 3, "from 1 to 19"),
        (("tools", "RUN", "--at", "9223372036854775807"), 3, "from 1 to 19"),
        (("timeline", "RUN", "--at", "20"), 3, "from 1 to 19"),
        (("messages", "RUN", "--evaluation", "second"), 3, "'second'"),
        (("state", "RUN", "--path", "/usage/nothing"), 1, "no value at"),
        (("state", "RUN", "--path", "/tools/2"), 1, "no value at"),
        (("state", "RUN", "--path", "/tools/-"), 1, "no value at"),
        (("state", "RUN", "--path", "/tools/00"), 1, "no value at"),
        (("state", "RUN", "--path", "/history/system/0"), 1, "no value at"),
        (
            ("state", "RUN", "--projection", "usage", "--path", "/usage"),
            1,
            "at '/usage/usage'",
        ),
        (("blame", "RUN", "/usage/nothing"), 1, "no value at"),
        (("blame", "RUN", "/tools/-"), 1, "no value at"),
        (("blame", "RUN", "/history/turns/2", "--at", "4"), 1, "no value at"),
        (("state", "RUN", "--path", "usage"), 2, "begins with '/'"),
        (("state", "RUN", "--path", "/usage/~2"), 2, "~0"),
        (("state", "RUN", "--path", "/usag"), 2, "Did you mean /usage?"),
        (("state", "RUN", "--projection", "usag"), 2, "usage"),
        (("state", "RUN", "--at", "-1"), 2, "--at"),
        (("blame", "RUN", "usage"), 2, "begins with '/'"),
        (("blame", "RUN", ""), 2, "must begin with a view"),
        (("blame", "RUN", "/nothing"), 2, "must begin with a view"),
        (("diff", "RUN", "1"), 2, "'B'"),
        (("diff", "RUN", "one", "2"), 2, "'A'"),
        (("changes", "RUN"), 2, "'VERSION'"),
        (("changes", "RUN", "0"), 2, "'VERSION'"),
    ],
)
def test_what_is_wrong_is_said(
    cli: InProcess, run: UUID, arguments: tuple[str, ...], code: int, text: str
) -> None:
    """Each mistake has its exit code and a message; nothing goes to stdout."""
    done = cli(*(str(run) if argument == "RUN" else argument for argument in arguments))
    assert (done.code, done.out) == (code, "")
    assert "Error:" in done.err
    assert text in done.err


def test_looking_creates_nothing(cli: InProcess) -> None:
    """Where there is no ledger, these commands say so and leave it at that."""
    for arguments in (
        *(("state", NOBODY), ("messages", NOBODY), ("tools", NOBODY), ("usage",)),
        *(("timeline", NOBODY), ("diff", NOBODY, "0", "1"), ("blame", NOBODY, "/usage")),
    ):
        done = cli(*arguments)
        assert (done.code, done.out) == (1, "")
        assert "There is no ledger at" in done.err
    assert not cli.db.exists()


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


def test_changes_are_those_of_one_event(cli: InProcess, run: UUID) -> None:
    """The patch applied to the state before gives the one after, but for gaps; if the event
    changed nothing, that is said."""
    for version in range(1, 20):
        patch = cli("changes", run, version, "-o", "json").json
        before, after = (known(cli, run, at) for at in (version - 1, version))
        for state in (before, after):
            del state["timeline"]["gaps"]
        assert jsonpatch.apply_patch(before, patch) == after
    assert "~ /usage/total/calls 0 → 1" in cli("changes", run, "7").out.splitlines()
    done = cli("changes", record_custom_only(cli), "2")
    assert (done.code, done.out) == (0, "")
    assert "Event 2 changed nothing" in done.err


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
