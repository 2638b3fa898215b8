"""How lines are spelt, how much of them is held, and streams that have no end."""

from __future__ import annotations

import io
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.samples import note
from tests.unit.ledger.export_files import Forger, export, family, take
from turnledger.ledger import (
    NEW,
    IntegrityFailureError,
    Ledger,
    LimitExceededError,
    Limits,
    NotAnExportError,
    ResourceSnapshotted,
    blob_name,
    import_runs,
    new_run_id,
)
from turnledger.ledger.clock import FIRST_MOMENT, LAST_MOMENT
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.integrity.seal import make_seal
from turnledger.ledger.transfer.file_format import BlobLine, Header, encode_line

FIRST_RECORD = b'{"run_id":'


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda text: text.replace(FIRST_RECORD, b" " + FIRST_RECORD, 1), 2),
        (lambda text: text.replace(FIRST_RECORD, b'{ "run_id":', 1), 2),
        (lambda text: text.replace(b'"version":2', b'"version": 2', 1), 3),
        (lambda text: text.replace(b'"version":2', b'"version":9,"version":2', 1), 3),
        (lambda text: text.replace(b'"type":"custom"', b'"type":"\\u0063ustom"', 1), 3),
        (lambda text: text.replace(b',"data":', b',"data": ', 1), 2),
        (lambda text: text.replace(b"}\n", b"} \n").replace(b"} \n", b"}\n", 1), 2),
        (lambda text: text.replace(b"\n", b"\r\n"), 1),
        (lambda text: text.replace(b"\n", b"\r\n").replace(b"\r\n", b"\n", 1), 2),
        (lambda text: text.replace(b'{"blob":', b'{"blob": ', 1), 6),
        (lambda text: text.replace(b'{"end":', b'{"end" :', 1), 14),
        (lambda text: text.replace(b'"runs":4', b'"runs":04', 1), 14),
        (lambda text: text[:-1], 14),
        (lambda text: text.replace(b"{", b"{ ", 1), 1),
    ],
)
def test_a_line_has_one_spelling(
    source: Ledger, target: Ledger, change: Callable[[bytes], bytes], line: int
) -> None:
    """A line that says the same in other bytes is refused: the same runs give the same bytes."""
    family(source)
    content = export(source)
    assert change(content) != content
    with pytest.raises(IntegrityFailureError, match=f"line {line}:"):
        take(target, change(content))
    assert list(target.runs()) == []


@pytest.mark.parametrize("moment", [FIRST_MOMENT - 1, -5, LAST_MOMENT + 1, 253402300799999998])
def test_a_moment_that_no_record_can_have_is_refused(target: Ledger, moment: int) -> None:
    """It would be taken, and then neither be shown nor gone on from."""
    forger = Forger()
    forger.note(new_run_id(), 1, moment=moment)
    with pytest.raises(IntegrityFailureError, match=r"line 2.*range of times"):
        take(target, forger.file)
    assert list(target.runs()) == []


@pytest.mark.parametrize("moment", [FIRST_MOMENT, LAST_MOMENT])
def test_the_first_and_the_last_moment_are_taken(target: Ledger, moment: int) -> None:
    """And come out again."""
    forger, run = Forger(), new_run_id()
    forger.note(run, 1, moment=moment)
    take(target, forger.file)
    assert export(target) == forger.file
    assert target.verify_all().ok


# --- how much is held ------------------------------------------------------------------------


def blobs_and_nothing_else(count: int, size: int) -> Iterator[bytes]:
    yield encode_line(Header(1, CATALOGUE))
    for number in range(count):
        content = number.to_bytes(4, "big") + bytes(size)
        yield encode_line(BlobLine(blob_name(content), content))


def test_blobs_do_not_pile_up(target: Ledger) -> None:
    """Until the record that should name them has been seen, none of them is held."""
    with tempfile.TemporaryFile() as file:
        file.writelines(blobs_and_nothing_else(60, 1_000_000))
        tracemalloc.start()
        try:
            with pytest.raises(IntegrityFailureError, match="cut off"):
                import_runs(target, file)
            held = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert held < 20_000_000


def test_no_record_has_room_to_name_so_many_blobs() -> None:
    """They are not even counted any further."""
    with Ledger.open("memory://", limits=Limits(max_event_bytes=1000)) as strict:
        content = b"".join(blobs_and_nothing_else(50, 10))
        with pytest.raises(IntegrityFailureError, match=r"line 17: .*blobs"):
            take(strict, content)


def test_many_blobs_of_one_record_are_taken(source: Ledger, target: Ledger) -> None:
    """As many and as large as one append could hand over."""
    blobs = [bytes([number]) * 100_000 for number in range(50)]
    files = {str(number): blob_name(blob) for number, blob in enumerate(blobs)}
    kept = ResourceSnapshotted(resource="disk", files=files)
    source.append(new_run_id(), [note(), kept], NEW, blobs=blobs)
    content = export(source)
    assert take(target, content).blobs == 50
    assert export(target) == content
    assert target.verify_all().ok


# --- streams ---------------------------------------------------------------------------------


class Stream(io.RawIOBase):
    """A pipe whose other end says some lines, and then one line for ever, or until it is `long`."""

    def __init__(self, lines: list[bytes], again: bytes, long: int = 50_000_000) -> None:
        self._left = b"".join(lines)
        self._again = again * (1 + 65536 // len(again))
        self._long = long
        self.given = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        if self.given > self._long:
            raise AssertionError("it was read on and on")
        if not self._left:
            self._left = self._again
        chunk, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(chunk)] = chunk
        self.given += len(chunk)
        return len(chunk)


@pytest.mark.parametrize(
    ("place", "again", "line"),
    [
        (1, b"y\n", 2),
        (1, b"{}\n", 2),
        (3, b'{"run_id":1}\n', 4),
        (3, b"\n", 4),
        (3, b'{"blob":"","content":""}\n', 4),
        (14, b'{"end":{"runs":4,"records":11,"blobs":1}}\n', 15),
    ],
)
def test_a_stream_is_refused_at_the_line_that_is_none(
    source: Ledger, target: Ledger, place: int, again: bytes, line: int
) -> None:
    """What goes on after a header is looked at as it comes: it may have no end."""
    family(source)
    stream = Stream(export(source).splitlines(keepends=True)[:place], again)
    with pytest.raises(IntegrityFailureError, match=f"line {line}:"):
        import_runs(target, io.BufferedReader(stream))
    assert stream.given < 1_000_000


def test_a_stream_of_one_endless_line_is_refused(target: Ledger) -> None:
    """As the first line it is not an export; later it is too long."""
    stream = Stream([], b"x")
    with pytest.raises(NotAnExportError):
        import_runs(target, io.BufferedReader(stream))
    assert stream.given < 1_000_000
    limits = Limits(max_event_bytes=1000, max_blob_bytes=1000)
    with Ledger.open("memory://", limits=limits) as strict:
        lines = [encode_line(Header(1, CATALOGUE)), b'{"run_id":"']
        stream = Stream(lines, b"x")
        with pytest.raises(LimitExceededError, match="line 2"):
            import_runs(strict, io.BufferedReader(stream))
    assert stream.given < 1_000_000


def test_a_stream_with_a_seal_is_taken(source: Ledger, target: Ledger) -> None:
    """The line of a seal is checked like the others."""
    family(source)
    seal = make_seal(source, 1_700_000_000_000_000)
    lines = export(source, seal=seal).splitlines(keepends=True)

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    assert import_runs(target, Pipe(b"".join(lines))).sealed_runs == 4
