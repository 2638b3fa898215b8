"""The known formats: what is a secret is taken out whole, and what only looks like one stays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pkgutil import iter_modules
from random import Random
from re import _parser  # type: ignore[attr-defined]
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.secret_samples import (
    BASE32,
    BASE62,
    BASE64,
    CAPITALS,
    LOWER_HEX,
    MAKERS,
    NEAR_MISSES,
    SMALL,
    URL64,
    Sample,
    chars,
    samples,
)
from turnledger.ledger import redaction
from turnledger.ledger.redaction import Redactor
from turnledger.ledger.redaction.contextual import BY_NAME, KNOWN, OPTIONAL
from turnledger.ledger.redaction.patterns import SecretFormat
from turnledger.ledger.redaction.search import (
    AFTER,
    BEFORE,
    LEAD,
    PIECE,
    REACH,
    TAIL,
    Search,
    _apart,
    width,
)

REDACTOR = Redactor()
# With prefilters from the first character on, and never.
QUICK, THOROUGH = Search(KNOWN, worth=0), Search(KNOWN, worth=1 << 60)


def _places(text: str) -> list[str]:
    """The ways in which a secret stands in what agents say."""
    return [
        text,
        f"It is {text}.",
        f"first\n{text}\nlast",
        f"({text})",
        f"`{text}`, and so on",
        json.dumps({"note": f"see\n{text}\t"}),
        json.dumps(json.dumps({"note": [f"see\n{text}\r\n"]})),
        f"\x1b[1;32m{text}\x1b[0m",
        f"found \x1b[01;31m\x1b[K{text}\x1b[m\x1b[K",
        json.dumps(f"\x1b[38;5;196m{text}\x1b[0m"),
    ]


def _other_json(text: str) -> list[str]:
    """JSON as other programs write it, with escapes that it does not need."""
    plain = json.dumps({"note": text})
    needless = plain.replace("/", "\\/").replace("&", "\\u0026").replace("+", "\\u002B")
    return [
        plain.replace("/", "\\/"),
        needless.replace("=", "\\u003d"),
        plain.replace("_", "\\u005f"),
    ]


def _escaped(sample: Sample) -> list[str]:
    """The secret as it is, and as JSON, and JSON within JSON, spell it."""
    once = json.dumps(sample.secret)[1:-1]
    return [sample.secret, once, json.dumps(once)[1:-1]]


def test_every_format_has_samples() -> None:
    """A format without samples would be untested."""
    assert {one.name for one in KNOWN} == set(MAKERS)
    assert len(MAKERS) >= 24


@pytest.mark.parametrize("name", list(MAKERS))
def test_secrets_of_a_format_are_taken_out_wherever_they_stand(name: str) -> None:
    """A boundary that is too strict, or an escape that is not known, would let a secret through."""
    for sample in samples(11, 12, [name]):
        for text in _places(sample.text):
            found = REDACTOR.text(text)
            assert not any(secret in found for secret in _escaped(sample)), text
            assert f"[redacted: {name}]" in found, (text, found)


@pytest.mark.parametrize("name", list(MAKERS))
def test_secrets_are_found_however_json_spells_them(name: str) -> None:
    """PHP, Go and .NET escape what need not be escaped, each in its own way."""
    for sample in samples(14, 6, [name]):
        for text in _other_json(sample.text):
            found = REDACTOR.text(text)
            said = json.dumps(json.loads(found), ensure_ascii=False)
            assert not any(secret in said for secret in _escaped(sample)), text
            assert REDACTOR.text(found) == found


@pytest.mark.parametrize("name", list(MAKERS))
def test_the_quick_filter_refuses_nothing_that_a_format_matches(name: str) -> None:
    """What it refuses is not searched: its one mistake may be to let too much through."""
    for sample in samples(15, 40, [name]):
        for text in (*_places(sample.text), *_other_json(sample.text)):
            assert REDACTOR.may_hold_secret(text.encode())
            assert REDACTOR.may_hold_secret(json.dumps([text, "x"]).encode())


def _key_as_printed() -> list[str]:
    """A private key as agents see it: in diffs, lists, comments and with numbers of lines."""
    lines = samples(3, 1, ["private-key"])[0].text.split("\n")
    cut = lines[:4]
    return [
        "\n".join(f"-{line}" for line in lines),
        "\n".join(f"+{line}" for line in cut),
        "\n".join(f"key.pem-{number}-{line}" for number, line in enumerate(lines)),
        "\n".join(f"key.pem:{number}:{line}" for number, line in enumerate(cut)),
        "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines)),
        "\n".join(f"{number:6}\t{line}" for number, line in enumerate(cut)),
        "\n".join(f"> {line}" for line in lines),
        "\n".join(f"// {line}" for line in cut),
        "\n".join(" " * 12 + line for line in cut),
        json.dumps(lines, indent=1),
        repr(lines),
        " +\n".join(f'"{line}\\n"' for line in lines),
    ]


@pytest.mark.parametrize("number", range(12))
def test_a_private_key_is_found_however_it_is_printed(number: int) -> None:
    """Tools print files with marks before each line."""
    text = _key_as_printed()[number]
    lines = samples(3, 1, ["private-key"])[0].text.split("\n")
    found = REDACTOR.text(text)
    assert not any(line in found for line in lines[1:-1])
    assert REDACTOR.text(found) == found


@pytest.mark.parametrize("name", list(MAKERS))
def test_text_that_is_redacted_stays_as_it_is(name: str) -> None:
    """If redacting changed its own marks, appending a record again would be a conflict."""
    for sample in samples(12, 6, [name]):
        for text in _places(sample.text):
            once = REDACTOR.text(text)
            assert REDACTOR.text(once) == once


def test_json_text_is_still_json_when_it_is_redacted() -> None:
    """A mark that broke JSON would break the arguments of a tool call."""
    for sample in samples(13, 3):
        text = json.dumps({"before": 1, "note": sample.text, "after": [sample.text]})
        found = json.loads(REDACTOR.text(text))
        assert list(found) == ["before", "note", "after"]


@pytest.mark.parametrize("text", NEAR_MISSES)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    """A redactor that takes out too much is turned off."""
    assert REDACTOR.text(text) is text


@pytest.mark.parametrize("alphabet", [BASE64, URL64, LOWER_HEX, BASE62])
def test_opaque_data_stays(alphabet: str) -> None:
    """A provider's signature must come back to the byte, whatever prefixes it holds by chance."""
    random = Random(5)
    prefixes = [literal for one in KNOWN for literal in one.literals]
    for _ in range(300):
        inside = random.choice(prefixes)
        text = chars(random, alphabet, 400) + inside + chars(random, alphabet, 400)
        if set(inside) <= set(alphabet):
            assert REDACTOR.text(text) is text


