"""Search in a run: hits on the strip, the way through them, and no word before it has ended."""

from __future__ import annotations

from playwright.sync_api import Page, Route, expect

from tests.page.harness.staging import Demo
from tests.page.harness.visit import Visit

SEARCHES = "**/v1/runs/*/search?*"


def hits(demo: Demo, text: str) -> list[int]:
    """The versions of the hits, in order."""
    found = demo.served.get(f"/v1/runs/{demo.runs.recovered}/search?q={text}&limit=200").json()
    assert found.get("next") is None
    return sorted(hit["version"] for hit in found["hits"])


def strip(page: Page) -> str:
    """What the strip shows, in words."""
    return (
        page.get_by_role("region", name="The whole run")
        .get_by_role("img")
        .get_attribute("aria-label")
        or ""
    )


def test_hits_are_marked_and_gone_through(visit: Visit, demo: Demo) -> None:
    """n and N go to the next and the previous hit; the strip counts them; it ends at the last."""
    versions = hits(demo, "pay")
    page = visit.open(f"/runs/{demo.runs.recovered}?at=1")
    visit.expect_version(1)
    visit.press("/")
    page.get_by_role("searchbox").press_sequentially("pay")
    status = page.get_by_role("search").get_by_role("status")
    expect(status).to_contain_text(f"{len(versions)} hits")
    assert f"{len(versions)} hits" in strip(page)
    page.get_by_role("searchbox").press("Escape")
    later = [version for version in versions if version > 1]
    for version in later:
        visit.press("n")
        visit.expect_version(version)
    expect(status.locator(".excerpt")).to_contain_text("pay", ignore_case=True)
    visit.press("n")
    visit.expect_version(later[-1])
    visit.press("N")
    visit.expect_version(later[-2])


def test_nothing_is_said_to_be_missing_before_the_search_has_ended(
    visit: Visit, demo: Demo
) -> None:
    """While typing has not rested, and while the server searches, it is searching."""
    held: list[Route] = []
    page = visit.open(f"/runs/{demo.runs.recovered}?at=1")
    visit.expect_version(1)
    # All that the line ever says, also between two pictures of the screen.
    page.evaluate(
        """() => {
          window.said = [];
          new MutationObserver(() => {
            const line = document.querySelector("[role=search] [role=status]");
            if (line) window.said.push(line.textContent);
          }).observe(document.body, { subtree: true, childList: true, characterData: true });
        }"""
    )
    page.route(SEARCHES, lambda route: held.append(route))
    visit.press("/")
    with page.expect_request(SEARCHES):
        page.get_by_role("searchbox").press_sequentially("nowhere at all")
    status = page.get_by_role("search").get_by_role("status")
    expect(status).to_contain_text("searching…")
    said = page.evaluate("() => window.said")
    assert said
    assert not [line for line in said if "not in this run" in line]
    for route in held:
        route.continue_()
    expect(status).to_have_text("not in this run")
    assert "hit" not in strip(page)


def test_a_search_that_fails_says_so(visit: Visit, demo: Demo) -> None:
    """It never looks as if nothing was found."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=1")
    visit.expect_version(1)
    visit.expect_console("ERR_FAILED")
    page.route(SEARCHES, lambda route: route.abort())
    page.get_by_role("searchbox").fill("pay")
    expect(page.get_by_role("search")).to_contain_text("The server does not answer")
