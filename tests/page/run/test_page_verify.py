"""Verification on demand: what was changed is shown, what was not verified never looks verified."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.page.harness.staging import Demo, LongRun
from tests.page.harness.visit import Browse, Visit


def expect_unverified(page: Page) -> None:
    expect(page.get_by_role("button", name="Verify", exact=True)).to_be_visible()
    expect(page.locator(".run-head")).not_to_contain_text("verified")


def test_a_run_is_verified_when_it_is_asked_for(visit: Visit, demo: Demo) -> None:
    """Not before; and the next run that is opened is not verified with it."""
    page = visit.open(f"/runs/{demo.runs.undisturbed}?at=3")
    visit.expect_version(3)
    expect_unverified(page)
    visit.press("v")
    done = page.get_by_role("button", name="✓ verified up to 35")
    done.click()
    expect(page.get_by_role("dialog")).to_contain_text("35 records of 1 run")
    visit.press("Escape", "g")
    page.get_by_role("option").filter(has_text=str(demo.runs.recovered)[-12:]).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(str(demo.runs.recovered)[-12:])
    expect_unverified(page)


def test_a_changed_record_is_shown(browse: Browse, own_demo: Demo) -> None:
    """In the list and on the strip, by its version, with what was expected and what was found."""
    run, version = own_demo.tamper()
    visit = browse(own_demo.served)
    page = visit.open(f"/runs/{run}?at=1")
    visit.expect_version(1)
    expect_unverified(page)
    visit.press("v")
    dialog = page.get_by_role("dialog", name="This run was changed")
    damage = dialog.locator(".damage").first
    expect(damage).to_contain_text(f"Event {version} of {str(run)[-12:]}")
    expect(damage).to_contain_text(re.compile("the digest should be [0-9a-f]{64}"))
    expect(damage).to_contain_text(re.compile("found [0-9a-f]{64}"))
    damage.get_by_role("button").first.click()
    expect(dialog).to_have_count(0)
    visit.expect_version(version)
    row = page.get_by_role("listbox", name="Events").locator("[aria-selected=true]")
    expect(row).to_have_class(re.compile("damaged"))
    expect(row).to_have_attribute("title", re.compile("digest|changed"))
    drawn = page.get_by_role("region", name="The whole run").get_by_role("img")
    expect(drawn).to_have_attribute("aria-label", re.compile("1 changed record"))
    expect(page.locator(".run-head")).not_to_contain_text("✓")
    expect(page.get_by_role("button", name=re.compile("✕ .* problem"))).to_be_visible()


def test_progress_is_shown_and_can_be_stopped(browse: Browse, long_run: LongRun) -> None:
    """A verification that was stopped leaves the run as unverified as it was."""
    visit = browse(long_run.served)
    page = visit.open(f"/runs/{long_run.run}?at=3")
    visit.expect_version(3)
    visit.press("v")
    going = page.locator(".verified")
    expect(going.get_by_role("progressbar")).to_be_visible()
    expect(going).to_contain_text("of 100,000")
    going.get_by_role("button", name="Stop").click()
    expect_unverified(page)