def test_only_the_password_of_a_connection_string_is_taken_out() -> None:
    """The host and the user are worth knowing and not secret."""
    found = REDACTOR.text("postgresql://app:s3cret%21x@db.example.com:5432/shop?sslmode=require")
    assert found == (
        "postgresql://app:[redacted: url-password]@db.example.com:5432/shop?sslmode=require"
    )


def test_a_password_with_an_at_sign_is_taken_out_whole() -> None:
    """Ending at the first @ would leave half of the password."""
    found = REDACTOR.text("amqp://app:pass@wor@d@broker.example.com/v")
    assert found == "amqp://app:[redacted: url-password]@broker.example.com/v"


@pytest.mark.parametrize(
    "before",
    ["AWS_SESSION_TOKEN%3D", "a=%41 AWS_SESSION_TOKEN=", 'a=%41\t"SessionToken": '],
)
def test_a_plus_sign_beside_percent_encoding_may_be_one(before: str) -> None:
    """In a form it is a space; in a secret, which is then found whole or not at all, it is not."""
    value = "IQoJb3JpZ2luX2VjE" + "AbEc/dE9fGh1" * 8 + "+AbEc/dE9fGh1" * 8 + "=="
    assert REDACTOR.text(f"{before}{value} end") == f"{before}[redacted: aws-session-token] end"
    form = f"AWS_SESSION_TOKEN%3D{value.replace('+', '%2B')}+end"
    assert REDACTOR.text(form) == "AWS_SESSION_TOKEN%3D[redacted: aws-session-token]+end"


def test_two_views_make_no_secret_together() -> None:
    """A name at the end of one, and text at the beginning of the next, are not about each other."""
    other = f"{'words ' * 100}{'0123456789abcdef' * 20} %41"
    texts = [f"%41 {'x' * size} Authorization: \n{other}" for size in range(160)]
    assert not any(map(REDACTOR.may_be_in, texts))


