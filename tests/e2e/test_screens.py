"""What commands show on a terminal fits its width; `tests/unit/test_reference.py` compares it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.screens import SCREENS, WIDTHS, ScreenClock, rendered, screen, stage
from turnledger.adapters.cli import turnledger
from turnledger.adapters.cli.shared.table_layout import cell_width, column_widths, cut, wrapped

# Wide enough for everything: nothing is cut or wrapped.
WIDE = 600
BARS = re.compile("[█▓▒·x─]+")


def lines_of(width: int) -> list[str]:
    """What is shown at a width, without the command lines and JSON on one line."""
    text = "\n".join(rendered(width).values())
    return [line for line in text.splitlines() if not line.startswith(("$ ", '{"'))]


def test_every_command_has_a_screen() -> None:
    """No command is left out: its output, and its help."""
    shown = [line for lines in SCREENS.values() for line in lines]
    for name in turnledger.load_all():
        assert any(line == name or line.startswith(f"{name} ") for line in shown), name
        assert f"$ turnledger {name} --help\n" in rendered(WIDTHS[0])["help"]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    """Tables, messages, help and examples fit; control characters take no part in it."""
    assert [line for line in lines_of(width) if cell_width(line) > width] == []
    assert "\x1b" not in "".join(rendered(width).values())


@pytest.mark.parametrize("width", WIDTHS)
def test_no_word_is_broken(width: int) -> None:
    """Each word is one that a wide terminal shows too, or is cut with an ellipsis."""
    whole = {word for line in lines_of(WIDE) for word in line.split()}
    # Help may break a word after a hyphen.
    hyphens = [(word, found.end()) for word in whole for found in re.finditer("-", word)]
    whole |= {part for word, at in hyphens for part in (word[:at], word[at:])}
    found = {word for line in lines_of(width) for word in line.split() if "…" not in word}
    assert {word for word in found - whole if not BARS.fullmatch(word)} == set()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_doctor_of_a_file_fits(width: int, tmp_path: Path) -> None:
    """Its facts and advice depend on the machine, so no screen is kept; they fit all the same."""
    with stage(width):
        shown = screen("doctor", ScreenClock())
    assert "what to do" in shown
    assert [line for line in shown.splitlines() if cell_width(line) > width] == []


def test_the_widest_columns_give_way() -> None:
    """Columns that people copy from stay whole as long as others can give way."""
    assert column_widths([8, 40, 30], ["run", "a", "b"], 60, [True, False, False]) == [8, 24, 24]
    assert column_widths([8, 40, 30], ["run", "a", "b"], 90, [True, False, False]) == [8, 40, 30]
    assert column_widths([36, 9, 9], ["run", "a", "b"], 40, [True, False, False]) == [20, 8, 8]


def test_text_is_cut_and_wrapped_by_cells() -> None:
    """Wide characters take two cells; a word that fits no line is broken after a slash."""
    assert cut("Lisbon", 6) == "Lisbon"
    assert cut("Lisbon!", 6) == "Lisbo…"
    assert cut("東京大阪", 6) == "東京…"
    assert wrapped("  one two three", 9) == ["  one two", "  three"]
    assert wrapped("see /srv/agents/runs.db now", 12) == ["see", "/srv/agents/", "runs.db now"]
    assert wrapped("", 10) == [""]
