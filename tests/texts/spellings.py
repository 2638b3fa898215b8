"""Twelve ways of writing a secret, and a search for what is left of it after redaction.

Each way has several variants, as programs differ. `is_left` undoes what the ways do (escapes,
terminal colours, percent-encoding, entities) before it looks for pieces of the secret.
"""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Callable, Iterator
from io import StringIO
from random import Random
from typing import TypeAlias
from urllib.parse import quote, quote_plus, unquote

from tests.secret_samples import Sample

Write: TypeAlias = Callable[[Random, Sample], str]


def _around(before: str, after: str) -> Write:
    return lambda _, one: f"{before}{one.text}{after}"


def _lines(before: str) -> Write:
    """Something before each line, as quotes, lists and blocks have it."""
    return lambda _, one: "\n".join(before + line for line in one.text.split("\n"))


# --- JSON ---


def _json(_: Random, one: Sample) -> str:
    return json.dumps({"id": 7, "note": one.text})


def _json_call(_: Random, one: Sample) -> str:
    call = {"command": f"echo\n{one.text}\t", "timeout": 20}
    return json.dumps({"calls": [{"name": "run", "arguments": call}]}, indent=2)


def _json_slashes(r: Random, one: Sample) -> str:
    """As PHP writes it, and Go, which escapes what HTML needs."""
    written = _json(r, one).replace("/", "\\/")
    return written.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _json_twice(r: Random, one: Sample) -> str:
    return json.dumps({"arguments": _json(r, one)})


def _json_thrice(r: Random, one: Sample) -> str:
    return json.dumps([json.dumps({"body": _json_call(r, one)}), 1])


def _json_of_slashes(r: Random, one: Sample) -> str:
    return json.dumps({"log": [f"got {_json_slashes(r, one)}\r\n"]})


# --- escapes ---


def _escapes(before: str, after: str) -> Write:
    """As code, logs and `repr` spell control characters: with a backslash."""

    def written(_: Random, one: Sample) -> str:
        inner = one.text.replace("\n", "\\n")
        return f"{before}{inner}{after}"

    return written


def _repr(_: Random, one: Sample) -> str:
    return repr(f"\x1b[1;32m{one.text}\x1b[0m\r\n".encode())


# --- terminals ---

_GREP = ("\x1b[01;31m\x1b[K", "\x1b[m\x1b[K")
_RIPGREP = ("\x1b[0m\x1b[1m\x1b[31m", "\x1b[0m")
_COLOURS = (_GREP, _RIPGREP, ("\x1b[38;5;196m", "\x1b[39m"), ("\x1b[7m", "\x1b[27m"))


def _within(random: Random, one: Sample) -> tuple[int, int]:
    """A part of the text, as a search highlights it: at least half of them in the secret."""
    first, last = 0, len(one.text)
    if random.random() < 0.5:
        first = one.text.index(one.secret)
        last = first + len(one.secret)
    start = random.randrange(first, last - 1)
    return start, random.randrange(start + 1, last + 1)


def _highlighted(random: Random, one: Sample) -> str:
    start, end = _within(random, one)
    on, off = random.choice(_COLOURS)
    return one.text[:start] + on + one.text[start:end] + off + one.text[end:]


def _grep(random: Random, one: Sample) -> str:
    start, end = _within(random, one)
    on, off = _GREP
    found = one.text[:start] + on + one.text[start:end] + off + one.text[end:]
    name = "\x1b[35m\x1b[Kapp/.env\x1b[m\x1b[K\x1b[36m\x1b[K:\x1b[m\x1b[K"
    return f"$ grep -r --color=always app\n{name}{found}\n"


def _grep_prefix(random: Random, one: Sample) -> str:
    """What is looked for is the beginning, which is what makes the secret known."""
    first = one.text.index(one.secret)
    end = first + random.randint(2, 6)
    return one.text[:first] + _GREP[0] + one.text[first:end] + _GREP[1] + one.text[end:]


def _many_colours(random: Random, one: Sample) -> str:
    """Several marks in one line: a colour for each part."""
    places = sorted(random.sample(range(len(one.text)), min(6, len(one.text))))
    parts = [one.text[: places[0]]]
    for place, end in zip(places, [*places[1:], None], strict=True):
        parts += (f"\x1b[{random.randint(30, 37)}m", one.text[place:end])
    return "".join(parts) + "\x1b[0m"


def _colours_in_json(random: Random, one: Sample) -> str:
    return json.dumps({"stdout": _grep(random, one)})


# --- tables and markup ---


def _quoted_yaml(_: Random, one: Sample) -> str:
    quoted = json.dumps(one.text)
    return f"env:\n  - name: value\n    value: {quoted}\n"


def _single_yaml(_: Random, one: Sample) -> str:
    quoted = one.text.replace("'", "''").replace("\n", "\n\n  ")
    return f"service:\n  setting: '{quoted}'\n  replicas: 2\n"


def _block_yaml(random: Random, one: Sample) -> str:
    return f"data:\n  file: |\n{_lines('    ')(random, one)}\n  other: 1\n"


