"""Prompt streams: the overrides of a prompt are events beside the runs, and no run themselves."""

from __future__ import annotations

import io
from uuid import UUID

import pytest

from tests.conformance.crowds import together
from tests.conformance.harness import StoreUnderTest
from tests.conformance.samples import message, note, started
from turnledger.ledger import (
    ANY,
    NEW,
    ConcurrentAppendError,
    Event,
    IntegrityFailureError,
    InvalidEventError,
    Ledger,
    PromptOverrideCleared,
    PromptOverrideSet,
    PromptTagMoved,
    RunStarted,
    StreamKindError,
    export_runs,
    import_runs,
    new_run_id,
    prompt_stream_id,
)
from turnledger.projections import blame, diff, state_at

NS, KEY = "acme/support", "answer"
STREAM = prompt_stream_id(NS, KEY)


def override(body: str = "Be brief.", path: str = "tone", **fields: str) -> PromptOverrideSet:
    return PromptOverrideSet(
        prompt_ns=NS, prompt_key=KEY, path=path, body=body, replaces="d", **fields
    )


def moved(tag: str, version: int) -> PromptTagMoved:
    return PromptTagMoved(prompt_ns=NS, prompt_key=KEY, tag_name=tag, version=version)


def cleared(path: str = "tone") -> PromptOverrideCleared:
    return PromptOverrideCleared(prompt_ns=NS, prompt_key=KEY, path=path)


@pytest.fixture
def prompt(ledger: Ledger) -> UUID:
    """A stream of three commits: two texts set, one tag."""
    ledger.append(STREAM, override(set_by="ann", note="shorter"), NEW)
    ledger.append(STREAM, override("Search the shop.", "tool:search"), 1)
    ledger.append(STREAM, moved("stable", 1), 2)
    return STREAM


def test_a_prompt_stream_is_listed_only_if_asked_for(ledger: Ledger, prompt: UUID) -> None:
    """`runs` is about runs, with and without filters; kind="prompt" lists the prompts."""
    run = new_run_id()
    ledger.append(run, started(), NEW)
    assert [info.run_id for info in ledger.runs()] == [run]
    assert [info.run_id for info in ledger.runs(prompt=f"{NS}/{KEY}")] == []
    (info,) = ledger.runs(kind="prompt", prompt=f"{NS}/{KEY}")
    assert (info.run_id, info.kind, info.version) == (prompt, "prompt", 3)


@pytest.mark.parametrize("event", [RunStarted(), note(), message()])
def test_a_prompt_stream_takes_no_event_of_a_run(
    ledger: Ledger, prompt: UUID, event: Event
) -> None:
    """Neither later nor together with its first event; nothing is written."""
    with pytest.raises(StreamKindError):
        ledger.append(prompt, event, ANY)
    other = PromptOverrideSet(prompt_ns=NS, prompt_key="b", path="p", body="t", replaces="")
    with pytest.raises(StreamKindError):
        ledger.append(prompt_stream_id(NS, "b"), [other, event], NEW)
    assert len(list(ledger.tail())) == 3


def test_a_run_takes_no_event_of_a_prompt(ledger: Ledger) -> None:
    """Even a run that was started under the id of a prompt's stream."""
    ledger.append(STREAM, started(), NEW)
    with pytest.raises(StreamKindError):
        ledger.append(STREAM, override(), ANY)
    with pytest.raises(InvalidEventError):
        ledger.append(new_run_id(), override(), NEW)
    assert ledger.head(STREAM) == 1


def test_a_prompt_stream_can_not_be_claimed_forked_or_continued(
    ledger: Ledger, prompt: UUID
) -> None:
    """Each is refused with an error of its own type, and writes nothing."""
    for refused in (
        lambda: ledger.claim(prompt),
        lambda: ledger.fork(prompt, 1),
        lambda: ledger.continuation(prompt),
    ):
        with pytest.raises(StreamKindError):
            refused()
    assert len(list(ledger.tail())) == 3


def test_of_two_who_set_at_once_the_second_gets_the_conflict(store: StoreUnderTest) -> None:
    """The expected version decides, from handles of their own."""
    handles = [store.open(), store.open()]
    handles[0].append(STREAM, override(), NEW)

    def work(place: int) -> tuple[int, int] | None:
        try:
            handles[place].append(STREAM, override(f"text {place}"), 1)
        except ConcurrentAppendError as error:
            return error.expected, error.found
        return None

    outcomes = together(2, work)
    assert outcomes.count(None) == 1
    assert (1, 2) in outcomes


@pytest.mark.parametrize("tag", ["latest", "", "a/b", ".."])
def test_latest_can_not_be_moved(ledger: Ledger, prompt: UUID, tag: str) -> None:
    """It is always the last version; a tag has the name of a file."""
    with pytest.raises(InvalidEventError, match="tag_name"):
        ledger.append(prompt, moved(tag, 1), ANY)


def test_a_tag_names_a_version_that_there_is(ledger: Ledger, prompt: UUID) -> None:
    """One before its own event, in the same append as well."""
    with pytest.raises(InvalidEventError, match="version"):
        ledger.append(prompt, moved("stable", 4), ANY)
    assert ledger.append(prompt, [override("Be kind."), moved("stable", 4)], ANY).version == 5


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
