"""Two runs side by side: at the first difference at once, and through all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from tests.page.harness.served import Served
from tests.page.harness.staging import Demo, LongRun
from tests.page.harness.visit import Browse, Visit
from turnledger.ledger import NEW, CustomEvent, Ledger, RunStarted, new_run_id
from turnledger.projections import Comparison, compare

MOST_NODES, LARGEST_ANSWER = 2_000, 300_000
# More differences than one answer lists.
NOTES = 1_200


def compared(demo: Demo, first: UUID, second: UUID) -> Comparison:
    with Ledger.open(demo.db) as ledger:
        return compare(ledger, first, second)


def differences(found: Comparison) -> list[int]:
    """The numbers of the rows that differ, from 1."""
    rows = enumerate(found.rows, 1)
    return [number for number, row in rows if row.kind != "same" and not row.bookkeeping]


def expect_row(page: Page, number: int, total: int) -> None:
    """Wait until a row is looked at: in the head, and in the list."""
    expect(page.locator(".compare-head output")).to_have_text(f"row {number:,} of {total:,}")
    chosen = page.get_by_role("listbox").locator("[aria-selected=true]")
    expect(chosen).to_have_attribute("aria-posinset", str(number))
    expect(chosen).to_be_in_viewport()


def test_a_comparison_opens_at_the_first_difference(visit: Visit, demo: Demo) -> None:
    """The row, both versions, and what differs in the state there, without ids and times."""
    first, second = demo.runs.undisturbed, demo.runs.recovered
    found = compared(demo, first, second)
    page = visit.open(f"/compare/{first}/{second}")
    (row, *_) = differences(found)
    expect_row(page, row, len(found.rows))
    assert found.rows[row - 1].kind == "only_first"
    event = page.get_by_role("region", name="What differs in the event")
    expect(event).to_contain_text("slice.event_applied: only in the first.")
    state = page.get_by_role("region", name="What differs in the state")
    expect(state).to_contain_text("1 value differs")
    expect(state.get_by_role("list").locator(".path")).to_contain_text("/slices/Payment")
    expect(state.locator(".side")).to_contain_text('[{"amount":120,"invoice":17}]')
    assert visit.address == f"/compare/{first}/{second}"


def test_keys_go_through_the_differences_and_back(visit: Visit, demo: Demo) -> None:
    """Each difference once, in order; at the last one nothing happens; Back undoes a jump."""
    first, second = demo.runs.undisturbed, demo.runs.recovered
    found = compared(demo, first, second)
    rows, total = differences(found), len(found.rows)
    page = visit.open(f"/compare/{first}/{second}")
    for place, row in enumerate(rows, 1):
        expect_row(page, row, total)
        expect(page.locator(".compare-head [role=status]")).to_contain_text(
            f"difference {place} of {len(rows)}"
        )
        visit.press("x")
    expect_row(page, rows[-1], total)
    for row in reversed(rows[:-1]):
        page.get_by_role("button", name="Previous difference").click()
        expect_row(page, row, total)
    page.get_by_role("button", name="Next difference").click()
    expect_row(page, rows[1], total)
    page.go_back()
    expect_row(page, rows[0], total)


def test_a_changed_event_is_shown_with_both_values(visit: Visit, demo: Demo) -> None:
    """The path of each change, and the value in the first run and in the second."""
    first, second = demo.runs.undisturbed, demo.runs.fork
    found = compared(demo, first, second)
    row = next(n for n in differences(found) if found.rows[n - 1].kind == "changed")
    (change, *_) = found.rows[row - 1].changes
    page = visit.open(f"/compare/{first}/{second}?at={row}")
    expect_row(page, row, len(found.rows))
    expect(page.locator(".compare-head [role=status]")).to_contain_text(
        f"{found.shared} events shared"
    )
    event = page.get_by_role("region", name="What differs in the event")
    expect(event.locator(".path").first).to_contain_text(change.path)
    expect(event.locator(".change").first).to_contain_text("two invoices")
    expect(page.locator("[aria-selected=true]")).to_contain_text("≠")


def test_rows_are_stepped_through(visit: Visit, demo: Demo) -> None:
    """j and k go by a row, Home and End to the ends; the address keeps the row."""
    first, second = demo.runs.undisturbed, demo.runs.recovered
    total = len(compared(demo, first, second).rows)
    page = visit.open(f"/compare/{first}/{second}?at=7")
    expect_row(page, 7, total)
    visit.press("j", "j", "k")
    expect_row(page, 8, total)
    visit.press("End")
    expect_row(page, total, total)
    expect(page).to_have_url(re.compile(rf"\?at={total}$"))
    visit.press("Home")
    expect_row(page, 1, total)


def test_each_run_opens_at_its_event(visit: Visit, demo: Demo) -> None:
    """The versions are those of the row, and Back comes back."""
    first, second = demo.runs.undisturbed, demo.runs.recovered
    found = compared(demo, first, second)
    (row,) = [n for n, one in enumerate(found.rows, 1) if (one.first, one.second) == (22, 28)]
    page = visit.open(f"/compare/{first}/{second}?at={row}")
    page.get_by_role("link", name="Open the second run at event 28").click()
    visit.expect_version(28)
    expect(page.get_by_role("heading", level=1)).to_contain_text(str(second)[-12:])
    page.go_back()
    page.get_by_role("link", name="Open the first run at event 22").click()
    visit.expect_version(22)


def test_equal_runs_are_said_to_be_the_same(visit: Visit, demo: Demo) -> None:
    """No difference is made up, and none is gone to."""
    run = demo.runs.recovered
    page = visit.open(f"/compare/{run}/{run}")
    expect(page.locator(".compare-head [role=status]")).to_have_text(
        "The runs are the same, 41 events shared"
    )
    expect_row(page, 1, 41)
    visit.press("x")
    expect_row(page, 1, 41)
    state = page.get_by_role("region", name="What differs in the state")
    expect(state).to_contain_text("the states are the same, but for ids and times")


def test_the_other_run_is_chosen_from_a_list(visit: Visit, demo: Demo) -> None:
    """It has the other runs of the agent, and not the run itself."""
    first, second = demo.runs.undisturbed, demo.runs.recovered
    page = visit.open(f"/runs/{first}?at=3")
    visit.expect_version(3)
    visit.press("c")
    listed = page.get_by_role("dialog").get_by_role("listitem")
    expect(listed).to_have_count(4)
    assert not listed.filter(has_text=str(first)[-12:]).count()
    listed.filter(has_text=str(second)[-12:]).get_by_role("button").click()
    expect(page).to_have_url(f"{demo.served.url}/compare/{first}/{second}")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_other_run_is_pasted(visit: Visit, demo: Demo) -> None:
    """An id or a link to the run; anything else is said to have none."""
    first, second = demo.runs.undisturbed, demo.runs.waiting
    page = visit.open(f"/runs/{first}?at=3")
    page.get_by_role("button", name="Compare", exact=True).click()
    dialog = page.get_by_role("dialog")
    box = dialog.get_by_role("textbox")
    expect(box).to_be_focused()
    box.fill("the other one")
    box.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("There is no run's id in this")
    box.fill(f"{demo.served.url}/runs/{second}?at=2")
    box.press("Enter")
    expect(page).to_have_url(f"{demo.served.url}/compare/{first}/{second}")


def test_a_run_that_is_not_there_is_a_problem(visit: Visit, demo: Demo) -> None:
    """It says what happened, and what to do."""
    visit.expect_console("404")
    page = visit.open(f"/compare/{demo.runs.undisturbed}/{new_run_id()}")
    problem = page.get_by_role("alert").first
    expect(problem).to_contain_text("the list of runs has those of this ledger")
    expect(problem.get_by_role("button", name="Try again")).to_be_visible()


@pytest.fixture(scope="module")
def different(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, UUID, UUID]]:
    """Two runs that differ in more events than one answer lists."""
    db: Path = tmp_path_factory.mktemp("different") / "runs.db"
    runs = new_run_id(), new_run_id()
    with Ledger.open(db) as ledger:
        for run in runs:
            notes = [
                CustomEvent(kind="shop.note", data={"number": number, "of": str(run)})
                for number in range(NOTES)
            ]
            ledger.append(run, RunStarted(), NEW)
            ledger.append(run, notes[:600], 1)
            ledger.append(run, notes[600:], 601)
    with Served(db) as served:
        yield (served, *runs)


def test_differences_beyond_those_listed_are_found(
    browse: Browse, different: tuple[Served, UUID, UUID]
) -> None:
    """Forward and backward, and the count says that there are more."""
    served, first, second = different
    visit = browse(served)
    page = visit.open(f"/compare/{first}/{second}?at=1100")
    expect_row(page, 1100, NOTES + 1)
    expect(page.locator(".compare-head [role=status]")).to_contain_text("1,000+ differences")
    visit.press("x")
    expect_row(page, 1101, NOTES + 1)
    visit.press("X")
    expect_row(page, 1100, NOTES + 1)
    visit.press("X")
    expect_row(page, 1099, NOTES + 1)


def test_a_long_comparison_is_bounded(browse: Browse, long_run: LongRun) -> None:
    """At 100,000 events as little is on the page, and in an answer, as at a few."""
    visit = browse(long_run.served)
    page = visit.open(f"/compare/{long_run.run}/{long_run.run}?at=50000")
    expect_row(page, 50_000, 100_000)
    visit.press("End")
    expect_row(page, 100_000, 100_000)
    visit.press("Home", "j", "j")
    expect_row(page, 3, 100_000)
    visit.settle()
    assert visit.nodes() <= MOST_NODES
    assert visit.largest_answer <= LARGEST_ANSWER