def _csv(delimiter: str, quoting: int) -> Write:
    def written(_: Random, one: Sample) -> str:
        file = StringIO()
        table = csv.writer(file, delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]
        table.writerows((("id", "note", "day"), ("7", one.text, "2026-01-02"), ("8", "", "")))
        return file.getvalue()

    return written


def _html(before: str, after: str) -> Write:
    return lambda _, one: f"{before}{html.escape(one.text)}{after}"


# --- encodings of single characters ---


def _query(_: Random, one: Sample) -> str:
    return f"GET /search?q={quote(one.text, safe='')}&page=2 HTTP/1.1"


def _form(_: Random, one: Sample) -> str:
    return f"id=7&value={quote_plus(one.text)}&submit=Send"


def _every_percent(_: Random, one: Sample) -> str:
    return "".join(f"%{byte:02X}" for byte in one.text.encode())


def _u_escaped(share: float, spelling: str = "\\u{:04x}") -> Write:
    """JSON with this share of its characters escaped, at random places."""

    def written(random: Random, one: Sample) -> str:
        inner = "".join(
            spelling.format(ord(char)) if random.random() < share or char in '"\\\n' else char
            for char in one.text
        )
        return f'{{"note": "{inner}"}}'

    return written


def _u_escaped_twice(random: Random, one: Sample) -> str:
    return json.dumps({"body": _u_escaped(0.5)(random, one)})


SPELLINGS: dict[str, tuple[Write, ...]] = {
    "bare": (_around("", ""),),
    "sentence": (
        _around("It is ", "."),
        _around("Here you are: ", ", and thanks."),
        _around("The first line (", ") was wrong.\n"),
        _around("first\n", "\nlast"),
    ),
    "JSON": (_json, _json_call, _json_slashes),
    "JSON in JSON": (_json_twice, _json_thrice, _json_of_slashes),
    "escapes": (
        _escapes("first\\n", "\\nlast"),
        _escapes("\\t", "\\r\\n"),
        _escapes("\\x1b[1m", "\\x1b[0m"),
        _escapes("\\033[31m", "\\033[0m"),
        _escapes("\\u001b[32m", "\\u001b[0m"),
        _repr,
    ),
    "colours": (
        lambda _, one: f"{_GREP[0]}{one.text}{_GREP[1]}",
        _highlighted,
        _grep,
        _grep_prefix,
        _many_colours,
        _colours_in_json,
    ),
    "YAML": (_around("setting: ", "\nother: 1\n"), _quoted_yaml, _single_yaml, _block_yaml),
    "CSV": (
        _csv(",", csv.QUOTE_MINIMAL),
        _csv(";", csv.QUOTE_ALL),
        _csv("\t", csv.QUOTE_MINIMAL),
    ),
    "HTML": (
        _html("<td>", "</td>"),
        _html("<p>It is <code>", "</code>.</p>"),
        _html('<input name="value" value="', '">'),
        _html('<pre class="log">', "</pre>"),
    ),
    "Markdown": (
        _around("Use `", "` for it."),
        _around("```sh\n", "\n```"),
        _around("It is **", "**!"),
        _around("It is _", "_!"),
        _around("| 7 | ", " | yes |"),
        _lines("> "),
        _lines("- "),
    ),
    "percent": (
        lambda _, one: quote(one.text, safe=""),
        _query,
        _form,
        _every_percent,
    ),
    "\\u": (
        _u_escaped(1.0),
        _u_escaped(1.0, "\\u{:04X}"),
        _u_escaped(0.5),
        _u_escaped(0.1),
        _u_escaped_twice,
    ),
}


# --- what is left ---

_ESCAPED = re.compile(r"\\+(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(033)|([nrt])|(?=/))")
_SEQUENCE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Around the lines of a private key, and not secret.
_NOT_SECRET = re.compile(r"-----[^-]+-----|Proc-Type[^\n]*|DEK-Info: [^,]*,")
_MARKER = re.compile(r"\[redacted: [a-z0-9-]+\]")
# A piece of this many characters that is left counts as the secret; they begin every STEP.
PIECE, STEP = 8, 4


def _unescaped(found: re.Match[str]) -> str:
    if found[1] or found[2]:
        return chr(int(found[1] or found[2], 16))
    return "\x1b" if found[3] else "\n" if found[4] else ""


def readings(text: str) -> Iterator[str]:
    """A text without markers as it is, and as its readers would decode it."""
    text = _MARKER.sub(" ", text)
    yield text
    plain = _SEQUENCE.sub("", _ESCAPED.sub(_unescaped, text))
    yield plain
    once = _SEQUENCE.sub("", unquote(plain))
    if once != plain:
        yield from (once, unquote(once))
    entities = html.unescape(plain)
    if entities != plain:
        yield entities


def pieces(secret: str) -> list[str]:
    """Parts of a secret, none of which may be left."""
    found = []
    for line in _NOT_SECRET.sub("\n", secret).split():
        last = max(len(line) - PIECE, 0)
        found += [line[start : start + PIECE] for start in {*range(0, last, STEP), last}]
    return [piece for piece in found if len(piece) == PIECE]


def is_left(secret: str, text: str) -> bool:
    """Whether a part of the secret is in the text, in any spelling."""
    parts = pieces(secret)
    return any(part in reading for reading in readings(text) for part in parts)
