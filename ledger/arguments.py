"""Argument checks: a public function refuses arguments that are not of their annotated types.

`check_arguments` wraps a function, `check_methods` the public methods of a class; `explain_*` do
the same for what has checks of its own, after these. The checks come from the annotations, so that
there is one place to declare a type. They are shallow: what a list holds is for the function to
check. A number must fit 64 bits, and may not be NaN.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection
from datetime import timedelta
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from turnledger.ledger.errors import InvalidInputError, TurnledgerError, short_repr

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=type)
Fits = Callable[[Any], bool]

# What stores count in, and what a counter, a version or a size may be.
INT64 = range(-(2**63), 2**63)
# `canonical_id` checks these, and names the kind of id.
_CHECKED_ELSEWHERE = ("RunId", "RunId | None")
_TAKES_REST, _GENERATES = 0x04, 0x20


class _Check(NamedTuple):
    """The check of one parameter; a value of one of the `plain` types needs no look."""

    name: str
    expected: str
    plain: frozenset[type]
    fits: Fits


class _Checks(NamedTuple):
    positional: tuple[_Check | None, ...]
    rest: _Check | None
    named: dict[str, _Check | None]


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function: InvalidInputError for an argument that is not of its annotated type."""
    checks: _Checks | None = None

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal checks
        if checks is None:
            # With the first call: an annotation may name what is defined after the function.
            checks = _checks_of(function)
        refusal = _refusal_of(function, checks, args, kwargs)
        if refusal is not None:
            raise refusal
        return function(*args, **kwargs)

    return checked


def explain_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function that has checks of its own, or is called often.

    Its arguments are looked at only when it let an error through that is neither of this project
    nor a TypeError: if one is not of its annotated type, then that is the error. A generator
    raises after its call, so its arguments are checked before.
    """
    if isinstance(function, types.FunctionType) and function.__code__.co_flags & _GENERATES:
        return check_arguments(function)

    @wraps(function)
    def explained(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (TurnledgerError, TypeError):
            raise
        except Exception as error:
            refusal = _refusal_of(function, _checks_of(function), args, kwargs)
            if refusal is None:
                raise
            raise refusal from error

    return explained


def check_methods(*, skip: Collection[str] = ()) -> Callable[[K], K]:
    """Decorate a class: its constructor and public methods check their arguments.

    Args:
        skip: Methods on hot paths, which check what they are given themselves.
    """
    return lambda kind: _wrap_methods(kind, check_arguments, skip)


def explain_methods(*, skip: Collection[str] = ()) -> Callable[[K], K]:
    """Decorate a class: `explain_arguments` for its constructor and public methods.

    Args:
        skip: Methods on hot paths.
    """
    return lambda kind: _wrap_methods(kind, explain_arguments, skip)


def _wrap_methods(kind: K, wrap: Callable[[Any], Any], skip: Collection[str]) -> K:
    for name, member in list(vars(kind).items()):
        if name in skip or (name.startswith("_") and name != "__init__"):
            continue
        if isinstance(member, types.FunctionType):
            setattr(kind, name, wrap(member))
        elif isinstance(member, classmethod | staticmethod):
            setattr(kind, name, type(member)(wrap(member.__func__)))
    return kind


def _refusal_of(
    function: Callable[..., Any], checks: _Checks, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> InvalidInputError | None:
    """The error for the first argument that is not of its type; None if all are."""
    positional, rest, named = checks
    for value, check in zip(args, positional, strict=False):
        if check is not None and type(value) not in check.plain and not check.fits(value):
            return _refusal(function, check, value)
    if rest is not None:
        for value in args[len(positional) :]:
            if not rest.fits(value):
                return _refusal(function, rest, value)
    for name, value in kwargs.items():
        check = named.get(name)
        if check is not None and type(value) not in check.plain and not check.fits(value):
            return _refusal(function, check, value)
    return None


def _refusal(function: Callable[..., Any], check: _Check, value: object) -> InvalidInputError:
    name = function.__qualname__.removesuffix(".__init__")
    # What is not a plain value may be large or hold a secret: its type is enough.
    plain = isinstance(value, str | int | float | timedelta | None)
    got = f"{short_repr(value)} ({type(value).__name__})" if plain else type(value).__name__
    return InvalidInputError(f"{name}: invalid {check.name}: got {got}, expected {check.expected}.")


def _checks_of(function: Callable[..., Any]) -> _Checks:
    """The checks of a function's parameters, from its annotations."""
    inner: Any = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    code = inner.__code__
    count = code.co_argcount
    last = count + code.co_kwonlyargcount
    names = code.co_varnames
    by_name = {
        name: _check_of(name, inner.__annotations__.get(name), inner.__globals__)
        for name in names[: last + 1]
    }
    rest = by_name[names[last]] if code.co_flags & _TAKES_REST else None
    positional = tuple(by_name[name] for name in names[:count])
    first = code.co_posonlyargcount
    return _Checks(positional, rest, {name: by_name[name] for name in names[first:last]})


