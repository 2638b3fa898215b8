"""A file of transcripts: one JSON document, a list of several, or one on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any, NamedTuple, NoReturn

from turnledger.adapters.transcripts.transcript import TranscriptError

# What marks an object as a whole transcript, and what as a message within one.
_WHOLE = frozenset({"messages", "input", "contents", "request", "body", "choices", "candidates"})
_PIECE = frozenset({"role", "type", "parts"})


class Found(NamedTuple):
    """The data of one transcript, and where in its file it is: "" if it is the whole file."""

    place: str
    data: Any


def transcripts_in(content: bytes, source: str) -> list[Found]:
    """Every transcript of a file; TranscriptError if it is no JSON."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TranscriptError("this is not UTF-8.", source=source, place=f"line {line}") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise TranscriptError("there is nothing in it.", source=source)
    if len(lines) > 1 and _is_json(lines[0][1]):
        return [Found(f"line {number}", _parsed(line, source, number)) for number, line in lines]
    return list(_in_document(_parsed(text, source, None)))


def _in_document(data: Any) -> Iterator[Found]:
    """One transcript, or those in a list that is clearly not one of messages."""
    several = isinstance(data, list) and len(data) > 0 and all(map(_is_whole, data))
    if not several:
        yield Found("", data)
        return
    for number, one in enumerate(data, 1):
        yield Found(f"transcript {number}", one)


def _is_whole(data: Any) -> bool:
    if isinstance(data, list):
        return True
    return isinstance(data, dict) and bool(_WHOLE & data.keys()) and not _PIECE & data.keys()


def _is_json(line: str) -> bool:
    try:
        _decode(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parsed(text: str, source: str, line: int | None) -> Any:
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        where = f"line {line or error.lineno}"
        problem = f"this is no JSON: {error.msg} (column {error.colno})."
        raise TranscriptError(problem, source=source, place=where) from None
    except (ValueError, RecursionError) as error:
        problem = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        where = f"line {line}" if line else ""
        raise TranscriptError(
            f"this can't be read: {problem}.", source=source, place=where
        ) from None


def _decode(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant, parse_float=_finite)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"JSON has no {word}")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"{digits:.40} is too large a number")
    return number
