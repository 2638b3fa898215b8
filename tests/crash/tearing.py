"""Scenario: a file and its WAL are copied at one moment while writers write: a power cut.

All writers are stopped for the copy, wherever they are: half a commit may be in the WAL.
What was acknowledged is known from their pipes. Then the WAL's unsettled end is torn off.
"""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.book import unsound
from tests.crash.processes import Child, Crew, Voice
from turnledger.ledger import ANY, CustomEvent, Ledger, new_run_id
from turnledger.ledger.stores.sqlite import store as sqlite

WRITERS = 4
FRAME_HEADER, WAL_HEADER = 24, 32
# Where the WAL's index says how many frames are, or may be, in the database already.
BACKFILLED_AT, ATTEMPTED_AT = 96, 128


def run(crew: Crew, *, url: str, seed: int, cuts: int, tears: int) -> dict[str, Any]:
    """Copies in all, torn copies that lost something unsettled, and everything that was wrong."""
    random = Random(seed)
    scene = _Scene(crew, Path(url))
    wrong: list[str] = []
    torn = lost = 0
    generations = set()
    for number in range(cuts):
        scene.write_on(random.randint(1, 50))
        settled, settled_end = scene.cut(Path(f"{url}.settled"))
        scene.write_on(random.randint(1, 30))
        copy = Path(f"{url}.{number}")
        known, _ = scene.cut(copy)
        whole = Path(f"{copy}.whole")
        _copy(copy, whole)
        complete, found = scene.inspect(whole, known)
        wrong += [f"cut {number}: {problem}" for problem in found]
        start, end = _unsettled(Path(f"{url}.settled"), copy, settled_end)
        generations.add(_header(copy)[0])
        for tear in range(tears):
            piece = Path(f"{url}.{number}.{tear}")
            _tear(copy, piece, random.randint(start, end), random)
            kept, found = scene.inspect(piece, settled)
            wrong += [f"cut {number}, tear {tear}: {problem}" for problem in found]
            torn += 1
            lost += kept < complete
    appends = len(scene.known)
    return {
        "wrong": wrong,
        "torn": torn,
        "shortened": lost,
        "checkpoints": len(generations) - 1,
        "appends": appends,
    }


class _Scene:
    def __init__(self, crew: Crew, path: Path) -> None:
        self._crew = crew
        self._path = path
        self._writers = [crew.start(f"writer {me}", _write, str(path), me) for me in range(WRITERS)]
        self.known: list[list[str]] = []

    def write_on(self, appends: int) -> None:
        """Let all write until so many more appends are acknowledged, and stop them then."""
        for writer in self._writers:
            self._crew.resume(writer)
        wanted = len(self.known) + appends
        while len(self.known) < wanted:
            self._note(self._crew.listen())
        for writer in self._writers:
            self._crew.stop(writer)
        while said := self._crew.listen(0):
            self._note(said)

    def cut(self, copy: Path) -> tuple[list[list[str]], int]:
        """Copy everything at one moment; what was acknowledged until then, and the WAL's end."""
        _copy(self._path, copy)
        return list(self.known), _wal_end(copy)

    def inspect(self, copy: Path, known: list[list[str]]) -> tuple[int, list[str]]:
        """Open a copy in a process of its own: how many records it holds, and what is wrong."""
        inspector = self._crew.start("inspector", _inspect, str(copy), known)
        records, found = self._crew.expect(inspector, "inspected")
        self._crew.kill(inspector)
        return records, found

    def _note(self, said: list[tuple[Child, list[Any]]]) -> None:
        self.known += [ids for _, [word, ids] in said if word == "appended"]


def _write(voice: Voice, url: str, me: int) -> None:
    assert hasattr(sqlite, "CHECKPOINT_PAGES")
    sqlite.CHECKPOINT_PAGES = 100  # often enough to be met
    random = Random(me)
    run_id = new_run_id()
    with Ledger.open(url) as ledger:
        while True:
            count = random.choice((1, 1, 2, 8))
            events = [CustomEvent(kind="crash.fact", data=["x" * 2000, count])] * count
            done = ledger.append(run_id, events, ANY)
            voice.say("appended", [str(record.event_id) for record in done.records])


def _inspect(voice: Voice, url: str, known: list[list[str]]) -> None:
    with Ledger.open(url) as ledger:
        records = list(ledger.tail())
        report = ledger.verify_all()
    found = [str(problem) for problem in report.problems] + unsound(url)
    there = {str(record.event_id) for record in records}
    found += [f"lost: {event_id}" for ids in known for event_id in ids if event_id not in there]
    if [record.position for record in records] != list(range(1, len(records) + 1)):
        found.append("the records are no beginning of what was written")
    commits = Counter((record.run_id, record.recorded_at) for record in records)
    found += [
        f"torn: {record}, one of {record.event.data[1]} in its commit"
        for record in records
        if commits[record.run_id, record.recorded_at] != record.event.data[1]
    ]
    voice.say("inspected", len(records), found[:5])


def _copy(path: Path, copy: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")


def _unsettled(settled: Path, copy: Path, settled_end: int) -> tuple[int, int]:
    """Which part of a copy's WAL a power cut could take: what no sync has promised yet.

    That is what came after the settled state, and after what a checkpoint relied on.
    """
    header, frame = _header(copy)
    start = WAL_HEADER + _moved(copy) * frame
    if _header(settled)[0] == header:
        start = max(start, settled_end)
    return start, max(start, _wal_end(copy, committed=False))


def _moved(copy: Path) -> int:
    """How many of the WAL's frames may be in the database already."""
    index = Path(f"{copy}-shm").read_bytes()
    return max(struct.unpack_from("=I", index, at)[0] for at in (BACKFILLED_AT, ATTEMPTED_AT))


def _header(copy: Path) -> tuple[bytes, int]:
    """The salts that frames of this generation bear, and the size of a frame."""
    with Path(f"{copy}-wal").open("rb") as wal:
        header = wal.read(WAL_HEADER)
    return header[16:24], FRAME_HEADER + struct.unpack_from(">I", header, 8)[0]


def _wal_end(copy: Path, *, committed: bool = True) -> int:
    """Where the frames of this generation end, or the last commit among them."""
    salts, size = _header(copy)
    wal = Path(f"{copy}-wal").read_bytes()
    end = commit_end = WAL_HEADER
    while wal[end + 8 : end + 16] == salts:
        is_commit = wal[end + 4 : end + 8] != b"\0\0\0\0"
        end += size
        if is_commit:
            commit_end = end
    return commit_end if committed else min(end, len(wal))


def _tear(copy: Path, piece: Path, offset: int, random: Random) -> None:
    """The WAL ends at the offset, or holds rubbish from there on; its index is lost."""
    shutil.copyfile(copy, piece)
    wal = Path(f"{copy}-wal").read_bytes()
    rubbish = random.choice((b"", random.randbytes(5000), bytes(5000)))
    Path(f"{piece}-wal").write_bytes(wal[:offset] + rubbish)
