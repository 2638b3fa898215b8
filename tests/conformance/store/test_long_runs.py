"""Long runs on every store: what passes events on holds a page of them, however many there are."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import psycopg
import pytest

from benchmarks.long_events import START, long_run, write
from benchmarks.long_steps import Taken
from tests.conformance.harness import StoreUnderTest
from tests.matrices import further
from tests.soaking import rounds
from turnledger.ledger import (
    ANY,
    CheckpointReached,
    CustomEvent,
    InnerMessage,
    Ledger,
    Limits,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.ledger.stores.base import PAGE
from turnledger.projections import Declarations, RunState, inner_message_append, state_at
from turnledger.projections.views.one_conversation import one_conversation
from turnledger.runtime import replay

SHORT, LONG = 1_200, 3_600
# Three times the events may take this much more memory: the allocator's and the caches' noise.
# The interpreter keeps up to 2,000 tuples of each size for later, and they count.
MORE, NOISE = 1.5, 400_000
MILLION = 1_000_000


class Nowhere(BytesIO):
    """Takes what is written, and keeps nothing."""

    def write(self, data: Any, /) -> int:
        return len(data)


def _append(ledger: Ledger, run: UUID) -> None:
    for number in range(20):
        ledger.append(run, CustomEvent(kind="acme.appended", data=number), ANY)


def _verify(ledger: Ledger, run: UUID) -> None:
    assert ledger.verify(run).ok


def _verify_all(ledger: Ledger, run: UUID) -> None:
    assert ledger.verify_all().ok


def _export(ledger: Ledger, run: UUID) -> None:
    export_runs(ledger, Nowhere(), [run])


def _read(ledger: Ledger, run: UUID) -> None:
    assert sum(1 for record in ledger.read(run) if record.event) >= SHORT


def _read_backwards(ledger: Ledger, run: UUID) -> None:
    assert sum(1 for record in ledger.read(run, backwards=True) if record.event) >= SHORT


def _tail(ledger: Ledger, run: UUID) -> None:
    assert sum(1 for _ in ledger.tail()) >= SHORT


def _fork(ledger: Ledger, run: UUID) -> None:
    child = ledger.fork(run, SHORT // 2 // 100 * 100)
    assert sum(1 for _ in ledger.read(child)) == ledger.head(child)
    assert ledger.verify(child).ok


def _conversation(ledger: Ledger, run: UUID) -> None:
    assert one_conversation(ledger, run).history.for_send()


PASSING: tuple[Callable[[Ledger, UUID], None], ...] = (
    _append,
    _verify,
    _verify_all,
    _export,
    _read,
    _read_backwards,
    _tail,
    _conversation,
    _fork,
)


def _peak(work: Callable[[], object]) -> int:
    """The most that Python held beyond what it held before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("store", further("postgres", "sqlite", "memory"), indirect=True)
def test_what_passes_events_on_takes_no_more_memory_for_a_longer_run(
    store: StoreUnderTest,
) -> None:
    """Protects append, verify, export, read, tail, forks and one conversation from growing with
    a run: nothing of them may hold all of its events."""
    ledger = store.open()
    taken: dict[Any, list[int]] = {work: [] for work in PASSING}
    for length in (SHORT, LONG):
        run = new_run_id()
        write(ledger, run, length)
        for work in PASSING:
            work(ledger, run)  # what is made once is there already
            taken[work].append(_peak(partial(work, ledger, run)))
    grown = {work.__name__: peaks for work, peaks in taken.items()}
    assert not {name: pair for name, pair in grown.items() if pair[1] > MORE * pair[0] + NOISE}


