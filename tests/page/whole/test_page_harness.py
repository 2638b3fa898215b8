"""The harness of the page's tests: what it forbids does fail a test."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.page.harness.browser import NoBrowserError, find_chromium
from tests.page.harness.staging import Demo
from tests.page.harness.visit import Browse, Visit

ROOT = Path(__file__).parents[3]
FORBIDDEN = {
    "dialog": ("alert('here')", "dialog: here"),
    "console": ("console.error('odd')", "console error: odd"),
    "uncaught": ("setTimeout(() => { throw new Error('thrown') })", "uncaught in the page: thrown"),
    "elsewhere": ("open('http://127.0.0.2:9/')", "request off the origin: http://127.0.0.2:9/"),
    "policy": ("new Image().src = 'http://elsewhere.invalid/a.png'", "CSP report: img-src"),
    "markup": ("try { document.body.innerHTML = '<b>' } catch {}", "CSP report: require-trusted"),
}


@pytest.mark.parametrize(("script", "expected"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_must_never_happen_is_noticed(visit: Visit, script: str, expected: str) -> None:
    """A dialog, an error, a request elsewhere or a report of the policy fails the test."""
    visit.open("/")
    visit.settle()
    assert visit.wrong == []
    visit.page.evaluate(f"() => {{ {script} }}")
    visit.settle()
    assert any(expected in wrong for wrong in visit.wrong)
    visit.wrong.clear()


def test_an_error_that_a_test_expects_does_not_fail_it(visit: Visit) -> None:
    """Only the errors that match what it says."""
    visit.open("/")
    visit.expect_console("^known")
    visit.page.evaluate("() => { console.error('known one'); console.error('unknown one') }")
    visit.settle()
    assert [wrong.partition(" (")[0] for wrong in visit.wrong] == ["console error: unknown one"]
    visit.wrong.clear()


def test_without_a_browser_nothing_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error says what to run, or to set."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    with pytest.raises(NoBrowserError, match="Run `make browser`, or set CHROMIUM=path"):
        find_chromium()
    monkeypatch.setenv("CHROMIUM", "/no/such/program")
    with pytest.raises(NoBrowserError, match="CHROMIUM=/no/such/program is not a program"):
        find_chromium()


def make_browser(folder: Path, user: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """`make browser` of a user on a machine without one, whose apt-get brings what it is told."""
    install = f"cp {folder}/id {folder}/chromium"
    programs = {
        "id": f"echo {user}",
        "apt-get": f"echo $* >> {folder}/asked; test $1 = update || {install}",
    }
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    for name in ("make", "sh", "cp", "timeout"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return subprocess.run(
        ["make", "browser"],
        cwd=ROOT,
        env={"PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_make_installs_a_browser_as_root(tmp_path: Path) -> None:
    """It says what it installs, and does nothing where there is a browser."""
    done = make_browser(tmp_path, user=0)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Installing from Debian: chromium fonts-dejavu-core\n"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[1:] == ["install -qq -y chromium fonts-dejavu-core"]


@pytest.mark.parametrize(("user", "given"), [(1000, {}), (0, {"CHROMIUM": "/no/such/program"})])
def test_make_stops_without_a_browser(tmp_path: Path, user: int, given: dict[str, str]) -> None:
    """It says what to run, and installs nothing: as another user, or beside the one that is set."""
    done = make_browser(tmp_path, user, **given)
    assert done.returncode == 2
    assert "Run 'make browser' as root on Debian" in done.stderr
    assert "CHROMIUM=path" in done.stderr
    assert not (tmp_path / "asked").exists()


def test_other_tests_run_event_loops_while_a_browser_is_there(browser: Browser) -> None:
    """A worker keeps its browser, and takes tests of all kinds."""
    assert browser.is_connected()
    assert asyncio.run(asyncio.sleep(0, "done")) == "done"


def test_two_pages_have_a_session_each(browse: Browse, demo: Demo) -> None:
    """A context has a session from its beginning, and what it stores is its own."""
    first, second = browse(demo.served), browse(demo.served, color_scheme="dark")
    for one in (first, second):
        one.open(f"/runs/{demo.runs.undisturbed}?at=7")
        one.expect_version(7)
        assert one.version() == 7
    second.press("j", "j")
    second.expect_version(9)
    first.expect_version(7)
