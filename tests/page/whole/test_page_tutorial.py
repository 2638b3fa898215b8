"""The tutorial of the page is followed to the letter: its commands in a shell, its steps here.

A list's items on the tutorial are steps: `<kbd>` is pressed, "click `name`" is clicked, "type
`text`" is typed, "run `command`" is run, and what stands in bold is to be seen by then. All else
is prose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Locator, Page, expect

from tests.page.harness.served import Served
from tests.page.harness.staging import Demo
from tests.page.harness.visit import Browse, Visit
from tests.unit.test_docs import FENCE, ROOT, Block, Reader, blocks, commands, run_commands

TUTORIAL = ROOT / "docs" / "tutorial" / "find-a-bug-on-the-page.md"
ITEM = re.compile(r"^\d+\. (.*)$", re.MULTILINE)
STEP = re.compile(
    r"<kbd>(?P<press>.+?)</kbd>|[Cc]lick `(?P<click>.+?)`|[Tt]ype `(?P<type>.+?)`"
    r"|[Rr]un `(?P<run>.+?)`|\*\*(?P<see>.+?)\*\*"
)
# What the good run, the bad one and its fork paid.
PAID = ["call_2 120", "call_2 12000", "call_2 120"]


class StartedByTheTutorial(Served):
    """The server that a command of the tutorial started in this folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "runs.db")
        self.url = (folder / "address").read_text().strip()
        (self.link,) = (one for one in (folder / "log").read_text().split() if "code=" in one)

    @property
    def cookies(self) -> list[dict[str, Any]]:
        """None: the link gives the browser its session."""
        return []


def parts(text: str) -> Iterator[Block | str]:
    """Blocks, and the items between them, in their order."""
    end = 0
    for found, block in zip(FENCE.finditer(text), blocks(text), strict=True):
        yield from ITEM.findall(text[end : found.start()])
        yield block
        end = found.end()
    yield from ITEM.findall(text[end:])


def follow(page: Page, item: str, run: Callable[[str], tuple[str, int]]) -> None:
    """Do what an item says, and see what it shows."""
    for step in STEP.finditer(item):
        if step["press"]:
            page.keyboard.press(step["press"])
        elif step["click"]:
            clickable(page, step["click"]).click()
        elif step["type"]:
            page.keyboard.type(step["type"])
        elif step["run"]:
            printed, code = run(step["run"])
            assert code == 0, printed
        else:
            expect(page.locator("body")).to_contain_text(step["see"], use_inner_text=True)


def clickable(page: Page, name: str) -> Locator:
    """What has this name, or in a tree this key."""
    button = page.get_by_role("button", name=name, exact=True)
    return button.or_(page.get_by_role("treeitem", name=re.compile(f"^{re.escape(name)}:")))


def test_the_steps_of_the_tutorial_find_the_bug(tmp_path: Path, browse: Browse) -> None:
    """Each command and each step of the tutorial does what it says, to the fix and beyond."""
    page: Page | None = None
    with Reader(tmp_path) as reader:
        try:
            for part in parts(TUTORIAL.read_text()):
                if isinstance(part, str):
                    page = page or opened(tmp_path, browse)
                    follow(page, part, reader.shell)
                elif part.kind == "console":
                    run_commands(reader, list(commands(part)), f"{TUTORIAL.name}:{part.line}")
        finally:
            reader.shell("kill $(jobs -p) 2> /dev/null; wait")
    assert page is not None
    assert (tmp_path / "bank.txt").read_text().splitlines() == PAID


def opened(folder: Path, browse: Browse) -> Page:
    """The page that the printed link opens."""
    served = StartedByTheTutorial(folder)
    visit = browse(served)
    visit.page.goto(served.link)
    return visit.page


def test_a_step_that_is_wrong_is_noticed(demo: Demo, visit: Visit) -> None:
    """The test above can fail: a wrong text, a wrong name and a command that fails are errors."""
    page = visit.open(f"/runs/{demo.runs.undisturbed}")

    def run(command: str) -> tuple[str, int]:
        return command, 1

    follow(page, "Press <kbd>Home</kbd>: **event 1 of 35**", run)
    expect.set_options(timeout=500)
    page.set_default_timeout(500)
    with pytest.raises(AssertionError):
        follow(page, "Press <kbd>j</kbd>: **event 1 of 35**", run)
    with pytest.raises(Error):
        follow(page, "Click `Frobnicate`.", run)
    with pytest.raises(AssertionError):
        follow(page, "Then run `false`.", run)
    assert STEP.search(TUTORIAL.read_text())
