"""Reading an export file: its header, its seal if it carries one, and then its records.

All checks run each time the file is read, so that a file that changes between two
readings is never trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final

import msgspec

from turnledger.ledger.errors import (
    IntegrityFailureError,
    InvalidInputError,
    LimitExceededError,
    NotAnExportError,
)
from turnledger.ledger.events.limits import Limits
from turnledger.ledger.events.types import RunStarted
from turnledger.ledger.integrity.seal import Seal
from turnledger.ledger.stores.base import PAGE
from turnledger.ledger.transfer.file_format import (
    FORMAT,
    NOT_SPELT,
    SEALED_FORMAT,
    BlobLine,
    EndLine,
    Header,
    RecordLine,
    damaged_line,
    encode_line,
    read_line,
)
from turnledger.ledger.transfer.seal_check import SealedRuns, read_seal_line
from turnledger.ledger.transfer.validate import Checker, FileRecord, Lineages, Place, most_blobs

# What a line may hold beside its data: ids, digest, names of fields.
LINE_OVERHEAD = 4096
# A seal's line grows with the runs of the ledger that was sealed, 120 bytes for each.
SEAL_BYTES = 256 * 1024 * 1024
_SEALED: Final = b'{"turnledger":%d,' % SEALED_FORMAT
_STARTED: Final = RunStarted.tag.encode()


def header_of(line: bytes) -> Header:
    """What the first line of an export says; NotAnExportError if it is none."""
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise NotAnExportError from None
    if header.turnledger not in (FORMAT, SEALED_FORMAT):
        raise InvalidInputError(
            f"line 1: the file has export format {header.turnledger}, this program knows "
            f"{FORMAT} and {SEALED_FORMAT}. Use a turnledger that knows that format."
        )
    if encode_line(header) != line:
        raise damaged_line(1, NOT_SPELT)
    return header


def lines_of(stream: BinaryIO, limits: Limits) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, none of them longer than a ledger with these limits could take."""
    # A first line that is longer is none of an export, whatever else it may be.
    first = stream.readline(LINE_OVERHEAD)
    yield 1, first
    number = 1
    usual = LINE_OVERHEAD + max(limits.max_event_bytes, -(-limits.max_blob_bytes // 3) * 4)
    longest = max(usual, SEAL_BYTES) if first.startswith(_SEALED) else usual
    while line := stream.readline(longest + 1):
        number += 1
        if len(line) > longest:
            raise LimitExceededError(
                f"line {number}, in bytes",
                limit=longest,
                found=len(line),
                setting="max_event_bytes=..., max_blob_bytes",
            )
        yield number, line
        longest = usual


def look_through(stream: BinaryIO, limits: Limits) -> Iterator[bytes]:
    """The lines of a stream as long as they look like an export's: it may have no end."""
    lines = lines_of(stream, limits)
    _, first = next(lines)
    header = header_of(first)
    yield first
    if header.turnledger == SEALED_FORMAT:
        yield next(lines, (2, b""))[1]
    blobs, ended = 0, False
    for number, line in lines:
        if ended:
            raise damaged_line(number, "something follows the end line")
        found = read_line(number, line)
        blobs = blobs + 1 if isinstance(found, BlobLine) else 0
        if blobs > most_blobs(limits):
            raise damaged_line(number, "more blobs than a record can name stand before this one")
        ended = isinstance(found, EndLine)
        yield line


class ExportFile:
    """A seekable export file that can be read, and is checked, any number of times."""

    def __init__(
        self,
        stream: BinaryIO,
        limits: Limits,
        *,
        public_key: bytes | None = None,
        sealed: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """With `sealed` the file must carry a seal, with `public_key` (raw) one signed so.

        `progress` is told how many bytes were checked, in all readings together.
        """
        self._stream = stream
        self._limits = limits
        self._public_key = public_key
        self.needs_seal = sealed or public_key is not None
        self._progress = progress
        self._checked = 0
        # Of the last reading: the seal that the file carries and how its runs stand to it, and
        # the versions that other runs go on from.
        self.sealed_runs = SealedRuns(None)
        self.fork_points: Mapping[tuple[str, int], object] = {}

    def records(self, *, again: bool = False) -> Iterator[FileRecord]:
        """Every record in order; raises at the first line that is not as it was exported.

        With `again` blobs come with their bytes: the file was found sound, and is read anew.
        """
        # First, so that what is no export at all is not read to its end: it may have none.
        header_of(next(self._lines())[1])
        self.fork_points = wanted = self._fork_points()
        lines = self._counted(self._lines())
        header = header_of(next(lines)[1])
        self.sealed_runs = SealedRuns(self._seal(header, lines))
        checker = Checker(
            lines, wanted, self._limits, header.catalogue, self.sealed_runs, again=again
        )
        yield from checker.records()

    def _counted(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        for number, line in lines:
            yield number, line
            self._checked += len(line)
            if self._progress is not None and number % PAGE == 0:
                self._progress(self._checked)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        self._stream.seek(0)
        return lines_of(self._stream, self._limits)

    def _seal(self, header: Header, lines: Iterator[tuple[int, bytes]]) -> Seal | None:
        if header.turnledger == FORMAT:
            if self.needs_seal:
                by = " signed with the given key" if self._public_key is not None else ""
                raise IntegrityFailureError(
                    f"line 1: the file carries no seal, and one{by} is wanted. Nothing was taken "
                    "from it. `turnledger export --seal` puts one in."
                )
            return None
        number, line = next(lines, (2, b""))
        try:
            return read_seal_line(line, self._public_key)
        except IntegrityFailureError as error:
            raise IntegrityFailureError(
                f"line {number}: {error} Nothing was taken from the file."
            ) from error

    def _fork_points(self) -> dict[tuple[str, int], Place | None]:
        """The (run, version) pairs that later runs go on from: their digests will be needed.

        Lines that can't be read are passed over here; the check names them, and goes no further.
        """
        lineages = Lineages()
        wanted: dict[tuple[str, int], Place | None] = {}
        for _, line in self._lines():
            if not line.startswith(b"{"):
                break
            if _STARTED not in line:
                continue
            try:
                record = msgspec.json.decode(line, type=RecordLine)
                started = msgspec.json.decode(record.data, type=RunStarted)
            except (msgspec.DecodeError, ValueError, RecursionError):
                continue
            if record.type != RunStarted.tag or started.parent is None:
                continue
            parent = str(started.parent)
            if record.run_id not in lineages:
                lineages.add(record.run_id, parent, started.at)
            wanted[lineages.owner(parent, started.at), started.at] = None
        return wanted