@pytest.mark.parametrize("shared_store", further("sqlite", "postgres"), indirect=True)
def test_an_import_takes_no_more_memory_for_a_longer_run(
    shared_store: StoreUnderTest, tmp_path: Path
) -> None:
    """Protects import from holding the file: it is read line by line and written in batches."""
    # Many batches in both, or the shorter one would be a batch.
    ledger = shared_store.open(limits=Limits(max_batch_events=200))
    peaks = []
    for length in (SHORT, LONG):
        file = tmp_path / f"{length}.jsonl"
        with Ledger.open(tmp_path / f"{length}.db") as other:
            run = new_run_id()
            write(other, run, length)
            with file.open("wb") as out:
                export_runs(other, out, [run])
        with file.open("rb") as source:
            peaks.append(_peak(partial(import_runs, ledger, source)))
    assert peaks[1] <= MORE * peaks[0] + NOISE


def test_postgresql_is_asked_for_a_page_at_a_time(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from answers that psycopg holds outside of Python: no query may fetch a run."""
    ledger = store.open()
    run, most = new_run_id(), 0
    write(ledger, run, SHORT)
    execute = psycopg.Cursor.execute

    def watched(cursor: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal most
        done = execute(cursor, *args, **kwargs)
        most = max(most, cursor.rowcount)
        return done

    monkeypatch.setattr(psycopg.Cursor, "execute", watched)
    for work in PASSING:
        work(ledger, run)
    import_runs(ledger, _exported(ledger, run))
    assert most <= PAGE
    assert (most > 0) == (type(ledger.store).__name__.startswith("Postgres"))


def _recorded() -> Declarations:
    """What a loop declares: the messages are a slice, too."""
    declared = Declarations()
    declared.register(InnerMessage, InnerMessage, inner_message_append)
    return declared


def _checkpoint(state: RunState) -> CheckpointReached:
    return CheckpointReached(
        phase="post_tool",
        tool_calls_completed=len(state.tools.calls),
        state_digest=state.state_digest,
        outcome_digest=state.outcome_digest,
        created_at=START,
    )


def test_the_checkpoints_of_a_worker_that_folded_a_long_run_are_those_of_the_first(
    shared_store: StoreUnderTest,
) -> None:
    """Protects recovery: one worker asks for digests as it goes, the other only at the end, and a
    replay agrees with both."""
    ledger, run = shared_store.open(), new_run_id()
    events = [e for e in long_run(1_500) if not isinstance(e, CheckpointReached)]
    state = RunState.initial(_recorded())
    for start in range(0, len(events), 50):
        ledger.append(run, events[start : start + 50], ANY)
        state = state.after(ledger.read(run, state.version))
        ledger.append(run, _checkpoint(state), ANY)
        state = state.after(ledger.read(run, state.version))
    second = state_at(ledger, run, declarations=_recorded())
    ledger.append(run, _checkpoint(second), ANY)
    assert second.state_digest == state.state_digest
    assert replay(ledger, run).divergence is None


def _exported(ledger: Ledger, run: UUID) -> BinaryIO:
    file = BytesIO()
    export_runs(ledger, file, [run])
    file.seek(0)
    return file


@pytest.mark.soak
def test_a_run_of_a_million_events_is_read_verified_and_exported_in_a_few_megabytes(
    tmp_path: Path,
) -> None:
    """Protects the figures of docs/explanation/long-runs.md at their full length."""
    path, run = tmp_path / "long.db", new_run_id()
    with Ledger.open(path) as ledger:
        write(ledger, run, MILLION)
        with (tmp_path / "long.jsonl").open("wb") as file:
            export_runs(ledger, file, [run])
    answer = tmp_path / "taken.json"
    bars = {
        "verify": 16,
        "export": 16,
        "log jsonl": 16,
        "messages": 16,
        "import": 32,
        "append": 8,
    }
    for _ in rounds(share=0.06):
        found = {}
        for name in bars:
            step = [sys.executable, "-m", "benchmarks.long_steps", name, str(path), str(run)]
            subprocess.run([*step, str(MILLION), str(answer)], check=True)
            found[name] = Taken(*json.loads(answer.read_bytes())).mib
        assert not {name: mib for name, mib in found.items() if mib > bars[name]}
        Path(f"{path}.imported").unlink()
