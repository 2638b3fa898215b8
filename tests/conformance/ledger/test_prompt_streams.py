"""Prompt streams: the overrides of a prompt are events beside the runs, and no run themselves."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.conformance.crowds import together
from tests.conformance.ledger_like import LedgerLike
from tests.conformance.prompts import KEY, NS, STREAM, moved, override, write_prompt
from tests.conformance.samples import message, note, started
from tests.conformance.surfaces import Surface
from turnledger.ledger import (
    ANY,
    NEW,
    ConcurrentAppendError,
    Event,
    InvalidEventError,
    PromptOverrideSet,
    RunStarted,
    StreamKindError,
    new_run_id,
    prompt_stream_id,
)


@pytest.fixture
def prompt(ledger: LedgerLike) -> UUID:
    """A stream of three commits: two texts set, one tag."""
    return write_prompt(ledger)


def test_a_prompt_stream_is_listed_only_if_asked_for(ledger: LedgerLike, prompt: UUID) -> None:
    """`runs` is about runs, with and without filters; kind="prompt" lists the prompts."""
    run = new_run_id()
    ledger.append(run, started(), NEW)
    assert [info.run_id for info in ledger.runs()] == [run]
    assert [info.run_id for info in ledger.runs(prompt=f"{NS}/{KEY}")] == []
    (info,) = ledger.runs(kind="prompt", prompt=f"{NS}/{KEY}")
    assert (info.run_id, info.kind, info.version) == (prompt, "prompt", 3)


@pytest.mark.parametrize("event", [RunStarted(), note(), message()])
def test_a_prompt_stream_takes_no_event_of_a_run(
    ledger: LedgerLike, prompt: UUID, event: Event
) -> None:
    """Neither later nor together with its first event; nothing is written."""
    with pytest.raises(StreamKindError):
        ledger.append(prompt, event, ANY)
    other = PromptOverrideSet(prompt_ns=NS, prompt_key="b", path="p", body="t", replaces="")
    with pytest.raises(StreamKindError):
        ledger.append(prompt_stream_id(NS, "b"), [other, event], NEW)
    assert len(list(ledger.tail())) == 3


def test_a_run_takes_no_event_of_a_prompt(ledger: LedgerLike) -> None:
    """Even a run that was started under the id of a prompt's stream."""
    ledger.append(STREAM, started(), NEW)
    with pytest.raises(StreamKindError):
        ledger.append(STREAM, override(), ANY)
    with pytest.raises(InvalidEventError):
        ledger.append(new_run_id(), override(), NEW)
    assert ledger.head(STREAM) == 1


def test_a_prompt_stream_can_not_be_claimed_forked_or_continued(
    ledger: LedgerLike, prompt: UUID
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


def test_of_two_who_set_at_once_the_second_gets_the_conflict(surface: Surface) -> None:
    """The expected version decides, from handles of their own."""
    handles = [surface.open(), surface.open()]
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
def test_latest_can_not_be_moved(ledger: LedgerLike, prompt: UUID, tag: str) -> None:
    """It is always the last version; a tag has the name of a file."""
    with pytest.raises(InvalidEventError, match="tag_name"):
        ledger.append(prompt, moved(tag, 1), ANY)


def test_a_tag_names_a_version_that_there_is(ledger: LedgerLike, prompt: UUID) -> None:
    """One before its own event, in the same append as well."""
    with pytest.raises(InvalidEventError, match="version"):
        ledger.append(prompt, moved("stable", 4), ANY)
    assert ledger.append(prompt, [override("Be kind."), moved("stable", 4)], ANY).version == 5