def test_a_private_key_that_is_cut_off_is_taken_out() -> None:
    """An error message that was cut has no end line."""
    whole = samples(3, 1, ["private-key"])[0].text
    found = REDACTOR.text(whole[: len(whole) // 2])
    assert found == "[redacted: private-key]"


def test_a_value_is_known_by_the_key_that_it_has_in_an_object() -> None:
    """Structured data has the name in a key, where no text stands before the value."""
    given = {
        "aws_secret_access_key": "wJalrXUtnFEMIaK7MDENGabPxRfiCYEXAMPLEKEY",
        "headers": {"Authorization": "Basic YXBwOmh1bnRlcjI="},
        "listed": {"Authorization": ["Basic YXBwOmh1bnRlcjI="]},
        "pairs": [["x-api-key", "0123456789abcdef0123456789abcdef"]],
        "har": [{"name": "x-api-key", "value": "0123456789abcdef0123456789abcdef"}],
        "x-api-key": "0123456789abcdef0123456789abcdef",
        "name": "0123456789abcdef0123456789abcdef",
    }
    assert REDACTOR.value(given) == {
        "aws_secret_access_key": "[redacted: aws-secret-access-key]",
        "headers": {"Authorization": "Basic [redacted: basic-auth]"},
        "listed": {"Authorization": ["Basic [redacted: basic-auth]"]},
        "pairs": [["x-api-key", "[redacted: api-key]"]],
        "har": [{"name": "x-api-key", "value": "[redacted: api-key]"}],
        "x-api-key": "[redacted: api-key]",
        "name": "0123456789abcdef0123456789abcdef",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Cookie: a={github-token}; sid={cookie}", "Cookie: [redacted: cookie]"),
        ("Cookie: sid={cookie}; a={github-token}", "Cookie: [redacted: cookie]"),
    ],
)
def test_of_secrets_that_overlap_nothing_is_left(text: str, found: str) -> None:
    """A key in a header with cookies must not end the search of that header."""
    values = {"github-token": "ghp_" + "aB3dE5fG7h" * 3 + "aB3dE5", "cookie": "f7a8b9c0d1e2f3a4"}
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    assert REDACTOR.text(text) == found
    assert REDACTOR.text(found) == found


def test_a_secret_is_found_before_another_that_is_known_by_another_hint() -> None:
    """One hint is looked for after another: what follows in the text may be looked at first."""
    key = "6Dja9YkrfAhM2G2DJkjeQc7IriwRdDa7"
    text = f"webhook_secret: {key}\nHEROKU_API_KEY=4831c7c7-463e-0698-4ac1-c6b61f749f88\n"
    assert REDACTOR.text(text) == (
        "webhook_secret: [redacted: api-key]\nHEROKU_API_KEY=[redacted: heroku-key]\n"
    )


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 9))))
def test_secrets_that_overlap_are_divided_between_their_formats(
    given: set[tuple[int, ...]],
) -> None:
    """Together they cover what they did, none twice; within another one, none is left."""
    found = [(order, start, start + size, start) for order, start, size in given]
    made = [*_apart(sorted(found, key=lambda one: one[1]))]
    covered = [place for _, start, end, _ in made for place in range(start, end)]
    assert sorted({place for _, start, end, _ in found for place in range(start, end)}) == covered


def test_passwords_after_their_name_are_taken_out_for_who_asks() -> None:
    """What is wrong now and then is not for everybody."""
    text = "password: hunter2 and PASSWD=x9!k"
    assert REDACTOR.text(text) is text
    found = Redactor(also=["password"]).text(text)
    assert found == "password: [redacted: password] and PASSWD=[redacted: password]"
    assert Redactor(also=["password"]).text("pwd: hunter2") == "pwd: [redacted: password]"


# What <base62:36> in the example of a format stands for; the last two characters of each are a
# letter and a digit, which nearly all secrets have.
ALPHABETS = {
    "base32": (BASE32, "Q7"),
    "base62": (BASE62, "a7"),
    "base64": (BASE64, "a7"),
    "bech32": ("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", "Q7"),
    "digits": ("0123456789", "17"),
    "hex": (LOWER_HEX, "a7"),
    "letters": (BASE62[:52], "aZ"),
    "small": (SMALL, "a7"),
    "upper": (CAPITALS, "A7"),
    "url64": (URL64, "a7"),
}


def _from_example(random: Random, example: str) -> tuple[str, str]:
    """A text by the example of a format, and the longest of its random parts."""
    parts: list[str] = []

    def made(found: re.Match[str]) -> str:
        if found[0] == "<uuid>":
            parts.append("-".join(chars(random, LOWER_HEX, size) for size in (8, 4, 4, 4, 12)))
        else:
            alphabet, end = ALPHABETS[found[1]]
            parts.append(chars(random, alphabet, int(found[2]) - 2) + end)
        return parts[-1]

    text = re.sub(r"<uuid>|<(\w+):(\d+)>", made, example)
    return text, max(reversed(parts), key=len)


