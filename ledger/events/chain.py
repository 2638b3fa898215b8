"""The hash chain: each record's digest covers its content and the digest of the record before.

So a record of a run cannot be changed, removed or inserted without making every later digest wrong,
and a run's last digest stands for the whole run. The first record of a run is chained to GENESIS,
or, in a fork or continuation, to the parent's record that it starts from. The position is not
covered, since it belongs to one ledger and an import assigns new ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Final

GENESIS = bytes(32)
# The canonical form of ids, and of digests as text. Digests and seals cover the text, so a second
# spelling of the same id would be another record.
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
    """The digest of a record: SHA-256 over its fields, given as they are stored.

    Each field has its length before it ("3:abc,"). Without the lengths, bytes could move from
    one field to the next without changing the digest.
    """
    numbers = b"%d" % version, b"%d" % recorded_at
    fields = (previous, run_id, numbers[0], event_id, tag, numbers[1], data)
    return sha256(b"".join(map(with_length, fields))).digest()


def with_length(field: bytes) -> bytes:
    """A field with its length before it, "3:abc,"."""
    return b"%d:%b," % (len(field), field)


@lru_cache(maxsize=256)
def _prefixed(text: str) -> bytes:
    return with_length(text.encode())


def linker(run_id: str, recorded_at: int) -> Callable[[bytes, int, str, str, bytes], bytes]:
    """`link` for the records of one commit, with their shared fields encoded once.

    Returns a function of the previous digest, version, event id, tag and data. Same digests as
    `link`, from text instead of bytes, and faster: this is the path of every append.
    """
    run = _prefixed(run_id)
    when = b"%d" % recorded_at
    moment = b"%d:%b," % (len(when), when)

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
