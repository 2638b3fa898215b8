"""JSON schema of a type, and decoding of JSON data into it: tool parameters, structured output.

A type is a dataclass, a msgspec Struct, a pydantic model, or what these consist of: containers,
Optional, Literal, Enum, TypedDict, dates and UUIDs. Encoding is in `runtime.agent.schema.values`.

A type whose arguments name a pydantic type (`Review`, `list[Review]`, `Bug | Idea`) is decoded by
pydantic, unless they name a Struct as well. All others are decoded by msgspec, which passes
nested pydantic models to pydantic; so a dataclass is decoded as in session state. Both are
strict: text is not converted to numbers. Dataclasses are filled field by field: `__init__` is not
called, `__post_init__` is.

Schemas are part of a prompt's digest, and decode errors are recorded as results of tool calls: a
change of either makes recorded runs diverge.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from turnledger.ledger.errors import error_text, short_repr
from turnledger.runtime.agent.schema.extra_keys import refuse_extra_keys
from turnledger.runtime.agent.schema.refs import Schema, closed, in_stable_order, self_contained
from turnledger.runtime.agent.schema.values import at_key, pydantic_module, read_json, to_plain
from turnledger.runtime.errors import DataDecodeError, DataEncodeError, UnsupportedTypeError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Schema", "decode", "json_schema", "read_json", "to_plain"]

T = TypeVar("T")

# msgspec ends a message with the place, "$.items[0].name".
_PLACE = r"(?s)(?P<reason>.*) - at (?P<key>`key` in )?`\$\.?(?P<path>[^`]*)`"
# These messages name a field of the object at the place.
_OF_OBJECT = (
    (r"Object missing required field `([^`]*)`", "a required field is missing"),
    (r"Object contains unknown field `([^`]*)`", "an unknown key"),
)


def json_schema(kind: Any, *, allow_extra_keys: bool = False) -> Schema:
    """Return the JSON schema of a type, the same in every process.

    Definitions are inlined, so that the schema can be nested in another one and sent to any
    provider; only recursive types keep a `$defs` entry. Descriptions and defaults are kept.
    Objects forbid extra keys, except with `allow_extra_keys`, or for a pydantic model with
    extra="allow"; a type that forbids them itself always does.
    """
    try:
        made = _pydantic_schema(kind) if _is_pydantics(kind) else _msgspec_schema(kind)
        schema: Schema = to_plain(in_stable_order(self_contained(made)))
    except UnsupportedTypeError:
        raise
    except DataEncodeError as error:
        raise UnsupportedTypeError(
            f"the schema of {_name(kind)} can't be JSON: {error.reason}", path=error.path
        ) from error
    except Exception as error:
        raise _unsupported(kind, error) from error
    return schema if allow_extra_keys else closed(schema)


def decode(kind: type[T], data: Any, *, allow_extra_keys: bool = False) -> T:
    """Decode JSON data as the type; DataDecodeError names the field that does not fit."""
    value: T
    try:
        if _is_pydantics(kind):
            value = _validated(kind, data)
        else:
            _refuse_hidden_validators(kind)
            value = msgspec.convert(data, kind, str_keys=True, dec_hook=_decode_model)
    except (DataDecodeError, UnsupportedTypeError):
        raise
    except msgspec.ValidationError as error:
        raise _refused(error) from error
    except ValueError as error:
        raise _explained(error, "") from error
    except Exception as error:
        # Raised by the type's own code: __post_init__, a validator, an annotation.
        raise DataDecodeError(f"{_name(kind)}: {error_text(error)}") from error
    if not allow_extra_keys:
        refuse_extra_keys(data, value)
    return value


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or short_repr(kind)


def _unsupported(kind: Any, error: Exception) -> UnsupportedTypeError:
    what = f"{_name(kind)} can't be read from JSON: {error}"
    if isinstance(error, NameError):
        what += ". Define the types that it names at the top level of a module"
    elif "unions" in str(error):
        what += ". To choose between objects, use pydantic models or Structs with tag=True"
    return UnsupportedTypeError(what)


# --- which library -----------------------------------------------------------------


def _leaves(kind: Any) -> list[Any]:
    """Return the classes that a type's arguments name, at any depth."""
    arguments = get_args(kind)
    if not arguments:
        return [kind]
    return [leaf for argument in arguments for leaf in _leaves(argument)]


def _is_pydantic_type(kind: Any) -> bool:
    pydantic = pydantic_module()
    if pydantic is None or not isinstance(kind, type):
        return False
    is_dataclass = dataclasses.is_dataclass(kind) and "__pydantic_validator__" in vars(kind)
    return is_dataclass or issubclass(kind, pydantic.BaseModel)


