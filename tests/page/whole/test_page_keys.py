"""The twelve points of the page by keys alone: no mouse, and the test focuses and fills nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.page.harness.served import Served
from tests.page.harness.staging import Demo
from tests.page.harness.visit import Browse, Visit
from turnledger.ledger import ANY, NEW, CustomEvent, Ledger, RunStarted, new_run_id

RUNS = 5
# A screen has fewer controls than this: what Tab does not come to is not reached by keys.
MOST_TABS = 80
# The end of a commit of the undisturbed run; the next event is the result of find_invoice.
FORKED_AT = 10


def tab_to(page: Page, control: Locator, key: str = "Tab") -> None:
    """Press Tab, or Shift+Tab, until a control has the focus."""
    expect(control).to_be_visible()
    for _ in range(MOST_TABS):
        if control.evaluate("(control) => control === document.activeElement"):
            break
        page.keyboard.press(key)
    expect(control).to_be_focused()


def press_button(page: Page, control: Locator, key: str = "Tab") -> None:
    """Go to a button or a link by Tab, and press it by Enter."""
    tab_to(page, control, key)
    page.keyboard.press("Enter")


def rows(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Runs").get_by_role("option")


def chosen_run(page: Page) -> Locator:
    return page.get_by_role("listbox", name="Runs").locator("[aria-selected=true] code")


def choose_run(visit: Visit, run: UUID) -> None:
    """Go down the list of runs to one of them."""
    expect(rows(visit.page)).to_have_count(RUNS)
    for name in rows(visit.page).locator("code").all_inner_texts():
        expect(chosen_run(visit.page)).to_have_text(name)
        if str(run).endswith(name):
            return
        visit.press("j")


def go_down(visit: Visit, pointer: str) -> None:
    """Go down the tree, from the row that the cursor is on to that of a value."""
    expect(visit.page.locator(f'.json [data-pointer="{pointer}"]')).to_be_visible()
    between = """(rows, pointer) => rows.findIndex((row) => row.dataset.pointer === pointer)
      - rows.findIndex((row) => row.classList.contains("cursor"))"""
    visit.press(*["ArrowDown"] * visit.page.locator(".json-row").evaluate_all(between, pointer))
    expect(visit.page.locator(".json .cursor")).to_have_attribute("data-pointer", pointer)


def test_runs_are_filtered_chosen_and_opened(visit: Visit, demo: Demo) -> None:
    """Point 1: the filter as text, a facet, the rows, and a run that opens."""
    page = visit.open("/")
    expect(rows(page)).to_have_count(RUNS)
    visit.press("/")
    page.keyboard.type("status:waiting")
    expect(rows(page)).to_have_count(1)
    visit.press("Escape")
    expect(page.get_by_role("searchbox")).to_have_value("status:waiting")
    visit.press("/", "Delete", "Escape")
    expect(rows(page)).to_have_count(RUNS)
    facets = page.get_by_role("complementary", name="Filters")
    completed = facets.get_by_role("button", name=re.compile(r"^completed\s*3$"))
    press_button(page, completed)
    expect(rows(page)).to_have_count(3)
    visit.press("Enter")
    choose_run(visit, demo.runs.recovered)
    tab_to(page, page.get_by_role("listbox", name="Runs"))
    visit.press("Enter")
    expect(page).to_have_url(f"{demo.served.url}/runs/{demo.runs.recovered}")


def test_a_run_is_gone_through(visit: Visit, demo: Demo) -> None:
    """Point 2: events, turns, doubts, resumes, play, tabs, the slider, panes, and the fold."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=3")
    visit.expect_version(3)
    for keys, version in (
        (("j", "ArrowDown", "k"), 4),
        (("Home", "d"), 20),
        (("r",), 24),
        (("R", "D", "End"), 41),
        (("ArrowUp",), 40),
    ):
        visit.press(*keys)
        visit.expect_version(version)
    visit.press("[")
    expect(page.locator(".run-head output")).not_to_have_text("event 40")
    for number, tab in enumerate(("changed", "event", "state", "tools", "usage"), 1):
        visit.press(str(number))
        expect(page.get_by_role("tab", selected=True)).to_have_text(tab)
    visit.press("End", "k", " ")
    visit.expect_version(41)
    tab_to(page, page.get_by_role("slider", name="Event"))
    visit.press("Home", "ArrowRight", "ArrowRight", "ArrowLeft")
    visit.expect_version(2)
    alive = page.get_by_role("checkbox", name="worker alive")
    tab_to(page, alive)
    visit.press(" ")
    expect(alive).not_to_be_checked()
    divider = page.get_by_role("separator").first
    tab_to(page, divider)
    before = int(divider.get_attribute("aria-valuenow") or 0)
    visit.press("ArrowRight")
    expect(divider).to_have_attribute("aria-valuenow", str(before + 2))


