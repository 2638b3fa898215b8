"""The details of a run on the page: what an event changed, the event, the state, tools, usage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.page.harness.served import Served
from tests.page.harness.staging import Demo, LongRun
from tests.page.harness.visit import Browse, Visit
from turnledger.ledger import ANY, Ledger, Limits, RunStarted, SliceEventApplied, new_run_id

WORDS = " ".join(f"word{number}" for number in range(200))
REPORT = "\n".join(f"line {number} of the report" for number in range(400))
DEPTH = 190
ODD = {
    "__proto__": {"polluted": 1},
    "constructor": None,
    "a/b~c": True,
    "\u202egnp.exe": "\u202eabc\x1b[31m",
    "": 1.5,
}


def nested(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = {"d": value}
    return value


# The slices that each event of the odd run sets, from version 2 on.
STEPS: tuple[tuple[str, Any], ...] = (
    ("notes", {"text": WORDS}),
    ("notes", {"text": WORDS.replace("word77", "other")}),
    ("report", {"text": REPORT}),
    ("report", {"text": REPORT.replace("line 333 of", "line 333 changed, of")}),
    ("odd", ODD),
    ("many", {f"key {number:06}": number for number in range(100_000)}),
    ("deep", nested(DEPTH)),
    ("long", "x" * 5_000_000),
    ("items", list(range(450))),
    ("wide", {f"field {number:03}": number for number in range(70)}),
    ("wide", {f"field {number:03}": number + 1 for number in range(70)}),
)
DIFFERENT, ODD_AT, MANY, LONG, ITEMS, WIDE = 3, 6, 7, 9, 10, 12
AT_CURSOR = "json-row row-value cursor"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, UUID]]:
    """A served run whose state has odd and large values."""
    db, run = tmp_path_factory.mktemp("odd") / "runs.db", new_run_id()
    with Ledger.open(db, limits=Limits(max_json_depth=200)) as ledger:
        ledger.append(run, RunStarted(request_type="Odd"), ANY)
        for name, value in STEPS:
            event = SliceEventApplied(
                slice=name, event_type="shop.Odd", operation="seed", payload=[value]
            )
            ledger.append(run, event, ANY)
    with Served(db) as served:
        yield served, run


@pytest.fixture
def odd_visit(browse: Browse, odd: tuple[Served, UUID]) -> Visit:
    return browse(odd[0])


def node(page: Page, pointer: str) -> Locator:
    """The row of a value in a tree."""
    return page.locator(f'[role=treeitem][data-pointer="{pointer}"]')


def opened(page: Page, *pointers: str) -> None:
    """Open these nodes, one after the other."""
    for pointer in pointers:
        node(page, pointer).locator(".twisty").click()
        expect(node(page, pointer)).to_have_attribute("aria-expanded", "true")


def changes(page: Page) -> Locator:
    return page.get_by_role("list", name="Changes").get_by_role("listitem")


def test_what_an_event_changed_has_before_and_after(visit: Visit, demo: Demo) -> None:
    """Every operation of the patch: its path, what was there, what is there."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=22")
    expect(page.get_by_text("Event 22 changed 5 values.")).to_be_visible()
    shown = changes(page).all_inner_texts()
    assert [" ".join(one.split()) for one in shown] == [
        '~ /summary/status before "waiting" after "running"',
        '\u2212 /summary/waiting_for before ["call_2"]',
        '+ /tools/1/decided_by after "ann"',
        '+ /tools/1/decision after "completed"',
        '+ /tools/1/decision_value after {"paid":120}',
    ]


def test_an_event_that_changed_nothing_says_so(visit: Visit, demo: Demo) -> None:
    """It is not an empty pane."""
    run = demo.runs.recovered
    quiet = next(
        at
        for at in range(1, 30)
        if not visit.served.get(f"/v1/runs/{run}/changes?at={at}").json()["changes"]
    )
    page = visit.open(f"/runs/{run}?at={quiet}")
    expect(page.get_by_text(f"Event {quiet} changed nothing in the state.")).to_be_visible()


