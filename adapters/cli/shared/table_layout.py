"""Layout of tables: column widths for a terminal, cutting cells, wrapping text between words.

Widths are counted in terminal cells. Where there is no terminal, nothing is cut or wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Between two columns.
GAP = "  "
# A column that gives way to others keeps at least this width.
NARROWEST = 8


def column_widths(
    wanted: Sequence[int], headings: Sequence[str], room: int, kept: Sequence[bool]
) -> list[int]:
    """Widths of columns that fit into `room`: the widest give way first.

    Args:
        wanted: The widths that show every cell whole.
        headings: The headings; a column is not made narrower than its own.
        room: The width of the terminal.
        kept: Which columns give way only when no other can.
    """
    widths = list(wanted)
    least = [
        min(width, max(len(heading), NARROWEST))
        for width, heading in zip(wanted, headings, strict=True)
    ]
    over = sum(widths) + len(GAP) * (len(widths) - 1) - room
    for is_kept in (False, True):
        while over > 0:
            spare = [
                (widths[n], n)
                for n in range(len(widths))
                if kept[n] == is_kept and widths[n] > least[n]
            ]
            if not spare:
                break
            widths[max(spare)[1]] -= 1
            over -= 1
    return widths


def cell_width(text: str) -> int:
    """How many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # slow to import

    return cell_len(text)


def cut(text: str, room: int) -> str:
    """Text on one line of `room` cells, with an ellipsis where something is left out."""
    if cell_width(text) <= room:
        return text
    kept = text[: max(room - 1, 0)]
    while kept and cell_width(kept) > room - 1:
        kept = kept[:-1]
    return kept + "…" if room > 0 else ""


def padded(text: str, width: int, *, right: bool) -> str:
    """Text with spaces, up to a width."""
    space = " " * (width - cell_width(text))
    return space + text if right else text + space


def wrapped(line: str, room: int) -> list[str]:
    """A line as lines of at most `room` cells, broken between words, with the same indent.

    A word that is longer than a line (a path, a digest) is broken after a slash, else anywhere.
    """
    if cell_width(line) <= room:
        return [line]
    said = line.lstrip(" ")
    margin = " " * min(len(line) - len(said), room // 2)
    room = max(room - len(margin), 1)
    lines, current = [], ""
    for word in said.split(" "):
        longer = f"{current} {word}" if current else word
        if cell_width(longer) <= room:
            current = longer
            continue
        if current:
            lines.append(current)
        *full, current = _pieces(word, room)
        lines.extend(full)
    return [margin + one for one in (*lines, current) if one]


def _pieces(word: str, room: int) -> list[str]:
    """A word in pieces that each fit into a line."""
    found: list[str] = []
    current = ""
    for part in re.findall(r"[^/]*/|[^/]+", word) or [word]:
        if cell_width(current + part) > room and current:
            found.append(current)
            current = ""
        current += part
        while cell_width(current) > room:
            size = next(n for n in range(len(current), 0, -1) if n == 1 or _fits(current, n, room))
            found.append(current[:size])
            current = current[size:]
    return [*found, current]


def _fits(text: str, size: int, room: int) -> bool:
    return cell_width(text[:size]) <= room
