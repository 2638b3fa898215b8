"""Bodies of requests: their type, and JSON into a Struct, with a JSON Pointer where it fails."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import takewhile
from typing import Any, Final, TypeVar

import msgspec
from anyio import to_thread
from starlette.requests import Request

from turnledger.adapters.http.protocol import problems
from turnledger.adapters.http.protocol.problems import ProblemError

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
T = TypeVar("T")
# Bytes of a body that has no events in it.
SMALL: Final = 64 * 1024
# Values in a body at most: `[]` takes two bytes there, and sixty in memory.
MOST_VALUES: Final = 1_000_000


def media_type(request: Request, known: Collection[str]) -> str:
    """The type of a body, one of those known; JSON if the request does not say.

    Raises:
        ProblemError: The body has another type.
    """
    found = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if found not in known:
        raise ProblemError(
            problems.WRONG_TYPE, f"Got {found[:100]!r}, expected {' or '.join(known)}."
        )
    return found


async def read_struct(request: Request, kind: type[T], *, is_small: bool = False) -> T:
    """A JSON body as a Struct of this type.

    Args:
        request: The request.
        kind: The type.
        is_small: Whether the body has no events in it; then no more than 64 kB are read.
    """
    media_type(request, (JSON,))
    body = b""
    if is_small:
        async for chunk in request.stream():
            body += chunk
            if len(body) > SMALL:
                raise ProblemError(
                    problems.TOO_LARGE, f"This body has at most {SMALL} bytes.", limit=SMALL
                )
    else:
        body = await request.body()
    decoder = msgspec.json.Decoder(kind)
    if len(body) <= SMALL:
        return decoded(decoder, body)  # type: ignore[no-any-return]
    return await to_thread.run_sync(lambda: _decoded_large(decoder, body))


def _decoded_large(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    check_values(body)
    return decoded(decoder, body)


def decoded(
    decoder: msgspec.json.Decoder[Any], body: bytes, within: str = "", *, of: int = 0
) -> Any:
    """A JSON text by a decoder.

    Args:
        decoder: Decodes it.
        body: The text.
        within: The JSON Pointer of the text in the body.
        of: The bytes of the body, if the text is one line of it.

    Raises:
        ProblemError: It is not JSON, its type does not fit, or an event's own rule refuses it.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        given = _json(body)
        if not FRACTION.match(str(error)):
            raise _refusal(error, within) from None
        return _without_fractions(decoder, given, error, within, MOST_AGAIN // (of or len(body)))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _not_json(error) from None


def _refusal(error: msgspec.ValidationError, within: str) -> ProblemError:
    said, parts = _place(str(error))
    place = within + _pointer(parts)
    if isinstance(error.__cause__, ValueError):  # of an event's own rules
        return ProblemError(problems.REFUSED, f"{place}: {said}", pointer=place)
    return invalid(place, said)


def invalid(pointer: str, said: str) -> ProblemError:
    """The problem of a body that its schema refuses."""
    errors = [{"pointer": pointer, "detail": said}]
    return ProblemError(problems.INVALID, f"{pointer or 'The body'}: {said}.", errors=errors)


def _json(body: bytes) -> Any:
    """A body that is not JSON is told so, although its beginning has the wrong type already."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _not_json(error) from None


def _not_json(error: Exception) -> ProblemError:
    return ProblemError(problems.NOT_JSON, f"The body is not JSON: {error}")


_AT = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)
_PART = re.compile(r"\.([^.\[]+)|\[(\d+)\]|(\[\.\.\.\])")
_ANY_KEY = "[...]"


def _place(text: str) -> tuple[str, list[str]]:
    """What a decoder says, and where: names, places in lists, and `[...]` for a map's keys."""
    found = _AT.fullmatch(text)
    if found is None:
        return text, []
    return found[1], ["".join(part) for part in _PART.findall(found[2])]


def _pointer(parts: list[str]) -> str:
    """The JSON Pointer of a place; for a map's value, the map's."""
    known = takewhile(lambda part: part != _ANY_KEY, parts)
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in known)


# --- number of values --------------------------------------------------------------------------

_SLICE = 256 * 1024
_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_BEFORE_VALUE: Final = (b",", b"[", b"{")


def check_values(body: bytes) -> None:
    """Refuse a JSON text, or lines of them, that would fill the memory once it is decoded.

    Raises:
        ProblemError: It has too many values.
    """
    # One of at most so many bytes can't have more.
    if len(body) > MOST_VALUES and has_more_values(body, MOST_VALUES):
        raise ProblemError(
            problems.TOO_LARGE, f"The body has more than {MOST_VALUES:,} values.", limit=MOST_VALUES
        )


def has_more_values(body: bytes, limit: int) -> bool:
    """Whether a JSON text has more commas and opening brackets, outside its strings, than a limit.

    They are counted without decoding, in slices, so that memory stays flat. Text that is not JSON
    has some answer: the decoder refuses it.
    """
    if sum(map(body.count, _BEFORE_VALUE)) <= limit:
        return False
    found, in_string, start = 0, False, 0
    while start < len(body) and found <= limit:
        end = min(start + _SLICE, len(body))
        if _ends_inside_escape(body, start, end):
            end += 1
        parts = _ESCAPED.sub(b"", body[start:end]).split(b'"')
        found += sum(map(b"".join(parts[in_string::2]).count, _BEFORE_VALUE))
        in_string ^= len(parts) % 2 == 0
        start = end
    return found > limit


def _ends_inside_escape(body: bytes, start: int, end: int) -> bool:
    """Whether a slice ends with the backslash of an escape: with an odd number of them."""
    piece = body[start:end]
    return (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 1


# --- whole numbers with a fraction -------------------------------------------------------------

FRACTION: Final = re.compile(r"Expected `(.*[ |])?int\b.*`, got `float`")
# Bytes that are decoded again at most, since each decoding finds one place: 1 MB 32 times.
MOST_AGAIN: Final = 32 * 1024 * 1024


def _without_fractions(
    decoder: msgspec.json.Decoder[Any],
    given: Any,
    error: msgspec.ValidationError,
    within: str,
    tries: int,
) -> Any:
    """Decode a body with whole numbers that are written as `5.0`: integers to JSON Schema.

    Only where an integer is expected: what a tool or a model said stays as it is.
    """
    failed = error
    for _ in range(tries):
        said, parts = _place(str(failed))
        if not FRACTION.match(said) or not _make_whole(given, parts):
            break
        try:
            return decoder.decode(msgspec.json.encode(given))
        except msgspec.ValidationError as next_error:
            failed = next_error
        except (ValueError, OverflowError, RecursionError) as next_error:
            raise _not_json(next_error) from None
    raise _refusal(failed, within) from None


def _make_whole(given: Any, parts: list[str]) -> bool:
    """Replace numbers like `5.0` at a place by integers; whether there were any."""
    found = [(owner, key) for owner, key in _values_at(given, parts) if _is_whole(owner[key])]
    for owner, key in found:
        owner[key] = int(owner[key])
    return bool(found)


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _values_at(given: Any, parts: list[str]) -> Iterator[tuple[Any, Any]]:
    """The values at a place, each as its list or map and its key there."""
    if not parts:
        return
    part, *rest = parts
    for key in _keys(given, part):
        if rest:
            yield from _values_at(given[key], rest)
        else:
            yield given, key


def _keys(given: Any, part: str) -> list[Any]:
    if isinstance(given, list):
        return [int(part)] if part.isdigit() and int(part) < len(given) else []
    if isinstance(given, dict):
        return list(given) if part == _ANY_KEY else [part] if part in given else []
    return []