def test_long_texts_are_compared(odd_visit: Visit, odd: tuple[Served, UUID]) -> None:
    """By words, and very long ones by lines once they are loaded; what is not shown is counted."""
    page = odd_visit.open(f"/runs/{odd[1]}?at={DIFFERENT}")
    expect(page.locator(".text-diff del")).to_have_text("word77")
    expect(page.locator(".text-diff ins")).to_have_text("other")
    expect(page.locator(".text-diff .skipped")).to_have_count(2)
    odd_visit.press("j", "j")
    expect(page.get_by_text("The same as far as it is shown.")).to_be_visible()
    page.get_by_role("button", name="Compare more").click()
    expect(page.locator(".text-diff del")).to_have_text("line 333 of the report\n")
    expect(page.locator(".text-diff ins")).to_have_text("line 333 changed, of the report\n")


def test_many_changes_are_shown_in_parts(odd_visit: Visit, odd: tuple[Served, UUID]) -> None:
    """Thirty at a time, the number of all is said, and there is a way to the others and back."""
    page = odd_visit.open(f"/runs/{odd[1]}?at={WIDE}")
    expect(page.get_by_text(f"Event {WIDE} changed 70 values.")).to_be_visible()
    expect(changes(page)).to_have_count(30)
    page.get_by_role("button", name="40 more").click()
    page.get_by_role("button", name="10 more").click()
    expect(changes(page)).to_have_count(10)
    expect(changes(page).last).to_contain_text("/slices/wide/0/field 069")
    page.get_by_role("button", name="60 before").click()
    expect(changes(page)).to_have_count(30)


def test_large_values_of_a_change_are_folded(odd_visit: Visit, odd: tuple[Served, UUID]) -> None:
    """A hundred thousand keys are one row, which opens to a hundred and says how many follow."""
    page = odd_visit.open(f"/runs/{odd[1]}?at={MANY}")
    path = "/slices/many"
    expect(changes(page)).to_have_count(1)
    expect(page.get_by_role("treeitem")).to_have_count(1)
    opened(page, path, f"{path}/0")
    expect(node(page, f"{path}/0/key 000000")).to_contain_text("key 000000")
    assert odd_visit.nodes() < 2000
    odd_visit.settle()
    assert odd_visit.largest_answer < 300_000


def test_the_event_has_its_record_and_its_data(visit: Visit, demo: Demo) -> None:
    """Type, versions, time, id, run, digest, size; the id is the link to the event."""
    run = demo.runs.recovered
    record = visit.served.get(f"/v1/runs/{run}/events/22").json()
    page = visit.open(f"/runs/{run}?at=22&tab=event")
    known = page.locator("dl.event-known")
    for text in ("tool_call.decided", record["recorded_at"], record["digest"], record["run_id"]):
        expect(known).to_contain_text(text)
    expect(known).to_contain_text(f"22 of the run, {record['position']} in the ledger")
    link = known.get_by_role("link", name=record["event_id"])
    expect(link).to_have_attribute("href", f"/e/{record['event_id']}")
    expect(node(page, "/decided_by")).to_have_text('decided_by"ann"')
    expect(node(page, "/value")).to_contain_text('{"paid":120}')
    visit.press("j")
    expect(known).to_contain_text("run.claimed")
    expect(node(page, "/epoch")).to_be_visible()


def test_an_event_of_the_shared_part_names_its_run(visit: Visit, demo: Demo) -> None:
    """A fork's first events are its ancestor's, and the page says whose."""
    page = visit.open(f"/runs/{demo.runs.fork}?at=2&tab=event")
    held = page.locator("dl.event-known").get_by_role("link", name=str(demo.runs.undisturbed))
    expect(held).to_have_attribute("href", f"/runs/{demo.runs.undisturbed}?at=2")


