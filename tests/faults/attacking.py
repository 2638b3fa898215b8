"""The attack on recovery, in numbered rounds: `python -m tests.faults.attacking --help`.

A round damages one place of a ledger with interrupted runs and does what an operator does then,
in random order: recover all, rebuild the index, recover each run, and once more. It is judged by
the bank (no effect of a tool that asks or fails is repeated), by the errors (the project's own)
and by an undamaged copy: each run that was not damaged ends, or waits, as it does there.
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import psycopg

from tests.faults.damage import Damage, PostgresVandal, SqliteVandal, Vandal
from tests.faults.interrupted import Bank, Payer, Run, Scene, SeededClock, repeated
from tests.postgres import new_database
from turnledger.ledger import Ledger, LostRecordsError, TurnledgerError
from turnledger.projections import state_at

# A scene is attacked so often, each time a copy of it.
ROUNDS_OF_A_SCENE = 10
# Later than all that a scene records.
LATER = 1_767_400_000_000_000
# In memory, where there is such a place: nothing here is about disks.
FAST = Path("/dev/shm")
STORED = ("events", "runs", "run_tags", "blobs", "leases", "shelves", "shelf_rows")
# How a run ended: its status, that in the index, and the digest of its outcome.
End = tuple[str, str, str]


class Place(ABC):
    """Where one ledger is at a time: made, kept, damaged, and put back as it was."""

    url: str
    # Whether each recovery opens the ledger again, or each operation: that costs some places more.
    opens_often: ClassVar[bool]

    @abstractmethod
    def empty(self) -> None:
        """Make room for another ledger."""

    @abstractmethod
    def keep(self) -> None:
        """Keep a copy of the ledger, which nobody has open."""

    @abstractmethod
    def restore(self) -> None:
        """Put the copy back in place of the ledger."""

    @abstractmethod
    def vandal(self) -> Vandal: ...


class File(Place):
    """SQLite, in a folder that has nothing else."""

    opens_often = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "ledger"
        self._kept = folder / "kept.db"
        self.url = str(self._folder / "runs.db")

    def empty(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()

    def keep(self) -> None:
        shutil.copy(self.url, self._kept)

    def restore(self) -> None:
        self.empty()
        shutil.copy(self._kept, self.url)

    def vandal(self) -> Vandal:
        return SqliteVandal(Path(self.url))


class Database(Place):
    """PostgreSQL, with the copy in a schema of its own."""

    opens_often = False

    def __init__(self, url: str) -> None:
        self.url = url
        with Ledger.open(url):
            self._do("CREATE SCHEMA kept")
            for table in STORED:
                self._do(f"CREATE TABLE kept.{table} AS TABLE {table}")

    def empty(self) -> None:
        self._do(*(f"DELETE FROM {table}" for table in STORED))

    def keep(self) -> None:
        for table in STORED:
            self._do(f"DELETE FROM kept.{table}", f"INSERT INTO kept.{table} TABLE {table}")

    def restore(self) -> None:
        self.empty()
        self._do(*(f"INSERT INTO {table} TABLE kept.{table}" for table in STORED))

    def vandal(self) -> Vandal:
        return PostgresVandal(self.url)

    def _do(self, *statements: str) -> None:
        with psycopg.connect(self.url) as db:
            db.execute("SET session_replication_role = replica")
            for statement in statements:
                db.execute(statement.encode())


# --- the operator -------------------------------------------------------------------------


class Operator:
    """Does what is done with a ledger after an outage; each time it is opened again."""

    def __init__(self, place: Place, runs: list[Run], bank: Bank) -> None:
        self.bank = bank
        self.problems: list[str] = []
        self.figures: Counter[str] = Counter()
        # Runs that were recovered, or tried to.
        self.tried: set[str] = set()
        # Runs whose lost records were given up: they are parked.
        self.given_up: set[str] = set()
        self._place = place
        self._runs = runs
        self._clock = SeededClock("operator", LATER)

    @contextmanager
    def _typed(self, what: str) -> Iterator[None]:
        """Errors of the project are an answer; all others are problems."""
        try:
            yield
        except TurnledgerError as error:
            self.figures["refusals"] += 1
            self.answer: Exception | None = error
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.name}"
            said = f"{type(error).__name__} in {place}: {error}"
            self.problems.append(f"untyped error: {what}: {said}")
            self.answer = error
        else:
            self.answer = None

    def recover_all(self) -> set[str] | None:
        """As `turnledger recover --all`: the runs that were listed; None if that failed."""
        listed: set[str] | None = None
        with self._typed("recover --all"), self._open() as ledger:
            found = [str(run.run_id) for run in Payer(ledger, self.bank).list_recoverable()]
            listed = set(found)
            for run in found:
                self._recover(ledger, run)
        return listed

    def recover_each(self, runs: list[Run]) -> None:
        for some in [[run] for run in runs] if self._place.opens_often else [runs]:
            with self._typed("open"), self._open() as ledger:
                for run in some:
                    self._recover(ledger, str(run.id))

    def rebuild(self) -> bool:
        with self._typed("rebuild-index"), self._open() as ledger:
            ledger.rebuild_index()
        return self.answer is None

    def accept_loss(self) -> bool:
        """As `rebuild-index --accept-loss` with each run that the last attempt named."""
        named = self.answer.runs if isinstance(self.answer, LostRecordsError) else ()
        for run in named:
            with self._typed("rebuild-index --accept-loss"), self._open() as ledger:
                ledger.rebuild_index([run])
        self.given_up.update(named)
        return bool(named) and self.rebuild()

    def ends(self) -> dict[str, End | str]:
        """How each run ended, or what reading it says."""
        found: dict[str, End | str] = {str(run.id): "not read" for run in self._runs}
        with self._typed("open"), self._open() as ledger:
            for name in found:
                with self._typed("reading"):
                    state = state_at(ledger, name)
                    status = ledger.run(name).status
                    found[name] = (state.summary.status, status, state.outcome_digest)
                if self.answer is not None:
                    found[name] = f"{type(self.answer).__name__}: {self.answer}"
        return found

    def _recover(self, ledger: Ledger, run: str) -> None:
        self.tried.add(run)
        titles = {str(one.id): one.order.title for one in self._runs}
        with self._typed("recover"):
            Payer(ledger, self.bank, titles.get(run, "")).resume(run)
            self.figures["recovered"] += 1

    def _open(self) -> Ledger:
        return Ledger.open(self._place.url, clock=self._clock, create=False, wait=5.0)


# --- the attack ---------------------------------------------------------------------------


class Expected(NamedTuple):
    """A scene, and what becomes of it without damage."""

    runs: list[Run]
    bank: Bank
    listed: set[str]
    ends: dict[str, Any]
    problems: list[str]


class Attack:
    """Rounds by number; figures and problems of each are its own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._scene = -1
        self._expected: Expected | None = None

    def round(self, number: int, *, damaged: bool = True) -> tuple[list[str], Counter[str]]:
        """What is wrong, and figures. Without damage nothing can be wrong but the attack itself."""
        expected = self._prepared(number // ROUNDS_OF_A_SCENE)
        dice = Random(f"attack {number}")
        self._place.restore()
        damage = self._place.vandal().harm(dice) if damaged else Damage("nothing", "", ())
        operator = Operator(self._place, expected.runs, Counter(expected.bank))
        done = _operate(dice, operator, expected, damage)
        problems = [*expected.problems, *operator.problems]
        operator.figures.update(attacks=1, **{f"damaged {damage.table}": 1})
        return [f"round {number}, {damage.what}; {done}: {one}" for one in problems], (
            operator.figures
        )

    def _prepared(self, scene: int) -> Expected:
        if self._scene != scene or self._expected is None:
            self._expected = self._prepare(scene)
            self._scene = scene
        return self._expected

    def _prepare(self, number: int) -> Expected:
        url = self._place.url
        self._place.empty()
        scene = Scene(number, lambda clock: Ledger.open(url, clock=clock))
        self._place.keep()
        operator = Operator(self._place, scene.runs, Counter(scene.bank))
        listed = operator.recover_all()
        for _ in range(2):
            operator.recover_each(scene.runs)
        ends = operator.ends()
        problems = operator.problems + repeated(scene.runs, operator.bank)
        problems += [f"{run}: {end}" for run, end in ends.items() if isinstance(end, str)]
        told = [f"without damage: {problem}" for problem in problems]
        return Expected(scene.runs, scene.bank, listed or set(), ends, told)


def _operate(dice: Random, operator: Operator, expected: Expected, damage: Damage) -> str:
    """What an operator does, in random order; all runs are recovered twice at the end."""
    healthy = undamaged(expected.runs, damage)
    steps = ["all", "rebuild", "each", *dice.choices(("all", "rebuild", "each"), k=2)]
    dice.shuffle(steps)
    given_up = operator.given_up
    steps = [*steps[: dice.randint(0, len(steps))], "all", "each"]
    for step in steps:
        if step == "all":
            _check_listing(operator, expected, healthy)
        elif step == "each":
            operator.recover_each(dice.sample(expected.runs, len(expected.runs)))
        elif operator.rebuild() or (dice.random() < 0.5 and operator.accept_loss()):
            operator.problems += [f"healthy run {run}: is lost" for run in healthy & given_up]
            if is_of_the_index(damage):
                healthy = {str(run.id) for run in expected.runs}
            healthy -= given_up
        elif is_of_the_index(damage) and (damage.table == "run_tags" or not damage.added):
            operator.problems.append(f"rebuild-index: does not repair it: {operator.answer}")
    operator.problems += [f"repeated: {one}" for one in repeated(expected.runs, operator.bank)]
    ends = operator.ends()
    for run in sorted(healthy):
        operator.figures["healthy"] += 1
        if ends[run] != expected.ends[run]:
            told = f"healthy run {run}: ended as {ends[run]}, expected {expected.ends[run]}"
            operator.problems.append(told)
    return ", ".join(steps)


def _check_listing(operator: Operator, expected: Expected, healthy: set[str]) -> None:
    """Each healthy run that waits for a recovery is listed, whatever became of the others."""
    wanted = (expected.listed & healthy) - operator.tried
    listed = operator.recover_all()
    if listed is None and wanted:
        said = f"{type(operator.answer).__name__}: {operator.answer}"
        operator.problems.append(f"recover --all: stopped: {said}")
    elif listed is not None and wanted - listed:
        operator.problems.append(f"recover --all: does not list {sorted(wanted - listed)}")


def is_of_the_index(damage: Damage) -> bool:
    """Whether rows were damaged that are rebuilt from the events."""
    return damage.table in ("runs", "run_tags") and damage.removed is not None


def undamaged(runs: list[Run], damage: Damage) -> set[str]:
    """The runs that have, and share with their ancestors, no row that was damaged."""
    if damage.removed is None:
        return set()
    rows = [*damage.removed, *damage.added]
    hit = _hit_by_blobs(runs, rows) if damage.table == "blobs" else _hit(rows, damage.table)
    return {str(run.id) for run in runs if not _is_hit(run, hit, damage.table)}


def _hit(rows: list[dict[str, Any]], table: str) -> dict[str, int]:
    """The runs that rows belong to, each with the lowest version that is damaged."""
    hit: dict[str, int] = {}
    for row in rows:
        version = row["version"] if table == "events" else 0
        lowest = version if isinstance(version, int) else 0
        run = str(row["run_id"])
        hit[run] = min(lowest, hit.get(run, lowest))
    return hit


def _is_hit(run: Run, hit: dict[str, int], table: str) -> bool:
    if table == "run_tags":
        return str(run.id) in hit
    return any(
        ancestor in hit and (until is None or hit[ancestor] <= until)
        for ancestor, until in run.shares()
    )


def _hit_by_blobs(runs: list[Run], rows: list[dict[str, Any]]) -> dict[str, int]:
    """All runs of the orders that blobs are of: a fork may come to hold what its parent does."""
    contents = [str(row["content"]) for row in rows]
    return {
        str(run.id): 0
        for run in runs
        if any(f'"{run.order.title}"' in content for content in contents)
    }


# --- by hand ------------------------------------------------------------------------------


@contextmanager
def file() -> Iterator[File]:
    """A SQLite ledger in memory, where there is such a place."""
    where = FAST if FAST.is_dir() else None
    with TemporaryDirectory(prefix="attack-", dir=where) as folder:
        yield File(Path(folder))


def kind_of(problem: str) -> str:
    """A problem's class: the table, what was done to it, and what was wrong, without ids."""
    found = re.match(r"round \d+, (\w+): (\w+).*?; [a-z, ]+: (.*)", problem, re.DOTALL)
    if found is None:
        return problem
    wrong = re.sub(r"[0-9a-f-]{36}|o\d+x?(\.\d)+|\d+", "*", found[3])
    return f"{found[1]} {found[2]}: {wrong:.80}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.attacking")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--intact", action="store_true", help="damage nothing")
    given = parser.parse_args()
    logging.disable()  # what is refused is also logged
    figures: Counter[str] = Counter()
    problems: list[str] = []

    def run(place: Place) -> None:
        attack = Attack(place)
        for number in range(given.first, given.first + given.rounds):
            found, counted = attack.round(number, damaged=not given.intact)
            problems.extend(found)
            figures.update(counted)

    if given.postgresql:
        run(Database(new_database()))
    else:
        with file() as place:
            run(place)
    print("\n".join(problems))
    print("\n".join(f"{n:>6} {kind}" for kind, n in Counter(map(kind_of, problems)).most_common()))
    print(dict(figures))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
