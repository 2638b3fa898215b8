"""TemplateText: text with `${name}` placeholders for the fields of a section's parameters.

Braces alone (JSON, code) and single dollars (prices, `$HOME`) are ordinary text, and `$${` is a
literal `${`. Values are not expanded again, so a value can't contain placeholders. Common
indentation and blank lines around the text are removed, so that a template can be a
triple-quoted string.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from inspect import getattr_static
from pathlib import PurePath
from textwrap import dedent
from typing import Any
from uuid import UUID

import msgspec

from turnledger.runtime.agent.schema.values import to_text
from turnledger.runtime.errors import DataEncodeError, TemplateTextError

_PLACE = r"\$\$\{|\$\{(?P<name>[^{}\n]*)\}|\$\{|\$(?P<bare>[A-Za-z_]\w*)"
_SHOWN_BY_STR = (str, int, float, date, datetime, time, timedelta, Decimal, UUID, PurePath)


class TemplateText:
    """A template, and the names of its placeholders in order."""

    def __init__(self, text: str, *, fields: frozenset[str] | None) -> None:
        """Check the placeholders against the parameters' `fields`; None if those are unknown."""
        if not isinstance(text, str):
            raise TemplateTextError(f"invalid template: expected text, got {type(text).__name__}")
        self.text = dedent(text).strip()
        self.names = tuple(dict.fromkeys(self._names(fields)))

    def fill(self, params: object) -> str:
        """Return the text with the parameters' values in it."""
        values = {name: _shown(params, name) for name in self.names}
        return re.sub(_PLACE, lambda found: _replacement(found, values), self.text)

    def _names(self, fields: frozenset[str] | None) -> list[str]:
        names: list[str] = []
        for found in re.finditer(_PLACE, self.text):
            if found["bare"] is not None:
                if fields and found["bare"] in fields:
                    raise TemplateTextError(
                        f"${found['bare']} is the name of a field: write ${{{found['bare']}}}"
                    )
            elif found["name"] is not None:
                names.append(_checked(found["name"], fields))
            elif found[0] == "${":
                raise TemplateTextError("a ${ is not closed; write $${ for the two characters")
        return names


def field_names(kind: Any) -> frozenset[str] | None:
    """Return the fields and properties of a parameters type; None if they are unknown."""
    if kind is None:
        return frozenset()
    named = {name for name in dir(kind) if not name.startswith("_") and _is_computed(kind, name)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return frozenset(named | set(kind.__struct_fields__))
    if dataclasses.is_dataclass(kind):
        return frozenset(named | {field.name for field in dataclasses.fields(kind)})
    fields = getattr(kind, "model_fields", None)
    return frozenset(named | set(fields)) if isinstance(fields, Mapping) else None


def _is_computed(kind: Any, name: str) -> bool:
    return isinstance(getattr_static(kind, name, None), property | cached_property)


def _checked(name: str, fields: frozenset[str] | None) -> str:
    if not name.isidentifier():
        raise TemplateTextError(f"${{{name}}} is not a field name; write $${{ for a literal ${{")
    if fields is not None and name not in fields:
        known = ", ".join(sorted(fields))
        has = f"the parameters have: {known}" if known else "the section takes no parameters"
        raise TemplateTextError(f"there is no field for ${{{name}}}; {has}")
    return name


def _replacement(found: re.Match[str], values: Mapping[str, str]) -> str:
    if found["name"] is not None:
        return values[found["name"]]
    return "${" if found[0] == "$${" else found[0]


def _shown(params: object, name: str) -> str:
    """Return a field as text that is the same in every process: str() of scalars, else JSON."""
    try:
        value = getattr(params, name)
    except AttributeError as error:
        raise TemplateTextError(f"the parameters have no field for ${{{name}}}") from error
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, _SHOWN_BY_STR):
        return str(value)
    try:
        return to_text(value)
    except DataEncodeError as error:
        # repr() of objects often has an address in it, and that of sets a random order.
        raise TemplateTextError(f"${{{name}}} can't be shown as text: {error}") from error
