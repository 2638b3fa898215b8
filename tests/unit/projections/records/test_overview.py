"""Overviews of runs: tokens and a small shape, extended as a run grows."""

from __future__ import annotations

from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from tests.conformance.samples import note
from tests.unit.projections.given import doubts, fails, replies, starts
from turnledger.ledger import ANY, NEW, Event, Ledger, ModelReplied, RunStarted, new_run_id
from turnledger.projections import SHAPE_CHARACTERS, shape
from turnledger.projections.records.overview import (
    LONGEST,
    STRONGEST,
    Overviews,
    RunOverview,
    overview,
)

EVENTS: tuple[Event, ...] = (note(), starts("c"), fails("c"), doubts("c"), replies())


def small(text: str) -> str:
    """A small shape as its description has it."""
    width = 1
    while -(-len(text) // width) > LONGEST:
        width *= 2
    parts = (text[at : at + width] for at in range(0, len(text), width))
    return "".join(min(part, key=STRONGEST.index) for part in parts)


def test_every_character_has_a_rank() -> None:
    """Doubts, failures, resumes and waits come first."""
    assert sorted(STRONGEST) == sorted(entry.character for entry in SHAPE_CHARACTERS)
    assert set(STRONGEST[:8]) == set("?XMTE+zx")


@given(st.lists(st.lists(st.sampled_from(EVENTS), min_size=1, max_size=90), max_size=6))
@example([[note()] * 59, [doubts("c")], [note()] * 60, [fails("c"), note()]])
def test_extended_is_rebuilt(appends: list[list[Event]]) -> None:
    """Whenever it was made before, it is what one read of the whole run gives."""
    with Ledger.open("memory://") as ledger:
        run = new_run_id()
        ledger.append(run, RunStarted(), NEW)
        known, kept = RunOverview(), Overviews(ledger)
        for events in appends:
            ledger.append(run, events, ANY)
            info = ledger.run(run)
            known = overview(ledger, info, known)
            assert known == overview(ledger, info) == kept.of(info, lambda: False)
            assert known.shape == small(shape(ledger, run).text)
            assert known.version == info.version
            assert known.tokens == sum(
                record.event.usage.input_tokens + record.event.usage.output_tokens
                for record in ledger.read(run)
                if isinstance(record.event, ModelReplied)
            )


def begun(ledger: Ledger, *events: Event) -> UUID:
    run = new_run_id()
    ledger.append(run, [RunStarted(), *events], NEW)
    return run


def test_a_fork_has_its_own_tokens_and_the_whole_shape() -> None:
    """What it shares with its parent was paid for there."""
    with Ledger.open("memory://") as ledger:
        fork = ledger.fork(begun(ledger, replies(), note()), 3)
        found = overview(ledger, ledger.run(fork))
        assert (found.tokens, found.shape) == (0, shape(ledger, fork).text)


def test_cancelled_it_goes_on_the_next_time() -> None:
    """What was read is kept, and nothing is said before all is."""
    with Ledger.open("memory://") as ledger:
        run = begun(ledger)
        for _ in range(3):
            ledger.append(run, [note()] * 500, ANY)
        info, kept = ledger.run(run), Overviews(ledger)
        pages = [0]

        def after_one_page() -> bool:
            pages[0] += 1
            return pages[0] % 2 == 0

        for _ in range(3):
            assert kept.of(info, after_one_page) is None
        assert kept.of(info, after_one_page) == overview(ledger, info)


def test_another_run_under_the_same_id_is_read_again() -> None:
    """As when a ledger was put back from a backup, and went on in another way."""
    with Ledger.open("memory://") as ledger, Ledger.open("memory://") as other:
        run = begun(ledger, note(), note())
        known = overview(ledger, ledger.run(run))
        other.append(run, [RunStarted(), doubts("c"), note(), note()], NEW)
        assert overview(other, other.run(run), known).shape == "^?uu"
        shorter = overview(ledger, ledger.run(run), overview(other, other.run(run)))
        assert shorter.version == 4
