"""Addresses: a link opens what was chosen, and Back and Forward go through the jumps."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.page.harness.staging import Demo
from tests.page.harness.visit import Visit
from turnledger.ledger import Ledger

TABS = ("changed", "event", "state", "tools", "usage")
# Jumps through the run that was killed and recovered: turns, a doubt, a resume, both ends.
JUMPS = ("Home", "]", "]", "d", "r", "]", "[", "Home", "d", "End")


def shown(run: object) -> str:
    """How the page writes a run: by the end of its id."""
    return str(run)[-12:]


@pytest.mark.parametrize("tab", TABS)
def test_a_link_opens_an_event_and_a_tab(visit: Visit, demo: Demo, tab: str) -> None:
    """The version and the tab are those of the address, which stays as it was."""
    address = f"/runs/{demo.runs.recovered}?at=19" + ("" if tab == "changed" else f"&tab={tab}")
    page = visit.open(address)
    visit.expect_version(19)
    expect(page.get_by_role("tab", selected=True)).to_have_text(tab)
    expect(page.get_by_role("tabpanel", name=tab)).to_be_visible()
    visit.settle()
    assert visit.address == address


def test_a_link_opens_the_end_of_a_run(visit: Visit, demo: Demo) -> None:
    """Without a version it is the last event, as the run grows."""
    page = visit.open(f"/runs/{demo.runs.undisturbed}")
    visit.expect_version(35)
    expect(page.get_by_role("heading", level=1)).to_contain_text(shown(demo.runs.undisturbed))


def test_a_link_opens_a_search(visit: Visit, demo: Demo) -> None:
    """What was searched is in its box, and its hits are counted."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=7&q=invoice")
    visit.expect_version(7)
    expect(page.get_by_role("searchbox")).to_have_value("invoice")
    expect(page.get_by_role("search")).to_contain_text("hits")


def test_a_link_opens_a_filter_of_runs(visit: Visit, demo: Demo) -> None:
    """Of the runs only those of the filter are listed."""
    page = visit.open("/?q=status%3Awaiting")
    rows = page.get_by_role("listbox", name="Runs").get_by_role("option")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(shown(demo.runs.waiting))
    expect(page.get_by_role("searchbox")).to_have_value("status:waiting")


def test_the_first_page_has_all_runs(visit: Visit, demo: Demo) -> None:
    """Each run of the ledger is a row."""
    rows = visit.open("/").get_by_role("listbox", name="Runs").get_by_role("option")
    expect(rows).to_have_count(5)
    for run in (demo.runs.undisturbed, demo.runs.recovered, demo.runs.fork):
        expect(rows.filter(has_text=shown(run))).to_have_count(1)


def test_an_events_id_opens_its_run_there(visit: Visit, demo: Demo) -> None:
    """`/e/{id}` is a link that holds whatever the version is in: it ends in the run's address."""
    with Ledger.open(demo.db) as ledger:
        record = list(ledger.read(demo.runs.recovered))[18]
    visit.open(f"/e/{record.event_id}")
    visit.expect_version(19)
    expect(visit.page).to_have_url(f"{demo.served.url}/runs/{demo.runs.recovered}?at=19")


def test_an_address_that_names_nothing_says_so(visit: Visit, demo: Demo) -> None:
    """With what to do: a run and an event that are not in the ledger."""
    visit.expect_console("status of 404")
    nothing = "01890a5d-ac96-774b-bcce-b302099a8057"
    for address in (f"/runs/{nothing}", f"/e/{nothing}"):
        page = visit.open(address)
        expect(page.get_by_role("alert")).to_contain_text("Check the address")


def test_back_and_forward_go_through_jumps(visit: Visit, demo: Demo) -> None:
    """Ten jumps are ten entries, each with the steps made after it; single steps are none."""
    visit.open(f"/runs/{demo.runs.recovered}?at=12")
    visit.expect_version(12)
    places = [12]
    for key in JUMPS:
        before = visit.version()
        visit.press(key)
        expect(visit.page.locator(".run-head output")).not_to_have_text(f"event {before}")
        if key != "End":
            after = visit.version()
            visit.press("j")
            visit.expect_version(after + 1)
        places.append(visit.version())
    for place in reversed(places[:-1]):
        visit.page.go_back()
        visit.expect_version(place)
    for place in places[1:]:
        visit.page.go_forward()
        visit.expect_version(place)
