"""Screenshots of the page, light and dark: made here, and shown in docs and README.

They are written where SCREENSHOTS says, else to pytest's folder; `make screenshots` writes those
that are committed. Not a pixel is compared: a test sees that what a picture is to show is there.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.page.harness.staging import Demo, LongRun
from tests.page.harness.visit import SIZE, Browse, Visit

SCHEMES = ("light", "dark")
NAMES = ("runs", "run", "blame", "doubt", "comparison", "long-run")
PIXEL = 3  # bytes
SHADES = bytes(min(255, round(shade / 8) * 8) for shade in range(256))
SIGNATURE = b"\x89PNG\r\n\x1a\n"
COMMITTED = Path(__file__).parents[3] / "docs" / "page"
# Of all pictures together: they are in every clone.
MOST_BYTES = 1_500_000


Take = Callable[[Visit, str], None]


@pytest.fixture
def take(tmp_path: Path) -> Take:
    """Writes what the page shows as a picture of this name."""
    folder = os.environ.get("SCREENSHOTS", "")

    def taken(visit: Visit, name: str) -> None:
        visit.settle()
        picture = visit.page.screenshot(animations="disabled", caret="hide")
        # Making it small takes seconds: only for those that are kept.
        kept = compressed(picture) if folder else picture
        Path(folder or tmp_path, f"{name}.png").write_bytes(kept)

    return taken


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    """Light, then dark."""
    return str(request.param)


def chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a PNG: kind and content."""
    place = len(SIGNATURE)
    while place < len(picture):
        length, kind = struct.unpack_from(">I4s", picture, place)
        yield kind, picture[place + 8 : place + 8 + length]
        place += 12 + length


def compressed(picture: bytes) -> bytes:
    """The same PNG, a third as large: 32 shades of each colour, rows without filters."""
    parts = list(chunks(picture))
    rows = zlib.decompress(b"".join(content for kind, content in parts if kind == b"IDAT"))
    kept = [parts[0], (b"IDAT", zlib.compress(unfiltered(rows), 9)), (b"IEND", b"")]
    return SIGNATURE + b"".join(chunk(*part) for part in kept)


def unfiltered(rows: bytes) -> bytes:
    """Rows of RGB pixels with the filters of PNG undone, in fewer shades."""
    width = SIZE["width"] * PIXEL
    above, made = bytearray(width), bytearray()
    for start in range(0, len(rows), width + 1):
        kind, row = rows[start], bytearray(rows[start + 1 : start + 1 + width])
        for place in range(width) if kind else ():
            left = row[place - PIXEL] if place >= PIXEL else 0
            corner = above[place - PIXEL] if place >= PIXEL else 0
            up = above[place]
            guess = (0, left, up, (left + up) // 2, nearest(left, up, corner))[kind]
            row[place] = (row[place] + guess) & 255
        made += b"\0" + row.translate(SHADES)
        above = row
    return bytes(made)


def nearest(left: int, up: int, corner: int) -> int:
    """The predictor of Paeth."""
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))


def chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG, with its length and checksum."""
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum


def test_runs(demo: Demo, browse: Browse, take: Take, scheme: str) -> None:
    """The list has the demo's five runs: completed, waiting, without a worker, and a fork."""
    visit = browse(demo.served, color_scheme=scheme)
    page = visit.open("/")
    rows = page.get_by_role("listbox", name="Runs").get_by_role("option")
    expect(rows).to_have_count(5)
    for text in ("waiting", "no worker", "completed", "└"):
        expect(rows.filter(has_text=text).first).to_be_visible()
    take(visit, f"runs-{scheme}")


def test_a_run(demo: Demo, browse: Browse, take: Take, scheme: str) -> None:
    """A run that was killed in a payment, at the event where the call is in doubt."""
    visit = browse(demo.served, color_scheme=scheme)
    page = visit.open(f"/runs/{demo.runs.recovered}?at=20")
    visit.expect_version(20)
    expect(page.get_by_role("img", name="1 doubt")).to_be_visible()
    expect(page.get_by_role("region", name="Conversation")).to_contain_text("in doubt")
    expect(page.get_by_role("tab", name="changed")).to_be_visible()
    take(visit, f"run-{scheme}")


def test_blame(demo: Demo, browse: Browse, take: Take, scheme: str) -> None:
    """A value is chosen in the state: the event that set it is named, its changes pinned."""
    visit = browse(demo.served, color_scheme=scheme)
    page = visit.open(f"/runs/{demo.runs.undisturbed}?tab=state&pin=/slices/Payment/0/amount")
    for name in ("slices", "Payment", "0", "amount"):
        page.get_by_role("treeitem", name=re.compile(f"^{name}:")).click()
    chosen = page.get_by_role("region", name="Chosen value")
    expect(chosen).to_contain_text("set by event 18 slice.event_applied")
    expect(page.get_by_role("region", name="Pinned value")).to_contain_text("1 change in all")
    take(visit, f"blame-{scheme}")


def test_a_doubt(demo: Demo, browse: Browse, take: Take, scheme: str) -> None:
    """A call in doubt, and the event that a decision about it would append."""
    visit = browse(demo.served, color_scheme=scheme)
    page = visit.open("/doubts")
    card = page.get_by_role("region", name="call_2")
    card.get_by_role("radio", name="It happened, with this value").check()
    card.get_by_label("The value that it gave, as JSON").fill('{"paid": 120}')
    card.get_by_label("Who decides").fill("ann")
    expect(card.locator(".appended")).to_contain_text("tool_call.decided")
    take(visit, f"doubt-{scheme}")


def test_a_comparison(demo: Demo, browse: Browse, take: Take, scheme: str) -> None:
    """Two runs side by side, at the first difference."""
    visit = browse(demo.served, color_scheme=scheme)
    page = visit.open(f"/compare/{demo.runs.undisturbed}/{demo.runs.fork}")
    expect(page.locator(".compare-head [role=status]")).to_contain_text("difference 1 of")
    expect(page.locator(".change").first).to_contain_text("two invoices")
    take(visit, f"comparison-{scheme}")


def test_a_long_run(long_run: LongRun, browse: Browse, take: Take, scheme: str) -> None:
    """A run of 100,000 events, in its middle, with what stands out counted."""
    visit = browse(long_run.served, color_scheme=scheme)
    page = visit.open(f"/runs/{long_run.run}?at=50000")
    visit.expect_version(50_000)
    expect(page.get_by_role("region", name="The whole run")).to_contain_text("failures")
    take(visit, f"long-run-{scheme}")


def test_the_committed_pictures_are_those_of_the_tests() -> None:
    """Docs have a picture of each screen in light and dark, of the page's size, small together."""
    there = {file.name: file.read_bytes() for file in COMMITTED.glob("*.png")}
    assert set(there) == {f"{name}-{scheme}.png" for name in NAMES for scheme in SCHEMES}
    for picture in there.values():
        assert struct.unpack_from(">II", picture, 16) == (SIZE["width"], SIZE["height"])
    assert sum(map(len, there.values())) <= MOST_BYTES