@pytest.mark.parametrize("one", [*KNOWN, *OPTIONAL], ids=lambda one: f"{one.name}-{one.example}")
def test_what_the_example_of_a_format_describes_is_redacted(one: SecretFormat) -> None:
    """A line in the table of formats is all that a new one needs, if its example is found."""
    random = Random(17)
    redactor = Redactor(formats=[one.name])
    for _ in range(20):
        text, secret = _from_example(random, one.example)
        for written in (text, f"It is {text}.", json.dumps({"note": f"a\n{text}\n"})):
            found = redactor.text(written)
            assert secret not in found, written
            assert f"[redacted: {one.name}]" in found
            assert redactor.text(found) == found


def _of_all_formats(random: Random) -> str:
    """A text with every format in it, and other text between."""
    parts: list[str] = []
    for one in samples(random.getrandbits(60), 2):
        parts += (chars(random, BASE64, random.randint(0, 90)), one.text)
        parts.append(chars(random, URL64, random.randint(0, 90)))
    return " \n".join(parts)


def test_the_search_at_anchors_finds_what_a_search_of_the_whole_text_finds() -> None:
    """A format is only tried at its anchors: elsewhere it must not match at all."""
    random = Random(18)
    search = Search(KNOWN)
    compared = 0
    for _ in range(3):
        text = _of_all_formats(random)
        found = {(order, start, end) for order, start, end, _ in search.found(text)}
        for order, one in enumerate(KNOWN):
            for place, hit in _matches(one, text):
                compared += 1
                assert (order, *hit.span(one.group)) in found, (one.name, text[place : place + 200])
    assert compared > 600


def _matches(one: SecretFormat, text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """The matches of a format, begun at every place of a text."""
    for place in range(len(text)):
        hit = one.regex.match(text, place)
        if hit is None or (one.before and not one.before_regex.search(text[:place])):
            continue
        if one.accepts is None or one.accepts(hit[one.group]):
            yield place, hit


@pytest.mark.parametrize("one", [*KNOWN, *OPTIONAL], ids=lambda one: f"{one.name}-{one.example}")
def test_every_repeat_of_a_format_has_a_bound(one: SecretFormat) -> None:
    """One without would read the rest of the text at every anchor."""
    for pattern in (one.pattern, one.before):
        assert _parser.parse(pattern).getwidth()[1] < 1_000_000


def test_what_is_around_an_anchor_is_within_reach() -> None:
    """Around a piece the search reads so far: an anchor at its end must be seen with all of it."""
    for one in KNOWN:
        assert one.offset <= LEAD
        assert all(width(before) <= TAIL for before in one.dots)
        assert all(_parser.parse(word).getwidth()[1] <= TAIL for word in (*one.literals, one.shape))
    for one in (*KNOWN, *OPTIONAL):
        assert one.offset + _parser.parse(one.before).getwidth()[1] + LEAD <= BEFORE
    hints = {hint for one in (*KNOWN, *OPTIONAL) for hint in one.hints}
    assert {*AFTER} <= hints
    for hint in hints:
        assert len(hint) + _parser.parse(AFTER.get(hint, "")).getwidth()[1] <= REACH


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_secret_across_two_pieces_of_a_text_is_found(name: str) -> None:
    """A long text is searched in pieces, and a border may be anywhere in a secret."""
    for one in samples(19, len(MAKERS[name]), [name]):
        for into in {*range(0, min(len(one.text), 90), 3), len(one.text)}:
            before = ("lorem ipsum. " * PIECE)[: PIECE - into - 1] + "\n"
            text = f"{before}{one.text}\n"
            found = REDACTOR.text(text)
            assert one.secret not in found, (into, one)
            assert found.startswith(before)
            assert [*QUICK.all(text)] == [*THOROUGH.all(text)], (into, one)


def test_names_of_formats_can_be_marked() -> None:
    """A name stands in a mark, between a colon and a bracket."""
    for name in BY_NAME:
        assert name.replace("-", "").isalnum()
        assert name == name.lower()


@pytest.mark.parametrize("name", [one.name for one in iter_modules(redaction.__path__)])
def test_importing_compiles_no_regular_expression(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each module of the redaction is executed again, with a `re.compile` that fails."""
    # What it imports is not its matter, and may not have been imported yet.
    import_module(f"{redaction.__name__}.{name}")
    spec = find_spec(f"{redaction.__name__}.{name}")
    assert spec is not None
    assert spec.loader is not None

    def compile_now(pattern: object, flags: int = 0) -> NoReturn:
        raise AssertionError(f"compiled on import: {pattern!r}")

    monkeypatch.setattr(re, "compile", compile_now)
    spec.loader.exec_module(module_from_spec(spec))


def test_every_format_compiles() -> None:
    """Compiling waits for the first use, so a mistake in a format is found here."""
    for one in (*KNOWN, *OPTIONAL):
        assert one.regex.pattern == one.pattern
