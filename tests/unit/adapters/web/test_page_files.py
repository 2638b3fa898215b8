"""The page's built files: made from these sources, and served as they are."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from turnledger.adapters import terminal_text
from turnledger.projections.projection import tags_of
from turnledger.projections.records.shape import SHAPE_CHARACTERS

ROOT = Path(__file__).resolve().parents[4]
WEB = ROOT / "adapters/web"
NOT_SOURCES = {"node_modules", "dist"}


def sources() -> list[Path]:
    found = [path for path in (WEB / "ui").rglob("*") if path.is_file()]
    return [path for path in found if not NOT_SOURCES & set(path.relative_to(WEB).parts)]


def test_the_built_page_is_of_these_sources() -> None:
    """A change of a source, the lock or the API's document without `make page` is found."""
    files = [*sources(), ROOT / "docs/reference/openapi.json"]
    lines = sorted(
        f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT).as_posix()}\n"
        for path in files
    )
    expected = sha256("".join(lines).encode()).hexdigest()
    built = (WEB / "static/BUILT_FROM").read_text().strip()
    assert built == expected, "The page's sources have changed: run `make page` and commit it."


@pytest.mark.parametrize(
    "forbidden", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write"]
)
def test_no_source_makes_markup_of_text(forbidden: str) -> None:
    """Text of a run can't become markup: nothing in the sources writes any."""
    found = [path for path in sources() if path.suffix in (".ts", ".tsx")]
    assert [path.name for path in found if forbidden in path.read_text()] == []


def test_the_page_has_the_characters_of_shapes() -> None:
    """A new kind of event is drawn and named on the page as in `turnledger shape`."""
    table = json.loads((WEB / "ui/src/core/kinds.json").read_text())
    page = [(row["character"], row["meaning"], sorted(row["types"])) for row in table]
    ours = [
        (one.character, one.meaning, sorted(tags_of(*one.events)) if one.events else [])
        for one in SHAPE_CHARACTERS
    ]
    assert page == ours


def test_the_page_marks_what_the_command_line_marks() -> None:
    """Characters that act, hide or reorder are the same set on the page and in a terminal."""
    source = (WEB / "ui/src/core/text.ts").read_text()
    written = "".join(re.findall(r'^  "([^"]+)"', source, re.MULTILINE)).replace("\\\\", "\\")
    python = re.sub(r"\\u\{([0-9a-f]+)\}", lambda match: f"\\U{match[1]:>08}", written)
    page = re.compile(f"[{python}]")
    ours = terminal_text._unsafe()
    assert [
        c for c in map(chr, range(0x110000)) if bool(page.match(c)) != bool(ours.match(c))
    ] == []


def test_every_action_has_a_key_of_its_own() -> None:
    """One key does one thing."""
    table = json.loads((WEB / "ui/src/core/actions.json").read_text())
    keys = [key for action in table for key in action["keys"]]
    assert len(keys) == len(set(keys))
    assert len({action["id"] for action in table}) == len(table)
