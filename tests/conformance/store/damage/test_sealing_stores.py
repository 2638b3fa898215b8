"""A seal on every store: it fits what grew, and finds what the chain alone can't."""

from __future__ import annotations

import io
from pathlib import Path
from threading import Thread
from uuid import UUID

import pytest

from tests.conformance.forging import cut, paid, remove, rewrite, small_book
from tests.conformance.harness import STORES, StoreUnderTest, store_under_test
from turnledger.ledger import ANY, IntegrityFailureError, Ledger, export_runs, import_runs
from turnledger.ledger.integrity.seal import Seal, check_seal, make_seal

NOW = 1_700_000_000_000_000


class Scene:
    """A sealed ledger, with a vandal at it."""

    def __init__(self, store: StoreUnderTest) -> None:
        self.ledger = store.open()
        self.runs = small_book(self.ledger)
        self.vandal = store.vandal
        self.seal = make_seal(self.ledger, NOW)

    def found(self) -> list[tuple[str, int | None, str]]:
        """What the seal finds once the index agrees with the records, and verify finds nothing."""
        self.ledger.rebuild_index()
        assert self.ledger.verify_all().ok
        report = check_seal(self.ledger, self.seal)
        return [(p.run_id, p.version, p.what.rpartition(": ")[2]) for p in report.problems]


@pytest.fixture
def scene(store: StoreUnderTest) -> Scene:
    return Scene(store)


def heads(seal: Seal) -> dict[UUID, int]:
    return {UUID(head.run_id): head.version for head in seal.heads}


def test_a_seal_has_the_head_of_every_run(scene: Scene) -> None:
    """Sorted by run, with what the index says, and it fits."""
    seal, runs = scene.seal, scene.runs
    assert heads(seal) == {
        runs["first"]: 4,
        runs["other"]: 2,
        runs["fork"]: 5,
        runs["nested"]: 4,
    }
    assert [head.run_id for head in seal.heads] == sorted(map(str, runs.values()))
    assert (seal.runs, seal.events) == (4, 10)
    assert seal.position == max(row.position for row in scene.vandal.rows())
    for head in seal.heads:
        assert head.digest == scene.ledger.run(head.run_id).digest
    report = check_seal(scene.ledger, seal)
    assert (report.ok, report.records) == (True, 10)


def test_a_ledger_that_grew_fits_its_seal(scene: Scene) -> None:
    """Longer runs and new ones are as it should be."""
    for run in scene.runs.values():
        scene.ledger.append(run, paid(7), ANY)
    small_book(scene.ledger)
    assert scene.found() == []


def test_an_empty_ledger_can_be_sealed(ledger: Ledger) -> None:
    """The seal says that there was nothing, and everything fits that."""
    seal = make_seal(ledger, NOW)
    assert (seal.runs, seal.events, seal.position, seal.heads) == (0, 0, 0, [])
    small_book(ledger)
    assert check_seal(ledger, seal).ok


def test_a_cut_tail_is_found(scene: Scene) -> None:
    """The run is named with the first version that is gone."""
    run = scene.runs["other"]
    cut(scene.vandal, run, 1)
    assert scene.found() == [(str(run), 2, "cut")]


def test_a_removed_run_is_found(scene: Scene) -> None:
    """Even with its row in the index gone."""
    run = scene.runs["other"]
    remove(scene.vandal, run)
    assert scene.found() == [(str(run), 2, "removed")]


def test_a_removed_end_of_the_ledger_is_found_and_its_position_noted(scene: Scene) -> None:
    """Nothing of the last run is left: the run is the problem, the lower position a note."""
    run = scene.runs["nested"]
    remove(scene.vandal, run)
    assert scene.found() == [(str(run), 4, "removed")]
    (note,) = check_seal(scene.ledger, scene.seal).notes
    assert "records are missing, or this is an imported copy" in note


def test_a_rewritten_whole_is_found(scene: Scene) -> None:
    """Every run whose sealed history is another is named, though all digests fit."""
    rewrite(scene.vandal, b'"cents":20,', b'"cents":21,')
    changed = sorted(str(scene.runs[name]) for name in ("first", "fork"))
    assert [(run, what) for run, _, what in scene.found()] == [
        (run, "rewritten") for run in changed
    ]


def test_a_rewritten_run_that_grew_is_found(scene: Scene) -> None:
    """What came after the seal does not hide what was before it."""
    scene.ledger.append(scene.runs["other"], paid(8), ANY)
    rewrite(scene.vandal, b'"cents":4000,', b'"cents":4001,')
    assert scene.found() == [(str(scene.runs["other"]), 2, "rewritten")]


def test_a_forgery_after_the_seal_is_not_its_matter(scene: Scene) -> None:
    """A seal speaks of what was there when it was made, and of nothing later."""
    scene.ledger.append(scene.runs["other"], paid(8), ANY)
    rewrite(scene.vandal, b'"cents":8,', b'"cents":9,')
    assert scene.found() == []


def test_a_hole_at_the_sealed_version_is_found(scene: Scene) -> None:
    """The chain misses the record, and so does the seal."""
    run = scene.runs["other"]
    scene.ledger.append(run, paid(8), ANY)
    scene.vandal.delete(scene.vandal.at(run, 2).position)
    problems = check_seal(scene.ledger, scene.seal).problems
    assert [(p.run_id, p.version) for p in problems] == [(str(run), 2)] * 2
    assert "seal" in problems[1].what


@pytest.mark.parametrize("column", ["version", "digest"])
def test_damage_is_not_sealed(scene: Scene, column: str) -> None:
    """Where the index and the records part, there is no seal but an error."""
    run = scene.runs["first"]
    scene.vandal.change_run(run, column, {"version": 9, "digest": bytes(32)}[column])
    with pytest.raises(IntegrityFailureError, match=str(run)):
        make_seal(scene.ledger, NOW)


def test_seals_made_while_others_append_fit(store: StoreUnderTest) -> None:
    """Each run is taken as it is when it is looked at, and nothing of that is ever undone."""
    ledger, writing = store.open(), store.open()
    small_book(ledger)
    writer = Thread(target=lambda: [small_book(writing) for _ in range(10)])
    writer.start()
    seals = [make_seal(ledger, NOW)]
    while writer.is_alive():
        seals.append(make_seal(ledger, NOW))
    writer.join()
    seals.append(make_seal(ledger, NOW))
    assert (seals[0].runs >= 4, seals[-1].runs) == (True, 44)
    for seal in {seal.root: seal for seal in seals}.values():
        assert check_seal(ledger, seal).ok


@pytest.mark.parametrize("target", STORES)
def test_a_copy_has_the_same_root(scene: Scene, target: str, tmp_path: Path) -> None:
    """Heads do not depend on the store: the seal fits, and a lower position is no problem."""
    file = io.BytesIO()
    export_runs(scene.ledger, file)
    file.seek(0)
    with store_under_test(target, tmp_path) as other:
        copy = other.open()
        import_runs(copy, file)
        theirs = make_seal(copy, NOW)
        assert theirs.root == scene.seal.root
        report = check_seal(copy, scene.seal)
        assert report.ok
        lower = theirs.position < scene.seal.position
        assert [note.endswith("this is an imported copy") for note in report.notes] == [
            True
        ] * lower