def test_a_value_is_blamed_and_pinned(visit: Visit, demo: Demo) -> None:
    """Point 3: into the tree, down to a value, to the event that set it, back, and pinned."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=30")
    visit.expect_version(30)
    visit.press("3")
    tab_to(page, page.get_by_role("tree"), "Shift+Tab")
    for pointer in ("/tools", "/tools/1"):
        go_down(visit, pointer)
        visit.press("ArrowRight")
    go_down(visit, "/tools/1/decided_by")
    visit.press("Enter")
    bar = page.get_by_label("Chosen value", exact=True)
    expect(bar).to_contain_text("set by event 22 tool_call.decided")
    visit.press("b")
    visit.expect_version(22)
    visit.press("B")
    visit.expect_version(30)
    visit.press("p")
    pinned = page.get_by_label("Pinned value", exact=True)
    expect(pinned.get_by_role("option")).to_have_count(1)
    press_button(page, pinned.get_by_role("button", name="Previous change"))
    visit.expect_version(22)
    visit.press("p")
    expect(pinned).to_have_count(0)


def test_a_run_is_searched(visit: Visit, demo: Demo) -> None:
    """Point 4: / types, Enter goes to the first hit, n and N through them."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=1")
    visit.expect_version(1)
    found = demo.served.get(f"/v1/runs/{demo.runs.recovered}/search?q=pay&limit=200").json()
    versions = sorted(hit["version"] for hit in found["hits"] if hit["version"] > 1)
    visit.press("/")
    page.keyboard.type("pay")
    expect(page.get_by_role("search").get_by_role("status")).to_contain_text("hits")
    visit.press("Enter")
    visit.expect_version(versions[0])
    visit.press("n", "n", "N")
    visit.expect_version(versions[1])


def test_a_growing_run_is_paused_and_followed(browse: Browse, own_demo: Demo) -> None:
    """Point 5: Escape stays at the event, the button Follow and End go on with the end."""
    run = new_run_id()
    with Ledger.open(own_demo.db) as ledger:
        ledger.append(run, RunStarted(), NEW)
        visit = browse(own_demo.served)
        page = visit.open(f"/runs/{run}")
        visit.expect_version(1)
        expect(page.locator(".connection")).to_have_text("live")
        visit.press("Escape")
        ledger.append(run, CustomEvent(kind="shop.note"), ANY)
        expect(page.locator(".run-head .figures")).to_contain_text("of 2")
        visit.expect_version(1)
        press_button(page, page.get_by_role("button", name="Follow"))
        ledger.append(run, CustomEvent(kind="shop.note"), ANY)
        visit.expect_version(3)


def test_two_runs_are_compared(visit: Visit, demo: Demo) -> None:
    """Point 6: chosen in the list or by its id, through the differences, and into a run."""
    page = visit.open("/")
    choose_run(visit, demo.runs.undisturbed)
    visit.press("c", "Home")
    choose_run(visit, demo.runs.recovered)
    visit.press("c")
    first, second = demo.runs.undisturbed, demo.runs.recovered
    expect(page).to_have_url(f"{demo.served.url}/compare/{first}/{second}")
    status = page.locator(".compare-head [role=status]")
    expect(status).to_contain_text("difference 1 of")
    visit.press("x")
    expect(status).to_contain_text("difference 2 of")
    visit.press("X", "j", "k")
    expect(status).to_contain_text("difference 1 of")
    press_button(page, page.get_by_role("link", name=re.compile("^Open the first run at event")))
    expect(page.get_by_role("heading", level=1)).to_contain_text(str(first)[-12:])
    visit.press("c")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("textbox")).to_be_focused()
    page.keyboard.type(str(second))
    visit.press("Enter")
    expect(page).to_have_url(f"{demo.served.url}/compare/{first}/{second}")


