"""The hash chain: each record's digest covers its content and the digest before it.

Nothing of a run can be changed, removed or put in between without every later
digest being wrong. Position is not covered, since an import renumbers it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Final

GENESIS = bytes(32)
# The one spelling of an id, and of a digest as text: digests and seals cover the spelling.
UUID_TEXT: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
DIGEST_TEXT: Final = re.compile("[0-9a-f]{64}")


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


@lru_cache(maxsize=256)
def _prefixed(text: str) -> bytes:
    value = text.encode()
    return b"%d:%b," % (len(value), value)


def linker(run_id: str, recorded_at: int) -> Callable[[bytes, int, str, str, bytes], bytes]:
    """`link` for the records of one commit, with what they share made once.

    Takes the previous digest, version, event id, tag and data.
    """
    run = _prefixed(run_id)
    moment = b"%d" % recorded_at
    moment = b"%d:%b," % (len(moment), moment)

    def link_next(previous: bytes, version: int, event_id: str, tag: str, data: bytes) -> bytes:
        number = b"%d" % version
        identity = event_id.encode()
        return sha256(
            b"%d:%b,%b%d:%b,%d:%b,%b%b%d:%b,"
            % (
                len(previous),
                previous,
                run,
                len(number),
                number,
                len(identity),
                identity,
                _prefixed(tag),
                moment,
                len(data),
                data,
            )
        ).digest()

    return link_next
