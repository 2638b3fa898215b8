"""Export files: damaged ones for the importer and for histories, and well made ones of nonsense."""

from __future__ import annotations

import io
import json
import random
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.fuzz.codec_targets import TAGS, WORDS
from tests.fuzz.material import exports, populate
from tests.fuzz.mutating import as_json, mutate_bytes, mutate_json
from tests.fuzz.targets import Target, promise
from tests.replay.executing import AGENTS, RECORDED, agent
from turnledger.adapters.testing.histories import replay_file
from turnledger.ledger import Ledger, Record, TurnledgerError, export_runs, import_runs
from turnledger.ledger.clock import to_micros
from turnledger.ledger.events.chain import GENESIS, link
from turnledger.projections import (
    CheckpointView,
    Conversation,
    PendingTools,
    Projection,
    PromptOverrides,
    RunSummary,
    SessionSlices,
    Timeline,
    Usage,
    fold,
)

FIELDS = ("run_id", "version", "type", "event_id", "recorded_at", "digest", "data", "blob", "end")
VIEWS = (
    Conversation,
    PendingTools,
    SessionSlices,
    CheckpointView,
    Usage,
    RunSummary,
    Timeline,
    PromptOverrides,
)


def damaged_export(dice: random.Random, choice: Sequence[bytes]) -> bytes:
    """An export with its bytes, lines or fields changed; digests made to fit now and then."""
    content = dice.choice(choice)
    match dice.randrange(6):
        case 0:
            return mutate_bytes(dice, content, [dice.choice(exports())])
        case 1:
            return _lines_changed(dice, content)
        case 2:
            return _line_changed(dice, content)
        case _:
            return _forged(dice, content)