def _is_pydantics(kind: Any) -> bool:
    leaves = _leaves(kind)
    if any(isinstance(leaf, type) and issubclass(leaf, msgspec.Struct) for leaf in leaves):
        return False
    return any(_is_pydantic_type(leaf) for leaf in leaves)


# --- msgspec -----------------------------------------------------------------------


def _msgspec_schema(kind: Any) -> Schema:
    _refuse_hidden_validators(kind)
    document = msgspec.json.schema(kind, schema_hook=_model_schema)
    for one in _dataclasses_in(kind):
        properties = document.get("$defs", {}).get(one.__name__, {}).get("properties", {})
        for field in dataclasses.fields(one):
            description = field.metadata.get("description")
            if description is not None and field.name in properties:
                properties[field.name].setdefault("description", description)
    return document


def _model_schema(kind: type) -> Schema:
    if not _is_pydantic_type(kind):
        raise UnsupportedTypeError(
            f"{_name(kind)} can't be encoded as JSON: use a dataclass, a msgspec Struct or a "
            "pydantic model"
        )
    return self_contained(_pydantic_schema(kind))


def _decode_model(kind: type, data: Any) -> Any:
    if not _is_pydantic_type(kind):
        raise UnsupportedTypeError(f"{_name(kind)} can't be read from JSON")
    return _validated(kind, data)


def _refused(error: msgspec.ValidationError) -> DataDecodeError:
    match = re.fullmatch(_PLACE, str(error))
    path = match["path"] if match else ""
    cause = error.__cause__
    if isinstance(cause, ValueError) and hasattr(cause, "errors"):
        return _explained(cause, path)  # a model within: pydantic knows the rest of the path
    reason = match["reason"] if match else str(error)
    if match and match["key"]:
        reason = f"a key of it: {reason}"
    for pattern, short in _OF_OBJECT:
        if found := re.fullmatch(pattern, reason):
            return DataDecodeError(short, path=at_key(path, found[1]))
    return DataDecodeError(reason.replace("`", "'"), path=path)


@lru_cache(maxsize=512)
def _dataclasses_in(kind: Any) -> tuple[Any, ...]:
    """Return the dataclasses that msgspec finds in a type, at any depth."""
    found: dict[Any, None] = {}
    seen: set[int] = set()
    ahead: list[Any] = [msgspec.inspect.type_info(kind)]
    while ahead:
        info = ahead.pop()
        if isinstance(info, tuple):
            ahead.extend(info)
        if not isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) or id(info) in seen:
            continue
        seen.add(id(info))
        if isinstance(info, msgspec.inspect.DataclassType):
            found[info.cls] = None
        ahead.extend(getattr(info, name) for name in info.__struct_fields__)
    return tuple(found)


def _refuse_hidden_validators(kind: Any) -> None:
    """Reject nested pydantic dataclasses: msgspec would fill them without their validators."""
    try:
        found = _dataclasses_in(kind)
    except Exception as error:
        raise _unsupported(kind, error) from error
    for one in found:
        if _is_pydantic_type(one):
            raise UnsupportedTypeError(
                f"{_name(kind)} contains the pydantic dataclass {one.__name__}, whose checks "
                "would not run there: make it a pydantic BaseModel or a plain dataclass"
            )


# --- pydantic ----------------------------------------------------------------------


@lru_cache(maxsize=512)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@lru_cache(maxsize=1)
def _plain_generator() -> Callable[..., Any]:
    """Return a schema generator of pydantic that makes up no titles for fields."""
    from pydantic.json_schema import GenerateJsonSchema

    class Plain(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return Plain


def _pydantic_schema(kind: Any) -> Schema:
    generator: Any = _plain_generator()
    return _adapter(kind).json_schema(schema_generator=generator)


def _validated(kind: Any, data: Any) -> Any:
    # In JSON mode, a list may be decoded as a tuple and text as a date, though it is strict.
    return _adapter(kind).validate_json(msgspec.json.encode(data), strict=True)


def _explained(error: ValueError, prefix: str) -> DataDecodeError:
    """Convert pydantic's errors, each with its path, or any other ValueError."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return DataDecodeError(str(error), path=prefix)
    found = [(_joined(prefix, one["loc"]), one["msg"]) for one in error.errors(include_url=False)]
    path, reason = found[0]
    more = (f"{path}: {reason}" if path else reason for path, reason in found[1:])
    return DataDecodeError("; ".join([reason, *more]), path=path)


def _joined(prefix: str, place: tuple[int | str, ...]) -> str:
    path = prefix
    for step in place:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path
