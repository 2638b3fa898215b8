"""Blobs in a store: in exports and backups, and what verify finds of a damaged one."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import PICTURE, custom, note, replied, showing
from turnledger.ledger import (
    ANY,
    NEW,
    Event,
    IntegrityFailureError,
    Ledger,
    back_up,
    blob_name,
    export_runs,
    import_runs,
    new_run_id,
)


@pytest.mark.parametrize("naming", [custom, replied])
def test_blobs_that_only_a_custom_event_or_a_reply_names_are_kept(
    store: StoreUnderTest, naming: Callable[[bytes], Event], tmp_path: Path
) -> None:
    """An export, an import and a backup have them; an import that lacks one is refused."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, [naming(PICTURE), naming(b"")], NEW, blobs=[PICTURE, b""])
    file = BytesIO()
    assert export_runs(ledger, file, [run]).blobs == 2
    assert back_up(ledger, tmp_path / "copy.db").records == 2
    with Ledger.open("memory://") as imported, Ledger.open(tmp_path / "copy.db") as copy:
        import_runs(imported, BytesIO(file.getvalue()))
        for other in (imported, copy):
            assert other.blob(blob_name(PICTURE)) == PICTURE
            assert other.blob(blob_name(b"")) == b""
            assert [r.event for r in other.read(run)] == [naming(PICTURE), naming(b"")]
            assert (other.verify_all().ok, other.verify_all().blobs) == (True, 2)
    lines = file.getvalue().splitlines(keepends=True)
    without = [line for line in lines if not line.startswith(b'{"blob"')]
    assert len(without) == len(lines) - 2
    with Ledger.open("memory://") as imported:
        with pytest.raises(IntegrityFailureError, match="blob"):
            import_runs(imported, BytesIO(b"".join(without)))
        assert list(imported.runs()) == []


def damaged(store: StoreUnderTest, naming: Callable[[bytes], Any] = showing) -> tuple[Ledger, UUID]:
    ledger = store.open()
    run = new_run_id()
    ledger.append(run, note(), NEW)
    ledger.append(run, naming(PICTURE), ANY, blobs=[PICTURE])
    ledger.append(run, note(), ANY)
    assert ledger.verify_all().ok
    return ledger, run


@pytest.mark.parametrize("naming", [showing, custom])
@pytest.mark.parametrize("how", ["changed", "removed", "emptied", "text"])
def test_verify_finds_a_blob_that_was_changed_or_removed(
    store: StoreUnderTest, how: str, naming: Callable[[bytes], Any]
) -> None:
    """It names the record that refers to the blob, and the blob."""
    ledger, run = damaged(store, naming)
    name = blob_name(PICTURE)
    if how == "removed":
        store.vandal.delete_blob(name)
    else:
        content = {"changed": PICTURE[:-1] + b"?", "emptied": b"", "text": "text"}[how]
        store.vandal.change_blob(name, content)
    for report in (ledger.verify(run), ledger.verify_all()):
        assert not report.ok
        problem = report.problems[0]
        assert (problem.run_id, problem.version) == (str(run), 2)
        assert name in problem.what
