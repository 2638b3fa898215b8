"""Blobs: bytes beside the events, stored once, with the event that names them."""

from __future__ import annotations

import pytest

from tests.conformance.ledger_like import LedgerLike
from tests.conformance.samples import PICTURE, custom, note, replied, showing
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    NEW,
    BlobNotFoundError,
    ConcurrentAppendError,
    CustomEvent,
    InvalidInputError,
    ResourceSnapshotted,
    blob_name,
    new_run_id,
)


def test_a_blob_is_stored_with_the_event_that_names_it(ledger: LedgerLike) -> None:
    """Its name is the hash of its bytes."""
    run = new_run_id()
    ledger.append(run, showing(PICTURE), NEW, blobs=[PICTURE])
    assert ledger.blob(blob_name(PICTURE)) == PICTURE


@pytest.mark.parametrize("content", [b"", b"\x00", bytes(range(256)) * 500])
def test_any_bytes_are_kept_as_they_are(ledger: LedgerLike, content: bytes) -> None:
    """Empty, NUL, large."""
    files = ResourceSnapshotted(resource="fs", files={"f": blob_name(content)})
    ledger.append(new_run_id(), files, NEW, blobs=[content])
    assert ledger.blob(blob_name(content)) == content


def test_a_blob_that_is_not_there_is_refused(ledger: LedgerLike) -> None:
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


def test_a_blob_that_is_there_need_not_be_handed_in_again(surface: Surface) -> None:
    """It is stored once, for all runs and handles."""
    one, other = surface.open(), surface.open()
    one.append(new_run_id(), showing(PICTURE), NEW, blobs=[PICTURE])
    other.append(new_run_id(), showing(PICTURE), NEW)
    other.append(new_run_id(), showing(PICTURE), NEW, blobs=[PICTURE, PICTURE])
    assert surface.verify_all().blobs == 1


def test_a_refused_append_leaves_no_blob(surface: Surface, ledger: LedgerLike) -> None:
    """Blobs are part of the append's transaction."""
    run = new_run_id()
    with pytest.raises(ConcurrentAppendError):
        ledger.append(run, showing(PICTURE), 5, blobs=[PICTURE])
    with pytest.raises(BlobNotFoundError):
        ledger.blob(blob_name(PICTURE))
    assert surface.verify_all().blobs == 0


def test_an_unknown_blob_is_an_error(ledger: LedgerLike) -> None:
    """Whatever its name looks like."""
    for name in (blob_name(b"?"), "", "sha256:", "no such thing", "x" * 5000, "a\x00b"):
        with pytest.raises(BlobNotFoundError):
            ledger.blob(name)


@pytest.mark.parametrize("bad", ["text", 7, None, bytearray(b"x"), [1]])
def test_a_blob_is_bytes(ledger: LedgerLike, bad: object) -> None:
    """Anything else is refused and nothing is written."""
    run = new_run_id()
    with pytest.raises(InvalidInputError, match="bytes"):
        ledger.append(run, note(), NEW, blobs=[bad])  # type: ignore[list-item]
    assert ledger.head(run) == 0
