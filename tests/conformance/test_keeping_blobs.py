"""Blobs: bytes beside the events, stored once, with the event that names them."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import PICTURE, message, note
from turnledger.ledger import (
    ANY,
    NEW,
    BlobNotFoundError,
    ConcurrentAppendError,
    CustomEvent,
    Event,
    IntegrityFailureError,
    InvalidInputError,
    Ledger,
    MediaContent,
    ModelReplied,
    ResourceSnapshotted,
    back_up,
    blob_name,
    export_runs,
    import_runs,
    new_run_id,
)


def custom(content: bytes) -> CustomEvent:
    return CustomEvent(kind="acme.scan", data={"n": 1}, blobs=(blob_name(content),))


def replied(content: bytes) -> ModelReplied:
    return ModelReplied(evaluation_id="", turn=0, call_id="ask#1", blobs=(blob_name(content),))


def showing(content: bytes) -> object:
    return message(parts=(MediaContent("image", blob=blob_name(content)),))


def test_a_blob_is_stored_with_the_event_that_names_it(ledger: Ledger) -> None:
    """Its name is the hash of its bytes."""
    run = new_run_id()
    ledger.append(run, showing(PICTURE), NEW, blobs=[PICTURE])  # type: ignore[arg-type]
    assert ledger.blob(blob_name(PICTURE)) == PICTURE


@pytest.mark.parametrize("content", [b"", b"\x00", bytes(range(256)) * 500])
def test_any_bytes_are_kept_as_they_are(ledger: Ledger, content: bytes) -> None:
    """Empty, NUL, large."""
    files = ResourceSnapshotted(resource="fs", files={"f": blob_name(content)})
    ledger.append(new_run_id(), files, NEW, blobs=[content])
    assert ledger.blob(blob_name(content)) == content


def test_a_blob_that_is_not_there_is_refused(ledger: Ledger) -> None:
    """The error names the blob and what to do; nothing is written, in no part of a batch."""
    run = new_run_id()
    for event in (
        showing(PICTURE),
        ResourceSnapshotted(resource="fs", files={"a": blob_name(PICTURE)}),
        custom(PICTURE),
        replied(PICTURE),
        CustomEvent(kind="acme.scan", blobs=(blob_name(b"another"), blob_name(PICTURE))),
    ):
        with pytest.raises(BlobNotFoundError, match="blobs=") as caught:
            ledger.append(run, [note(), event], NEW, blobs=[b"another"])  # type: ignore[list-item]
        assert caught.value.name == blob_name(PICTURE)
    assert ledger.head(run) == 0
    with pytest.raises(BlobNotFoundError):
        ledger.blob(blob_name(b"another"))


def test_a_blob_that_is_there_need_not_be_handed_in_again(store: StoreUnderTest) -> None:
    """It is stored once, for all runs and handles."""
    one, other = store.open(), store.open()
    one.append(new_run_id(), showing(PICTURE), NEW, blobs=[PICTURE])  # type: ignore[arg-type]
    other.append(new_run_id(), showing(PICTURE), NEW)  # type: ignore[arg-type]
    other.append(new_run_id(), showing(PICTURE), NEW, blobs=[PICTURE, PICTURE])  # type: ignore[arg-type]
    assert list(one.store.blob_names()) == [blob_name(PICTURE)]
    assert one.verify_all().blobs == 1


def test_a_refused_append_leaves_no_blob(ledger: Ledger) -> None:
    """Blobs are part of the append's transaction."""
    run = new_run_id()
    with pytest.raises(ConcurrentAppendError):
        ledger.append(run, showing(PICTURE), 5, blobs=[PICTURE])  # type: ignore[arg-type]
    assert list(ledger.store.blob_names()) == []


def test_an_unknown_blob_is_an_error(ledger: Ledger) -> None:
    """Whatever its name looks like."""
    for name in (blob_name(b"?"), "", "sha256:", "no such thing", "x" * 5000, "a\x00b"):
        with pytest.raises(BlobNotFoundError):
            ledger.blob(name)


@pytest.mark.parametrize("bad", ["text", 7, None, bytearray(b"x"), [1]])
def test_a_blob_is_bytes(ledger: Ledger, bad: object) -> None:
    """Anything else is refused and nothing is written."""
    run = new_run_id()
    with pytest.raises(InvalidInputError, match="bytes"):
        ledger.append(run, note(), NEW, blobs=[bad])  # type: ignore[list-item]
    assert ledger.head(run) == 0


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
