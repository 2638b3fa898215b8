"""SQL that appends: moves the heads of runs, if they are at the expected version, and inserts
their events at positions of the transaction that runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnledger.ledger.runs.index import RunRow
from turnledger.ledger.runs.record import NewColumns
from turnledger.ledger.stores.postgres.schema import FIRST_POSITION, OWN_POSITION, UNTOUCHED
from turnledger.ledger.stores.sql import ROW, RUN

# Nothing is written where a trigger or a rule that is not ours would see it.
_FIRST = f"""WITH tx AS MATERIALIZED (
    SELECT {FIRST_POSITION} + %(ordinal)s AS first WHERE {UNTOUCHED})"""
# What is stored in fact. The digest alone does not move when the data is changed on its way.
_STORED = """RETURNING events.position, events.run_id, events.version, events.tag,
    events.event_id, events.recorded_at, events.digest,
    sha256(convert_to(events.data, 'UTF8'))"""
_GO_ON = """moved AS (
    UPDATE runs SET version = %(version)s, digest = %(digest)s, recorded_at = %(recorded_at)s,
        status = %(status)s, epoch = %(epoch)s, prompt = %(prompt)s,
        position = first + %(count)s - 1
    FROM tx WHERE run_id = %(run_id)s AND version = %(before)s AND position < first
    RETURNING first)"""
_BEGIN_RUN = f"""moved AS (
    INSERT INTO runs ({RUN}, position) SELECT %(run_id)s, %(version)s, %(digest)s,
        %(recorded_at)s, %(epoch)s, %(status)s, %(started_at)s, %(prompt)s, %(kind)s,
        %(parent)s, %(parent_version)s, %(run_tags)s, first + %(count)s - 1 FROM tx
    ON CONFLICT (run_id) DO NOTHING RETURNING position - %(count)s + 1 AS first)"""
_TAGGED = """tagged AS (
    INSERT INTO run_tags SELECT key, value, %(run_id)s
    FROM moved, unnest(%(keys)s::text[], %(values)s::text[]) AS tag (key, value)
    ON CONFLICT DO NOTHING)"""
# The run's new version, digest and time are its last event's.
_ONE_EVENT = f"""INSERT INTO events ({ROW})
    SELECT first, %(run_id)s, %(version)s, %(tag)s, %(event_id)s, %(recorded_at)s, %(digest)s,
        %(data)s
    FROM moved {_STORED}"""
_NEW = """unnest(%(run_ids)s::text[], %(versions)s::bigint[], %(tags)s::text[],
    %(event_ids)s::text[], %(times)s::bigint[], %(digests)s::bytea[], %(datas)s::text[])
    WITH ORDINALITY AS new (run_id, version, tag, event_id, recorded_at, digest, data, place)"""
_NEW_ROW = """first + place - 1, new.run_id, new.version, tag, event_id, new.recorded_at,
    new.digest, data"""
_EVENTS = f"INSERT INTO events ({ROW}) SELECT {_NEW_ROW} FROM moved, {_NEW} {_STORED}"

# For one run, by: begins it or not, with tags or not, one event or several.
_ADVANCE = {
    (begins, tagged, alone): ", ".join(
        [_FIRST, _BEGIN_RUN if begins else _GO_ON, *([_TAGGED] if tagged else [])]
    )
    + (f" {_ONE_EVENT}" if alone else f" {_EVENTS}")
    for begins, tagged in ((False, False), (True, False), (True, True))
    for alone in (False, True)
}
# For many runs that go on: all of them, or no event is inserted.
ADVANCE_MANY = f"""{_FIRST}, moved AS (
    UPDATE runs SET version = m.version, digest = m.digest, recorded_at = m.recorded_at,
        status = m.status, epoch = m.epoch, prompt = m.prompt, position = first + m.last
    FROM tx, unnest(%(moved_ids)s::text[], %(befores)s::bigint[], %(heads)s::bigint[],
        %(head_digests)s::bytea[], %(head_times)s::bigint[], %(statuses)s::text[],
        %(epochs)s::bigint[], %(prompts)s::text[], %(lasts)s::bigint[])
        AS m (run_id, before, version, digest, recorded_at, status, epoch, prompt, last)
    WHERE runs.run_id = m.run_id AND runs.version = m.before AND runs.position < first
    RETURNING 1)
    INSERT INTO events ({ROW}) SELECT {_NEW_ROW} FROM tx, {_NEW}
    WHERE (SELECT count(*) FROM moved) = %(count)s {_STORED}"""
REBUILT_RUN = f"""INSERT INTO runs ({RUN}, position) VALUES (
    %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,
    (SELECT position FROM events WHERE run_id = %s AND version = %s))"""
# Also says whether the run's last event was written by a later transaction than this one.
LOCK_RUN = f"""SELECT {RUN}, position >= {OWN_POSITION} + %s FROM runs
    WHERE run_id = %s FOR NO KEY UPDATE"""


class Move:
    """Appends to one run that are held back: its row before and after, and the new events."""

    __slots__ = ("after", "before", "parts", "rows")

    def __init__(self, before: RunRow | None) -> None:
        self.before = before
        self.after: RunRow
        self.rows: list[NewColumns] = []
        # How many events each append brought, and the list that waits for their positions.
        self.parts: list[tuple[int, list[int]]] = []

    def add(self, after: RunRow, rows: Sequence[NewColumns]) -> list[int]:
        positions: list[int] = []
        self.after = after
        self.rows.extend(rows)
        self.parts.append((len(rows), positions))
        return positions

    def landmark(self) -> tuple[str, bytes]:
        """Id and digest of the last event."""
        _, _, _, event_id, _, digest, _ = self.rows[-1]
        return event_id, digest

    def place(self, first: int) -> None:
        for count, positions in self.parts:
            positions.extend(range(first, first + count))
            first += count


def advance_one(move: Move, ordinal: int) -> tuple[str, dict[str, Any]]:
    """The statement that moves one run, and its values."""
    before, after, rows = move.before, move.after, move.rows
    values: dict[str, Any] = {
        "ordinal": ordinal,
        "count": len(rows),
        "run_id": after.run_id,
        "version": after.version,
        "digest": after.digest,
        "recorded_at": after.recorded_at,
        "status": after.status,
        "epoch": after.epoch,
        "prompt": after.prompt,
    }
    tags: dict[str, str] = {}
    if before is None:
        tags = after.tag_map
        values |= {
            "started_at": after.started_at,
            "kind": after.kind,
            "parent": after.parent,
            "parent_version": after.parent_version,
            "run_tags": after.tags,
            "keys": list(tags),
            "values": list(tags.values()),
        }
    else:
        values["before"] = before.version
    if len(rows) == 1:
        _, _, values["tag"], values["event_id"], _, _, values["data"] = rows[0]
    else:
        values |= _columns(rows)
    return _ADVANCE[before is None, bool(tags), len(rows) == 1], values


def advance_many(moves: Sequence[Move], ordinal: int) -> dict[str, Any]:
    """The values of ADVANCE_MANY. Callers sort the moves by run, so that no two deadlock."""
    lasts, last = [], -1
    for move in moves:
        last += len(move.rows)
        lasts.append(last)
    return {
        "ordinal": ordinal,
        "count": len(moves),
        "moved_ids": [move.after.run_id for move in moves],
        "befores": [move.before.version if move.before else 0 for move in moves],
        "heads": [move.after.version for move in moves],
        "head_digests": [move.after.digest for move in moves],
        "head_times": [move.after.recorded_at for move in moves],
        "statuses": [move.after.status for move in moves],
        "epochs": [move.after.epoch for move in moves],
        "prompts": [move.after.prompt for move in moves],
        "lasts": lasts,
        **_columns([row for move in moves for row in move.rows]),
    }


def _columns(rows: Sequence[NewColumns]) -> dict[str, Any]:
    names = ("run_ids", "versions", "tags", "event_ids", "times", "digests", "datas")
    columns = zip(*rows, strict=True)
    return {name: list(column) for name, column in zip(names, columns, strict=True)}