def _lines_changed(dice: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    for _ in range(dice.choice((1, 1, 2, 4))):
        at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
        match dice.randrange(6):
            case 0:
                lines[at], lines[other] = lines[other], lines[at]
            case 1:
                lines.insert(other, lines[at])
            case 2 if len(lines) > 1:
                del lines[at]
            case 3:
                lines[at] = lines[at].rstrip(b"\n")
            case 4:
                lines.insert(
                    at, dice.choice(exports()).splitlines(keepends=True)[dice.randrange(3)]
                )
            case _:
                lines[at] = lines[at].replace(b"\n", b"\r\n")
    return b"".join(lines)


def _line_changed(dice: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    at = dice.randrange(len(lines))
    changed = mutate_json(dice, json.loads(lines[at]), FIELDS)
    lines[at] = as_json(dice, changed) + b"\n"
    return b"".join(lines)


def _forged(dice: random.Random, content: bytes) -> bytes:
    """Events of other content, with digests and counts that fit."""
    lines = [json.loads(line) for line in content.splitlines()]
    records = [line for line in lines if "data" in line]
    for _ in range(dice.choice((1, 1, 2, 3))):
        one = dice.choice(records)
        match dice.randrange(8):
            case 0:
                one["type"] = dice.choice(TAGS)
            case 1 | 2:
                other = dice.choice(records)
                one["data"], one["type"] = other["data"], other["type"]
            case 3:
                one[dice.choice(FIELDS[:6])] = dice.choice(records)[dice.choice(FIELDS[:6])]
            case 4:
                lines.remove(one)
                records.remove(one)
                if not records:
                    break
            case 5:
                lines.insert(dice.randrange(1, len(lines)), one)
            case _:
                one["data"] = mutate_json(dice, one["data"], WORDS)
    return _relinked(lines)


def _relinked(lines: list[Any]) -> bytes:
    """The lines, with versions as they are and all else made to fit as far as it can be."""
    digests: dict[tuple[Any, Any], bytes] = {}
    parents: dict[Any, tuple[Any, Any]] = {}
    written = []
    for line in lines:
        if "data" not in line:
            continue
        run, version = str(line.get("run_id")), line.get("version")
        data = json.dumps(line["data"], separators=(",", ":"), ensure_ascii=False)
        before = (run, version - 1 if isinstance(version, int) else 0)
        if line.get("type") == "run.started" and isinstance(line["data"], dict):
            parents[run] = (line["data"].get("parent"), line["data"].get("at"))
        for _ in range(10):
            if before in digests or before[0] not in parents:
                break
            before = (str(parents[before[0]][0]), before[1])
        try:
            digest = link(
                digests.get(before, GENESIS),
                run.encode(),
                int(version or 0),
                str(line.get("event_id")).encode(),
                str(line.get("type")).encode(),
                to_micros(datetime.fromisoformat(str(line.get("recorded_at")))),
                data.encode("utf-8", "surrogatepass"),
            )
        except (ValueError, TypeError, OverflowError):
            continue
        digests[run, version] = digest
        line["digest"] = digest.hex()
    for line in lines:
        if "end" in line:
            records = [one for one in lines if "data" in one]
            line["end"] = {
                "runs": len({str(one.get("run_id")) for one in records}),
                "records": len(records),
                "blobs": len({str(one["blob"]) for one in lines if "blob" in one}),
            }
        written.append(json.dumps(line, separators=(",", ":"), ensure_ascii=False))
    return "".join(text + "\n" for text in written).encode("utf-8", "surrogatepass")


def everything(ledger: Ledger) -> bytes:
    """All that a ledger holds, as an export."""
    out = io.BytesIO()
    export_runs(ledger, out)
    return out.getvalue()


class Importing(Target):
    """Files for `import`, into a ledger that has some of the runs already."""

    name = "import"
    inputs = 3_000
    few = 350
    goal = 45_000

    @contextmanager
    def prepared(self) -> Iterator[None]:
        self._open()
        try:
            yield
        finally:
            # Under its name it would be there for whoever opens it next in this process.
            self._kept.close()

    def _open(self) -> None:
        self._kept = Ledger.open("memory://fuzz-import")
        populate(self._kept)
        self._before = everything(self._kept)

    def draw(self, dice: random.Random) -> tuple[bytes, bool]:
        return damaged_export(dice, exports()), dice.random() < 0.3

    def check(self, given: tuple[bytes, bool]) -> bool:
        content, into_kept = given
        if into_kept:
            return self._check_kept(content)
        with Ledger.open("memory://") as ledger:
            try:
                import_runs(ledger, io.BytesIO(content))
            except TurnledgerError:
                promise(next(ledger.tail(), None) is None, "refused, and yet there are records")
                promise(not any(True for _ in ledger.store.blob_names()), "refused, with blobs")
                promise(next(iter(ledger.runs()), None) is None, "refused, and yet there is a run")
                return False
            report = ledger.verify_all()
            promise(report.ok, f"taken, and then not sound: {report.problems}")
            look_at_all(ledger)
            self._check_again(ledger, content)
        return True

    def _check_again(self, ledger: Ledger, content: bytes) -> None:
        """What was taken goes out, and in again, without a difference."""
        out = everything(ledger)
        promise(sorted(_records(out)) == sorted(_records(content)), "the export has other records")
        with Ledger.open("memory://") as copy:
            import_runs(copy, io.BytesIO(out))
            promise(everything(copy) == out, "the copy's export differs")
        promise(import_runs(ledger, io.BytesIO(content)).imported == 0, "imported twice")

    def _check_kept(self, content: bytes) -> bool:
        """Into a ledger with runs: refused, or it is what it was and more."""
        try:
            report = import_runs(self._kept, io.BytesIO(content))
        except TurnledgerError:
            promise(everything(self._kept) == self._before, "refused, and yet changed")
            return False
        if report.imported:
            promise(self._kept.verify_all().ok, "taken, and then not sound")
            self._kept.close()
            self._open()
        return True

    def shown(self, given: tuple[bytes, bool]) -> str:
        where = "a ledger with runs" if given[1] else "an empty ledger"
        return f"into {where}, base64 {b64encode(given[0]).decode()}"


def _records(content: bytes) -> Iterator[tuple[str, int, str]]:
    for line in content.splitlines():
        record = json.loads(line)
        if "data" in record:
            yield record["run_id"], record["version"], record["digest"]


def look_at_all(ledger: Ledger) -> None:
    """Fold every run in every way; what was taken can be looked at."""
    for info in list(ledger.runs()):
        records: list[Record] = list(ledger.read(info.run_id))
        promise(len(records) == info.version, "the run has other records than the index says")
        for view in VIEWS:
            projection: Projection[Any] = view()
            projection.to_json(fold(iter(records), projection))


class Replaying(Target):
    """The same files as histories, run again by the agents that recorded them."""

    name = "histories"
    inputs = 3_000
    few = 150
    goal = 15_000

    @contextmanager
    def prepared(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            self._folder = Path(folder)
            yield

    def draw(self, dice: random.Random) -> tuple[str, bytes, str | None, int | None]:
        name = dice.choice(sorted(RECORDED))
        whole = (AGENTS / f"{name}.jsonl").read_bytes()
        if dice.random() < 0.05:
            return name, whole, None, None
        content = damaged_export(dice, [whole])
        run = dice.choice((None, None, None, "x", str(UUID(int=1))))
        return name, content, run, dice.choice((None, None, None, 0, 5, 2**70))

    def check(self, given: tuple[str, bytes, str | None, int | None]) -> bool:
        name, content, run, until = given
        kind, _, policy = RECORDED[name]
        folder = self._folder

        def factory(ledger: Ledger) -> Any:
            return agent(kind, folder, ledger, on_interrupt=policy)

        try:
            replay_file(io.BytesIO(content), "some.jsonl", factory, run=run, until=until)
        except TurnledgerError:
            return False
        finally:
            promise(not (folder / "effects").exists(), "a tool was called for real")
        return True

    def shown(self, given: tuple[str, bytes, str | None, int | None]) -> str:
        name, content, run, until = given
        return f"{name}, run={run!r}, until={until!r}, base64 {b64encode(content).decode()}"