def test_a_doubt_is_decided(browse: Browse, own_demo: Demo) -> None:
    """Point 7: the choice by arrows, the value and the name typed, recorded by Enter."""
    run = own_demo.runs.waiting
    visit = browse(own_demo.served)
    page = visit.open("/")
    visit.press("o")
    card = page.get_by_role("region", name="call_2")
    choices = card.get_by_role("radio")
    tab_to(page, choices.first)
    visit.press("ArrowDown")
    expect(card.get_by_role("radio", name="It did not happen")).to_be_checked()
    visit.press("ArrowUp")
    tab_to(page, card.get_by_label("The value that it gave, as JSON"))
    page.keyboard.type('{"paid": 120}')
    tab_to(page, card.get_by_label("Who decides"))
    visit.press("Control+a")
    page.keyboard.type("ann")
    press_button(page, card.get_by_role("button", name="Record the decision"))
    expect(card.get_by_role("status")).to_contain_text("recorded at event 22")
    with Ledger.open(own_demo.db) as ledger:
        (decided,) = ledger.read(run, after=21)
    assert json.loads(decided.data)["decided_by"] == "ann"


def test_a_run_is_forked_with_an_edited_event(browse: Browse, own_demo: Demo) -> None:
    """Point 8: refused inside a commit, on to the nearest version, edited, and the child opens.

    An integer above 2**53 keeps its digits, when it is sent and when it is shown.
    """
    visit = browse(own_demo.served)
    page = visit.open(f"/runs/{own_demo.runs.undisturbed}?at={FORKED_AT + 1}")
    visit.expect_version(FORKED_AT + 1)
    visit.press("f")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("in the middle of a commit")
    press_button(page, dialog.get_by_role("button", name=f"Fork at event {FORKED_AT}"))
    edit = dialog.get_by_role("button", name=f"Edit event {FORKED_AT + 1} for the new run")
    press_button(page, edit)
    box = dialog.get_by_role("textbox")
    tab_to(page, box)
    data = json.loads(box.input_value()) | {"value": {"invoice": 17, "amount": 2**60 + 1}}
    visit.press("Control+a")
    page.keyboard.insert_text(json.dumps(data))
    press_button(page, dialog.get_by_role("button", name="Fork with this event"))
    expect(page).not_to_have_url(re.compile(str(own_demo.runs.undisturbed)))
    visit.expect_version(FORKED_AT + 2)
    child = page.url.rpartition("/")[2].partition("?")[0]
    event = own_demo.served.get(f"/v1/runs/{child}/events/{FORKED_AT + 2}").json()
    assert event["data"]["value"]["amount"] == 2**60 + 1
    visit.press("2")
    expect(page.get_by_role("tree")).to_contain_text(f'"amount":{2**60 + 1}')
    visit.press("l")
    tree = page.get_by_role("tree", name="Lineage")
    parent = tree.get_by_role("link", name=re.compile(str(own_demo.runs.undisturbed)[-12:]))
    press_button(page, parent)
    expect(page.get_by_role("heading", level=1)).to_contain_text(
        str(own_demo.runs.undisturbed)[-12:]
    )


def test_a_run_is_verified(browse: Browse, own_demo: Demo) -> None:
    """Point 9: what was changed opens by itself, and its event is gone to."""
    run, version = own_demo.tamper()
    visit = browse(own_demo.served)
    page = visit.open(f"/runs/{run}?at=1")
    visit.expect_version(1)
    visit.press("v")
    dialog = page.get_by_role("dialog", name="This run was changed")
    press_button(page, dialog.locator(".damage button").first)
    visit.expect_version(version)
    press_button(page, page.get_by_role("button", name=re.compile("✕ .* problem")))
    expect(dialog).to_be_visible()


