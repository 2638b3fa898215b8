"""Blame and pin on the page: the event that set a value, and only the changes of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.page.harness.served import Served
from tests.page.harness.staging import Demo
from tests.page.harness.visit import Browse, Visit
from turnledger.ledger import ANY, Ledger, RunStarted, SliceEventApplied, new_run_id

CHANGES = 130
STATUS = "/summary/status"


def node(page: Page, pointer: str) -> Locator:
    """The row of a value in the state."""
    return page.locator(f'[role=treeitem][data-pointer="{pointer}"]')


def chosen_bar(page: Page) -> Locator:
    return page.get_by_label("Chosen value", exact=True)


def pin_bar(page: Page) -> Locator:
    return page.get_by_label("Pinned value", exact=True)


def pinned_changes(page: Page) -> Locator:
    return pin_bar(page).get_by_role("option")


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, UUID]]:
    """A served run that counts in its state: version 2 sets 1, version 131 sets 130."""
    db, run = tmp_path_factory.mktemp("counted") / "runs.db", new_run_id()
    with Ledger.open(db) as ledger:
        ledger.append(run, RunStarted(), ANY)
        events = [
            SliceEventApplied(slice="n", event_type="shop.N", operation="seed", payload=[number])
            for number in range(1, CHANGES + 1)
        ]
        ledger.append(run, events, ANY)
    with Served(db) as served:
        yield served, run


def test_blame_goes_to_the_event_that_set_a_value(visit: Visit, demo: Demo) -> None:
    """A click tells which it is, b goes there, B and Back come back."""
    run = demo.runs.recovered
    page = visit.open(f"/runs/{run}?at=30&tab=state")
    node(page, "/tools").click()
    node(page, "/tools/1").click()
    node(page, "/tools/1/decided_by").click()
    expect(chosen_bar(page)).to_contain_text("/tools/1/decided_by")
    expect(chosen_bar(page)).to_contain_text("set by event 22 tool_call.decided")
    visit.expect_version(30)
    visit.press("b")
    visit.expect_version(22)
    expect(chosen_bar(page)).to_contain_text("set by this event, 22 tool_call.decided")
    visit.press("B")
    visit.expect_version(30)
    visit.press("b")
    visit.expect_version(22)
    page.go_back()
    visit.expect_version(30)


def test_a_value_of_a_change_can_be_blamed_by_keys(visit: Visit, demo: Demo) -> None:
    """A path is a button: Enter chooses it, p pins it, b goes to the event."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=39")
    page.get_by_role("button", name=STATUS).focus()
    visit.press("Enter")
    expect(chosen_bar(page)).to_contain_text("set by this event, 39 run.completed")
    visit.press("k")
    visit.expect_version(38)
    visit.press("b")
    visit.expect_version(22)


def test_a_value_that_never_changed_says_so(visit: Visit, demo: Demo) -> None:
    """It is of the run's first event."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=30&tab=state")
    node(page, "/summary").click()
    node(page, "/summary/request_type").click()
    expect(chosen_bar(page)).to_contain_text(
        "unchanged since the run began: set by event 1 run.started"
    )


def test_a_value_of_the_shared_part_names_the_run(visit: Visit, demo: Demo) -> None:
    """A fork has its ancestor's events, and blame says whose it was."""
    page = visit.open(f"/runs/{demo.runs.fork}?tab=state")
    node(page, "/history").click()
    node(page, "/history/system").click()
    bar = chosen_bar(page)
    expect(bar).to_contain_text(f"of run {str(demo.runs.undisturbed)[-12:]}, which this one was")


def test_blame_can_be_cancelled_and_its_failure_is_shown(visit: Visit, demo: Demo) -> None:
    """While it looks it can be ended; an error says what happened and can be tried again."""
    visit.expect_console("503")
    held: list[Route] = []
    page = visit.page
    page.route("**/blame?**", lambda route: held.append(route))
    visit.open(f"/runs/{demo.runs.recovered}?at=30&tab=state")
    node(page, "/summary").click()
    node(page, STATUS).click()
    bar = chosen_bar(page)
    expect(bar).to_contain_text("Looking for the event that set it")
    bar.get_by_role("button", name="Cancel").click()
    expect(bar).not_to_contain_text("Looking for")
    # By another route: the request that was cancelled may still be the only one that was held.
    page.unroute("**/blame?**")
    problem = '{"type":"urn:turnledger:problem:store-busy","title":"Busy","detail":"Wait."}'
    kind = "application/problem+json"
    page.route(
        "**/blame?**", lambda route: route.fulfill(status=503, content_type=kind, body=problem)
    )
    node(page, STATUS).click()
    expect(bar).to_contain_text("Busy. Wait.")
    page.unroute("**/blame?**")
    bar.get_by_role("button", name="Try again").click()
    expect(bar).to_contain_text("set by event 22 tool_call.decided")


