"""The known formats: what is a secret is taken out whole, and what only looks like one stays."""

from __future__ import annotations

import json
import re
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pkgutil import iter_modules
from random import Random
from time import process_time
from typing import NoReturn

import pytest

from tests.secret_samples import (
    BASE62,
    BASE64,
    LOWER_HEX,
    MAKERS,
    NEAR_MISSES,
    URL64,
    Sample,
    chars,
    samples,
)
from turnledger.ledger import redaction
from turnledger.ledger.redaction.contextual import BY_NAME, KNOWN, OPTIONAL
from turnledger.ledger.redaction.redactor import Redactor

REDACTOR = Redactor()


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


def test_passwords_after_their_name_are_taken_out_for_who_asks() -> None:
    """What is wrong now and then is not for everybody."""
    text = "password: hunter2 and PASSWD=x9!k"
    assert REDACTOR.text(text) is text
    found = Redactor(also=["password"]).text(text)
    assert found == "password: [redacted: password] and PASSWD=[redacted: password]"


# Each would be slow if a format were tried at every place of what another try has read already.
ADVERSARIAL = (
    "sk-", "eyJ", "eyJ.", "://", "://a:", "://a:b@", "AKIA", "ghs_a.", "api_key=", "Bearer 1",
    "-----BEGIN RSA PRIVATE KEY-----\n", "-----BEGIN RSA PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAAA\n",
    "-----BEGIN PRIVATE KEY-----" + "A" * 60 + "-", "M", "M.", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ",
    "curl -u a", "host=a ", "machine a login ", "--key ", "\\/", "\\u0041", "\n1 a-",
    "Q~", "[redacted: jwt] ", ";password=", "sig=", "?sig=a", "\\n\\u001bghp_", "authorization: ",
)  # fmt: skip


@pytest.mark.parametrize("piece", ADVERSARIAL)
def test_the_time_it_takes_grows_with_the_text_and_no_faster(piece: str) -> None:
    """Text from outside must not be able to block the process that records it."""

    def seconds(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        times = []
        for _ in range(3):
            began = process_time()
            REDACTOR.text(text)
            times.append(process_time() - began)
        return min(times)

    # Eight times the text: 8 if it is linear, 64 if it is quadratic.
    assert seconds(80_000) < 30 * max(seconds(10_000), 0.0005)


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
