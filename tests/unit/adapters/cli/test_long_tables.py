"""Tables that are too long to be laid out as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnledger.adapters.cli.shared import output
from turnledger.adapters.cli.shared.output import Format, Printer

ROWS = [(f"{n:04}", "ünï" if n % 2 else "ab", "", f"\x1b[3{n % 7}m") for n in range(20)]


def test_a_long_table_is_printed_as_a_short_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects the columns of the rows that come after the first page, and what is made visible
    in them."""
    Printer(Format.TABLE).rows(("version", "name", "none", "text"), ROWS)
    whole = capsys.readouterr().out
    monkeypatch.setattr(output, "TABLE_PAGE", 4)
    Printer(Format.TABLE).rows(("version", "name", "none", "text"), ROWS)
    assert capsys.readouterr().out == whole
    assert "\x1b" not in whole
    assert len(whole.splitlines()) == len(ROWS) + 1


def test_a_long_table_is_not_held(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects the memory of a long list: a row is printed before the next one is made."""
    monkeypatch.setattr(output, "TABLE_PAGE", 4)
    printed: list[int] = []

    def rows() -> Iterator[tuple[str]]:
        for number in range(10):
            printed.append(len(capsys.readouterr().out.splitlines()))
            yield (str(number),)

    Printer(Format.TABLE).rows(("n",), rows())
    assert printed == [0, 0, 0, 0, 5, 1, 1, 1, 1, 1]
