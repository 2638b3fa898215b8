"""Hostile texts in every text field of every event: shown as text, all beside them unchanged."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.harness.hostile import TEXTS, events_with
from tests.page.harness.looking import all_rows, controls, disorder, markup
from tests.page.harness.staging import HostileLedger
from tests.page.harness.visit import Browse, Visit
from turnledger.adapters.terminal_text import visible

TABS = ("changed", "event", "state", "tools", "usage")
BLOCK = sum(1 for _ in events_with(""))
NAMES = list(TEXTS)
# States that `make test` looks at for each text; `make full` looks at every event.
STATES = 3
LONGEST_LINE = 4000


def check_page(visit: Visit) -> None:
    """Nothing of a text became markup, and what is beside it reads as it should."""
    assert markup(visit.page) == []
    assert disorder(visit.page) == []


def expected(text: str) -> set[str]:
    """How a text may be shown: on one line, with its lines, or as JSON; keys have no NUL."""
    kept = "".join(one if one in "\n\t" else visible(one) for one in text)
    as_json = json.dumps(text, ensure_ascii=False)[1:-1]
    return {visible(one) for one in (text, text.replace("\x00", ""), as_json)} | {kept}


def check_texts(visit: Visit, name: str) -> int:
    """Each text between its marks is what it should be; how many there are."""
    shown = visit.page.locator("main .text").all_text_contents()
    found = [one for text in shown for one in re.findall(f"«{name}»([^«]*)«/{name}»", text)]
    assert set(found) <= expected(TEXTS[name])
    return len(found)


def places_by_tab(visit: Visit) -> dict[str, dict[str, list[int] | None]]:
    """Where the controls are at a harmless event, by the tab that is chosen."""
    places = {}
    for number, tab in enumerate(TABS, 1):
        visit.press(str(number))
        expect(visit.page.get_by_role("tab", selected=True)).to_have_text(tab)
        visit.settle()
        places[tab] = controls(visit.page)
        assert None not in places[tab].values()
    return places


@pytest.fixture
def hostile_visit(browse: Browse, hostile: HostileLedger) -> Visit:
    return browse(hostile.served)


def test_every_row_has_its_text_and_its_place(hostile_visit: Visit, hostile: HostileLedger) -> None:
    """All events in the list: the text of the API with marks, in columns that do not move."""
    visit = hostile_visit
    visit.open(f"/runs/{hostile.runs.small}?at=1")
    visit.expect_version(1)
    items: list[dict[str, Any]] = []
    while page := hostile.served.get(
        f"/v1/runs/{hostile.runs.small}/events?limit=200&after={len(items)}"
    ).json()["events"]:
        items.extend(page)
    rows = all_rows(visit.page)
    assert [row["version"] for row in rows] == [item["version"] for item in items]
    for row, item in zip(rows, items, strict=True):
        assert row["type"] == item["type"]
        whole = visible(item["line"][:LONGEST_LINE])
        assert row["said"] == whole + ("…" if len(item["line"]) > LONGEST_LINE else "")
        assert set(row["tags"]) <= {"bdi", "span"}
    assert len({tuple(row["box"]) for row in rows}) == 1
    check_page(visit)


@pytest.mark.parametrize(
    "states", [STATES, pytest.param(BLOCK, marks=pytest.mark.full)], ids=["some", "all"]
)
@pytest.mark.parametrize("part", range(5))
def test_texts_are_shown_as_text(
    hostile_visit: Visit, hostile: HostileLedger, part: int, states: int
) -> None:
    """In each pane and tab; the controls stay where they are, and the page goes on to answer."""
    visit = hostile_visit
    visit.open(f"/runs/{hostile.runs.small}?at=1")
    visit.expect_version(1)
    places = places_by_tab(visit)
    shown = 0
    for number in range(part, len(NAMES), 5):
        for state in range(states):
            place = (number * states + state) % BLOCK
            tab = TABS[(number * states + state + place) % len(TABS)]
            version = 2 + number * BLOCK + place
            visit.go(f"/runs/{hostile.runs.small}?at={version}&tab={tab}")
            visit.expect_version(version)
            expect(visit.page.get_by_role("tab", selected=True)).to_have_text(tab)
            visit.settle()
            check_page(visit)
            assert controls(visit.page) == places[tab]
            shown += check_texts(visit, NAMES[number])
    assert shown > 0
    visit.press("Home")
    visit.expect_version(1)


def test_runs_that_are_begun_with_them_are_listed(
    hostile_visit: Visit, hostile: HostileLedger
) -> None:
    """In names, prompts and tags: one row each, as high as all others, and the filter answers."""
    page = hostile_visit.open("/")
    rows = page.get_by_role("listbox", name="Runs").get_by_role("option")
    expect(rows.first).to_be_visible()
    hostile_visit.settle()
    heights = rows.evaluate_all("(rows) => [...new Set(rows.map((row) => row.offsetHeight))]")
    assert len(heights) == 1
    for _ in range(4):
        check_page(hostile_visit)
        page.locator(".rows").evaluate("(list) => { list.scrollTop += list.clientHeight }")
        hostile_visit.settle()
    box = page.get_by_role("searchbox")
    box.fill("status:abandoned")
    expect(rows).to_have_count(1)


@pytest.mark.parametrize("part", range(5))
def test_a_run_that_is_begun_with_one_opens(
    hostile_visit: Visit, hostile: HostileLedger, part: int
) -> None:
    """Its head keeps the id and the controls beside the text, however long that is."""
    for name in NAMES[part::5]:
        hostile_visit.open(f"/runs/{hostile.runs.begun[name]}?at=1")
        hostile_visit.expect_version(1)
        hostile_visit.settle()
        check_page(hostile_visit)
        assert [one for one, place in controls(hostile_visit.page).items() if place is None] == []
        expect(hostile_visit.page.locator(".run-head code").first).to_have_text(
            str(hostile.runs.begun[name])[-12:]
        )


def test_large_values_are_shown_in_parts(hostile_visit: Visit, hostile: HostileLedger) -> None:
    """5 MB in a line, 100,000 keys, many levels: few nodes, small answers, and the page answers."""
    visit = hostile_visit
    visit.open(f"/runs/{hostile.runs.large}?at=1")
    visit.expect_version(1)
    places = places_by_tab(visit)
    for version in range(2, hostile.large + 1):
        tab = TABS[version % len(TABS)]
        visit.go(f"/runs/{hostile.runs.large}?at={version}&tab={tab}")
        visit.expect_version(version)
        visit.settle()
        assert visit.nodes() <= 2000, (version, tab)
        assert controls(visit.page) == places[tab]
        check_page(visit)
    assert visit.largest_answer <= 300_000
    visit.press("Home")
    visit.expect_version(1)