def test_data_that_was_cut_is_loaded_on_demand(odd_visit: Visit, odd: tuple[Served, UUID]) -> None:
    """A text of five megabytes in slices, and nesting level by level down to the last."""
    page = odd_visit.open(f"/runs/{odd[1]}?at={LONG}&tab=event")
    opened(page, "/payload", "/payload/0")
    more = page.get_by_role("button", name="of 5,000,000 characters")
    expect(more).to_have_text("4,998,000 more of 5,000,000 characters")
    more.click()
    expect(more).to_have_text("4,980,000 more of 5,000,000 characters")
    more.click()
    expect(more).to_have_text("4,960,000 more of 5,000,000 characters")
    expect(page.get_by_role("button", name="20,000 characters before")).to_be_visible()
    page.keyboard.press("k")
    tree = page.get_by_role("tree")
    expect(node(page, "/payload/0")).to_contain_text("{1}")
    tree.focus()
    odd_visit.press("Home", *["ArrowDown"] * 5)
    for level in range(30):
        pointer = "/payload/0" + "/d" * level
        expect(node(page, pointer)).to_have_class(AT_CURSOR)
        odd_visit.press("ArrowRight")
        if level:
            expect(node(page, pointer)).to_have_attribute("aria-expanded", "true")
        expect(node(page, f"{pointer}/d")).to_be_visible()
        odd_visit.press("ArrowDown")
    odd_visit.settle()
    assert odd_visit.largest_answer < 300_000


def test_the_state_is_a_tree_that_keeps_what_is_open(visit: Visit, demo: Demo) -> None:
    """Values that the event changed are marked, and a step shows those of the next version."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=22&tab=state")
    opened(page, "/tools", "/tools/1", "/summary")
    expect(node(page, "/tools/1/decided_by")).to_contain_text('"ann"')
    expect(node(page, "/tools/1/decided_by")).to_contain_text("changed")
    expect(node(page, "/tools/1/name")).not_to_contain_text("changed")
    expect(node(page, "/summary/status")).to_contain_text('"running"')
    visit.press("k")
    expect(node(page, "/summary/status")).to_contain_text('"waiting"')
    expect(node(page, "/tools/1/decided_by")).to_have_count(0)
    expect(node(page, "/tools/1/name")).to_contain_text('"pay"')


def test_a_step_loads_only_what_it_changed(visit: Visit, demo: Demo) -> None:
    """A window that the event did not touch is not loaded again."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=22&tab=state")
    opened(page, "/history", "/history/turns")
    expect(node(page, "/history/turns/0")).to_be_visible()
    visit.settle()
    visit.count_from_here()
    visit.press("k")
    visit.expect_version(21)
    expect(page.get_by_role("tree")).to_have_attribute("aria-label", "State at version 21")
    visit.settle()
    values = [one for one in visit.requests if "/value?" in one]
    assert [one for one in values if "turns" in one] == []
    assert len(values) <= 1


def test_long_lists_are_loaded_in_windows(odd_visit: Visit, odd: tuple[Served, UUID]) -> None:
    """A list from its first entries, more in both directions, and never more than are kept."""
    page = odd_visit.open(f"/runs/{odd[1]}?at={ITEMS}&tab=state")
    path = "/slices/items/0"
    opened(page, "/slices", "/slices/items", path)
    tree = page.get_by_role("tree")
    tree.focus()
    for more in ("350 entries more", "250 entries more", "150 entries more"):
        odd_visit.press("End")
        row = page.get_by_role("treeitem", name=more)
        # The slice with the last key stands below the list.
        while not row.is_visible():
            odd_visit.press("ArrowUp")
        row.click()
        expect(row).to_have_count(0)
    odd_visit.press("Home")
    before = page.get_by_role("treeitem", name="entries before")
    while not before.is_visible():
        odd_visit.press("ArrowDown")
    expect(before).to_contain_text("200 entries before")
    expect(node(page, f"{path}/200")).to_be_visible()
    before.click()
    expect(page.get_by_role("treeitem", name="100 entries before")).to_be_visible()
    assert odd_visit.nodes() < 2000


def test_a_list_of_a_long_run_opens_at_its_end(browse: Browse, long_run: LongRun) -> None:
    """What the version added is in sight, whatever is before it; the page stays small."""
    visit = browse(long_run.served)
    page = visit.open(f"/runs/{long_run.run}?at=50000&tab=state")
    opened(page, "/tools")
    before = page.get_by_role("treeitem", name="entries before")
    total = visit.served.get(f"/v1/runs/{long_run.run}/tools?at=50000&limit=1").json()["total"]
    expect(before).to_contain_text(f"{total - 100:,} entries before")
    expect(node(page, f"/tools/{total - 100}")).to_be_visible()
    before.click()
    expect(before).to_contain_text(f"{total - 200:,} entries before")
    visit.settle()
    assert visit.nodes() < 2000
    assert visit.largest_answer < 300_000


