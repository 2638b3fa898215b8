"""The strip of a run: the thumb on its event, what stands out, play, and lanes."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.page.harness.staging import Demo, LongRun
from tests.page.harness.visit import Browse, Visit


def slider(page: Page) -> Locator:
    return page.get_by_role("slider", name="Event")


def expect_thumb(page: Page, version: int, head: int) -> None:
    """The middle of the thumb is in the middle of its event's part of the strip."""
    expect(slider(page)).to_have_attribute("aria-valuenow", str(version))
    strip, thumb = slider(page).bounding_box(), page.locator(".thumb").bounding_box()
    assert strip
    assert thumb
    middle = thumb["x"] + thumb["width"] / 2 - strip["x"]
    assert abs(middle - (version - 0.5) / head * strip["width"]) <= 1.5
    assert strip["x"] - 2 <= thumb["x"] <= strip["x"] + strip["width"]


def test_the_thumb_is_on_its_event(visit: Visit, demo: Demo) -> None:
    """A click on the strip goes to the event that is drawn there, and the thumb stands on it."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=20")
    visit.expect_version(20)
    expect_thumb(page, 20, 41)
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile("^event 20: .*doubt"))
    box = slider(page).bounding_box()
    assert box
    for version in (1, 7, 41):
        x = (version - 0.5) / 41 * box["width"]
        slider(page).click(position={"x": x, "y": box["height"] - 5})
        visit.expect_version(version)
        expect_thumb(page, version, 41)


def test_the_slider_moves_by_keys_and_by_drag(visit: Visit, demo: Demo) -> None:
    """An arrow is one event; while it is dragged the page follows."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=20")
    visit.expect_version(20)
    slider(page).focus()
    visit.press("ArrowRight", "ArrowRight", "ArrowLeft")
    visit.expect_version(21)
    box = slider(page).bounding_box()
    assert box
    y = box["y"] + box["height"] - 5
    page.mouse.move(box["x"] + 20.5 / 41 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 29.5 / 41 * box["width"], y, steps=3)
    page.mouse.up()
    visit.expect_version(30)
    expect_thumb(page, 30, 41)


def test_what_stands_out_is_counted_and_gone_to(visit: Visit, demo: Demo) -> None:
    """Failures, doubts and resumes of the run, as many as its events have."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=1")
    visit.expect_version(1)
    legend = page.locator(".strip .legend")
    shape = demo.served.get(f"/v1/runs/{demo.runs.recovered}/shape").json()["shape"]
    doubts, resumes = shape.count("?"), shape.count("+")
    assert (doubts, resumes) == (1, 2)
    expect(legend).to_contain_text("no failure")
    expect(legend).to_contain_text("1 doubt")
    expect(legend).to_contain_text("2 resumes")
    drawn = page.get_by_role("region", name="The whole run").get_by_role("img")
    expect(drawn).to_have_attribute("aria-label", "41 events: 0 failures, 1 doubt, 2 resumes")
    legend.get_by_role("button", name="Next doubt").click()
    visit.expect_version(shape.index("?") + 1)
    legend.get_by_role("button", name="Next resume").click()
    visit.expect_version(shape.index("+", shape.index("?")) + 1)


def test_counts_hold_for_a_long_run(browse: Browse, long_run: LongRun) -> None:
    """At 100,000 events each failure and doubt is counted, and can be gone to."""
    visit = browse(long_run.served)
    page = visit.open(f"/runs/{long_run.run}?at=50000")
    visit.expect_version(50_000)
    shape = long_run.served.get(f"/v1/runs/{long_run.run}/shape").json()["shape"]
    legend = page.locator(".strip .legend")
    failures = sum(shape.count(one) for one in "XxEMT")
    expect(legend).to_contain_text(f"{failures:,} failures")
    expect(legend).to_contain_text(f"{shape.count('?'):,} doubts")
    expect_thumb(page, 50_000, 100_000)
    legend.get_by_role("button", name="Next doubt").click()
    visit.expect_version(shape.index("?", 50_000) + 1)


def test_a_run_is_played_to_its_end(visit: Visit, demo: Demo) -> None:
    """Space plays and pauses; at the end it stops by itself."""
    page = visit.open(f"/runs/{demo.runs.undisturbed}?at=31")
    visit.expect_version(31)
    visit.press(" ")
    expect(page.get_by_role("button", name="‖ pause")).to_be_visible()
    visit.expect_version(35)
    expect(page.get_by_role("button", name="▶ play")).to_be_visible()
    visit.press("Home", " ")
    expect(page.get_by_role("button", name="‖ pause")).to_be_visible()
    visit.press(" ")
    expect(page.get_by_role("button", name="▶ play")).to_be_visible()
    assert visit.version() < 35


def test_dead_time_is_folded(visit: Visit, demo: Demo) -> None:
    """Time without a worker is a narrow fold that says how long; the wall clock shows it whole."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=20")
    visit.expect_version(20)
    lanes = page.get_by_role("region", name="Workers, model and tools over time")
    expect(lanes.locator(".lane-name")).to_contain_text(["workers", "model", "find_invoice", "pay"])
    expect(lanes.locator(".fold").first).to_have_attribute("title", re.compile("without a worker"))
    paid = lanes.get_by_role("button", name=re.compile("^pay, in doubt"))
    folded = paid.bounding_box()
    page.get_by_role("checkbox", name="worker alive").uncheck()
    expect(lanes.locator(".fold")).to_have_count(0)
    whole = paid.bounding_box()
    assert folded
    assert whole
    assert folded["width"] != whole["width"]
    page.reload()
    expect(page.get_by_role("checkbox", name="worker alive")).not_to_be_checked()
    paid.click()
    visit.expect_version(17)
