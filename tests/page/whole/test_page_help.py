"""Help and the list of actions: made from the one table that binds the keys."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import expect

from tests.page.harness.staging import Demo
from tests.page.harness.visit import Visit

TABLE = Path(__file__).parents[3] / "adapters" / "web" / "ui" / "src" / "core" / "actions.json"
ACTIONS = json.loads(TABLE.read_text())


def test_help_has_every_action_of_the_table(visit: Visit, demo: Demo) -> None:
    """By name; those that do nothing on this screen say so."""
    page = visit.open("/")
    visit.press("?")
    names = page.get_by_role("dialog", name="Help").locator("dd").all_inner_texts()
    for action in ACTIONS:
        assert {action["name"], f"{action['name']} (not here)"} & set(names), action
    assert "Fork here (not here)" in names
    assert "Open the chosen row" in names
    visit.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_actions_are_found_by_name(visit: Visit, demo: Demo) -> None:
    """Ctrl+K lists those that can be done here; words narrow it, and Enter does the chosen one."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=3")
    visit.expect_version(3)
    visit.press("Control+k")
    box = page.get_by_role("combobox", name="Action")
    expect(box).to_be_focused()
    listed = page.get_by_role("dialog").get_by_role("option")
    expect(listed.filter(has_text="Open the chosen row")).to_have_count(0)
    box.press_sequentially("next doubt")
    expect(listed).to_have_text(["Next doubtd"])
    box.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    visit.expect_version(20)


def test_keys_are_off_while_text_is_typed(visit: Visit, demo: Demo) -> None:
    """Letters go into the box; when it is left, they are keys again."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=3")
    visit.expect_version(3)
    visit.press("/")
    box = page.get_by_role("searchbox")
    expect(box).to_be_focused()
    box.press_sequentially("jjvf?")
    expect(box).to_have_value("jjvf?")
    visit.expect_version(3)
    expect(page.get_by_role("dialog")).to_have_count(0)
    box.press("Escape")
    visit.press("j")
    visit.expect_version(4)


def test_keys_are_off_below_a_dialog(visit: Visit, demo: Demo) -> None:
    """What is behind a dialog does not move, and has the focus again afterwards."""
    page = visit.open(f"/runs/{demo.runs.recovered}?at=3")
    visit.expect_version(3)
    button = page.get_by_role("button", name="Lineage")
    button.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    visit.press("j", "j")
    visit.expect_version(3)
    visit.press("Escape")
    expect(button).to_be_focused()
    visit.press("j")
    visit.expect_version(4)
