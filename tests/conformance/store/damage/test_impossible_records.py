"""Records whose digests and index fit, and that no append can have made: verify names them.

Readers, an import or a seal would refuse them.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.conformance.harness import StoreUnderTest, Vandal
from tests.conformance.samples import note, notes
from turnledger.ledger import (
    ANY,
    NEW,
    CustomEvent,
    IntegrityFailureError,
    Ledger,
    PromptOverrideCleared,
    PromptOverrideSet,
    RunStarted,
    new_run_id,
    prompt_stream_id,
)
from turnledger.ledger.events.chain import GENESIS, link
from turnledger.ledger.integrity.seal import check_seal, make_seal

NOW = 1_700_000_000_000_000


def relinked(vandal: Vandal, run: UUID, version: int, **changes: Any) -> None:
    """Change columns of a run's last record, with a digest and an index that fit."""
    row = vandal.at(run, version)
    columns = {
        "run_id": row.run_id,
        "tag": row.tag,
        "event_id": row.event_id,
        "recorded_at": row.recorded_at,
    }
    columns |= {"data": row.data} | changes
    before = vandal.at(run, version - 1).digest if version > 1 else GENESIS
    digest = link(before, version=version, **columns)
    for column, value in {**changes, "digest": digest}.items():
        assert vandal.change(row.position, column, value)
    assert vandal.change_run(run, "digest", digest)


def what(ledger: Ledger) -> str:
    """The one problem that verify names."""
    (problem,) = ledger.verify_all().problems
    return problem.what


@pytest.mark.parametrize("spelt", [lambda run: b"zzz", lambda run: str(run).upper().encode()])
def test_a_run_id_in_no_usual_spelling_is_named(store: StoreUnderTest, spelt: Any) -> None:
    """Nobody could ask for the run; and it is not sealed, since no seal with it can be read."""
    ledger, run = store.open(), UUID("0195f5a0-0000-7000-8000-00000000abcd")
    ledger.append(run, note(), NEW)
    relinked(store.vandal, run, 1, run_id=spelt(run))
    assert store.vandal.change_run(run, "run_id", spelt(run))
    assert "id is not a UUID" in what(ledger)
    with pytest.raises(IntegrityFailureError, match="invalid head"):
        make_seal(ledger, NOW)


@pytest.mark.parametrize("event_id", [b"no uuid", b"0195F5A0-0000-7000-8000-00000000ABCD"])
def test_an_event_id_in_no_usual_spelling_is_named(store: StoreUnderTest, event_id: bytes) -> None:
    """An import would refuse it."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, notes(2), NEW)
    relinked(store.vandal, run, 2, event_id=event_id)
    assert "event's id is not a UUID" in what(ledger)


def test_a_second_start_is_named(store: StoreUnderTest) -> None:
    """A run starts with its first record or without one."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, notes(2), NEW)
    relinked(store.vandal, run, 2, tag=RunStarted.tag.encode(), data=b"{}")
    assert "starts a second time" in what(ledger)


def test_an_event_in_a_stream_of_another_kind_is_named(store: StoreUnderTest) -> None:
    """A prompt's in a run, a run's in a prompt's stream, and one in that of another prompt."""
    ledger = store.open()
    run, streams = new_run_id(), [prompt_stream_id("n", key) for key in ("k", "l")]
    ledger.append(run, notes(2), NEW)
    for key, stream in zip(("k", "l"), streams, strict=True):
        made = PromptOverrideSet(prompt_ns="n", prompt_key=key, path="p", body="b")
        ledger.append(stream, [made, made], NEW)
    assert ledger.verify_all().ok
    other = b'{"prompt_ns":"n","prompt_key":"x","path":"p"}'
    relinked(store.vandal, run, 2, tag=PromptOverrideCleared.tag.encode(), data=other)
    relinked(store.vandal, streams[0], 2, tag=CustomEvent.tag.encode(), data=b'{"kind":"a.b"}')
    relinked(store.vandal, streams[1], 2, tag=PromptOverrideCleared.tag.encode(), data=other)
    problems = ledger.verify_all().problems
    assert {problem.run_id for problem in problems} == set(map(str, [run, *streams]))
    assert all("does not belong" in problem.what for problem in problems)


def test_a_fork_from_the_middle_of_a_commit_is_named(store: StoreUnderTest) -> None:
    """A run goes on from the end of one."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, note(), NEW)
    ledger.append(run, note(), ANY)
    child = ledger.fork(run, 1)
    nested = ledger.fork(child, 1)
    assert ledger.verify_all().ok
    relinked(store.vandal, run, 2, recorded_at=(moment := store.vandal.at(run, 1).recorded_at))
    assert store.vandal.change_run(run, "recorded_at", moment)
    problems = ledger.verify_all().problems
    assert {problem.run_id for problem in problems} == {str(child), str(nested)}
    assert all("middle of a commit" in problem.what for problem in problems)


# --- what a verification costs ------------------------------------------------------------


class Counted:
    """How often rows are asked for, and how many are taken."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = self.taken = 0
        rows = ledger.store.raw_rows

        def raw_rows(run_id: Any, first: int | None = None) -> Any:
            self.asked += 1
            for row in rows(run_id, first):
                self.taken += 1
                yield row

        monkeypatch.setattr(ledger.store, "raw_rows", raw_rows)


def test_nested_forks_are_not_climbed_again_and_again(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork of a fork of a fork at one version: each costs the same."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, note(), NEW)
    parent = run
    for _ in range(30):
        parent = ledger.fork(parent, 1)
    counted = Counted(ledger, monkeypatch)
    assert ledger.verify_all().ok
    assert counted.asked <= 31 * 3


def test_a_seal_takes_one_record_of_each_run(
    store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head; the others have been verified, and are not read again."""
    ledger, run = store.open(), new_run_id()
    ledger.append(run, notes(40), NEW)
    ledger.append(new_run_id(), notes(40), NEW)
    seal = make_seal(ledger, NOW)
    ledger.append(run, notes(40), ANY)
    counted = Counted(ledger, monkeypatch)
    assert check_seal(ledger, seal).ok
    assert counted.taken <= 120 + 2
