"""The shapes of a stored event: as read, before it has a position, and undecoded."""

from __future__ import annotations

from typing import Any, TypeAlias

# position, run_id, version, tag, event_id, recorded_at (microseconds), digest, data
Row: TypeAlias = tuple[int, str, int, str, str, int, bytes, str]
# The same before the store has given it a position.
NewRow: TypeAlias = tuple[str, int, str, str, int, bytes, str]
# The same as it is on disk, text as bytes and nothing taken for granted.
RawRow: TypeAlias = tuple[Any, Any, Any, Any, Any, Any, Any, Any]
