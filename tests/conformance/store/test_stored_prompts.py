"""Prompt streams in a store: folded, verified, rebuilt, exported and given up."""

from __future__ import annotations

import io
from uuid import UUID

import pytest

from tests.conformance.harness import StoreUnderTest
from tests.conformance.prompts import cleared, moved, override, write_prompt
from tests.conformance.samples import started
from turnledger.ledger import (
    ANY,
    NEW,
    IntegrityFailureError,
    Ledger,
    export_runs,
    import_runs,
    new_run_id,
)
from turnledger.projections import blame, diff, state_at


@pytest.fixture
def prompt(ledger: Ledger) -> UUID:
    """A stream of three commits: two texts set, one tag."""
    return write_prompt(ledger)


def test_a_prompts_state_is_folded_at_any_version(ledger: Ledger, prompt: UUID) -> None:
    """Overrides by path and tags; diff and blame name the event that set a text."""
    ledger.append(prompt, [override("Be kind."), cleared("tool:search"), moved("stable", 4)], ANY)
    now, before = state_at(ledger, prompt).prompt, state_at(ledger, prompt, 3).prompt
    assert {path: one.body for path, one in now.overrides.items()} == {"tone": "Be kind."}
    assert set(before.overrides) == {"tone", "tool:search"}
    assert (before.overrides["tone"].set_by, before.overrides["tone"].version) == ("ann", 1)
    assert (before.tags, now.tags) == ({"stable": 1}, {"stable": 4})
    assert {change["path"] for change in diff(ledger, prompt, 4, 6)} == {
        "/prompt/overrides/tool:search",
        "/prompt/tags/stable",
    }
    assert blame(ledger, prompt, "/prompt/overrides/tone/body").version == 4
    assert blame(ledger, prompt, "/prompt/overrides/tone/body", at=3).version == 1
    assert "prompt" not in state_at(ledger, _run(ledger)).to_json()


def _run(ledger: Ledger) -> UUID:
    run = new_run_id()
    ledger.append(run, started(), NEW)
    return run


def test_a_prompt_stream_is_verified_rebuilt_and_moved(
    store: StoreUnderTest, ledger: Ledger, prompt: UUID
) -> None:
    """As every run is: export, import, export gives the same bytes, and the kind stays."""
    _run(ledger)
    row = ledger.store.run(str(prompt))
    assert ledger.rebuild_index() == 2
    assert ledger.store.run(str(prompt)) == row
    assert ledger.verify(prompt).ok
    assert ledger.verify_all().ok
    file, again = io.BytesIO(), io.BytesIO()
    export_runs(ledger, file)
    with Ledger.open("memory://") as other:
        file.seek(0)
        import_runs(other, file)
        export_runs(other, again)
        assert [info.run_id for info in other.runs(kind="prompt")] == [prompt]
        assert other.append(prompt, cleared(), 3).version == 4
    assert again.getvalue() == file.getvalue()


def test_a_prompts_lost_records_are_given_up_without_an_event(
    store: StoreUnderTest, ledger: Ledger, prompt: UUID
) -> None:
    """Nothing recovers a prompt, so it is not parked, and can be written on."""
    store.vandal.delete(list(ledger.tail())[-1].position)
    with pytest.raises(IntegrityFailureError):
        ledger.rebuild_index()
    ledger.rebuild_index(accept_loss=[prompt])
    assert ledger.append(prompt, override("Be kind."), 2).version == 3
    assert ledger.verify(prompt).ok
