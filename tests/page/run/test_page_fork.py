"""Fork here: only where a fork can begin, with an edited payload, validated by the server."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.page.harness.staging import Demo
from tests.page.harness.visit import Browse, Visit

# The end of a commit of the undisturbed run; the next event is the result of find_invoice.
ALLOWED = 10


def point(demo: Demo, at: int) -> dict[str, Any]:
    found: dict[str, Any] = demo.served.get(f"/v1/runs/{demo.runs.undisturbed}/fork?at={at}").json()
    return found


def dialog(page: Page, at: int) -> Locator:
    return page.get_by_role("dialog", name=f"Fork at event {at}")


def editing(visit: Visit, demo: Demo) -> tuple[Locator, dict[str, Any]]:
    """The dialog with the next event in its box, and that event's data."""
    page = visit.open(f"/runs/{demo.runs.undisturbed}?at={ALLOWED}")
    visit.expect_version(ALLOWED)
    visit.press("f")
    shown = dialog(page, ALLOWED)
    shown.get_by_role("button", name=f"Edit event {ALLOWED + 1} for the new run").click()
    expect(shown.get_by_role("textbox")).to_be_visible()
    return shown, json.loads(shown.get_by_role("textbox").input_value())


def test_a_fork_with_an_edited_event_opens_the_child(browse: Browse, own_demo: Demo) -> None:
    """The child has the shared events and the edited one; the parent stays as it was."""
    visit = browse(own_demo.served)
    shown, data = editing(visit, own_demo)
    assert data["name"] == "find_invoice"
    expect(shown).to_contain_text("The events up to 14 were recorded together with it")
    data["value"] = {"invoice": 17, "amount": 99}
    shown.get_by_role("textbox").fill(json.dumps(data))
    shown.get_by_role("button", name="Fork with this event").click()
    expect(shown).to_have_count(0)
    page = visit.page
    expect(page).not_to_have_url(re.compile(str(own_demo.runs.undisturbed)))
    child = page.url.rpartition("/")[2].partition("?")[0]
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_contain_text(child[-12:])
    info = own_demo.served.get(f"/v1/runs/{child}").json()
    assert (info["parent"], info["parent_version"]) == (str(own_demo.runs.undisturbed), ALLOWED)
    event = own_demo.served.get(f"/v1/runs/{child}/events/{info['version']}").json()
    assert (event["type"], event["data"]["value"]["amount"]) == ("tool_call.completed", 99)
    assert own_demo.served.get(f"/v1/runs/{own_demo.runs.undisturbed}").json()["version"] == 35
    page.go_back()
    visit.expect_version(ALLOWED)
    visit.press("l")
    tree = page.get_by_role("tree", name="Lineage")
    inner = tree.get_by_role("group").get_by_role("treeitem")
    expect(inner).to_have_count(2)
    expect(tree.locator("[aria-current=true]").locator("> strong")).to_have_text(" (this run)")
    link = inner.filter(has_text=child[-12:]).get_by_role("link")
    link.click()
    expect(heading).to_contain_text(child[-12:])


def test_a_refused_version_offers_the_nearest(visit: Visit, demo: Demo) -> None:
    """It says why, and a button goes on with a version where a fork can begin."""
    (at,) = [at for at in range(11, 14) if not point(demo, at)["allowed"]][:1]
    found = point(demo, at)
    page = visit.open(f"/runs/{demo.runs.undisturbed}?at={at}")
    visit.expect_version(at)
    visit.press("f")
    shown = dialog(page, at)
    expect(shown.get_by_role("alert")).to_contain_text("is in the middle of a commit")
    names = shown.get_by_role("button", name=re.compile("^Fork at event")).all_inner_texts()
    assert names == [f"Fork at event {found[side]}" for side in ("before", "after")]
    shown.get_by_role("button", name=names[0]).click()
    nearest = dialog(page, found["before"])
    expect(nearest.get_by_role("button", name="Fork", exact=True)).to_be_enabled()
    visit.press("Escape")
    visit.expect_version(at)


def test_the_server_s_refusal_names_the_place(visit: Visit, demo: Demo) -> None:
    """A payload that is no such event: which field is wrong, and what was typed is still there."""
    shown, data = editing(visit, demo)
    visit.expect_console("422")
    data["call_id"] = 7
    shown.get_by_role("textbox").fill(json.dumps(data))
    shown.get_by_role("button", name="Fork with this event").click()
    expect(shown.locator("li code")).to_contain_text("/events/0/data/call_id")
    expect(shown.get_by_role("textbox")).to_have_value(json.dumps(data))
    shown.get_by_role("textbox").fill("{")
    shown.get_by_role("button", name="Fork with this event").click()
    expect(shown.get_by_role("alert")).to_contain_text("The event is not JSON")
