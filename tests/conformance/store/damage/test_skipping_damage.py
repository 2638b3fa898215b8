"""One damaged run does not stop what goes over all runs: it is skipped and named, exit code 5."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.conformance.harness import STORES, StoreUnderTest, Vandal, store_under_test
from tests.e2e.driving import InProcess
from tests.unit.runtime.loops import Goal, Planner, interrupted
from turnledger.ledger import Ledger, new_run_id
from turnledger.ledger.transfer.export import export_runs
from turnledger.projections import ToolStatistics, catch_up, rebuild, table_rows
from turnledger.projections.tables.storage import skipped_records
from turnledger.runtime import LedgerCheckpointBackend

# Gives False if the store can't hold such a value.
Damage = Callable[[Vandal, UUID], bool]
HERE = "tests.conformance.store.damage.test_skipping_damage"
COMMANDS = {
    "runs": ("runs", "-o", "json"),
    "pending": ("pending", "-o", "json"),
    "usage": ("usage", "-o", "json"),
    "usage by day": ("usage", "--by-day", "-o", "json"),
    "tools": ("tools", "--all", "-o", "json"),
    "rebuild": ("rebuild", "-o", "json"),
    "export": ("export", "--all"),
    "transcripts": ("export", "--all", "--format", "openai-chat"),
    "recover": (
        "recover",
        "--all",
        "--app",
        "tests.conformance.store.damage.test_skipping_damage:loop",
    ),
}
BY_INDEX = {"runs", "pending", "recover", "transcripts"}
BY_EVENTS = set(COMMANDS) - {"runs"}


def loop(ledger: Ledger) -> Planner:
    """The loop that `recover` is given."""
    return Planner(ledger=ledger)


def own(vandal: Vandal, run: UUID) -> list[int]:
    return [row.position for row in vandal.rows() if row.run_id == str(run).encode()]


def change_all(vandal: Vandal, run: UUID, column: str, value: bytes | str) -> bool:
    done = [vandal.change(position, column, value) for position in own(vandal, run)]
    return all(done)


def undecodable(vandal: Vandal, run: UUID) -> bool:
    return change_all(vandal, run, "data", b"{")


def not_text(vandal: Vandal, run: UUID) -> bool:
    try:
        return change_all(vandal, run, "data", b"\xff\xfe")
    except psycopg.Error:
        return False


def wrong_type(vandal: Vandal, run: UUID) -> bool:
    return change_all(vandal, run, "recorded_at", "never")


def damaged_row(vandal: Vandal, run: UUID) -> bool:
    return vandal.change_run(run, "tags", b"{")


def row_of_wrong_type(vandal: Vandal, run: UUID) -> bool:
    return vandal.change_run(run, "started_at", "never")


def missing_parent(vandal: Vandal, run: UUID) -> bool:
    parent = UUID(vandal.run_row(run)["parent"].decode())
    for position in own(vandal, parent):
        vandal.delete(position)
    vandal.delete_run(parent)
    return True


DAMAGES: dict[Damage, set[str]] = {
    undecodable: BY_EVENTS,
    not_text: BY_EVENTS,
    wrong_type: BY_EVENTS - {"usage", "transcripts"},
    damaged_row: BY_INDEX,
    row_of_wrong_type: BY_INDEX | {"export"},
    missing_parent: {"pending", "recover", "export", "transcripts"},
}


class Scene:
    """A completed run, an interrupted one, and one that is damaged."""

    def __init__(self, store: StoreUnderTest, damage: Damage) -> None:
        self.store, self.damage = store, damage
        self.ledger = ledger = store.open()
        Planner(ledger=ledger).execute(Goal(), run_id=new_run_id())
        self.sound = interrupted(ledger)
        self.run = interrupted(ledger)
        if damage is missing_parent:
            self.run = ledger.fork(self.run, ledger.head(self.run))
            with ledger.claim(self.run):
                pass
        self.damaged = damage(store.vandal, self.run)

    def expected(self, *commands: str) -> bool:
        return self.damaged and bool({*commands} & DAMAGES[self.damage])


def every_damage(*stores: str) -> list[Any]:
    """Each store with each damage. PostgreSQL, which is slow to set up, has one for all."""
    return [
        pytest.param(
            store,
            damage,
            id=f"{store}-{damage.__name__}",
            marks=[pytest.mark.full] if store == "postgres" and damage != undecodable else [],
        )
        for store in stores
        for damage in DAMAGES
    ]


@pytest.mark.parametrize(("name", "damage"), every_damage(*STORES))
def test_a_damaged_run_does_not_stop_readers_of_all_runs(
    name: str, damage: Damage, tmp_path: Path
) -> None:
    """Listings name it, tables and exports leave it out; the others are there."""
    with store_under_test(name, tmp_path) as store:
        _check_readers(Scene(store, damage))


def _check_readers(scene: Scene) -> None:
    ledger, run, sound = scene.ledger, str(scene.run), scene.sound
    named: dict[str, Exception] = {}
    assert sound in [info.run_id for info in ledger.runs(on_damage=named.__setitem__)]
    assert (run in named) == scene.expected("runs")
    found = Planner(ledger=ledger).list_recoverable(on_damage=named.__setitem__)
    assert sound in [one.run_id for one in found]
    assert sound in LedgerCheckpointBackend(ledger).list_incomplete()
    named.clear()
    exported = io.BytesIO()
    export_runs(ledger, exported, on_damage=named.__setitem__)
    assert f'"run_id":"{sound}"'.encode() in exported.getvalue()
    assert (run in named) == scene.expected("export")
    assert (f'"run_id":"{run}"'.encode() in exported.getvalue()) == (run not in named)
    catch_up(ledger, ToolStatistics())
    assert table_rows(ledger, ToolStatistics()).rows["step"]["completed"] >= 4
    skipped = skipped_records(ledger, ToolStatistics())
    assert bool(skipped) == scene.expected("tools")
    assert rebuild(ledger, ToolStatistics(), verify=True).ok
    assert rebuild(ledger, ToolStatistics()).skipped == skipped


@pytest.mark.parametrize(("name", "damage"), every_damage("sqlite", "postgres"))
def test_commands_over_all_runs_skip_and_name_a_damaged_run(
    name: str, damage: Damage, tmp_path: Path
) -> None:
    """Each time, with what is wrong and what to do; the exit code is 5 where it matters."""
    with store_under_test(name, tmp_path) as store:
        _check_commands(Scene(store, damage))


def _check_commands(scene: Scene) -> None:
    cli = InProcess(Path(scene.store.url))
    for name, arguments in COMMANDS.items():
        for _ in range(2 if name == "tools" else 1):  # from a table that is made once
            done = cli(*arguments, TURNLEDGER_DB=scene.store.url)
            wanted = 5 if scene.expected(name) else 0
            assert (name, done.code, done.err) == (name, wanted, done.err)
            assert (f"{scene.run}" in done.err) == (wanted == 5)
            assert ("turnledger verify" in done.err) == (wanted == 5)
    assert scene.ledger.run(scene.sound).status == "completed"


@pytest.mark.parametrize(("name", "damage"), every_damage(*STORES))
def test_the_queue_passes_over_a_damaged_run(name: str, damage: Damage, tmp_path: Path) -> None:
    """A worker is given the runs after it, and nothing stops the queue."""
    with store_under_test(name, tmp_path) as store:
        ledger = store.open()
        runs = [str(ledger.enqueue("tests/queued", number)) for number in range(3)]
        if damage is missing_parent or not damage(store.vandal, UUID(runs[0])):
            return
        named: dict[str, Exception] = {}
        found = [ledger.claim_next(["tests/queued"], on_damage=named.__setitem__) for _ in range(4)]
        taken = [claim.run_id for claim in found if claim is not None]
        assert set(runs[1:]) <= set(taken)
        # A damage that the claim does not meet is found by the recovery, which reads the run.
        assert not (runs[0] in taken and runs[0] in named)
        assert runs[0] in named or damage in (wrong_type, damaged_row, row_of_wrong_type)
