"""A thousand secrets, in every kind of place: none of them is in any store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.conformance.harness import PostgresStore, SQLiteStore, StoreUnderTest
from tests.conformance.samples import WHEN
from tests.matrices import further
from tests.secret_samples import MAKERS, Sample, samples
from turnledger.ledger import (
    ANY,
    NEW,
    CheckpointStored,
    CustomEvent,
    EvaluationSuperseded,
    Event,
    InnerMessage,
    Ledger,
    MediaContent,
    MessageAppended,
    ModelCallFailed,
    ModelReplied,
    Record,
    Redactor,
    RunFailed,
    RunStarted,
    SecretPattern,
    SliceEventApplied,
    StateRestored,
    TextContent,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRecord,
    ToolMessageAmended,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.ledger.events.chain import GENESIS, link

SEED, EACH = 20261116, 20
WORD = re.compile(rb"[\w+/=.:@%~-]{4,}")


def _said(role: str, content: str, **more: object) -> MessageAppended:
    return MessageAppended(
        message=InnerMessage(
            role=role,  # type: ignore[arg-type]
            content=content,
            evaluation_id="e",
            sequence=0,
            **more,  # type: ignore[arg-type]
        )
    )


# Where what somebody said may stand.
PLACES: list[Callable[[str], Event]] = [
    lambda s: _said("system", f"You may use {s} for it."),
    lambda s: _said("user", f"My key:\n{s}\nThanks."),
    lambda s: _said("assistant", "", tool_calls=(ToolCallRecord("c", "t", json.dumps({"a": s})),)),
    lambda s: _said("tool", f"export X={s}\r\n", tool_call_id="c", tool_name="t"),
    lambda s: _said("tool", "", value={"rows": [{"x": [s]}]}, is_error=True, error_message=s),
    lambda s: _said("user", "", parts=(TextContent(text=s), MediaContent("image", url=s))),
    lambda s: SliceEventApplied(slice="Plan", event_type="Plan", payload={"steps": [s]}),
    lambda s: StateRestored(snapshot={"slices": [{"items": [{"note": s}]}]}, reason=s),
    lambda s: CustomEvent(kind="acme.note", data={s: 1, "deep": json.dumps({"in": [s]})}),
    lambda s: CustomEvent(kind="acme.log", data=json.dumps(json.dumps({"line": f"a\n{s}"}))),
    lambda s: ModelCallFailed(
        evaluation_id="e", turn=1, error_type="AuthError", error_message=f"Incorrect key: {s}."
    ),
    lambda s: ModelReplied(
        evaluation_id="e", turn=1, message_id=uuid4(), provider_data={"thought": f"Key {s}!"}
    ),
    lambda s: RunFailed(error_type="ValueError", error_message=f"bad {s}", phase="tool", cause="x"),
    lambda s: ToolCallCompleted(
        evaluation_id="e", call_id="c", name="t", message_id=uuid4(), value={"stdout": s}
    ),
    lambda s: ToolCallFailed(
        evaluation_id="e",
        call_id="c",
        name="t",
        message_id=uuid4(),
        error_type="E",
        error_message=f"({s})",
    ),
    lambda s: ToolMessageAmended(message_id=uuid4(), content=s, reason=s),
    lambda s: EvaluationSuperseded(evaluation_id="e", reason=s),
    lambda s: CheckpointStored(
        checkpoint=json.dumps({"session": {"note": s}}),
        phase="initialized",
        tool_calls_completed=0,
        created_at=WHEN,
    ),
]


def _runs() -> Iterator[tuple[str, list[Event]]]:
    """Each secret in one place, in turn, and in requests, tags and workers' names: by run.

    What a run's worker is to be called, and its events.
    """
    made = samples(SEED, EACH)
    for start in range(0, len(made), EACH + 1):
        several = made[start : start + EACH + 1]
        short = [sample.text for sample in several if len(sample.text) < 500]
        tags = {f"{text} {number}": text for number, text in enumerate(short)}
        started = RunStarted(request=[s.text for s in several], request_type="Task", tags=tags)
        places = [PLACES[(start + n) % len(PLACES)](s.text) for n, s in enumerate(several)]
        yield f"worker {min(short, key=len, default='')}", [started, *places]


@cache
def _spellings(secret: str) -> set[bytes]:
    """As it is, and as JSON spells it, up to four times over."""
    found = {secret}
    for _ in range(4):
        secret = json.dumps(secret)[1:-1]
        found.add(secret)
    return {one.encode() for one in found}


def _place(record: Record) -> tuple[object, ...]:
    return record.run_id, record.version, record.tag, record.event_id, record.commit


def _everything(store: StoreUnderTest) -> bytes:
    """All bytes that the store holds, its write-ahead log included."""
    if isinstance(store, SQLiteStore):
        folder = store.path.parent
        return b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())
    if isinstance(store, PostgresStore):
        return b"".join(_tables(store.url))
    return repr((store.vandal.rows(), [*store.open().runs()])).encode()


def _tables(url: str) -> Iterator[bytes]:
    with psycopg.connect(url) as db, db.cursor() as cursor:
        cursor.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN "
            "('pg_catalog', 'information_schema')"
        )
        for names in cursor.fetchall():
            table = sql.Identifier(*names)
            with cursor.copy(sql.SQL("COPY {} TO STDOUT (FORMAT csv)").format(table)) as copy:
                # In CSV a quote is written twice, and everything else as it is.
                yield b"".join(map(bytes, copy)).replace(b'""', b'"')


def _missed(store: StoreUnderTest, every: int = 1) -> list[Sample]:
    found = _everything(store)
    assert b"[redacted: " in found
    # Pages and indexes repeat most of it. What has only such characters is in one of these words,
    # or nowhere.
    words = b"\n".join({*WORD.findall(found)})
    made = samples(SEED, EACH)[::every]
    return [
        sample
        for sample in made
        if any(
            one in (words if WORD.fullmatch(one) else found) for one in _spellings(sample.secret)
        )
    ]


def test_of_a_thousand_secrets_none_is_in_the_store(store: StoreUnderTest) -> None:
    """What was promised: at least 99 of 100 are redacted, and those are in no file and no log."""
    ledger = store.open()
    made = samples(SEED, EACH)
    assert len(made) >= 1000
    assert len({sample.format for sample in made}) == len(MAKERS) >= 20
    for worker, events in _runs():
        run = new_run_id()
        ledger.append(run, events, NEW)
        ledger.claim(run, worker=worker)
    assert _missed(store) == []
    assert ledger.verify_all().ok
    ledger.close()
    assert _missed(store, every=7) == []


@cache
def _careless_export() -> bytes:
    """A file of a ledger that has all secrets."""
    with Ledger.open("memory://", redactor=None) as careless:
        for _, events in _runs():
            careless.append(new_run_id(), events, NEW)
        file = BytesIO()
        export_runs(careless, file)
    return file.getvalue()


@pytest.mark.parametrize("store", further("sqlite", "postgres", "memory"), indirect=True)
def test_of_an_import_none_is_in_the_store(store: StoreUnderTest) -> None:
    """A file of a ledger that kept its secrets brings none of them along."""
    file = BytesIO(_careless_export())
    ledger = store.open()
    report = import_runs(ledger, file)
    assert report.redacted >= 1000
    assert len(report.rechained) == report.runs
    assert _missed(store, every=7) == []
    assert ledger.verify_all().ok
    file.seek(0)
    again = import_runs(ledger, file)
    assert (again.imported, again.already_there) == (0, report.records)


def test_an_import_changes_only_what_follows_a_secret(store: StoreUnderTest) -> None:
    """Runs without secrets keep their bytes; ids, times and forks stay for all."""
    secret = samples(1, 1, ["github-token"])[0].text
    with Ledger.open("memory://", redactor=None) as careless:
        clean, dirty = new_run_id(), new_run_id()
        careless.append(clean, [RunStarted(), CustomEvent(kind="a.b", data=1)], NEW)
        careless.append(dirty, RunStarted(), NEW)
        careless.append(dirty, CustomEvent(kind="a.b", data=secret), ANY)
        careless.append(dirty, CustomEvent(kind="a.b", data=2), ANY)
        early, late = careless.fork(dirty, 1), careless.fork(dirty, 3)
        latest = careless.fork(late, 4)
        file = BytesIO()
        export_runs(careless, file)
        before = {run: list(careless.read(run)) for run in (clean, dirty, early, late, latest)}
    ledger = store.open()
    file.seek(0)
    report = import_runs(ledger, file)
    assert report.redacted == 1
    assert set(report.rechained) == {str(run) for run in (dirty, late, latest)}
    for run, records in before.items():
        found = list(ledger.read(run))
        assert list(map(_place, found)) == list(map(_place, records))
        same = [a.digest == b.digest for a, b in zip(found, records, strict=True)]
        assert same == ([True, *[False] * (len(same) - 1)] if run not in (clean, early) else
                        [True] * len(same))  # fmt: skip
        assert ledger.verify(run).ok
    # And what it is now goes out and in again as it is.
    file = BytesIO()
    export_runs(ledger, file)
    file.seek(0)
    with Ledger.open("memory://") as copy:
        assert import_runs(copy, file).redacted == 0


def test_a_secret_that_an_import_does_not_read_is_not_kept_either(store: StoreUnderTest) -> None:
    """Of a key that is there twice the last counts; the first is in the text all the same."""
    secret = samples(1, 1, ["github-token"])[0].text
    file = BytesIO()
    with Ledger.open("memory://", redactor=None) as careless:
        run = new_run_id()
        careless.append(run, CustomEvent(kind="a.b", data="ok"), NEW)
        row = careless.record(run, 1).row
        export_runs(careless, file)
    _, _, version, tag, event_id, moment, digest, data = row
    twice = f'{{"kind":"a.b","data":"{secret}","data":"ok"}}'
    other = link(
        GENESIS, str(run).encode(), version, event_id.encode(), tag.encode(), moment, twice.encode()
    )
    text = file.getvalue().decode().replace(data, twice).replace(digest.hex(), other.hex())
    ledger = store.open()
    report = import_runs(ledger, BytesIO(text.encode()))
    assert (report.imported, report.redacted) == (1, 1)
    assert secret.encode() not in _everything(store)
    assert ledger.verify_all().ok


def test_an_import_without_a_redactor_takes_all_as_it_is(store: StoreUnderTest) -> None:
    """Who moves a ledger as it is, secrets and all, says so."""
    secret = samples(1, 1, ["github-token"])[0].text
    with Ledger.open("memory://", redactor=None) as careless:
        run = new_run_id()
        careless.append(run, RunStarted(tags={"a": secret}), NEW)
        file = BytesIO()
        export_runs(careless, file)
    file.seek(0)
    ledger = store.open(redactor=None)
    assert import_runs(ledger, file).redacted == 0
    assert ledger.run(run).tags == {"a": secret}


def test_ones_own_rules_hold_in_every_place(store: StoreUnderTest) -> None:
    """A pattern of one's own is worth as much as a known format."""
    rules = Redactor(formats=[], patterns=[SecretPattern("acme", r"ACME-[0-9]{4}")])
    ledger = store.open(redactor=rules)
    events = [place(f"ACME-{1000 + number}") for number, place in enumerate(PLACES)]
    ledger.append(new_run_id(), [RunStarted(), *events], NEW)
    found = _everything(store)
    for number in range(len(PLACES)):
        assert f"ACME-{1000 + number}".encode() not in found, number
    assert b"[redacted: acme]" in found
