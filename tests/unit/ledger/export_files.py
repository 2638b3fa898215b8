"""Export files for tests: made, taken apart, forged and put together again."""

from __future__ import annotations

import io
import json
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from tests.conformance.samples import note, notes
from turnledger.ledger import (
    NEW,
    CustomEvent,
    Ledger,
    ResourceSnapshotted,
    RunCompleted,
    RunFailed,
    RunStarted,
    blob_name,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.ledger.clock import to_micros
from turnledger.ledger.events.chain import GENESIS, link
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.integrity.seal import Seal
from turnledger.ledger.transfer.file_format import EndLine, Header, Totals, encode_line, record_line
from turnledger.ledger.transfer.seal_check import seal_line

Lines = list[dict[str, Any]]


def export(ledger: Ledger, *runs: UUID, seal: Seal | None = None) -> bytes:
    out = io.BytesIO()
    export_runs(ledger, out, runs or None, seal=seal)
    return out.getvalue()


def take(ledger: Ledger, content: bytes) -> Any:
    return import_runs(ledger, io.BytesIO(content))


def parsed(content: bytes) -> Lines:
    return [json.loads(line) for line in content.splitlines()]


def written(lines: Lines) -> bytes:
    return b"".join(
        json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
        for line in lines
    )


def relinked(lines: Lines) -> bytes:
    """The lines with every digest of unforked runs and the counts made to fit again."""
    digests: dict[str, bytes] = {}
    records = [line for line in lines if "digest" in line]
    for line in records:
        data = json.dumps(line["data"], separators=(",", ":"), ensure_ascii=False)
        digest = link(
            digests.get(line["run_id"], bytes(32)),
            line["run_id"].encode(),
            line["version"],
            line["event_id"].encode(),
            line["type"].encode(),
            to_micros(datetime.fromisoformat(line["recorded_at"])),
            data.encode(),
        )
        digests[line["run_id"]] = digest
        line["digest"] = digest.hex()
    end = lines[-1]["end"]
    end["records"], end["runs"] = len(records), len(digests)
    end["blobs"] = sum("blob" in line for line in lines)
    return written(lines)


def family(ledger: Ledger) -> list[UUID]:
    """A run, a fork at its end, a fork of what that shares, and a fork of that, grown further."""
    run = new_run_id()
    ledger.append(run, [RunStarted(tags={"who": "parent"}), *notes(2)], NEW)
    ledger.append(run, note(3, text="é\x9b\u202e\u2028", half=0.5), 3)
    content = b"a file"
    files = {"a": blob_name(content), "b": blob_name(content)}
    ledger.append(run, ResourceSnapshotted(resource="disk", files=files), 4, blobs=[content])
    child = ledger.fork(run, 5)
    ledger.append(child, [ResourceSnapshotted(resource="disk", files=files)], 6)
    early = ledger.fork(child, 3)
    last = ledger.fork(early, 4)
    ledger.append(last, [RunFailed(error_type="E", error_message="m")], 5)
    ledger.append(run, RunCompleted(), 5)
    return [run, child, early, last]


class Forger:
    """Writes a file line by line, with digests and counts that fit, whatever it says."""

    def __init__(self, seal: Seal | None = None) -> None:
        self._lines = [encode_line(Header(1 if seal is None else 2, CATALOGUE))]
        if seal is not None:
            self._lines.append(seal_line(seal))
        self._moment = 1_600_000_000_000_000
        self._runs: set[str] = set()
        self._records = 0

    def note(self, run: UUID, version: int, before: bytes = GENESIS, **more: Any) -> bytes:
        """A record of no matter what; its digest."""
        return self.record(run, version, CustomEvent.tag, {"kind": "a.b"}, before, **more)

    def fork(self, run: UUID, parent: UUID, at: int, before: bytes) -> bytes:
        """The first record of a fork; its digest."""
        data = {"parent": str(parent), "at": at, "kind": "fork"}
        return self.record(run, at + 1, RunStarted.tag, data, before)

    def record(
        self,
        run: UUID,
        version: int,
        tag: str,
        data: dict[str, Any],
        before: bytes = GENESIS,
        *,
        moment: int | None = None,
    ) -> bytes:
        self._moment = self._moment + 1 if moment is None else moment
        text = json.dumps(data, separators=(",", ":"))
        ids = (str(run), str(uuid4()))
        digest = link(
            before,
            ids[0].encode(),
            version,
            ids[1].encode(),
            tag.encode(),
            self._moment,
            text.encode(),
        )
        row = (0, ids[0], version, tag, ids[1], self._moment, digest, text)
        self._lines.append(encode_line(record_line(row)))
        self._runs.add(ids[0])
        self._records += 1
        return digest

    @property
    def file(self) -> bytes:
        end = EndLine(Totals(len(self._runs), self._records, 0))
        return b"".join([*self._lines, encode_line(end)])
