"""`@step`: makes a durable step of any function.

    @turnledger.step(on_interrupt="ask")
    def pay(amount: int) -> Receipt: ...

Inside of a run its start is on disk before it is called, and its outcome after; outside of a run
it is a plain call.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar, get_type_hints, overload

from turnledger.ledger import InvalidInputError
from turnledger.ledger.errors import error_message, short_repr
from turnledger.runtime.agent.schema.schema import decode, json_schema
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.errors import SchemaError
from turnledger.runtime.journal.tool_scope import SCOPE
from turnledger.runtime.steps.errors import StepDefinitionError
from turnledger.runtime.steps.scope import StepScope, aperform, current_scope, perform
from turnledger.runtime.steps.spec import StepSpec

P = ParamSpec("P")
R = TypeVar("R")
Key: TypeAlias = str | Callable[..., str] | None
_POLICIES = ("retry", "fail", "ask")


@dataclass(frozen=True)
class TypedValue:
    """A value to plain JSON and back, by the return annotation of a function."""

    kind: Any

    def encode(self, value: Any) -> Any:
        return to_plain(value)

    def decode(self, data: Any) -> Any:
        # A copy: what the caller does to it is not on record.
        return deepcopy(data) if self.kind is Any else decode(self.kind, data)


@dataclass(frozen=True)
class StepSettings:
    """What `@step` was given."""

    name: str
    key: Key = None
    on_interrupt: OnInterrupt = "retry"
    raises: tuple[type[Exception], ...] = ()


@overload
def step(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def step(
    name: str | None = None,
    /,
    *,
    key: Key = None,
    on_interrupt: OnInterrupt = "retry",
    raises: tuple[type[Exception], ...] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def step(
    name: Any = None,
    /,
    *,
    key: Key = None,
    on_interrupt: OnInterrupt = "retry",
    raises: tuple[type[Exception], ...] = (),
) -> Any:
    """Make a durable step of a function: `@step`, `@step("pay")`, `@step(on_interrupt="ask")`.

    Arguments and result must be JSON-able: dataclasses, msgspec Structs, pydantic models, dates,
    text, numbers, lists and dicts. The caller gets the result after its round trip through JSON
    and the return annotation, in the live run too. The function may be `async def`.

    Args:
        name: The step's name; by default the function's.
        key: What tells it from other steps of that name: a text, or a function of the same
            arguments. By default its ordinal, which is not enough for steps side by side.
        on_interrupt: If nobody knows how it ended: "retry" calls it again, "fail" raises
            OutcomeUnknownError, "ask" raises DecisionRequiredError and lets the run wait.
        raises: Error classes of the function's that a resume raises again as themselves. Others,
            but for the built-in ones, are a StepFailedError.
    """
    if callable(name):
        return _made(name, StepSettings(_name_of(name)))
    if name is not None and not isinstance(name, str):
        raise StepDefinitionError(f"@step takes a name, got {short_repr(name)}.")

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        settings = StepSettings(name or _name_of(function), key, on_interrupt, tuple(raises))
        return _made(function, settings)

    return decorate


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", "")) or "step"


def _made(function: Callable[P, R], settings: StepSettings) -> Callable[P, R]:
    _check(function, settings)
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            scope = current_scope()
            if scope is None:
                return await function(*args, **kwargs)
            return await acall_step(function, args, kwargs, settings=settings, scope=scope)

        made: Any = asynchronous
    else:

        @wraps(function)
        def synchronous(*args: Any, **kwargs: Any) -> Any:
            scope = current_scope()
            if scope is None:
                return function(*args, **kwargs)
            return call_step(function, args, kwargs, settings=settings, scope=scope)

        made = synchronous
    made.__turnledger_step__ = function, settings
    checked: Callable[P, R] = made
    return checked


def _check(function: Any, settings: StepSettings) -> None:
    name = settings.name
    if not callable(function) or isinstance(function, type):
        raise StepDefinitionError(f"@step takes a function, got {short_repr(function)}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise StepDefinitionError("it is a generator: return a list instead.", name=name)
    if settings.on_interrupt not in _POLICIES:
        raise StepDefinitionError(
            f"invalid on_interrupt {settings.on_interrupt!r}: expected one of "
            f"{', '.join(_POLICIES)}.",
            name=name,
        )
    for one in settings.raises:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise StepDefinitionError(
                f"invalid raises {short_repr(one)}: expected classes of exceptions.", name=name
            )


def call_step(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    scope: StepScope,
    settings: StepSettings | None = None,
    name: str | None = None,
    key: str | None = None,
) -> Any:
    """Call a function as a step.

    Args:
        function: The function, perhaps one with `@step`.
        args: Its arguments.
        kwargs: Its arguments by keyword.
        scope: Where it is asked for.
        settings: Those of `@step`.
        name: The step's name, if another one was given.
        key: Its key, if one was given.
    """
    function, spec = _spec(function, args, kwargs, settings, name, key)
    if inspect.iscoroutinefunction(function):
        raise StepDefinitionError("it is `async def`: await run.astep(...).", name=spec.name)
    token = SCOPE.set(scope)
    try:
        return perform(spec, partial(function, *args, **kwargs), value_of(function))
    finally:
        SCOPE.reset(token)


async def acall_step(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    scope: StepScope,
    settings: StepSettings | None = None,
    name: str | None = None,
    key: str | None = None,
) -> Any:
    """`call_step` for an `async def` function; arguments as there."""
    function, spec = _spec(function, args, kwargs, settings, name, key)
    call: Callable[[], Awaitable[Any]] = partial(function, *args, **kwargs)
    token = SCOPE.set(scope)
    try:
        return await aperform(spec, call, value_of(function))
    finally:
        SCOPE.reset(token)


def _spec(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    settings: StepSettings | None,
    name: str | None,
    key: str | None,
) -> tuple[Any, StepSpec]:
    function, of_step = getattr(function, "__turnledger_step__", (function, None))
    settings = settings or of_step or StepSettings(name or _name_of(function))
    if of_step is None:
        _check(function, settings)
    chosen = key if key is not None else settings.key
    try:
        given = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except ValueError:  # a built-in without a signature
        given = {"args": list(args), **kwargs}
    return function, StepSpec(
        name=name or settings.name,
        key=_text(chosen(*args, **kwargs), settings.name) if callable(chosen) else chosen,
        arguments=given,
        on_interrupt=settings.on_interrupt,
        raises=settings.raises,
    )


def _text(key: Any, name: str) -> str:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return str(key)
    raise InvalidInputError(f"The key of step {name!r} is {short_repr(key)}: expected text.")


@lru_cache(maxsize=1024)
def value_of(function: Any) -> TypedValue:
    """How a function's value goes to JSON and back: by its return annotation."""
    name = _name_of(function)
    try:
        has_hints = inspect.isfunction(function) or inspect.ismethod(function)
        kind = get_type_hints(function).get("return", Any) if has_hints else Any
    except Exception as error:
        raise StepDefinitionError(
            f"its annotations can't be read: {error_message(error)}.", name=name
        ) from error
    if kind is not Any:
        try:
            json_schema(kind)
        except SchemaError as error:
            raise StepDefinitionError(
                f"its return type can't be recorded: {error}. Return data, such as a dataclass.",
                name=name,
            ) from error
    return TypedValue(kind)
