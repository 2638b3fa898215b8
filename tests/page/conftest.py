"""Fixtures of the page's tests: a browser a worker, a context a test, ledgers that are served.

A test takes `page` (Playwright's, on a copy of the demo's ledger) or `visit`, which is the same
with counters and shortcuts; `browse` opens further ones, on any served ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.page.harness.browser import driving, started
from tests.page.harness.served import Served
from tests.page.harness.staging import (
    Demo,
    HostileLedger,
    LongRun,
    copy_of_demo,
    staged_hostile,
    staged_long_run,
)
from tests.page.harness.visit import Browse, Visit

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.process)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests of a worker."""
    with started() as browser:
        yield browser


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A copy of the demo's ledger, served for a module; tests that write take `own_demo`."""
    made = copy_of_demo(tmp_path_factory)
    with made.served:
        yield made


@pytest.fixture
def own_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A copy of the demo's ledger, served for one test."""
    made = copy_of_demo(tmp_path_factory)
    with made.served:
        yield made


@pytest.fixture(scope="session")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongRun]:
    """A run of 100,000 events, served for all tests of a worker; no test writes to it."""
    made = staged_long_run(tmp_path_factory)
    with made.served:
        yield made


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileLedger]:
    """Runs with hostile texts, served for all tests of a worker; no test writes to them."""
    made = staged_hostile(tmp_path_factory)
    with made.served:
        yield made


@pytest.fixture
def browse(browser: Browser) -> Iterator[Browse]:
    """Opens pages: `browse(served, color_scheme="dark")`; what must never happen fails the test."""
    with driving():
        visits: list[Visit] = []

        def new(served: Served, **options: Any) -> Visit:
            visits.append(Visit(browser, served, **options))
            return visits[-1]

        yield new
        for visit in visits:
            visit.close()
    assert [wrong for visit in visits for wrong in visit.wrong] == []


@pytest.fixture
def visit(browse: Browse, demo: Demo) -> Visit:
    """A page on the demo's ledger, with counters and shortcuts."""
    return browse(demo.served)


@pytest.fixture
def page(visit: Visit) -> Page:
    """The page itself, at no address yet: `page.goto(demo.served.url + "/doubts")`."""
    return visit.page
