"""Reader of export files, which are read twice: to validate, and then to write their records.

All checks run each time, so that a file that changes in between is never trusted.
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
    NOT_CANONICAL,
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
from turnledger.ledger.transfer.validate import Checker, FileRecord, ForkPoint, Lineages, max_blobs

# The most that a line holds beside its data: ids, digest, names of fields.
LINE_OVERHEAD = 4096
# The line of a seal grows with the sealed ledger, by 120 bytes for each run.
SEAL_BYTES = 256 * 1024 * 1024
_SEALED: Final = b'{"turnledger":%d,' % SEALED_FORMAT
_STARTED: Final = RunStarted.tag.encode()


def header_of(line: bytes) -> Header:
    """Decode the first line; NotAnExportError if the file is not an export."""
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise NotAnExportError from None
    if header.turnledger not in (FORMAT, SEALED_FORMAT):
        raise InvalidInputError(
            f"line 1: unknown export format {header.turnledger}: this program knows {FORMAT} and "
            f"{SEALED_FORMAT}. Upgrade turnledger."
        )
    if encode_line(header) != line:
        raise damaged_line(1, NOT_CANONICAL)
    return header


def lines_of(stream: BinaryIO, limits: Limits) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, none longer than a ledger with these limits could accept."""
    # The header is short: a longer first line is not read to its end, which it may not have.
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


def plausible_lines(stream: BinaryIO, limits: Limits) -> Iterator[bytes]:
    """The lines of a stream, as long as they look like an export: a stream may have no end."""
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
        if blobs > max_blobs(limits):
            raise damaged_line(number, "more blobs than a record can name are before this one")
        ended = isinstance(found, EndLine)
        yield line


class ExportFile:
    """A seekable export file; each reading validates it completely."""

    def __init__(
        self,
        stream: BinaryIO,
        limits: Limits,
        *,
        public_key: bytes | None = None,
        sealed: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Open an export file.

        Args:
            stream: The file.
            limits: Those of the importing ledger.
            public_key: The raw key that the file's seal must be signed with.
            sealed: Whether the file must have a seal.
            progress: Called with the number of bytes read, in all readings together.
        """
        self._stream = stream
        self._limits = limits
        self._public_key = public_key
        self.needs_seal = sealed or public_key is not None
        self._progress = progress
        self._checked = 0
        # Of the last reading: how the runs compare with the file's seal, and the (run, version)
        # pairs that other runs start from.
        self.sealed_runs = SealedRuns(None)
        self.fork_points: Mapping[tuple[str, int], object] = {}

    def records(self, *, second_pass: bool = False) -> Iterator[FileRecord]:
        """Read all records in order, in the `second_pass` with the bytes of their blobs."""
        # The header comes first, so that a file of another kind is not searched for fork points.
        header_of(next(self._lines())[1])
        self.fork_points = wanted = self._fork_points()
        lines = self._counted(self._lines())
        header = header_of(next(lines)[1])
        self.sealed_runs = SealedRuns(self._seal(header, lines))
        checker = Checker(
            lines, wanted, self._limits, header.catalogue, self.sealed_runs, second_pass=second_pass
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
                    f"line 1: the file carries no seal, expected one{by}. Nothing was imported "
                    "from it. `turnledger export --seal` adds one."
                )
            return None
        number, line = next(lines, (2, b""))
        try:
            return read_seal_line(line, self._public_key)
        except IntegrityFailureError as error:
            raise IntegrityFailureError(
                f"line {number}: {error} Nothing was imported from the file."
            ) from error

    def _fork_points(self) -> dict[tuple[str, int], ForkPoint | None]:
        """The (run, version) pairs that runs of the file start from.

        A first look at the file, since validation keeps the digests of these records and of no
        others. Lines that can't be decoded are skipped here; validation reports them.
        """
        lineages = Lineages()
        wanted: dict[tuple[str, int], ForkPoint | None] = {}
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
            if parent == record.run_id:
                continue
            if record.run_id not in lineages:
                lineages.add(record.run_id, parent, started.at)
            wanted[lineages.owner(parent, started.at), started.at] = None
        return wanted