def test_odd_keys_and_texts_are_shown_as_they_are(
    odd_visit: Visit, odd: tuple[Served, UUID]
) -> None:
    """`__proto__` is a key as any other; what acts, hides or reorders is written out."""
    page = odd_visit.open(f"/runs/{odd[1]}?at={ODD_AT}&tab=state")
    path = "/slices/odd/0"
    opened(page, "/slices", "/slices/odd", path, f"{path}/__proto__")
    expect(node(page, f"{path}/__proto__/polluted")).to_contain_text("polluted")
    expect(node(page, f"{path}/constructor")).to_contain_text("null")
    expect(node(page, f"{path}/a~1b~0c")).to_contain_text("true")
    expect(node(page, f"{path}/\u202egnp.exe")).to_contain_text("\\u202egnp.exe")
    expect(node(page, f"{path}/\u202egnp.exe")).to_contain_text('"\\u202eabc\\x1b[31m"')
    expect(node(page, f"{path}/")).to_contain_text("1.5")
    assert page.evaluate("() => ({}).polluted === undefined")


def test_the_tree_is_read_by_keys_alone(visit: Visit, demo: Demo) -> None:
    """Arrows move, open and close; Enter asks which event set the value; j still steps."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=22&tab=state")
    expect(node(page, "/tools")).to_be_visible()
    page.get_by_role("tree").focus()
    visit.press("ArrowDown", "ArrowDown", "ArrowRight")
    expect(node(page, "/tools/1")).to_be_visible()
    visit.press("ArrowDown", "ArrowDown", "ArrowRight")
    expect(node(page, "/tools/1/attempts")).to_be_visible()
    visit.press("ArrowDown", "Enter")
    bar = page.get_by_label("Chosen value")
    expect(bar).to_contain_text("/tools/1/arguments")
    expect(bar).to_contain_text("set by event")
    visit.press("ArrowLeft", "ArrowLeft")
    expect(node(page, "/tools/1")).to_have_attribute("aria-expanded", "false")
    visit.press("j")
    visit.expect_version(23)


def test_tool_calls_are_listed_with_how_they_stand(visit: Visit, demo: Demo) -> None:
    """Name, status, tries, and who decided; the status leads to the event that made it so."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=30&tab=tools")
    rows = page.locator("table.calls tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("pay")
    expect(rows.nth(1)).to_contain_text("completed")
    expect(rows.nth(1)).to_contain_text("decided by ann")
    rows.nth(1).get_by_role("button").click()
    expect(page.get_by_label("Chosen value")).to_contain_text("set by event 25 tool_call.completed")
    visit.press("Home")
    expect(page.get_by_text("No tool was called up to version 1.")).to_be_visible()


def test_usage_is_loaded_when_it_is_looked_at(visit: Visit, demo: Demo) -> None:
    """In all, by model and by turn; no other tab asks for it."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=22")
    expect(changes(page)).to_have_count(5)
    visit.settle()
    assert not any("/usage" in one for one in visit.requests)
    visit.press("5")
    tables = page.locator("table.tokens")
    expect(tables.first.locator("tr").last).to_contain_text("874")
    expect(tables.last.locator("tbody tr")).to_have_count(2)
    visit.press("Home")
    expect(page.get_by_text("No model was called up to version 1.")).to_be_visible()


def test_a_failed_request_says_so_and_can_be_tried_again(visit: Visit, demo: Demo) -> None:
    """In the changes, in the tree and in the event."""
    visit.expect_console("503")
    page = visit.page
    busy = {
        "status": 503,
        "content_type": "application/problem+json",
        "body": '{"type":"urn:turnledger:problem:store-busy","title":"Busy","detail":"Wait."}',
    }
    for tab, path in (("changed", "/changes?"), ("event", "/events/22"), ("state", "/value?")):
        pattern = f"**{path}**".replace("?", "\\?")
        page.route(pattern, lambda route: route.fulfill(**busy))
        visit.open(f"/runs/{demo.runs.recovered}?at=22&tab={tab}")
        failed = page.locator(".details").get_by_text("Busy")
        expect(failed).to_be_visible()
        page.unroute(pattern)
        if tab == "state":
            failed.click()
        else:
            page.locator(".details").get_by_role("button", name="Try again").click()
        expect(failed).to_have_count(0)
