"""A run of 100,000 events: what the page holds and asks for is bounded, counted and not timed."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.page.harness.staging import LONG, LongRun
from tests.page.harness.visit import Browse, Visit

NODES, HEAP, ANSWER = 2000, 60, 300_000
REQUESTS = 4
TABS = "12345"
JUMPS = ("]", "d", "e", "r", "]", "D", "E", "[", "R", "d")


@pytest.fixture
def long_visit(browse: Browse, long_run: LongRun) -> Visit:
    """The long run, at its end."""
    visit = browse(long_run.served)
    visit.open(f"/runs/{long_run.run}")
    visit.expect_version(LONG)
    visit.settle()
    return visit


def check_size(visit: Visit) -> None:
    assert visit.nodes() <= NODES
    assert visit.heap() <= HEAP
    assert visit.largest_answer <= ANSWER


def test_a_long_run_is_held_in_windows(long_visit: Visit) -> None:
    """After both ends, 200 steps and ten jumps: few nodes, a small heap, no large answer."""
    visit = long_visit
    check_size(visit)
    visit.press("Home")
    visit.expect_version(1)
    for _ in range(200):
        visit.press("j")
    visit.expect_version(201)
    visit.press("End")
    visit.expect_version(LONG)
    visit.press("Home")
    visit.expect_version(1)
    at = 1
    for key in JUMPS:
        visit.press(key)
        expect(visit.page.locator(".run-head output")).not_to_have_text(f"event {at:,}")
        at = visit.version()
    visit.settle()
    check_size(visit)


@pytest.mark.parametrize("tab", TABS)
def test_each_tab_is_bounded(long_visit: Visit, tab: str) -> None:
    """At the end of the run, where its state is largest, in each tab of the details."""
    long_visit.press(tab)
    long_visit.settle()
    check_size(long_visit)


@pytest.mark.parametrize(
    "tab", [pytest.param(tab, marks=pytest.mark.full if tab in "245" else ()) for tab in TABS]
)
def test_a_step_makes_few_requests(long_visit: Visit, long_run: LongRun, tab: str) -> None:
    """At most four, also where a page of events ends."""
    visit = long_visit
    # On the way the page of events after 50,000 is asked for.
    visit.open(f"/runs/{long_run.run}?at=49930")
    visit.expect_version(49_930)
    visit.press(tab)
    visit.hold("j", 30)
    visit.expect_version(49_960)
    visit.settle()
    made: list[str] = []
    for version in range(49_961, 49_996):
        visit.count_from_here()
        visit.press("j")
        visit.expect_version(version)
        visit.settle()
        made += visit.requests
        assert len(visit.requests) <= REQUESTS, visit.requests
    assert any("/events?after=50000" in request for request in made)


def test_a_held_key_asks_for_little_at_once(long_visit: Visit, long_run: LongRun) -> None:
    """300 events by a held key: at most four requests are under way at once."""
    visit = long_visit
    visit.open(f"/runs/{long_run.run}?at=40000")
    visit.expect_version(40_000)
    visit.settle()
    visit.count_from_here()
    visit.hold("j", 300)
    visit.expect_version(40_300)
    visit.settle()
    assert visit.most_under_way <= REQUESTS
    assert visit.largest_answer <= ANSWER
