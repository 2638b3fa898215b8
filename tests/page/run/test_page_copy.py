"""Copy as JSON, curl, Python and pytest, download and import: what is copied really works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.page.harness.served import Served
from tests.page.harness.staging import EXAMPLES, Demo
from tests.page.harness.visit import Browse, Visit
from turnledger.ledger import Ledger, Tokens

AT = 12


@pytest.fixture(scope="module")
def token(demo: Demo) -> str:
    """A token that may read the ledger."""
    with Ledger.open(demo.db) as ledger:
        return Tokens(ledger).new("reader").text


@pytest.fixture
def copying(visit: Visit, demo: Demo) -> Page:
    """A page that may use the clipboard, at an event."""
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit.open(f"/runs/{demo.runs.undisturbed}?at={AT}")
    visit.expect_version(AT)
    return page


def copied(page: Page, form: str) -> str:
    """What is in the clipboard after this form was chosen."""
    page.keyboard.press("y")
    dialog = page.get_by_role("dialog", name=f"Copy event {AT}, or the run")
    dialog.get_by_role("button", name=form, exact=True).click()
    expect(dialog.get_by_role("status")).to_have_text(f"{form} is copied.")
    text: str = page.evaluate("() => navigator.clipboard.readText()")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    return text


def run(command: list[str], folder: Path, **environment: str) -> str:
    """What a program prints, which must succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_copied_json_is_the_event(copying: Page, demo: Demo) -> None:
    """Whole, with its id and digest."""
    event = demo.served.get(f"/v1/runs/{demo.runs.undisturbed}/events/{AT}").json()
    assert json.loads(copied(copying, "JSON")) == event
    assert event["digest"]


def test_the_copied_curl_asks_for_the_event(
    copying: Page, demo: Demo, token: str, tmp_path: Path
) -> None:
    """It is run in a shell that has a token."""
    assert shutil.which("curl")
    command = ["sh", "-c", copied(copying, "curl")]
    said = run(command, tmp_path, TURNLEDGER_TOKEN=token)
    event = demo.served.get(f"/v1/runs/{demo.runs.undisturbed}/events/{AT}").json()
    assert json.loads(said) == event


def test_the_copied_python_has_the_state(copying: Page, token: str, tmp_path: Path) -> None:
    """It is run with a token, and prints the conversation at that event."""
    (tmp_path / "copied.py").write_text(copied(copying, "Python"))
    said = run([sys.executable, "copied.py"], tmp_path, TURNLEDGER_TOKEN=token)
    assert "Let me look." in said
    assert "I pay it." not in said


def downloaded(page: Page, folder: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_the_copied_test_replays_the_downloaded_run(
    copying: Page, demo: Demo, tmp_path: Path
) -> None:
    """With the name of the agent in it, pytest passes; with another agent's record it would not."""
    downloaded(copying, tmp_path)
    text = copied(copying, "pytest")
    (tmp_path / "test_copied.py").write_text(text.replace("my_module", "payments"))
    said = run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_copied.py"],
        tmp_path,
        PYTHONPATH=os.pathsep.join(filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH")))),
        DEMO_BANK=str(tmp_path / "bank.txt"),
    )
    assert "1 passed" in said


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    db = tmp_path_factory.mktemp("elsewhere") / "runs.db"
    Ledger.open(db).close()
    with Served(db) as served:
        yield served


def imported(page: Page, path: Path) -> Locator:
    """Import a file by the page's button; its dialog."""
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import", exact=True).click()
    chooser.value.set_files(path)
    dialog = page.get_by_role("dialog", name="Import")
    expect(dialog).to_contain_text(path.name)
    dialog.get_by_role("button", name="Import", exact=True).click()
    return dialog


def test_a_downloaded_run_is_imported_elsewhere(
    browse: Browse, copying: Page, demo: Demo, empty: Served, tmp_path: Path
) -> None:
    """The report counts its events; a second time they are there already; nothing bad is taken."""
    path = downloaded(copying, tmp_path)
    other = browse(empty)
    page = other.open("/")
    dialog = imported(page, path)
    expect(dialog.get_by_role("status")).to_contain_text("35 events of 1 run imported.")
    dialog.get_by_role("link", name="The list of runs").click()
    other.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("option")).to_contain_text(str(demo.runs.undisturbed)[-12:])
    dialog = imported(page, path)
    expect(dialog.get_by_role("status")).to_contain_text("35 events were there already.")
    other.press("Escape")
    other.expect_console("409")
    path.write_text(path.read_text().replace("Paid 120", "Paid 999"))
    dialog = imported(page, path)
    expect(dialog.get_by_role("alert")).to_contain_text("digest")
    there = empty.get(f"/v1/runs/{demo.runs.undisturbed}/events/20").text
    assert "Paid 999" not in there


def test_a_file_is_dropped_on_the_page(browse: Browse, empty: Served) -> None:
    """It is asked about before anything is sent; what is no export is refused with a reason."""
    visit = browse(empty)
    page = visit.open("/")
    visit.expect_console("4[0-9][0-9]")
    page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["no export"], "notes.txt"));
          for (const kind of ["dragover", "drop"]) {
            window.dispatchEvent(new DragEvent(kind, { dataTransfer: data, cancelable: true }));
          }
        }"""
    )
    dialog = page.get_by_role("dialog", name="Import")
    expect(dialog).to_contain_text("notes.txt")
    assert not [one for one in visit.requests if "import" in one]
    dialog.get_by_role("button", name="Import", exact=True).click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    expect(dialog.get_by_role("button", name="Try again")).to_be_visible()
