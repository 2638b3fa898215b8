"""Real inputs to begin from, the same in every process: events, exports, a ledger, transcripts."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from uuid import UUID, uuid5

import msgspec

from tests.conformance.samples import PICTURE, note, notes, one_of_each, started
from turnledger.ledger import (
    ANY,
    NEW,
    Codec,
    Ledger,
    RunClaimed,
    RunStarted,
    RunWaiting,
    export_runs,
    import_runs,
)
from turnledger.ledger.events.blobs import blob_name
from turnledger.ledger.events.types import ResourceSnapshotted

ROOT = Path(__file__).resolve().parent.parent
HISTORIES = ROOT / "replay" / "histories"
_IDS = UUID("0195f5a0-0000-7000-8000-000000000000")
LARGE = b"".join(b"%d " % number for number in range(3000))


class CountingClock:
    """Times and ids that are the same each time."""

    def __init__(self, start: int = 1_767_323_045_000_000) -> None:
        self._now = start
        self._made = 0

    def micros(self) -> int:
        self._now += 1000
        return self._now

    def new_id(self) -> str:
        self._made += 1
        return str(uuid5(_IDS, f"made {self._made}"))


def named_id(name: str) -> UUID:
    """The id of a run or event that is called like this here."""
    return uuid5(_IDS, name)


def populate(ledger: Ledger) -> dict[str, UUID]:
    """Every kind of event, forks of forks, a continuation, tags and blobs, one of many pages."""
    ids = {name: named_id(name) for name in ("full", "plain", "single", "files")}
    ledger.append(ids["full"], [started(), *one_of_each()], NEW, blobs=[PICTURE])
    with ledger.claim(ids["full"], worker="ann"):
        pass
    for number in range(3):
        ledger.append(ids["plain"], notes(2, number), ANY)
    ids["fork"] = ledger.fork(ids["plain"], 4, child=named_id("fork"), tags={"why": "what if"})
    ledger.append(ids["fork"], notes(2), ANY)
    ids["of_fork"] = ledger.fork(ids["fork"], 7, child=named_id("of_fork"))
    ledger.append(ids["of_fork"], [RunWaiting(reason="?"), note(5)], ANY)
    ids["continuation"] = ledger.continuation(ids["full"], child=named_id("continuation"))
    ledger.append(ids["single"], RunStarted(tags={"only": "one", "team": "red"}), NEW)
    files = {"large": blob_name(LARGE), "small": blob_name(PICTURE)}
    ledger.append(
        ids["files"],
        [RunStarted(tags={"team": "blue"}), ResourceSnapshotted(resource="fs", files=files)],
        NEW,
        blobs=[LARGE],
    )
    return ids


@cache
def payloads() -> tuple[tuple[str, bytes], ...]:
    """A payload of every tag, also of the retired ones, and more of the interesting kinds."""
    codec = Codec()
    events = [started(), *one_of_each(), RunClaimed(worker="w", epoch=1)]
    found = [codec.encode(event) for event in events]
    old = (ROOT / "unit" / "ledger" / "events" / "payloads" / "message.recorded.json").read_bytes()
    found.append(("message.recorded", old))
    for content in golden_exports():
        for line in content.splitlines():
            if line.startswith(b'{"run_id"'):
                record = msgspec.json.decode(line, type=_Line)
                found.append((record.type, bytes(record.data)))
    return tuple(dict.fromkeys(found))


class _Line(msgspec.Struct):
    type: str
    data: msgspec.Raw


@cache
def golden_exports() -> tuple[bytes, ...]:
    """The histories that are kept in the repository."""
    return tuple(path.read_bytes() for path in sorted(HISTORIES.rglob("*.jsonl")))


@cache
def exports() -> tuple[bytes, ...]:
    """The same, and two of ledgers made here."""
    with Ledger.open("memory://fuzz-material", clock=CountingClock()) as ledger:
        ids = populate(ledger)
        every, some = io.BytesIO(), io.BytesIO()
        export_runs(ledger, every)
        export_runs(ledger, some, [ids["of_fork"], ids["single"]])
    return (*golden_exports(), every.getvalue(), some.getvalue(), some.getvalue())


def make_ledger(path: Path) -> dict[str, UUID]:
    """A ledger in a file with what there is here; the same bytes of content each time."""
    with Ledger.open(path, clock=CountingClock()) as ledger:
        ids = populate(ledger)
        for content in golden_exports()[::4]:
            import_runs(ledger, io.BytesIO(content))
        found = {str(info.run_id)[:8] + "…": info.run_id for info in ledger.runs()}
    return ids | {name: run for name, run in found.items() if run not in ids.values()}
