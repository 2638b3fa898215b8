"""Chat turns on every store: shared pasts, agents, copies, seals, recovery and damage."""

from __future__ import annotations

import io
from pathlib import Path
from uuid import UUID

import pytest

from tests.agent import Crash
from tests.conformance.harness import STORES, StoreUnderTest, store_under_test
from tests.unit.runtime.chats import Chat
from turnledger.ledger import (
    IntegrityFailureError,
    Ledger,
    RunInfo,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.ledger.integrity.seal import check_seal, make_seal
from turnledger.projections import state_at
from turnledger.runtime import replay

NOW = 1_700_000_000_000_000


def chat(ledger: Ledger, *texts: str, name: str = "") -> list[UUID]:
    """The runs of a chat, one for each text."""
    runs: list[UUID] = []
    for text in texts:
        loop = Chat(ledger=ledger, name=name)
        run = loop.execute(text, continues=runs[-1] if runs else None)[0].run_id
        assert run is not None
        runs.append(run)
    return runs


def test_a_turn_shares_its_past_and_copies_nothing(ledger: Ledger) -> None:
    """Each turn adds as many records as the first, and reads all of them in their order."""
    runs = chat(ledger, "one", "two", "three")
    infos = [ledger.run(run) for run in runs]
    assert [(info.kind, info.parent) for info in infos[1:]] == [
        ("turn", runs[0]),
        ("turn", runs[1]),
    ]
    assert len(list(ledger.tail())) == infos[-1].version
    versions = [record.version for record in ledger.read(runs[-1])]
    assert versions == list(range(1, infos[-1].version + 1))
    owners = dict.fromkeys(record.run_id for record in ledger.read(runs[-1]))
    assert list(owners) == runs


def test_the_index_can_be_rebuilt_with_turns_and_agents(ledger: Ledger) -> None:
    """Kind, parent and agent follow from the events alone."""
    chat(ledger, "one", "two", name="triage")
    chat(ledger, "uno", name="sales")
    before = rows(ledger)
    ledger.rebuild_index()
    assert rows(ledger) == before
    assert [info.kind for info in ledger.runs(agent="triage")] == ["turn", "run"]


def rows(ledger: Ledger) -> list[RunInfo]:
    return list(ledger.runs())


@pytest.mark.parametrize("target", STORES)
def test_a_chat_moves_to_another_store_and_goes_on_there(
    store: StoreUnderTest, target: str, tmp_path: Path
) -> None:
    """Exported with its lineage, sealed the same, and continued in the copy."""
    ledger = store.open()
    runs = chat(ledger, "one", "two")
    out = io.BytesIO()
    export_runs(ledger, out)
    (tmp_path / "other").mkdir()
    with store_under_test(target, tmp_path / "other") as other:
        copy = other.open()
        import_runs(copy, io.BytesIO(out.getvalue()))
        seal = make_seal(ledger, NOW)
        assert make_seal(copy, NOW).root == seal.root
        response, _ = Chat(ledger=copy).execute("three", continues=runs[-1])
        assert response.text == "11 turns: one, two, three"
        assert copy.verify_all().ok
        assert check_seal(copy, seal).ok


def test_each_agent_recovers_its_own_turns(ledger: Ledger) -> None:
    """Two agents of one ledger died in their second turns: each lists its own and no other."""

    def die(context: object) -> None:
        raise Crash

    died = {}
    for name in ("triage", "sales"):
        first = chat(ledger, "one", name=name)[0]
        died[name] = new_run_id()
        loop = Chat(ledger=ledger, name=name, in_tool=die)
        with pytest.raises(Crash):
            loop.execute("two", run_id=died[name], continues=first)
    for name, run in died.items():
        loop = Chat(ledger=ledger, name=name)
        assert [found.run_id for found in loop.list_recoverable()] == [run]
        assert loop.recover(run)[0].text == "7 turns: one, two"
        assert replay(ledger, run, loop=Chat(name=name)).check().attempts == 2
        assert state_at(ledger, run).summary.status == "completed"


def test_a_damaged_past_is_not_continued(store: StoreUnderTest, ledger: Ledger) -> None:
    """The whole lineage is read with its digests checked; nothing is written."""
    runs = chat(ledger, "one", "two")
    row = store.vandal.at(runs[0], 7)
    store.vandal.change(row.position, "data", row.data.replace(b"one", b"0ne"))
    before = ledger.store.last_position()
    with pytest.raises(IntegrityFailureError):
        Chat(ledger=ledger).execute("three", continues=runs[-1])
    assert ledger.store.last_position() == before