def _check_of(name: str, annotation: Any, scope: dict[str, Any]) -> _Check | None:
    if annotation is None or annotation in _CHECKED_ELSEWHERE:
        return None
    kind = annotation
    if isinstance(annotation, str):
        try:
            kind = eval(annotation, scope)  # noqa: S307 - source text of this project
        except (NameError, TypeError):
            return None  # imported for type checkers only
    plain: set[type] = set()
    fits = _fits(kind, plain)
    if fits is None:
        return None
    expected = annotation if isinstance(annotation, str) else getattr(kind, "__name__", str(kind))
    if int in _members(kind):
        expected += " that fits 64 bits"
    if float in _members(kind):
        expected += ", not NaN"
    return _Check(name, expected, frozenset(plain), fits)


def _members(kind: Any) -> tuple[Any, ...]:
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)


def _fits(kind: Any, plain: set[type]) -> Fits | None:
    """Whether a value is of a type; None if every value is. Adds to `plain` what always is."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _fits(typing.get_args(kind)[0], plain)
    if origin in (typing.Union, types.UnionType):
        return _fits_any(typing.get_args(kind), plain)
    if origin is typing.Literal:
        return _is_one_of(typing.get_args(kind))
    kind = origin or kind
    while isinstance(kind, type) and "[" in kind.__qualname__:
        kind = kind.__bases__[0]  # a class of the runtime that makes subclasses of its subscripts
    if kind is None or kind is type(None):
        plain.add(type(None))
        return lambda value: value is None
    if kind is int:
        return lambda value: isinstance(value, int) and value in INT64
    if kind is float:
        return _is_number
    if kind is Callable:
        return callable
    if kind is typing.BinaryIO:  # files do not inherit from it
        return lambda value: hasattr(value, "read") or hasattr(value, "write")
    # A class as an argument has rules of its own, such as plain classes only.
    if not isinstance(kind, type) or kind in (object, type) or kind.__module__ == "typing":
        return None
    if getattr(kind, "_is_protocol", False):
        wanted = _protocol_members(kind)
        return lambda value: all(hasattr(value, name) for name in wanted)
    plain.add(kind)
    return lambda value: isinstance(value, kind)


def _fits_any(kinds: tuple[Any, ...], plain: set[type]) -> Fits | None:
    found = [_fits(kind, plain) for kind in kinds]
    fits = tuple(one for one in found if one is not None)
    if len(fits) < len(found):
        return None
    return lambda value: any(one(value) for one in fits)


def _is_one_of(wanted: tuple[Any, ...]) -> Fits:
    kinds = frozenset(map(type, wanted))
    return lambda value: type(value) in kinds and value in wanted


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return value in INT64
    return isinstance(value, float) and value == value


def _protocol_members(kind: type) -> frozenset[str]:
    return frozenset(
        name
        for base in kind.__mro__
        if getattr(base, "_is_protocol", False)
        for name in (*vars(base), *vars(base).get("__annotations__", ()))
        if not name.startswith("_")
    )
