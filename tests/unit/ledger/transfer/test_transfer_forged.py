"""Forged files: all digests fit, made with a seal and without its key."""

from __future__ import annotations

import io
from pathlib import Path
from uuid import UUID

import pytest

from tests.conformance.samples import note, notes
from tests.unit.ledger.export_files import Forger, export
from turnledger.ledger import (
    NEW,
    ImportReport,
    IntegrityFailureError,
    Ledger,
    PromptOverrideCleared,
    export_runs,
    import_runs,
    new_run_id,
    prompt_stream_id,
)
from turnledger.ledger.integrity.seal import Seal, check_seal, make_seal
from turnledger.ledger.integrity.signing import new_key, read_public_key, read_signer

NOW = 1_700_000_000_000_000


class Sealed:
    """A ledger that is sealed: a run, a fork of its middle, and a fork of that."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        (folder / "public").write_bytes(new_key(folder / "key"))
        self.public_key = read_public_key(folder / "public")
        self.ledger = ledger
        self.run = new_run_id()
        ledger.append(self.run, notes(1), NEW)
        ledger.append(self.run, notes(2), 1)
        self.fork = ledger.fork(self.run, 1)
        self.later = ledger.fork(self.fork, 2)
        ledger.append(self.later, notes(2), 3)
        self.seal: Seal = make_seal(ledger, NOW, read_signer(folder / "key"))

    def export(self, *runs: UUID) -> bytes:
        return export(self.ledger, *runs, seal=self.seal)

    def take(self, target: Ledger, content: bytes) -> ImportReport:
        return import_runs(target, io.BytesIO(content), public_key=self.public_key)


@pytest.fixture
def sealed(tmp_path: Path, source: Ledger) -> Sealed:
    return Sealed(tmp_path, source)


@pytest.mark.parametrize("at", [3, 4, 9])
@pytest.mark.parametrize("records", [1, 3])
def test_a_sealed_run_can_not_begin_after_its_seal(
    sealed: Sealed, target: Ledger, at: int, records: int
) -> None:
    """As a fork of a run that no seal has, it would have no record that the seal speaks of."""
    forged, other = Forger(sealed.seal), new_run_id()
    digest = forged.note(other, 1)
    for version in range(2, at + 1):
        digest = forged.note(other, version, digest)
    digest = forged.fork(sealed.run, other, at, digest)
    for version in range(at + 2, at + 1 + records):
        digest = forged.note(sealed.run, version, digest)
    words = rf"line {at + records + 2}: run {sealed.run}.*version 3.*begins after it"
    with pytest.raises(IntegrityFailureError, match=words):
        sealed.take(target, forged.file)
    assert list(target.runs()) == []


def test_a_sealed_run_can_not_begin_after_its_seal_among_others(
    sealed: Sealed, target: Ledger
) -> None:
    """Not only the last run of a file is asked at its end."""
    forged, other = Forger(sealed.seal), new_run_id()
    digest = forged.note(other, 1)
    for version in (2, 3):
        digest = forged.note(other, version, digest)
    forged.fork(sealed.run, other, 3, digest)
    forged.note(new_run_id(), 1)
    with pytest.raises(IntegrityFailureError, match=rf"line 6: run {sealed.run}.*begins after"):
        sealed.take(target, forged.file)


def test_a_sealed_fork_can_not_hide_behind_another_parent(sealed: Sealed, target: Ledger) -> None:
    """Its head is its first own record: elsewhere, or as a run of its own, it is not that."""
    other = new_run_id()
    elsewhere = Forger(sealed.seal)
    digest = elsewhere.note(other, 1)
    digest = elsewhere.note(other, 2, digest)
    elsewhere.fork(sealed.fork, other, 2, digest)
    with pytest.raises(IntegrityFailureError, match="begins after"):
        sealed.take(target, elsewhere.file)
    same_place = Forger(sealed.seal)
    same_place.fork(sealed.fork, other, 1, same_place.note(other, 1))
    alone = Forger(sealed.seal)
    alone.note(sealed.fork, 2, alone.note(sealed.fork, 1))
    for forged in (same_place, alone):
        with pytest.raises(IntegrityFailureError, match="rewritten"):
            sealed.take(target, forged.file)
    assert list(target.runs()) == []


@pytest.mark.parametrize("grown", [False, True])
def test_forks_that_are_as_they_were_sealed_are_taken(
    sealed: Sealed, target: Ledger, grown: bool
) -> None:
    """A head that is a fork's first own record is found there, grown since or not."""
    if grown:
        sealed.ledger.append(sealed.fork, note(), 2)
    report = sealed.take(target, sealed.export())
    assert (report.sealed_runs, report.grown_runs, report.unsealed_runs) == (3, int(grown), 0)
    assert check_seal(target, sealed.seal).ok


def test_a_ledger_that_lost_a_sealed_run_is_not_exported_whole(
    sealed: Sealed, target: Ledger
) -> None:
    """Its runs by name are, and an import reports how many are missing."""
    sealed.take(target, sealed.export(sealed.run))
    out = io.BytesIO()
    words = rf"Run ({sealed.fork}|{sealed.later}) and 1 others are .*not in the ledger"
    with pytest.raises(IntegrityFailureError, match=words):
        export_runs(target, out, seal=sealed.seal)
    assert out.getvalue() == b""
    export_runs(target, out, [sealed.run], seal=sealed.seal)
    assert sealed.take(target, out.getvalue()).missing_runs == 2
    assert sealed.take(target, sealed.export()).missing_runs == 0
    export_runs(target, out, seal=sealed.seal)


# --- streams of prompts ---------------------------------------------------------------------------

CLEARED = {"prompt_ns": "n", "prompt_key": "k", "path": "p"}


def test_events_of_prompts_and_runs_are_not_taken_in_one_stream(target: Ledger) -> None:
    """Nor a prompt's in the stream of another, nor a fork of a prompt."""
    tag, prompt, run = PromptOverrideCleared.tag, prompt_stream_id("n", "k"), new_run_id()
    mixed, foreign, other, forked = Forger(), Forger(), Forger(), Forger()
    mixed.note(prompt, 2, mixed.record(prompt, 1, tag, CLEARED))
    foreign.record(run, 2, tag, CLEARED, foreign.note(run, 1))
    other.record(prompt_stream_id("n", "other"), 1, tag, CLEARED)
    forked.fork(run, prompt, 1, forked.record(prompt, 1, tag, CLEARED))
    for forged in (mixed, foreign, other):
        with pytest.raises(IntegrityFailureError, match="does not belong into this stream"):
            import_runs(target, io.BytesIO(forged.file))
    with pytest.raises(IntegrityFailureError, match="a prompt's stream"):
        import_runs(target, io.BytesIO(forked.file))
    assert list(target.tail()) == []
