"""Incremental digests: adding to a list or a map costs the step, not the history.

A list has a running hash. A map has the sum, modulo 2**256, of its entries' hashes, which
can be added and taken away in any order. Both are over canonical JSON, so they are equal in
every process and every version of Python. `combine` makes one digest of several, under the
name (`domain`) of what they mean together.

    running = list_start("slice")                    total = 0
    running = list_add(running, item)                total = map_add(total, key, value)
                                                     total = map_remove(total, key, value)
    combine("state", running, map_digest(total))

A sum of hashes finds every accident. Against an attacker who may choose millions of entries
it is weaker than a chain (lattice methods): what must be tamper-evident is in the hash chain.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

_MODULUS = 2**256
_encoder = msgspec.json.Encoder(order="sorted")


def canonical(value: object) -> bytes:
    """The value's one JSON text: keys and fields sorted, no spaces, UTF-8.

    Not for text with lone surrogates, nor for what JSON can't hold: both raise.
    """
    return _encoder.encode(value)


def list_start(domain: str) -> bytes:
    """The running hash of an empty list of this kind."""
    return sha256(b"turnledger list\0" + domain.encode()).digest()


def list_add(running: bytes, item: object) -> bytes:
    """The running hash with one more item; bytes are taken as they are (a digest, say)."""
    data = item if isinstance(item, bytes) else _encoder.encode(item)
    return sha256(b"turnledger item\0" + running + data).digest()


def entry_hash(key: str, value: object) -> int:
    """What an entry adds to its map's sum."""
    name = key.encode()
    data = _encoder.encode(value)
    digest = sha256(b"turnledger entry\0%d:%b,%b" % (len(name), name, data)).digest()
    return int.from_bytes(digest, "big")


def map_add(total: int, key: str, value: object) -> int:
    """The sum of a map with an entry that it did not have."""
    return (total + entry_hash(key, value)) % _MODULUS


def map_remove(total: int, key: str, value: object) -> int:
    """The sum of a map without an entry that it had."""
    return (total - entry_hash(key, value)) % _MODULUS


def map_digest(total: int) -> bytes:
    """A map's sum as bytes, for `combine`."""
    return total.to_bytes(32, "big")


def combine(domain: str, *parts: bytes) -> bytes:
    """One digest of several parts, each with its length before it."""
    name = domain.encode()
    data = b"turnledger whole\0%d:%b," % (len(name), name)
    for part in parts:
        data += b"%d:%b," % (len(part), part)
    return sha256(data).digest()
