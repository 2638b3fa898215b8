"""Reads a redactor's rules from a TOML file: the same for every program and for the command.

An InvalidInputError says which key of which file is wrong, and what it should be.
"""

from __future__ import annotations

import os
import tomllib
from typing import Any, TypedDict

from turnledger.ledger.errors import InvalidInputError
from turnledger.ledger.redaction.contextual_secret_formats import BY_NAME
from turnledger.ledger.redaction.rules import Fields, SecretPattern

_KEYS = ("formats", "also", "fields", "patterns")
# More than anybody writes by hand; of a device that never ends, no more is read.
_LONGEST = 1024 * 1024
_PATTERN_KEYS = ("name", "regex", "fields")


class Rules(TypedDict, total=False):
    """What a Redactor is made of."""

    formats: list[str]
    also: list[str]
    fields: list[str]
    patterns: list[SecretPattern]


def read_rules(path: str | os.PathLike[str]) -> Rules:
    """The rules in a file."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            given = tomllib.loads(file.read(_LONGEST).decode())
    except OSError as error:
        raise InvalidInputError(
            f"The redactor's file {name} can't be read: {error.strerror}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"The redactor's file {name} is no TOML: {error}.") from error
    try:
        return _rules(given)
    except InvalidInputError as error:
        raise InvalidInputError(f"The redactor's file {name}: {error}") from error


def _rules(given: dict[str, Any]) -> Rules:
    _refuse_others(given, _KEYS, "")
    rules = Rules()
    for key in ("formats", "also"):
        if key in given:
            rules[key] = _texts(given[key], key)
            for name in _texts(given[key], key):
                if name not in BY_NAME:
                    raise InvalidInputError(
                        f"{key}: {name!r} is no known format. Known are: "
                        f"{', '.join(sorted(BY_NAME))}."
                    )
    if "fields" in given:
        rules["fields"] = _texts(given["fields"], "fields")
        Fields(rules["fields"])
    patterns = given.get("patterns", [])
    if not isinstance(patterns, list) or not all(isinstance(one, dict) for one in patterns):
        raise InvalidInputError("patterns: each is a table of its own, [[patterns]].")
    rules["patterns"] = [_pattern(one, f"patterns[{n}]") for n, one in enumerate(patterns)]
    return rules


def _pattern(given: dict[str, Any], where: str) -> SecretPattern:
    _refuse_others(given, _PATTERN_KEYS, f"{where}.")
    for key in ("name", "regex"):
        if not isinstance(given.get(key), str):
            raise InvalidInputError(f"{where}.{key}: is needed, and is text.")
    fields = _texts(given.get("fields", []), f"{where}.fields")
    try:
        return SecretPattern(given["name"], given["regex"], fields)
    except InvalidInputError as error:
        raise InvalidInputError(f"{where}: {error}") from error


def _texts(given: Any, key: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InvalidInputError(f"{key}: is a list of names.")
    return given


def _refuse_others(given: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in known:
            raise InvalidInputError(f"{where}{key}: there is no such key; {', '.join(known)} are.")
