"""Accessibility: axe finds nothing serious on any screen, light and dark."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest

from tests.page.harness.staging import Demo
from tests.page.harness.visit import FRAME, Browse

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
RUN = """async () => {
  const { violations } = await axe.run(document, { preload: false, resultTypes: ["violations"] });
  return violations.map(({ id, impact, help, nodes }) => (
    { id, impact, help, nodes: nodes.slice(0, 5).map((one) => one.html.slice(0, 200)) }));
}"""
SERIOUS = ("serious", "critical")
# An address with runs by name, and keys that are pressed there.
SCREENS: dict[str, tuple[str, tuple[str, ...]]] = {
    "runs": ("/", ()),
    "doubts": ("/doubts", ()),
    "changed": ("/runs/{recovered}?at=19", ()),
    "event": ("/runs/{recovered}?at=12&tab=event", ()),
    "state": ("/runs/{recovered}?at=30&tab=state", ()),
    "tools": ("/runs/{recovered}?at=30&tab=tools", ()),
    "usage": ("/runs/{recovered}?tab=usage", ()),
    "waiting": ("/runs/{waiting}", ()),
    "search": ("/runs/{recovered}?at=12&q=invoice", ("m",)),
    "verified": ("/runs/{recovered}?at=12", ("v",)),
    "fork": ("/runs/{recovered}?at=14", ("f",)),
    "lineage": ("/runs/{fork}", ("l",)),
    "copy": ("/runs/{recovered}?at=14", ("y",)),
    "compare": ("/compare/{undisturbed}/{fork}", ()),
    "compare with": ("/runs/{recovered}?at=14", ("c",)),
    "help": ("/runs/{recovered}?at=14", ("?",)),
    "actions": ("/runs/{recovered}?at=14", ("Control+k",)),
}


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_serious(browse: Browse, demo: Demo, screen: str) -> None:
    """Names, roles, contrast and focus of all that is on the screen, light and dark."""
    visit = browse(demo.served, color_scheme="light")
    address, keys = SCREENS[screen]
    runs = {name: str(getattr(demo.runs, name)) for name in demo.runs.__struct_fields__}
    visit.open(address.format(**runs))
    visit.settle()
    for key in keys:
        visit.press(key)
        visit.settle()
    visit.page.evaluate(AXE)
    for scheme in ("light", "dark"):
        visit.page.emulate_media(color_scheme=scheme)
        visit.page.evaluate(FRAME)
        found: list[dict[str, Any]] = visit.page.evaluate(RUN)
        assert [one for one in found if one["impact"] in SERIOUS] == [], scheme
