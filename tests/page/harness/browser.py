"""The browser that tests of the page drive: which one, and how it is started."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


class NoBrowserError(Exception):
    """No browser was found; tests of the page are never skipped."""


def find_chromium() -> str:
    """The path of CHROMIUM, or of the first browser on the PATH."""
    wanted = os.environ.get("CHROMIUM", "")
    if (
        found := shutil.which(wanted)
        if wanted
        else next(filter(None, map(shutil.which, NAMES)), "")
    ):
        return found
    looked = f"CHROMIUM={wanted} is not a program" if wanted else f"none of {', '.join(NAMES)}"
    raise NoBrowserError(f"No browser: {looked}. Run `make browser`, or set CHROMIUM=path.")


@contextmanager
def started() -> Iterator[Browser]:
    """A browser that reaches this machine and nothing else."""
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        with driving_stops():
            yield browser
        browser.close()


class _Loop:
    """Playwright's event loop, while a browser is there."""

    current: asyncio.AbstractEventLoop | None = None


@contextmanager
def driving_stops() -> Iterator[None]:
    """Playwright's loop does not count as running here: other tests run loops of their own."""
    _Loop.current = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(_Loop.current)


@contextmanager
def driving() -> Iterator[None]:
    """Playwright's loop counts as running: in here a browser can be driven."""
    asyncio._set_running_loop(_Loop.current)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)
