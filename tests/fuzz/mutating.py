"""Damage to bytes and to JSON, drawn from a seeded source: the same dice, the same damage.

Knows what readers of JSON stumble over (numbers, nesting, halves of characters, marks at the
beginning), and nothing of the formats that it damages.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

# What is put into bytes: none of it is long, most of it is troublesome.
TOKENS = (
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n",
    b"\n\n",
    b"\\",
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"\\udc00\\ud800",
    b"\xe2\x80\xa8",
    b"\x1b[2J",
    b"null",
    b"true",
    b"-0",
    b"-1",
    b"1e400",
    b"1E-400",
    b"0.1e1",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"9007199254740993",
    b"9" * 400,
    b"9" * 5000,
    b"NaN",
    b"Infinity",
    b"{}",
    b"[]",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"\t",
    b"[" * 300,
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
)
# What is put in the place of a value.
JUNK: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**300,
    0.5,
    -0.0,
    1e308,
    "",
    " ",
    "0",
    "x" * 600,
    "\x00",
    "\ud800",
    "\udfff\ud800",
    "\u2028\x1b[31m\u202e",
    "🦜" * 3,
    "é",
    "../../etc/passwd",
    "data:image/png;base64,AAAA",
    "data:,",
    "AAAA",
    "2026-01-02T03:04:05Z",
    "9999-12-31T23:59:59.999999Z",
    "0001-01-01T00:00:00+14:00",
    "0195f5a0-0000-7000-8000-00000000abcd",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": 1},
)


def mutate_bytes(dice: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """The bytes with one to several places damaged."""
    damaged = bytearray(data)
    for _ in range(_how_often(dice)):
        _damage(dice, damaged, others)
    return bytes(damaged)


def _how_often(dice: random.Random) -> int:
    times = 1
    while times < 6 and dice.random() < 0.35:
        times += 1
    return times


def _damage(dice: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    length = len(data)
    at = dice.randrange(length + 1)
    size = min(length - at, dice.choice((1, 1, 2, 3, 8, 40, 400)))
    match dice.randrange(10):
        case 0 | 1 if at < length:
            data[at] ^= 1 << dice.randrange(8)
        case 2 if at < length:
            data[at] = dice.randrange(256)
        case 3:
            del data[at : at + size]
        case 4:
            data[at:at] = data[at : at + size]
        case 5:
            other = dice.randrange(length + 1)
            data[at : at + size], data[other : other + size] = (
                data[other : other + size],
                data[at : at + size],
            )
        case 6 if dice.random() < 0.3:
            del data[at:]
        case 7 if others:
            other_bytes = dice.choice(others)
            start = dice.randrange(len(other_bytes) + 1)
            data[at : at + size] = other_bytes[start : start + 2 * size]
        case 8:
            data[0:0] = dice.choice((b"\xef\xbb\xbf", b"\n", b" ", b"\x00", b"["))
        case _:
            data[at : at + dice.choice((0, 0, size))] = dice.choice(TOKENS)


def mutate_json(dice: random.Random, value: Any, words: Sequence[str] = ()) -> Any:
    """A JSON value with one to several places changed; what was given is changed too."""
    holder = [value]
    for _ in range(_how_often(dice)):
        places = list(_places(holder))
        container, key = dice.choice(places)
        _change(dice, container, key, places, words)
    return holder[0]


def _places(value: Any) -> Any:
    """Every place that a value stands at, as its container and key."""
    stack = [value]
    while stack:
        container = stack.pop()
        for key in list(container) if isinstance(container, dict) else range(len(container)):
            yield container, key
            if isinstance(container[key], dict | list):
                stack.append(container[key])


def _change(
    dice: random.Random, container: Any, key: Any, places: list[Any], words: Sequence[str]
) -> None:
    value = container[key]
    match dice.randrange(12):
        case 0 | 1:
            container[key] = _junk(dice, words)
        case 2:
            del container[key]
            if not container and isinstance(container, list):
                container.append(_junk(dice, words))
        case 3 if isinstance(container, dict):
            container[dice.choice(words) if words else ""] = container.pop(key)
        case 4:
            other, name = dice.choice(places)
            if _has(other, name) and not _inside(other[name], container):
                container[key] = json.loads(json.dumps(other[name]))
        case 5 if isinstance(container, list):
            container.insert(key, json.loads(json.dumps(value)))
        case 6 if isinstance(container, list):
            other_key = dice.randrange(len(container))
            container[key], container[other_key] = container[other_key], container[key]
        case 7:
            container[key] = [value] if dice.random() < 0.5 else {dice.choice(words or [""]): value}
        case 8 if isinstance(container, dict) and words:
            container[dice.choice(words)] = _junk(dice, words)
        case 9 if isinstance(value, str):
            text = mutate_bytes(dice, value.encode("utf-8", "surrogatepass"))
            container[key] = text.decode("utf-8", "replace")
        case 9 if isinstance(value, int | float):
            container[key] = value + dice.choice((-1, 1, 1000))
        case 10 if dice.random() < 0.2:
            for _ in range(dice.choice((20, 70, 150))):
                value = [value]
            container[key] = value
        case _:
            container[key] = dice.choice(words) if words else _junk(dice, words)


def _has(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


def _inside(outer: Any, inner: Any) -> bool:
    """Whether copying the one into the other would be a lot: it holds it."""
    return isinstance(outer, dict | list) and (
        outer is inner or any(container[key] is inner for container, key in _places(outer))
    )


def _junk(dice: random.Random, words: Sequence[str]) -> Any:
    if words and dice.random() < 0.2:
        return dice.choice(words)
    junk = dice.choice(JUNK)
    return json.loads(json.dumps(junk)) if isinstance(junk, dict | list) else junk


def as_json(dice: random.Random, value: Any) -> bytes:
    """The value as JSON bytes, in one of the ways in which it can be written."""
    return written(
        value,
        ensure_ascii=dice.random() < 0.3,
        separators=(",", ":") if dice.random() < 0.8 else None,
        indent=1 if dice.random() < 0.05 else None,
    )


def written(value: Any, **style: Any) -> bytes:
    """The value as JSON bytes; one that is nested too deep to be written, as brackets alone."""
    try:
        text = json.dumps(value, **style)
    except RecursionError:
        text = "[" * 2_000 + "]" * 2_000
    return text.encode("utf-8", "surrogatepass")
