"""How commands name runs: part of an id, `@last`, a tag; and how they are shown to people."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from tests import step_runs
from tests.e2e.driving import NOBODY, InProcess, Processes, on_a_terminal
from tests.e2e.test_cli_help import completions
from tests.step_runs import record_run
from turnledger.ledger import NEW, CustomEvent, Ledger, RunStarted, run_id_for

OLD = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
NEWER = UUID("01890a5d-ac97-774b-bcce-b302099a01ab")
NEWEST = UUID("01890a5d-ac97-774b-bcce-b302099b7057")


@pytest.fixture
def runs(cli: InProcess) -> list[UUID]:
    """Three runs, oldest first; the first two of one customer."""
    runs = [OLD, NEWER, NEWEST]
    with cli.ledger() as ledger:
        for run, customer in zip(runs, ("acme", "acme", "globex"), strict=True):
            ledger.append(run, RunStarted(tags={"customer": customer}), NEW)
    return runs


def chosen(cli: InProcess, name: str) -> str:
    done = cli("show", name, "-o", "json")
    assert (done.code, done.err) == (0, ""), name
    found: str = done.json["run_id"]
    return found


@pytest.mark.parametrize(
    ("name", "run"),
    [
        (str(OLD), OLD),
        (str(OLD).upper(), OLD),
        ("01890a5d-ac96", OLD),
        ("01890a5dac96", OLD),
        ("099a8057", OLD),
        ("1AB", NEWER),
        ("774b-bcce-b302099b7057", NEWEST),
        ("@last", NEWEST),
        ("@-1", NEWEST),
        ("@-2", NEWER),
        ("@-3", OLD),
        ("customer=globex", NEWEST),
    ],
)
def test_a_run_has_many_names(cli: InProcess, runs: list[UUID], name: str, run: UUID) -> None:
    """Whole or in part, from the front or the back, by age, by tag."""
    assert chosen(cli, name) == str(run)


@pytest.mark.parametrize("name", ["01890a5d", "057", "customer=acme", "0"])
def test_an_ambiguous_name_lists_the_candidates(
    cli: InProcess, runs: list[UUID], name: str
) -> None:
    """2, with the short id, status, prompt and age of each; in JSON with their whole ids."""
    done = cli("log", name)
    assert (done.code, done.out) == (2, "")
    assert "Ambiguous run" in done.err
    told = cli("log", name, "-o", "json")
    assert (told.code, told.out) == (2, "")
    candidates = json.loads(told.err)["candidates"]
    assert len(candidates) >= 2
    for one in candidates:
        assert f"  {one[-8:]}  running" in done.err
    assert " ago" in done.err


def test_many_candidates_are_cut(cli: InProcess) -> None:
    """At most ten are listed, however many there are."""
    with cli.ledger() as ledger:
        for number in range(12):
            ledger.append(UUID(int=number + 1), RunStarted(), NEW)
    done = cli("log", "0000")
    assert done.err.count("running") == 10
    assert "and more" in done.err


@pytest.mark.parametrize(
    "name",
    [
        "99",
        NOBODY[:-1] + "8",
        "@-4",
        "customer=nobody",
        "nokey=1",
        "xyz",
        "last",
        "a" * 37,
        "Order 17/β",
    ],
)
def test_an_unknown_name_exits_3(cli: InProcess, runs: list[UUID], name: str) -> None:
    """What fits no run is not found, and nothing else is tried."""
    done = cli("log", name)
    assert (done.code, done.out) == (3, "")
    assert name in done.err


@pytest.mark.parametrize("name", ["", "@first", "@-0", "@", "=acme", "a" * 513])
def test_what_can_be_no_name_exits_2(cli: InProcess, runs: list[UUID], name: str) -> None:
    """The message says what a run can be named by."""
    done = cli("log", name)
    assert (done.code, done.out) == (2, "")
    assert "@last" in done.err


def test_every_command_with_a_run_takes_its_names(cli: InProcess, runs: list[UUID]) -> None:
    """Also several in one command, with `new` beside it, in options, and before --db."""
    db = str(cli.db)
    assert cli("compare", "@last", "1ab", "-o", "json").json["second"] == str(NEWER)
    assert cli("export", "@last", "@-2", TURNLEDGER_DB=db).code == 0
    assert cli("log", "@last", "--db", db, TURNLEDGER_DB="/nowhere/x.db").code == 0
    note = '{"type": "custom", "data": {"kind": "a.b"}}'
    assert cli("append", "@last", "--expect", "1", stdin=note).code == 0
    assert cli("append", "new", stdin=note).code == 0
    assert str(NEWEST) in cli("rebuild-index", "--accept-loss", "b7057").err


def test_the_second_run_is_looked_up_in_the_other_ledger(cli: InProcess, runs: list[UUID]) -> None:
    """`--other-db` may stand anywhere in the command."""
    other = cli.db.with_name("other.db")
    with Ledger.open(other) as ledger:
        ledger.append(UUID(int=7), [RunStarted(), CustomEvent(kind="a.b")], NEW)
    for arguments in (("@last", "@last", "--other-db", other), ("--other-db", other, "b7057", "7")):
        found = cli("compare", *arguments, "-o", "json").json
        assert (found["first"], found["second"]) == (str(NEWEST), str(UUID(int=7)))


def test_a_whole_id_is_not_looked_up(cli: InProcess) -> None:
    """A command that makes a run of its own id needs no ledger yet."""
    note = '{"type": "custom", "data": {"kind": "a.b"}}'
    assert cli("append", OLD, "--expect", "new", stdin=note).code == 0


def test_people_see_short_ids_and_programs_whole_ones(
    processes: Processes, cli: InProcess, runs: list[UUID]
) -> None:
    """On a terminal the end of an id; in a pipe and in JSON all of it."""
    code, shown = on_a_terminal(processes, "runs", NO_COLOR="1")
    lines = shown.decode().split("\r\n")
    assert code == 0
    assert lines[1].startswith(f"{str(NEWEST)[-8:]}  running ")
    assert str(NEWEST) not in shown.decode()
    assert cli("runs").out.splitlines()[1].startswith(str(NEWEST))
    assert cli("runs", "-o", "json").json[0]["run_id"] == str(NEWEST)
    code, shown = on_a_terminal(processes, "tail", NO_COLOR="1")
    assert shown.decode().split("\r\n")[1].split()[:2] == [str(OLD)[-8:], "1"]


def test_all_names_are_completed(processes: Processes, cli: InProcess, runs: list[UUID]) -> None:
    """By the beginning and the end of an id, by @, and by tag."""
    assert completions(processes, "turnledger log 01890a5d-ac96") == [str(OLD)]
    assert completions(processes, "turnledger log 7057") == [str(NEWEST)]
    assert completions(processes, "turnledger log @") == ["@last", "@-2", "@-3"]
    assert completions(processes, "turnledger log @l") == ["@last"]
    assert completions(processes, "turnledger log cust") == ["customer=globex", "customer=acme"]
    assert completions(processes, "turnledger log customer=g") == ["customer=globex"]


# --- names that a program gave ---------------------------------------------------------


@pytest.fixture
def order(cli: InProcess) -> UUID:
    """A run under a name of its program's."""
    with cli.ledger() as ledger:
        return record_run(ledger, step_runs.order())


