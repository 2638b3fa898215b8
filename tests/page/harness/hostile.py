"""Hostile texts, and events of every type that have one in each of their text fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import msgspec
from msgspec import inspect

from turnledger.ledger import (
    ANY,
    NEW,
    Event,
    Ledger,
    MessageAppended,
    RunClaimed,
    RunStarted,
    blob_name,
    new_run_id,
)
from turnledger.ledger.events.types import EVENT_TYPES, PROMPT_TAGS

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SOME_ID = UUID("0195f5a0-0000-7000-8000-00000000abcd")
BLOB = b"what a file has"
ESCAPE, OVERRIDE, ISOLATE, END_ISOLATE = "\x1b", "\u202e", "\u2067", "\u2069"

# Texts of which each field of each event has one, between marks that tell where they begin and end.
TEXTS = {
    "script": "<script>alert(1)</script>",
    "script_in_attribute": "\"'><script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "image_elsewhere": "<img src=http://elsewhere.invalid/a.png>",
    "svg": "<svg onload=alert(1)><script>alert(1)</script></svg>",
    "svg_link": "<svg><a xlink:href='javascript:alert(1)'><text y=20>x</text></a></svg>",
    "svg_animation": "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "math": "<math><mtext><table><mglyph><style><img src onerror=alert(1)>",
    "frame": "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "object": "<object data='data:text/html,<script>alert(1)</script>'></object>",
    "style": "<style>*{display:none!important}</style>",
    "base": "<base href='http://elsewhere.invalid/'>",
    "refresh": "<meta http-equiv=refresh content='0;url=http://elsewhere.invalid/'>",
    "form": "<form action=http://elsewhere.invalid/><input autofocus onfocus=alert(1)>",
    "end_of_page": "</bdi></span></div></main></body></html>",
    "comment": "<!-- --><!--> <![CDATA[ ]]> <?xml?>",
    "template": "{{constructor.constructor('alert(1)')()}} ${alert(1)} #{1} <%= 1 %>",
    "entity": "&lt;b&gt; &#x3c;script&#x3e; &amp;amp; &nbsp;",
    "javascript": "javascript:alert(document.cookie)",
    "javascript_hidden": "JaVa\tScRiPt:alert(1)",
    "data_url": "data:text/html,<script>alert(1)</script>",
    "markdown_link": "[press](javascript:alert(1)) [x](data:text/html,x) <javascript:alert(1)>",
    "markdown_image": "![x](http://elsewhere.invalid/a.png) ![](x 'onerror=alert(1)')",
    "markdown_reference": "[x][y]\n\n[y]: javascript:alert(1) 'title'",
    "markdown_html": "<b onclick=alert(1)>x</b>\n\n<div><script>alert(1)</script></div>",
    "markdown_nested": "> " * 120 + "- " * 120 + "*" * 120,
    "markdown_table": "|a|b|\n|-|-|\n" + "|x" * 400,
    "autolink": "http://elsewhere.invalid/%0d%0aSet-Cookie:a=b www.elsewhere.invalid a@b.invalid",
    "bidi_override": f"gnp{OVERRIDE}exe.txt",
    "bidi_isolate": f"{ISOLATE}abc",
    "bidi_breakout": f"{END_ISOLATE}{END_ISOLATE}{OVERRIDE}abc\u202c\u202c",
    "bidi_marks": "a\u200fb\u200ec\u061cd",
    "hebrew": "שלום 123 (abc) עולם",
    "arabic": "مرحبا 4567 ]abc[ بالعالم",
    "invisible": "a\u200bb\u2060c\ufeffd\u00ade\u180ef",
    "tags": "a\U000e0041\U000e0042\U000e007fb",
    "line_separators": "a\u2028b\u2029c\x0bd\x0ce\x85f",
    "stacked_marks": "a" + "\u0300\u0323" * 150,
    "wide": "﷽" * 40 + "𒐫" * 40,
    "clear_screen": f"{ESCAPE}[2J{ESCAPE}[H{ESCAPE}[31mred",
    "terminal_title": f"{ESCAPE}]0;owned\x07{ESCAPE}]52;c;YWJj\x07",
    "terminal_link": f"{ESCAPE}]8;;http://elsewhere.invalid\x07press{ESCAPE}]8;;\x07",
    "overwritten": "safe\rhidden\b\b\b\b\b\b\x9b1Ashown\x00",
    "proto": "__proto__",
    "constructor": "constructor",
    "to_string": "toString",
    "pointer": "/~1/~0/-/0/../%2e%2e/?at=1#code=x",
    "long_word": "W" * 9000,
    "many_lines": "\n" * 3000,
    "deep": "[" * 500 + "]" * 500,
}
# Values too large for each field: of the events that show most of what a run holds.
LARGE = {"one_line": 5_000_000, "keys": 100_000, "levels": 60}
assert len(TEXTS) == 50


def marked(name: str) -> str:
    """A hostile text between marks: what is shown between them is compared."""
    return f"«{name}»{TEXTS[name]}«/{name}»"


def kinds() -> list[type[Event]]:
    """The types of events that a run has, but for its start and claims."""
    left_out = {*PROMPT_TAGS, RunStarted.tag, RunClaimed.tag}
    return [kind for tag, kind in EVENT_TYPES.items() if tag not in left_out]


def events_with(text: str) -> Iterator[Event]:
    """One event of each type, and a message of each role, with the text in every text field."""
    for kind in kinds():
        if kind is not MessageAppended:
            yield built(kind, text)
            continue
        for role in ("system", "user", "assistant", "tool"):
            message = built(kind, text).message  # type: ignore[union-attr]
            yield kind(message=msgspec.structs.replace(message, role=role))


def start_with(text: str) -> RunStarted:
    """The first event of a run, with the text in every text field."""
    return built(RunStarted, text, parent=None, at=0, kind="run", time_limit=None)


_numbers = count(1)


def built(kind: Any, text: str, /, **fields: Any) -> Any:
    """A value of a type, with the text in every text field."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return _struct(info, text, fields)


