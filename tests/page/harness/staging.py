"""Ledgers that tests of the page look at: made once for all workers that pytest has, and copied."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from benchmarks.long_events import long_run
from tests.e2e.driving import tamper
from tests.e2e.test_wheel import once
from tests.page.harness.hostile import HostileRuns, make_hostile
from tests.page.harness.served import Served
from turnledger.ledger import (
    ANY,
    Event,
    Ledger,
    RunResumed,
    ToolCallDecided,
    ToolCallFailed,
    ToolCallInDoubt,
    new_run_id,
)

EXAMPLES = Path(__file__).parents[3] / "examples"
sys.path.append(str(EXAMPLES))
from stage import Stage  # noqa: E402

LONG, BATCH = 100_000, 1000
# Of failed calls in the long run, every how many it is in doubt first, and decided.
DOUBTED = 4
CHANGE = "UPDATE events SET data=replace(data, 'Paid 120', 'Paid 999') WHERE run_id=? AND version=?"


class DemoRuns(msgspec.Struct, frozen=True):
    """The runs that the demo's agent made, by what became of them."""

    # Settled its invoice.
    undisturbed: UUID
    # Killed inside its payment; ann decided that it happened, and it went on to the end.
    recovered: UUID
    # Killed there too; waits for the decision about call_2.
    waiting: UUID
    # Killed there too; nobody recovered it: running, without a worker.
    deserted: UUID
    # Forked from `undisturbed` with another result of call_1, and went on to the end.
    fork: UUID


@dataclass(frozen=True)
class Demo:
    """A copy of the demo's ledger and of its banks, one for each run."""

    folder: Path
    runs: DemoRuns
    served: Served

    @property
    def db(self) -> Path:
        return self.served.db

    def stage(self, name: str) -> Stage:
        """What works on a run of this copy: `stage("waiting").payments()` are of this run."""
        return Stage(self.folder / name, str(self.db))

    def tamper(self) -> tuple[UUID, int]:
        """Change a record in the file behind the ledger's back: its run and version."""
        run = self.runs.undisturbed
        with Ledger.open(self.db) as ledger:
            version = next(one.version for one in ledger.read(run) if "Paid 120" in one.data)
        tamper(self.db, CHANGE, str(run), version)
        return run, version


def copy_of_demo(factory: pytest.TempPathFactory) -> Demo:
    """A copy that the caller may write to."""
    made = once(factory, "staged-demo", _make_demo)
    folder = factory.mktemp("demo") / "copy"
    shutil.copytree(made, folder)
    runs = msgspec.json.decode((made / "runs.json").read_bytes(), type=DemoRuns)
    return Demo(folder, runs, Served(folder / "runs.db"))


def _make_demo(folder: Path) -> None:
    db = str(folder / "runs.db")
    Ledger.open(db).close()
    stages = [Stage(folder / name, db) for name in DemoRuns.__struct_fields__]
    work = (_undisturbed, _recovered, _waiting, _deserted)
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda make, stage: make(stage), work, stages))
    runs.append(_forked(stages[-1], runs[0]))
    (folder / "runs.json").write_bytes(msgspec.json.encode(DemoRuns(*runs)))


def _undisturbed(stage: Stage) -> UUID:
    run = new_run_id()
    assert stage.agent(run).communicate()[0].strip() == "Invoice 17 is paid: 120."
    return run


def _deserted(stage: Stage) -> UUID:
    run = new_run_id()
    stage.kill_an_agent(run)
    return run


def _waiting(stage: Stage) -> UUID:
    run = _deserted(stage)
    _recover(stage, run, 8)
    return run


def _recovered(stage: Stage) -> UUID:
    run = _waiting(stage)
    _done(stage, "resolve", run, "call_2", "--completed", '{"paid": 120}', "--by", "ann")
    _recover(stage, run)
    return run


def _forked(stage: Stage, parent: UUID) -> UUID:
    said = _done(stage, "fork", parent, "--tool", "call_1", "--result", "Found two invoices.")
    run = UUID(said.split()[0])
    _recover(stage, run)
    return run


def _recover(stage: Stage, run: UUID, code: int = 0) -> None:
    _done(stage, "recover", run, "--app", "payments:agent", code=code)


def _done(stage: Stage, *arguments: object, code: int = 0) -> str:
    found, said = stage.turnledger(*map(str, arguments))
    assert found == code, said
    return said


@dataclass(frozen=True)
class LongRun:
    """A ledger with one run of 100,000 events; it is not copied: only read it."""

    run: UUID
    served: Served


def staged_long_run(factory: pytest.TempPathFactory) -> LongRun:
    """The ledger of the long run."""
    folder = once(factory, "staged-long-run", _make_long_run)
    log = factory.mktemp("long-run") / "server.log"
    return LongRun(UUID((folder / "run").read_text()), Served(folder / "runs.db", log))


def _make_long_run(folder: Path) -> None:
    run, coming = new_run_id(), islice(troubled(), LONG)
    with Ledger.open(folder / "runs.db") as ledger:
        while batch := list(islice(coming, BATCH)):
            ledger.append(run, batch, ANY)
    (folder / "run").write_text(str(run))


def troubled() -> Iterator[Event]:
    """A long run whose workers die: some calls are in doubt, a person decides, and it goes on."""
    failed = attempt = 0
    for version, event in enumerate(long_run(LONG), 1):
        if isinstance(event, ToolCallFailed):
            failed += 1
            if failed % DOUBTED == 0:
                attempt += 1
                yield from _interrupted(event, attempt, version)
        yield event


def _interrupted(event: ToolCallFailed, attempt: int, version: int) -> Iterator[Event]:
    yield ToolCallInDoubt(
        evaluation_id=event.evaluation_id,
        call_id=event.call_id,
        name=event.name,
        reason="its worker died",
    )
    yield ToolCallDecided(
        call_id=event.call_id, decision="failed", text="It did not happen.", decided_by="ann"
    )
    yield RunResumed(attempt=attempt, from_version=version)


@dataclass(frozen=True)
class HostileLedger:
    """A ledger of runs with hostile texts; it is not copied: only read it."""

    runs: HostileRuns
    # How many events the run of large values has.
    large: int
    served: Served


def staged_hostile(factory: pytest.TempPathFactory) -> HostileLedger:
    """The ledger of hostile texts."""
    folder = once(factory, "staged-hostile", make_hostile)
    runs = msgspec.json.decode((folder / "runs.json").read_bytes(), type=HostileRuns)
    with Ledger.open(folder / "runs.db") as ledger:
        large = ledger.run(runs.large).version
    log = factory.mktemp("hostile") / "server.log"
    return HostileLedger(runs, large, Served(folder / "runs.db", log))
