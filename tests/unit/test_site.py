"""The site that `make docs` builds: its nav, its links, where it fetches from, its API pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs import generate
from docs.website import check, hooks, picture

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TABS = ["Home", "Tutorial", "How-to", "Reference", "Explanation", "Decisions"]


def _pages(nav: list[Any]) -> list[str]:
    pages: list[str] = []
    for entry in nav:
        (target,) = entry.values()
        pages.extend(_pages(target) if isinstance(target, list) else [target])
    return pages


def test_the_nav_has_every_page_once_in_four_kinds() -> None:
    """It is made from the index: tutorial, how-to, reference, explanation, and decisions."""
    nav = hooks.nav_of((DOCS / "index.md").read_text())
    assert [next(iter(tab)) for tab in nav] == TABS
    there = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert sorted(_pages(nav)) == there


def test_the_api_pages_have_every_public_name() -> None:
    """A name of a package, or of the front door, is on its page."""
    for package in generate.PACKAGES:
        page = (DOCS / f"reference/api/{package}.md").read_text().splitlines()
        names = generate.import_module(f"turnledger.{package}").__all__
        assert sorted(line for line in page if line.startswith(":::")) == sorted(
            f"::: turnledger.{package}.{name}" for name in names
        )
    page = (DOCS / "reference/api/turnledger.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| [`")]
    assert [row.split("`")[1] for row in rows] == generate.front_door.__all__
    assert [row for row in rows if row.endswith("|  |")] == []


def test_what_another_origin_would_serve_is_found(tmp_path: Path) -> None:
    """Scripts, styles and pictures; and a public name without an entry."""
    (tmp_path / "a.html").write_text(
        '<script src="https://cdn.example/x.js"></script><img src="b.svg">'
        '<a href="https://example.com">a link</a><p id="turnledger.ledger.Ledger">'
    )
    (tmp_path / "a.css").write_text('@import "//fonts.example/f.css"; a { background: url(b.png) }')
    found = list(check.problems(tmp_path))
    assert found[:2] == [
        "a.html fetches https://cdn.example/x.js",
        "a.css fetches //fonts.example/f.css",
    ]
    assert "no entry for turnledger.ledger.Record" in found
    assert "no entry for turnledger.ledger.Ledger" not in found


@pytest.mark.process
def test_the_picture_of_a_killed_run_shows_what_happens() -> None:
    """It is drawn by killing a process inside a tool, and is the same each time."""
    assert picture.FILE.read_text() == picture.picture()


@pytest.mark.full
def test_the_site_is_built_without_a_dead_link(tmp_path: Path) -> None:
    """`mkdocs build --strict` refuses dead links and anchors; all it fetches is its own."""
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert list(check.problems(tmp_path)) == []


@pytest.mark.full
def test_every_entry_of_the_api_has_a_docstring() -> None:
    """As the site's own reader finds it, through the lazy exports: constants and aliases too."""
    import griffe

    loader = griffe.GriffeLoader(search_paths=[ROOT / "src"])
    root = loader.load("turnledger")
    loader.resolve_aliases()
    assert isinstance(root, griffe.Module)
    names = [
        f"{package}.{name}"
        for package in generate.PACKAGES
        for name in generate.import_module(f"turnledger.{package}").__all__
    ]
    assert len(names) > 200
    silent = [name for name in (*names, *generate.front_door.__all__) if not root[name].docstring]
    assert silent == []