def test_a_value_that_is_not_there_says_so(visit: Visit, demo: Demo) -> None:
    """A chosen path may name nothing at another version."""
    visit.expect_console("404")
    page = visit.open(f"/runs/{demo.runs.recovered}?at=22")
    page.get_by_role("button", name="/tools/1/decided_by").click()
    expect(chosen_bar(page)).to_contain_text("set by this event")
    visit.press("k", "b")
    expect(chosen_bar(page)).to_contain_text("There is no such value at version 21.")
    visit.expect_version(21)


def test_a_pinned_value_shows_only_its_changes(visit: Visit, demo: Demo) -> None:
    """Its value at the version, what changed it, marks on the strip; buttons go through them."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=22")
    page.get_by_role("button", name=STATUS).click()
    visit.press("p")
    expect(pinned_changes(page)).to_have_count(3)
    shown = [" ".join(one.split()) for one in pinned_changes(page).all_inner_texts()]
    assert shown == [
        '39 ■ run.completed "running" → "completed"',
        '22 ✓ tool_call.decided "waiting" → "running"',
        '21 ‖ run.waiting "running" → "waiting"',
    ]
    expect(pin_bar(page)).to_contain_text("3 changes in all")
    expect(pin_bar(page).get_by_role("status")).to_have_text('at 22"running"')
    expect(page.get_by_text("3 pinned changes")).to_be_visible()
    expect(page).to_have_url(re.compile("pin=%2Fsummary%2Fstatus"))
    pin_bar(page).get_by_role("button", name="Next change").click()
    visit.expect_version(39)
    expect(pin_bar(page).get_by_role("status")).to_have_text('at 39"completed"')
    expect(pin_bar(page).get_by_role("button", name="Next change")).to_be_disabled()
    pin_bar(page).get_by_role("button", name="Previous change").click()
    visit.expect_version(22)
    visit.press("p")
    expect(pin_bar(page)).to_have_count(0)
    expect(page.get_by_text("pinned changes")).to_have_count(0)


def test_a_link_opens_with_its_pin(visit: Visit, demo: Demo) -> None:
    """For the next reader, at the same version; a step asks for nothing of the pin again."""
    run = demo.runs.recovered
    page = visit.open(f"/runs/{run}?at=21&pin=%2Fsummary%2Fstatus")
    expect(pinned_changes(page)).to_have_count(3)
    expect(pin_bar(page).get_by_role("status")).to_have_text('at 21"waiting"')
    visit.settle()
    visit.count_from_here()
    visit.press("j", "j", "k")
    expect(pin_bar(page).get_by_role("status")).to_have_text('at 22"running"')
    visit.settle()
    assert [one for one in visit.requests if "/value" in one] == []


def test_changes_of_a_pin_come_in_pages(browse: Browse, counted: tuple[Served, UUID]) -> None:
    """The newest first, and it says that more may exist; the value before them is known too."""
    visit = browse(counted[0])
    page = visit.open(f"/runs/{counted[1]}?at=40&pin=%2Fslices%2Fn%2F0")
    expect(pin_bar(page)).to_contain_text("50 changes shown, more may exist")
    expect(pin_bar(page).get_by_role("status")).to_have_text("at 4039")
    pin_bar(page).get_by_role("button", name="Previous change").click()
    visit.expect_version(39)
    expect(pin_bar(page).get_by_role("status")).to_have_text("at 3938")
    # The one after it is not among those that are known: they begin at 82.
    following = pin_bar(page).get_by_role("button", name="Next change")
    expect(following).to_be_disabled()
    pin_bar(page).get_by_role("button", name="Search before 82").click()
    expect(pin_bar(page)).to_contain_text("100 changes shown, more may exist")
    following.click()
    visit.expect_version(40)
    pin_bar(page).get_by_role("button", name="Search before 32").click()
    expect(pin_bar(page)).to_contain_text(f"{CHANGES} changes in all")
    visit.press("Home")
    expect(pin_bar(page).get_by_role("status")).to_have_text("at 1not in the state")
    assert visit.nodes() < 2000


def test_a_pin_that_no_event_changed_says_so(visit: Visit, demo: Demo) -> None:
    """It is not an empty bar."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=22&pin=%2Fsummary%2Fnothing")
    expect(pin_bar(page)).to_contain_text("No event changed it.")
    expect(pin_bar(page)).to_contain_text("not in the state")