def _struct(info: inspect.StructType, text: str, fields: dict[str, Any] | None = None) -> Any:
    values: dict[str, Any] = {}
    for field in info.fields:
        # Names of blobs: only those that the ledger has are taken.
        if field.name in ("blobs", "blob", "spec"):
            continue
        if field.name == "message_id":
            values[field.name] = UUID(int=SOME_ID.int + next(_numbers))
        elif field.name == "files":
            values[field.name] = {text: blob_name(BLOB)}
        else:
            values[field.name] = _value(field.type, text)
    return info.cls(**values | (fields or {}))


def _value(info: inspect.Type, text: str) -> Any:
    match info:
        case inspect.Metadata():
            return _value(info.type, text)
        case inspect.StrType():
            return _fitting(info, text)
        case inspect.AnyType():
            return {text: [text, {"value": text}]}
        case inspect.UnionType():
            return _value(_telling(info.types), text)
        case inspect.VarTupleType(item_type=inspect.UnionType(types=types)):
            return tuple(_value(one, text) for one in types)
        case inspect.VarTupleType():
            return (_value(info.item_type, text),)
        case inspect.DictType():
            return {_value(info.key_type, text): _value(info.value_type, text)}
        case inspect.StructType():
            return _struct(info, text)
        case inspect.LiteralType():
            return next(filter(None, info.values))
        case inspect.BoolType():
            return False
        case inspect.IntType():
            return 1
        case inspect.FloatType():
            return 1.0
        case inspect.UUIDType():
            return SOME_ID
        case inspect.DateTimeType():
            return WHEN
    raise AssertionError(f"no value of {info}")


def _fitting(info: inspect.StrType, text: str) -> str:
    """The text, as far as the field takes it."""
    cut = text.replace("\x00", "")[: info.max_length] if info.max_length else text
    return cut if not info.pattern or re.search(info.pattern, cut) else "acme.hostile"


def _telling(types: tuple[inspect.Type, ...]) -> inspect.Type:
    """Of a union, what can hold most text."""
    order = (inspect.StrType, inspect.StructType)
    found = [one for kind in order for one in types if isinstance(one, kind)]
    return (found or [one for one in types if not isinstance(one, inspect.NoneType)])[0]


class HostileRuns(msgspec.Struct, frozen=True):
    """Runs with hostile texts: all small ones, the large ones, and one begun with each text."""

    small: UUID
    large: UUID
    begun: dict[str, UUID]


def make_hostile(folder: Path) -> None:
    """A ledger of hostile runs."""
    begun = {name: new_run_id() for name in TEXTS}
    runs = HostileRuns(new_run_id(), new_run_id(), begun)
    with Ledger.open(folder / "runs.db") as ledger:
        for name, run in begun.items():
            ledger.append(run, start_with(marked(name)), NEW)
            with ledger.claim(run, worker=_fitting_key(marked(name))):
                pass
        ledger.append(runs.small, RunStarted(request_type="Ask"), NEW)
        for name in TEXTS:
            ledger.append(runs.small, list(events_with(marked(name))), ANY, blobs=[BLOB])
        ledger.append(runs.large, RunStarted(request_type="Ask"), NEW)
        for event in large_events():
            ledger.append(runs.large, event, ANY, blobs=[BLOB])
    (folder / "runs.json").write_bytes(msgspec.json.encode(runs))


def _fitting_key(text: str) -> str:
    (worker,) = (one for one in inspect.type_info(RunClaimed).fields if one.name == "worker")  # type: ignore[union-attr]
    found: str = _value(worker.type, text)
    return found


def large_values() -> dict[str, Any]:
    """Values that are large by themselves: a line, an object, and one in another in another."""
    deep: Any = "the end"
    for _ in range(LARGE["levels"]):
        deep = {"in": deep}
    return {
        "one_line": "x" * LARGE["one_line"],
        "keys": {f"key_{number:06}": number for number in range(LARGE["keys"])},
        "levels": deep,
    }


def large_events() -> Iterator[Event]:
    """Large values in the fields that hold them: a message, a call, its result, free values."""
    for value in large_values().values():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for kind in kinds():
            info = inspect.type_info(kind)
            assert isinstance(info, inspect.StructType)
            free = [one.name for one in info.fields if _is_free(one.type)]
            for name in free:
                yield built(kind, "harmless", **{name: value})
        message = built(MessageAppended, "harmless").message
        for role in ("user", "assistant", "tool"):
            changed = msgspec.structs.replace(message, role=role, content=text)
            yield MessageAppended(message=changed)


def _is_free(info: inspect.Type) -> bool:
    inner = info.type if isinstance(info, inspect.Metadata) else info
    return isinstance(inner, inspect.AnyType)


assert set(get_args(Event)) == set(EVENT_TYPES.values())
