"""Rejects keys in JSON data that the decoded value has no field for.

msgspec and pydantic differ in when they reject unknown keys, and dataclasses never do. The check
compares the data with the decoded value rather than with the type: the value shows which
alternative of a union was chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from turnledger.runtime.agent.schema.values import at_key, is_model
from turnledger.runtime.errors import DataDecodeError


def refuse_extra_keys(data: Any, value: Any, path: str = "") -> None:
    """Raise DataDecodeError for a key of the data that the value has no field for."""
    if is_model(value) and "root" in type(value).model_fields:
        value = value.root
    if isinstance(data, list):
        if isinstance(value, list | tuple) and len(value) == len(data):
            for place, (item, made) in enumerate(zip(data, value, strict=True)):
                refuse_extra_keys(item, made, f"{path}[{place}]")
        return
    if not isinstance(data, dict):
        return
    fields = _fields(value)
    if fields is None:
        return
    for key, item in data.items():
        if key in fields:
            refuse_extra_keys(item, fields[key], at_key(path, key))
        elif not _takes_any(value, data):
            known = ", ".join(sorted(fields)) or "none"
            raise DataDecodeError(
                f"an unknown key; the keys are: {known}", path=at_key(path, str(key))
            )


def _fields(value: Any) -> dict[str, Any] | None:
    """Return a value's fields by the keys that they may have in data; None if it has none."""
    if isinstance(value, Mapping):
        return {_text(key): item for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {key: getattr(value, field) for key, field in names}
        config = value.__struct_config__
        return fields if config.tag is None else {config.tag_field or "type": None} | fields
    if hasattr(type(value), "__pydantic_validator__"):
        return _pydantic_fields(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _text(key: Any) -> str:
    return str(key.value if isinstance(key, Enum) else key)


def _pydantic_fields(value: Any) -> dict[str, Any]:
    """Fields of a pydantic model or dataclass, by name and alias."""
    kind = type(value)
    described = kind.model_fields if is_model(value) else kind.__pydantic_fields__
    fields: dict[str, Any] = {}
    for name, field in described.items():
        for key in [name, *_aliases(field.alias), *_aliases(field.validation_alias)]:
            fields[key] = getattr(value, name)
    return fields


def _aliases(alias: Any) -> list[str]:
    """Return the keys of a pydantic alias: text, a path into the data, or a choice of these."""
    if isinstance(alias, str):
        return [alias]
    if hasattr(alias, "choices"):
        return [key for choice in alias.choices for key in _aliases(choice)]
    if hasattr(alias, "path"):
        return [key for key in alias.path[:1] if isinstance(key, str)]
    return []


def _takes_any(value: Any, data: dict[str, Any]) -> bool:
    """Whether a value accepts keys beyond its fields, or is a mapping with all of them."""
    if isinstance(value, Mapping):
        return len(value) >= len(data)
    kind = type(value)
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None)
    return isinstance(config, dict) and config.get("extra") == "allow"
