"""The order of runs in an export, and what long lines of forks and continuations cost."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.conformance.samples import note, notes
from tests.unit.ledger.export_files import Forger, export, family, parsed, take
from turnledger.ledger import (
    NEW,
    IntegrityFailureError,
    Ledger,
    RunStarted,
    SystemClock,
    import_runs,
    new_run_id,
)
from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.transfer.validate import Lineages


class Stepping(SystemClock):
    """A clock that can be set back, as on another machine or when it is corrected."""

    back = 0

    def micros(self) -> int:
        return super().micros() - self.back


@pytest.fixture
def clock() -> Stepping:
    return Stepping()


@pytest.fixture
def source(clock: Stepping) -> Iterator[Ledger]:
    with Ledger.open(f"memory://{uuid4()}", clock=clock) as ledger:
        yield ledger


def order(content: bytes) -> list[str]:
    runs = [line["run_id"] for line in parsed(content) if "run_id" in line]
    return list(dict.fromkeys(runs))


def test_a_parent_goes_before_its_child_whatever_the_clock_said(
    source: Ledger, clock: Stepping
) -> None:
    """A clock that stepped back made the child older than its parent; the file is taken."""
    run = new_run_id()
    for version in range(5):
        source.append(run, note(version), version)
    parent = source.fork(run, 4)
    clock.back = 60_000_000
    child = source.fork(parent, 3)
    grandchild = source.fork(child, 4)
    assert source.run(grandchild).started_at < source.run(parent).started_at
    content = export(source)
    assert order(content) == [str(one) for one in (run, parent, child, grandchild)]
    with Ledger.open("memory://") as copy:
        assert take(copy, content).runs == 4
        assert export(copy) == content
    assert export(source, grandchild) == content


def test_runs_go_by_their_beginning_where_they_can(source: Ledger, clock: Stepping) -> None:
    """Else the order is what it always was: by time, then by id."""
    runs = family(source) + family(source)
    assert order(export(source)) == [str(run) for run in runs]
    clock.back = 60_000_000
    early = new_run_id()
    source.append(early, note(), NEW)
    child = source.fork(runs[0], 3)
    assert order(export(source)) == [str(run) for run in (early, runs[0], child, *runs[1:])]


def test_a_parent_that_grew_while_it_was_looked_up_is_taken_as_far_as_its_child_needs(
    source: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child was made from a version that came after the parent had been looked at."""
    run, child = new_run_id(), new_run_id()
    source.append(run, note(), NEW)
    look_up = source.store.run

    def overtaken(run_id: str) -> RunRow | None:
        found = look_up(run_id)
        if run_id == str(run) and found is not None and found.version == 1:
            source.append(run, note(), 1)
            source.fork(run, 2, child=child)
        return found

    monkeypatch.setattr(source.store, "run", overtaken)
    content = export(source, run, child)
    with Ledger.open("memory://") as copy:
        assert take(copy, content).records == 3


@pytest.mark.parametrize(
    "damage",
    [{"version": "x"}, {"parent_version": "x"}, {"started_at": b"\0"}, {"parent": "itself"}],
)
@pytest.mark.parametrize("everything", [True, False])
def test_a_damaged_index_is_an_error_with_a_name(
    source: Ledger, monkeypatch: pytest.MonkeyPatch, damage: dict[str, Any], everything: bool
) -> None:
    """Whatever stands in a column of the index, and wherever a run is said to come from."""
    run = new_run_id()
    source.append(run, notes(2), NEW)
    child = source.fork(run, 2)
    if "parent" in damage:
        damage = {"parent": str(child)}
    look_up, list_up = source.store.run, source.store.list_runs

    def damaged(row: RunRow) -> RunRow:
        own = {name: getattr(row, name) for name in row.__struct_fields__}
        return RunRow(**(own | damage)) if row.run_id == str(run) else row

    def run_(run_id: str) -> RunRow | None:
        found = look_up(run_id)
        return None if found is None else damaged(found)

    monkeypatch.setattr(source.store, "run", run_)
    monkeypatch.setattr(source.store, "list_runs", lambda q: [damaged(r) for r in list_up(q)])
    with pytest.raises(IntegrityFailureError, match=f"{run}|{child}"):
        export(source, *([] if everything else [child]))


# --- long lines ------------------------------------------------------------------------------


def walked(origin: dict[str, tuple[str, int]], run: str, version: int) -> str:
    """The owner of a version, found step by step."""
    while run in origin and version <= origin[run][1]:
        run = origin[run][0]
    return run


@pytest.mark.parametrize("seed", range(20))
def test_owners_are_those_that_a_walk_finds(seed: int) -> None:
    """In trees of every shape, for every run and version."""
    dice = random.Random(seed)
    lineages, origin, last = Lineages(), dict[str, tuple[str, int]](), {"0": 3}
    lineages.add("0")
    for number in range(1, 60):
        parent = dice.choice((str(number - 1), str(dice.randrange(number))))
        at = dice.choice((last[parent], dice.randint(1, last[parent])))
        lineages.add(str(number), parent, at)
        origin[str(number)] = (parent, at)
        last[str(number)] = at + dice.randint(1, 3)
    for run, end in last.items():
        for version in range(1, end + 1):
            assert lineages.owner(run, version) == walked(origin, run, version)


class Counted(dict[str, Any]):
    """A dictionary that knows how often it was asked."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


def forks_of_forks(lineages: Lineages, length: int) -> None:
    lineages.add("0")
    for number in range(1, length):
        lineages.add(str(number), str(number - 1), 1)


def continuations(lineages: Lineages, length: int) -> None:
    lineages.add("0")
    for number in range(1, length):
        lineages.add(str(number), str(number - 1), number)


def forks_of_a_long_line(lineages: Lineages, length: int) -> None:
    continuations(lineages, length)
    for number in range(length):
        lineages.add(f"fork {number}", str(length - 1), 1 + number // 2)


@pytest.mark.parametrize("build", [forks_of_forks, continuations, forks_of_a_long_line])
def test_a_long_line_is_not_walked(build: Callable[[Lineages, int], None]) -> None:
    """A thousand times as long, a line costs a thousand times as much and a little more."""
    lineages = Lineages()
    runs = lineages._runs = Counted()
    build(lineages, 20_000)
    assert runs.asked < 30 * len(lineages)


def test_a_long_line_of_continuations_is_exported_by_reading_it_once(
    source: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each run there are a few reads, however many runs it descends from."""
    run: UUID = new_run_id()
    source.append(run, note(), NEW)
    for version in range(1, 200):
        child = new_run_id()
        source.append(child, RunStarted(parent=run, at=version, kind="continuation"), NEW)
        run = child
    reads = 0

    def counted(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **more: Any) -> Any:
            nonlocal reads
            reads += 1
            return read(*args, **more)

        return reading

    for name in ("run", "rows", "list_runs"):
        monkeypatch.setattr(source.store, name, counted(getattr(source.store, name)))
    content = export(source)
    assert reads < 3 * 200
    with Ledger.open("memory://") as copy:
        assert take(copy, content).runs == 200


def test_a_long_line_of_forks_is_taken() -> None:
    """Each goes on from the first record, through all the others."""
    forger, parent = Forger(), new_run_id()
    first = forger.note(parent, 1)
    for _ in range(500):
        child = new_run_id()
        forger.fork(child, parent, 1, first)
        parent = child
    with Ledger.open("memory://") as ledger:
        assert import_runs(ledger, io.BytesIO(forger.file)).runs == 501
        assert ledger.head(parent) == 2