def test_a_run_is_found_by_the_name_that_its_program_gave_it(cli: InProcess, order: UUID) -> None:
    """Whole, in every command that takes a run."""
    assert chosen(cli, "order-17") == str(order) == str(run_id_for("order-17"))
    for words in (("tools",), ("log",), ("timeline",), ("usage",), ("state",)):
        assert cli(*words, "order-17").code == 0, words
    assert cli("log", "order-1").code == 3


def test_an_unknown_name_says_what_was_looked_for(cli: InProcess, order: UUID) -> None:
    """A name, part of an id, a tag: whatever the text could be."""
    assert "'order-18'" not in (said := cli("log", "order-18").err)
    assert "no run order-18" in said
    assert "looked for a run of this name." in said
    assert "a run of this name, and an id that begins" in cli("log", "abc").err
    assert "a run of this name, and one with this tag" in cli("log", "name=order-18").err
    assert "number 9, counted from the newest" in cli("log", "@-9").err


@pytest.mark.parametrize("name", ["1ab", "customer=acme"])
def test_a_name_goes_before_part_of_an_id_and_a_tag(
    cli: InProcess, runs: list[UUID], name: str
) -> None:
    """And the other run that the text fits is named, so that nobody looks at the wrong one."""
    with cli.ledger() as ledger:
        named = record_run(ledger, [step_runs.block(name)])
    done = cli("show", name, "-o", "json")
    assert done.json["run_id"] == str(named) == str(run_id_for(name))
    assert f"{name!r} is the name of run {named}; it fits run {NEWER}" in done.err
    assert chosen(cli, f"name={name}") == str(named)


def test_a_name_is_listed_and_completed(
    processes: Processes, cli: InProcess, runs: list[UUID], order: UUID
) -> None:
    """On a terminal in place of the id; the tag stands in JSON, a workflow under PROMPT."""
    with cli.ledger() as ledger:
        record_run(ledger, [step_runs.workflow("orders/pay", 17)])
        record_run(ledger, [step_runs.block("a-name-that-is-longer-than-a-column")])
        borrowed = record_run(ledger, [step_runs.block()], UUID(int=5))
    code, shown = on_a_terminal(processes, "runs", NO_COLOR="1")
    lines = [line.split() for line in shown.decode().split("\r\n")]
    assert code == 0
    assert [line[0] for line in lines if line[:1] == ["order-17"]] == ["order-17"]
    assert any(line[1:3] == ["running", "orders/pay"] for line in lines)
    assert any(line[:1] == [str(borrowed)[-8:]] for line in lines)
    assert not any(line[:1] == ["a-name-that-is-longer-than-a-column"] for line in lines)
    assert str(order) in cli("runs").out
    assert completions(processes, "turnledger log order") == ["order-17"]
    assert "order-17" in completions(processes, "turnledger log ")
