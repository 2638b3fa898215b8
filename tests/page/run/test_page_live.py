"""Live: events that another process appends arrive once each and in order, over a restart too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import expect

from tests.conformance.samples import note, notes
from tests.page.harness.looking import all_rows
from tests.page.harness.served import Served
from tests.page.harness.visit import Browse, Visit
from turnledger.ledger import ANY, NEW, Ledger, RunStarted, new_run_id

BEFORE, APPENDED, COMMIT = 60, 2000, 10
# Appends notes to a run, some at a time, and tells of each commit; goes on when it is told to.
APPENDER = """
import sys
from tests.conformance.samples import notes
from turnledger.ledger import ANY, Ledger
with Ledger.open(sys.argv[1]) as ledger:
    for first in range(int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])):
        ledger.append(sys.argv[2], notes(int(sys.argv[5]), first), ANY)
        print(first, flush=True)
"""
# What a browser says of a server that goes away, and of a session that went with it.
GONE = "ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|status of 401"


@dataclass(frozen=True)
class Growing:
    """A run that another process can append to."""

    run: UUID
    served: Served

    def appended(self, first: int, last: int) -> subprocess.Popen[str]:
        """The process that appends notes with these numbers."""
        arguments = map(str, (self.served.db, self.run, first, last, COMMIT))
        return subprocess.Popen(
            [sys.executable, "-c", APPENDER, *arguments],
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    run, db = new_run_id(), tmp_path / "runs.db"
    with Ledger.open(db) as ledger:
        ledger.append(run, RunStarted(), NEW)
        ledger.append(run, notes(BEFORE), ANY)
    with Served(db) as served:
        yield Growing(run, served)


@pytest.fixture
def growing_visit(browse: Browse, growing: Growing) -> Visit:
    visit = browse(growing.served)
    visit.open(f"/runs/{growing.run}")
    visit.expect_version(BEFORE + 1)
    expect(visit.page.locator(".run-head .connection")).to_contain_text("live")
    return visit


def test_each_event_arrives_once_and_in_order(growing_visit: Visit, growing: Growing) -> None:
    """2,000 events of another process, and the server restarts once in between."""
    visit = growing_visit
    visit.expect_console(GONE)
    with growing.appended(BEFORE, BEFORE + APPENDED) as appender:
        assert appender.stdout is not None
        for line in appender.stdout:
            if int(line) == BEFORE + APPENDED // 4:
                growing.served.stop()
            if int(line) == BEFORE + APPENDED // 2:
                growing.served.start()
                # As the link does that it prints, opened in another tab.
                visit.context.add_cookies(growing.served.cookies)
    assert appender.returncode == 0
    last = 1 + BEFORE + APPENDED
    visit.expect_version(last)
    expect(visit.page.locator(".run-head .connection")).to_contain_text("live")
    rows = all_rows(visit.page)
    assert [row["version"] for row in rows] == list(range(1, last + 1))
    told = [f'kind=test.note data={{"number":{number}}}' for number in range(BEFORE + APPENDED)]
    assert [row["said"] for row in rows[1:]] == told


def test_a_paused_page_stays_where_it_was(growing_visit: Visit, growing: Growing) -> None:
    """The run grows in its head and its list; the chosen event and what is in sight stay."""
    visit = growing_visit
    visit.press("k", "k", "k")
    visit.expect_version(BEFORE - 2)
    listed = visit.page.locator(".events .rows")
    visit.settle()
    before = listed.evaluate("(list) => list.scrollTop")
    with growing.appended(BEFORE, BEFORE + 200) as appender:
        assert appender.wait() == 0
    expect(visit.page.locator(".run-head .figures")).to_contain_text(f"of {BEFORE + 201}")
    visit.expect_version(BEFORE - 2)
    assert listed.evaluate("(list) => list.scrollTop") == before
    assert visit.address == f"/runs/{growing.run}?at={BEFORE - 2}"
    visit.press("End")
    visit.expect_version(BEFORE + 201)
    with Ledger.open(growing.served.db) as ledger:
        ledger.append(growing.run, note(BEFORE + 200), ANY)
    visit.expect_version(BEFORE + 202)


def test_a_lost_connection_is_shown(growing_visit: Visit, growing: Growing) -> None:
    """While the server is away the page says so, and keeps what it has."""
    growing_visit.expect_console(GONE)
    growing.served.stop()
    expect(growing_visit.page.locator(".run-head .connection")).to_contain_text("lost")
    growing_visit.expect_version(BEFORE + 1)
    growing.served.start()
    growing_visit.context.add_cookies(growing.served.cookies)
    expect(growing_visit.page.locator(".run-head .connection")).to_contain_text("live")
