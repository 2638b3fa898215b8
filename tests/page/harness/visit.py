"""A visit: one page in a browser, watched for all that must never happen, and counted."""

from __future__ import annotations

import re
from typing import Any, Protocol

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    WebError,
    expect,
)

from tests.page.harness.served import Served

SIZE = {"width": 1280, "height": 720}
# A machine with other tests on it may take long; a test that waits in vain has failed.
PATIENCE = 30_000
WATCH = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP report: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
// Requests under way, streams left out: from the call to the end of the body, or until abandoned.
const fetched = window.fetch;
window.underWay = { now: 0, most: 0 };
window.fetch = async (request, init) => {
  // Another Request of it would take its body away.
  const headers = request instanceof Request ? request.headers : new Headers(init?.headers);
  if (headers.get("accept") === "text/event-stream") {
    return fetched(request, init);
  }
  underWay.now += 1;
  underWay.most = Math.max(underWay.most, underWay.now);
  let isOver = false;
  const over = () => {
    if (!isOver) underWay.now -= 1;
    isOver = true;
  };
  (init?.signal ?? request.signal)?.addEventListener("abort", over);
  const response = await fetched(request, init).catch((error) => {
    over();
    throw error;
  });
  const read = response.arrayBuffer.bind(response);
  response.arrayBuffer = () => read().finally(over);
  return response;
};
"""
# Pictures of the screen that pass without a request under way, before nothing more is awaited.
QUIET_FRAMES = 6
GO = """(to) => {
  history.pushState(null, "", to);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Visit:
    """One page of a served ledger, in a context of its own that has a session.

    Args:
        browser: The browser.
        served: The ledger.
        options: Options of the context: `color_scheme="dark"`, `reduced_motion="reduce"`.
    """

    def __init__(self, browser: Browser, served: Served, **options: Any) -> None:
        self.served = served
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self.largest_answer = 0
        self._under_way: set[Request] = set()
        self._expected: list[re.Pattern[str]] = []
        self.context = browser.new_context(viewport=SIZE, **options)
        self.context.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        self.context.add_cookies(served.cookies)
        self.context.add_init_script(WATCH)
        self.context.on("console", self._on_console)
        self.context.on("weberror", self._on_error)
        self.context.on("dialog", self._on_dialog)
        self.context.on("request", self._on_request)
        self.context.on("response", self._on_response)
        self.context.on("requestfinished", self._on_finished)
        self.context.on("requestfailed", self._on_failed)
        self.page: Page = self.context.new_page()
        served.visits.append(self.close)

    # --- going somewhere

    def open(self, address: str) -> Page:
        """Open an address of the page as a link from elsewhere does, and wait until it is there."""
        self.page.goto(self.served.url + address)
        expect(self.page.locator("nav.top")).to_be_visible()
        return self.page

    def go(self, address: str) -> None:
        """Go to an address without loading the page again, as Forward does."""
        self.page.evaluate(GO, address)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def hold(self, key: str, times: int) -> None:
        """Hold a key until it has come so often."""
        for _ in range(times):
            self.page.keyboard.down(key)
        self.page.keyboard.up(key)

    @property
    def address(self) -> str:
        """The address in the browser, without the server's name."""
        return self.page.url.removeprefix(self.served.url)

    # --- what is shown

    def expect_version(self, version: int) -> None:
        """Wait until the page shows this version: in its head, and as the chosen row."""
        expect(self.page.locator(".run-head output")).to_have_text(f"event {version:,}")
        row = self.page.get_by_role("listbox", name="Events").locator("[aria-selected=true]")
        expect(row.locator(".version")).to_have_text(f"{version:,}")

    def version(self) -> int:
        """The version that the page is at now."""
        shown = self.page.locator(".run-head output").inner_text()
        return int(shown.removeprefix("event ").replace(",", ""))

    # --- what is counted

    def settle(self) -> None:
        """Wait until the page asks for nothing more; streams of events are not waited for."""
        quiet = 0
        while quiet < QUIET_FRAMES:
            self.page.evaluate(FRAME)
            quiet = 0 if self._under_way else quiet + 1

    def count_from_here(self) -> None:
        """Begin to count requests again."""
        self.requests.clear()
        self.page.evaluate("() => { underWay.most = underWay.now }")
        self.largest_answer = 0

    @property
    def most_under_way(self) -> int:
        """How many requests were under way at once, at most."""
        found: int = self.page.evaluate("() => underWay.most")
        return found

    def nodes(self) -> int:
        """All nodes of the document: elements, texts and comments."""
        count = """() => {
          const walker = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
          let nodes = 1;
          while (walker.nextNode()) nodes += 1;
          return nodes;
        }"""
        found: int = self.page.evaluate(count)
        return found

    def heap(self) -> float:
        """Megabytes of the page's script heap, after what is unused was collected."""
        session = self.context.new_cdp_session(self.page)
        session.send("Performance.enable")
        session.send("HeapProfiler.collectGarbage")
        metrics = session.send("Performance.getMetrics")["metrics"]
        session.detach()
        (used,) = (one["value"] for one in metrics if one["name"] == "JSHeapUsedSize")
        return float(used) / 1e6

    # --- what must never happen

    def expect_console(self, pattern: str) -> None:
        """Say that errors on the console that match a pattern belong to the test."""
        self._expected.append(re.compile(pattern))

    def close(self) -> None:
        """Close the context; `wrong` has all that happened and must not."""
        if self.close in self.served.visits:
            self.served.visits.remove(self.close)
            self.context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type != "error":
            return
        said = f"{message.text} ({message.location.get('url', '')})"
        if not any(pattern.search(said) for pattern in self._expected):
            self.wrong.append(f"console error: {said}")

    def _on_error(self, error: WebError) -> None:
        self.wrong.append(f"uncaught in the page: {error.error}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.served.url}/", "data:", "blob:")):
            self.wrong.append(f"request off the origin: {request.url}")
        if "/v1/" not in request.url:
            return
        self.requests.append(f"{request.method} {request.url.removeprefix(self.served.url)}")
        if not _is_stream(request):
            self._under_way.add(request)

    def _on_response(self, response: Response) -> None:
        size = int(response.headers.get("content-length", 0))
        if "/v1/" in response.url:
            self.largest_answer = max(self.largest_answer, size)

    def _on_failed(self, request: Request) -> None:
        self._under_way.discard(request)

    def _on_finished(self, request: Request) -> None:
        self._under_way.discard(request)
        # An answer that came in parts did not say its size.
        if "/v1/" in request.url and not _is_stream(request):
            self.largest_answer = max(self.largest_answer, request.sizes()["responseBodySize"])


def _is_stream(request: Request) -> bool:
    return request.headers.get("accept") == "text/event-stream"


class Browse(Protocol):
    """Opens a page of a served ledger in a context of its own."""

    def __call__(self, served: Served, **options: Any) -> Visit: ...
