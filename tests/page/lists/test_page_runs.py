"""The list of runs: what each one is, filters as text and as facets, live, and an empty ledger."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.page.harness.served import Served
from tests.page.harness.staging import Demo
from tests.page.harness.visit import Browse, Visit
from turnledger.ledger import NEW, CustomEvent, Ledger, RunStarted, new_run_id

RUNS = 5


def rows(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Runs").get_by_role("option")


def row_of(page: Page, run: UUID) -> Locator:
    return rows(page).filter(has_text=str(run)[-12:])


def facet(page: Page, name: str) -> Locator:
    return page.get_by_role("complementary", name="Filters").get_by_role(
        "button", name=re.compile(rf"^{name}\s*\d+$".replace("/", "."))
    )


def test_each_run_says_what_it_is(visit: Visit, demo: Demo) -> None:
    """Status, agent, events and tokens, as the ledger has them."""
    page = visit.open("/")
    expect(rows(page)).to_have_count(RUNS)
    found = demo.served.get("/v1/runs?details=true").json()
    for info in found["runs"]:
        row = row_of(page, info["run_id"])
        figures = row.locator(".figure")
        expect(figures.nth(0)).to_have_text(str(info["version"]))
        tokens = found["details"][info["run_id"]]["tokens"]
        expect(figures.nth(1)).to_have_text(f"{tokens:,}")
        expect(row.locator(".what")).to_contain_text("demo/settle")
    expect(row_of(page, demo.runs.waiting)).to_contain_text("waiting")
    expect(row_of(page, demo.runs.undisturbed)).to_contain_text("completed")


def test_a_running_run_without_a_worker_says_so(visit: Visit, demo: Demo) -> None:
    """It does not look as if it went on."""
    page = visit.open("/")
    status = row_of(page, demo.runs.deserted).locator(".status")
    expect(status).to_contain_text("no worker")
    expect(status).not_to_contain_text("running")


def test_a_fork_stands_under_its_parent(visit: Visit, demo: Demo) -> None:
    """Right below it, further in, though other runs are newer than the parent."""
    page = visit.open("/")
    expect(rows(page)).to_have_count(RUNS)
    listed = rows(page).locator(".what").all_inner_texts()
    (parent,) = (p for p, text in enumerate(listed) if str(demo.runs.undisturbed)[-12:] in text)
    assert str(demo.runs.fork)[-12:] in listed[parent + 1]
    assert [text.startswith("└") for text in listed].count(True) == 1
    assert listed[parent + 1].startswith("└")


def test_runs_are_filtered_by_text(visit: Visit, demo: Demo) -> None:
    """By status, and by the end of an id; what is no filter is said, and Back is not needed."""
    page = visit.open("/")
    box = page.get_by_role("searchbox")
    visit.press("/")
    expect(box).to_be_focused()
    box.fill("status:waiting")
    expect(rows(page)).to_have_count(1)
    expect(row_of(page, demo.runs.waiting)).to_be_visible()
    box.fill(str(demo.runs.fork)[-12:])
    expect(rows(page)).to_have_count(1)
    expect(row_of(page, demo.runs.fork)).to_be_visible()
    box.fill("status:odd")
    expect(page.get_by_role("alert")).to_contain_text("status is one of running, waiting")
    box.fill("agent:nobody")
    expect(page.get_by_text("No run has this filter.")).to_be_visible()
    box.fill("")
    expect(rows(page)).to_have_count(RUNS)


def test_runs_are_filtered_by_facets(visit: Visit, demo: Demo) -> None:
    """A facet counts its runs, writes the filter, is pressed while it is set, and goes off."""
    page = visit.open("/")
    completed = facet(page, "completed")
    expect(completed).to_contain_text("3")
    completed.click()
    expect(rows(page)).to_have_count(3)
    expect(page.get_by_role("searchbox")).to_have_value("status:completed")
    expect(completed).to_have_attribute("aria-pressed", "true")
    facet(page, "demo/settle").first.click()
    expect(page.get_by_role("searchbox")).to_have_value("status:completed agent:demo/settle")
    completed.click()
    expect(rows(page)).to_have_count(RUNS)
    page.go_back()
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("status:completed")
    expect(rows(page)).to_have_count(3)


def test_keys_choose_and_open_a_run(visit: Visit, demo: Demo) -> None:
    """j and k move, Enter opens the chosen run, c on two runs compares them."""
    page = visit.open("/")
    expect(rows(page)).to_have_count(RUNS)
    ids = rows(page).locator("code").all_inner_texts()  # how they end
    visit.press("j", "j", "k", "c")
    expect(page.locator(".foot")).to_contain_text("choose the run to compare with")
    visit.press("j", "c")
    expect(page).to_have_url(re.compile(rf"/compare/[0-9a-f-]+{ids[1]}/[0-9a-f-]+{ids[2]}$"))
    page.go_back()
    expect(rows(page)).to_have_count(RUNS)
    visit.press("End", "Enter")
    expect(page).to_have_url(re.compile(rf"/runs/[0-9a-f-]+{ids[-1]}$"))


def test_a_new_run_appears_by_itself(browse: Browse, own_demo: Demo) -> None:
    """So do the events that a run has more."""
    visit = browse(own_demo.served)
    page = visit.open("/")
    expect(rows(page)).to_have_count(RUNS)
    run = new_run_id()
    with Ledger.open(own_demo.db) as ledger:
        ledger.append(run, RunStarted(), NEW)
        expect(row_of(page, run).locator(".figure").first).to_have_text("1")
        ledger.append(run, CustomEvent(kind="shop.note"), 1)
        expect(row_of(page, run).locator(".figure").first).to_have_text("2")
    expect(rows(page)).to_have_count(RUNS + 1)


def test_an_empty_ledger_shows_lines_that_fill_it(browse: Browse, tmp_path: Path) -> None:
    """They are run as they stand, and the run that they make appears."""
    db = tmp_path / "runs.db"
    Ledger.open(db).close()
    with Served(db) as served:
        visit = browse(served)
        page = visit.open("/")
        expect(page.get_by_role("heading", name="There are no runs yet")).to_be_visible()
        lines = page.locator(".empty pre").inner_text()
        assert len(lines.splitlines()) == 4
        (tmp_path / "hello.py").write_text(lines)
        done = subprocess.run(
            [sys.executable, "hello.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "Hello.\n"), done.stderr
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_contain_text("hello")
        expect(rows(page)).to_contain_text("completed")
        expect(page.locator(".empty")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_list_that_cannot_be_loaded_says_what_to_do(
    browse: Browse, demo: Demo, scheme: str
) -> None:
    """It is not empty: it is a problem, and trying again helps once it is over."""
    visit = browse(demo.served, color_scheme=scheme)
    visit.expect_console("ERR_FAILED")
    visit.page.route("**/v1/runs?*", lambda route: route.abort())
    page = visit.open("/")
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("The server does not answer")
    expect(page.locator(".empty")).to_have_count(0)
    page.unroute("**/v1/runs?*")
    problem.get_by_role("button", name="Try again").click()
    expect(rows(page)).to_have_count(RUNS)
