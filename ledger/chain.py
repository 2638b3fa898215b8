"""The hash chain: each record's digest covers its content and the digest before it.

Nothing of a run can be changed, removed or put in between without every later
digest being wrong. Position is not covered, since an import renumbers it.
"""

from __future__ import annotations

from hashlib import sha256

GENESIS = bytes(32)


def link(
    previous: bytes,
    run_id: bytes,
    version: int,
    event_id: bytes,
    tag: bytes,
    recorded_at: int,
    data: bytes,
) -> bytes:
    """The digest of a record: SHA-256 over its fields, each with its length before it."""
    number = b"%d" % version
    moment = b"%d" % recorded_at
    return sha256(
        b"%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,"
        % (
            len(previous),
            previous,
            len(run_id),
            run_id,
            len(number),
            number,
            len(event_id),
            event_id,
            len(tag),
            tag,
            len(moment),
            moment,
            len(data),
            data,
        )
    ).digest()
