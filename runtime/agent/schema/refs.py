"""Inlines the `$defs` of JSON schemas.

A schema is sent to many providers and nested in other schemas, and not all of them resolve
`$ref`. So definitions are inlined, and only a recursive type keeps an entry in `$defs`. This
module rewrites documents; it knows nothing of Python's types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from turnledger.projections.digests import canonical
from turnledger.runtime.errors import UnsupportedTypeError

Schema: TypeAlias = dict[str, Any]

_PREFIX = "#/$defs/"
# The keywords whose values are schemas. All others (enum, default ...) hold data.
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_SINGLE = ("items", "additionalProperties", "propertyNames", "contains", "not")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")


def self_contained(document: Schema) -> Schema:
    """Inline the definitions of a schema; recursive ones stay in $defs."""
    definitions: dict[str, Schema] = {}
    root = _without_definitions(document, definitions)
    target = target_of(root)
    if target is not None:
        # Providers need the root inlined, even if it is recursive.
        root = {**definitions[target], **{key: root[key] for key in root if key != "$ref"}}
    recursive = {name for name in definitions if name in _reachable(name, definitions)}
    inlined = _inlined(root, definitions, recursive)
    kept = sorted(_reachable_from(inlined, definitions) & recursive)
    if kept:
        inlined["$defs"] = {
            name: _inlined(definitions[name], definitions, recursive) for name in kept
        }
    return inlined


def closed(schema: Schema) -> Schema:
    """Set `additionalProperties: false` on objects that do not say otherwise."""
    changed = _mapped(schema, closed)
    if "$defs" in schema:
        changed["$defs"] = {name: closed(part) for name, part in schema["$defs"].items()}
    if "properties" in changed and "additionalProperties" not in changed:
        changed["additionalProperties"] = False
    return changed


def in_stable_order(schema: Schema) -> Schema:
    """Sort the defaults of sets, whose order differs from process to process."""
    changed = _mapped(schema, in_stable_order)
    if "$defs" in schema:
        changed["$defs"] = {n: in_stable_order(part) for n, part in schema["$defs"].items()}
    if changed.get("uniqueItems") and isinstance(changed.get("default"), list):
        changed["default"] = sorted(changed["default"], key=canonical)
    return changed


def _mapped(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Copy a schema, with `change` applied to the schemas directly below it."""
    copy = dict(schema)
    for key in _NAMED:
        if isinstance(copy.get(key), dict):
            copy[key] = {name: _apply(change, part) for name, part in copy[key].items()}
    for key in _SINGLE:
        if key in copy:
            copy[key] = _apply(change, copy[key])
    for key in _LISTED:
        if isinstance(copy.get(key), list):
            copy[key] = [_apply(change, part) for part in copy[key]]
    return copy


def _apply(change: Callable[[Schema], Schema], part: Any) -> Any:
    return change(part) if isinstance(part, dict) else part


def _without_definitions(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Remove $defs at any depth, and collect them."""
    own = schema.get("$defs", {})
    rest = {key: value for key, value in schema.items() if key != "$defs"}
    for name, part in own.items():
        found = _without_definitions(part, definitions)
        if definitions.setdefault(name, found) != found:
            raise UnsupportedTypeError(
                f"two types have the name {name!r}, one of which is recursive: rename one of them"
            )
    return _mapped(rest, lambda part: _without_definitions(part, definitions))


def target_of(schema: Schema) -> str | None:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(_PREFIX):
        # JSON pointers write "/" as "~1" and "~" as "~0".
        return reference.removeprefix(_PREFIX).replace("~1", "/").replace("~0", "~")
    return None


def _references(schema: Schema) -> Iterator[str]:
    """Iterate over the definitions that a schema refers to, at any depth."""
    target = target_of(schema)
    if target is not None:
        yield target
    below: list[Schema] = []

    def note(part: Schema) -> Schema:
        below.append(part)
        return part

    _mapped(schema, note)
    for part in below:
        yield from _references(part)


def _reachable_from(schema: Schema, definitions: dict[str, Schema]) -> set[str]:
    found: set[str] = set()
    ahead = list(_references(schema))
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead.extend(_references(definitions[name]))
    return found


def _reachable(name: str, definitions: dict[str, Schema]) -> set[str]:
    return _reachable_from(definitions[name], definitions)


def _inlined(schema: Schema, definitions: dict[str, Schema], recursive: set[str]) -> Schema:
    target = target_of(schema)
    # The discriminator's mapping refers to $defs, which are gone; the schemas have the tags.
    rest = {key: value for key, value in schema.items() if key != "discriminator"}
    if target is not None and target not in recursive:
        del rest["$ref"]
        rest = {**_inlined(definitions[target], definitions, recursive), **rest}
    return _mapped(rest, lambda part: _inlined(part, definitions, recursive))
