"""What the SQL stores share about shelves: columns, and which generations a removal means."""

from __future__ import annotations

MARK = "fingerprint, generation, position, state"
LAST_GENERATION = 2**63 - 1
# From name to name through the index, however many rows each shelf has.
SHELF_NAMES = """WITH RECURSIVE found (name) AS (
        SELECT min(shelf) FROM shelf_rows
        UNION ALL
        SELECT (SELECT min(shelf) FROM shelf_rows WHERE shelf > found.name)
        FROM found WHERE found.name IS NOT NULL)
    SELECT name FROM found WHERE name IS NOT NULL UNION SELECT name FROM shelves"""


def generations(only: int | None, all_but: int | None) -> list[tuple[int, int]]:
    """The first and last of each range: ranges leave the rows that stay alone."""
    if only is not None:
        return [(only, only)]
    if all_but is not None:
        return [(0, all_but - 1), (all_but + 1, LAST_GENERATION)]
    return [(0, LAST_GENERATION)]