def test_a_run_is_copied_downloaded_and_imported(
    browse: Browse, demo: Demo, own_demo: Demo, tmp_path: Path
) -> None:
    """Point 10: a form is copied, the run is saved, and i takes the file in."""
    visit = browse(demo.served)
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit.open(f"/runs/{demo.runs.undisturbed}?at=12")
    visit.expect_version(12)
    visit.press("y")
    dialog = page.get_by_role("dialog")
    press_button(page, dialog.get_by_role("button", name="curl"))
    expect(dialog.get_by_role("status")).to_have_text("curl is copied.")
    assert page.evaluate("() => navigator.clipboard.readText()").startswith("curl ")
    visit.press("Escape")
    expect(dialog).to_have_count(0)
    with page.expect_download() as download:
        visit.press("s")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    other = browse(own_demo.served)
    page = other.open(f"/runs/{own_demo.runs.undisturbed}?at=12")
    other.expect_version(12)
    with page.expect_file_chooser() as chooser:
        page.evaluate("0")  # what catches the chooser is there before the key
        other.press("i")
    chooser.value.set_files(path)
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Import", exact=True)).to_be_focused()
    other.press("Enter")
    expect(dialog.get_by_role("status")).to_contain_text("35 events were there already.")


def test_help_and_actions_open_and_close(visit: Visit, demo: Demo) -> None:
    """Point 11: ? and Ctrl+K, arrows and Enter do the chosen action."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=3")
    visit.expect_version(3)
    visit.press("?")
    expect(page.get_by_role("dialog", name="Help")).to_be_visible()
    visit.press("Escape", "Control+k")
    page.keyboard.type("doubt")
    listed = page.get_by_role("dialog").get_by_role("option")
    expect(listed.first).to_have_text("Next doubtd")
    visit.press("ArrowDown", "ArrowUp", "Enter")
    visit.expect_version(20)


def test_a_problem_is_tried_again(browse: Browse, demo: Demo, tmp_path: Path) -> None:
    """Point 12: an error's button is reached, and the help of an empty ledger too."""
    visit = browse(demo.served)
    visit.expect_console("ERR_FAILED")
    visit.page.route("**/v1/runs?*", lambda route: route.abort())
    page = visit.open("/")
    again = page.get_by_role("alert").get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    page.unroute("**/v1/runs?*")
    press_button(page, again)
    expect(rows(page)).to_have_count(RUNS)
    Ledger.open(tmp_path / "runs.db").close()
    with Served(tmp_path / "runs.db") as served:
        page = browse(served).open("/")
        expect(page.get_by_role("heading", name="There are no runs yet")).to_be_visible()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Help")).to_be_visible()


@pytest.mark.parametrize(
    ("address", "held", "keys", "shown"),
    [
        ("/", "**/v1/runs?*", ("j", "j", "Enter", "Home", "j"), "event 2"),
        ("/runs/{recovered}?at=20", "**/shape", ("j", "j", "k"), "event 21"),
        ("/runs/{recovered}", "**/shape", ("Home", "d", "f"), "Fork at event 20"),
        ("/compare/{undisturbed}/{recovered}?at=3", "**/compare?*", ("j", "j"), "row 5 of"),
    ],
    ids=["runs", "event", "fork", "compare"],
)
def test_keys_that_come_before_what_they_act_on_are_kept(
    visit: Visit, demo: Demo, address: str, held: str, keys: tuple[str, ...], shown: str
) -> None:
    """They do their work in order, when it has come."""
    waiting: list[Route] = []
    visit.page.route(held, lambda route: waiting.append(route), times=1)
    runs = {name: str(getattr(demo.runs, name)) for name in demo.runs.__struct_fields__}
    with visit.page.expect_request(held):
        page = visit.open(address.format(**runs))
    visit.press(*keys)
    (route,) = waiting
    route.continue_()
    expect(page.get_by_text(shown).first).to_be_visible()
