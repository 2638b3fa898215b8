"""Hostile arguments: every public callable returns, or raises an error of the project or TypeError.

The calls are made from the signatures of all that the packages export, so that a new function is
among them by itself. What is left out is in EXCLUDED, each with the reason.
"""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pydantic
import pytest

from tests.fuzz.callables.hostile import HOSTILE
from tests.fuzz.callables.public import Public, public_callables
from tests.fuzz.callables.valid import NoValidValueError, World
from tests.fuzz.targets import BrokenPromiseError
from turnledger.ledger import ANY, CustomEvent, Draft, InvalidInputError, Ledger, TurnledgerError
from turnledger.ledger.arguments import check_arguments

_RUNS = "runs an agent: its outcomes, and the errors of the agent's own code, have tests"
_NETWORK = "talks to a provider, or makes its SDK's client"
_REPLY = "takes what the provider's SDK gave; the loop records any error as a failed model call"
_FOLD_STEP = "a step that `fold` makes for each record, which it has checked: no check here"
_PROCESS = "starts a process in a sandbox"
_LIBRARY = "the eventsourcing library's interface, called by the library; `over` is the door"
EXCLUDED = {
    "MainLoop.execute": _RUNS,
    "MainLoop.recover": _RUNS,
    "MainLoop.create_prompt": _RUNS,
    "MainLoop.create_session": _RUNS,
    **dict.fromkeys(
        [f"Agent.{name}" for name in ("run", "arun", "stream", "recover", "arecover")], _RUNS
    ),
    "evaluate": _RUNS,
    "send": _NETWORK,
    "send_async": _NETWORK,
    "call": _NETWORK,
    "make_client": _NETWORK,
    "limited": _NETWORK,
    "decode": _REPLY,
    "apply": _FOLD_STEP,
    "apply_all": _FOLD_STEP,
    "begin": _FOLD_STEP,
    "step": _FOLD_STEP,
    "adds": _FOLD_STEP,
    "merge": _FOLD_STEP,
    "run": _PROCESS,
    "trial": _PROCESS,
    "LedgerApplication": _LIBRARY,
    "construct_factory": _LIBRARY,
    "construct_mapper": _LIBRARY,
    "construct_recorder": _LIBRARY,
}
# These are named by their last part, in the classes of these names; all others by the whole name.
_OF = {
    "evaluate": "Adapter",
    "send": "Adapter",
    "send_async": "Adapter",
    "call": "Adapter",
    "make_client": "Adapter",
    "limited": "Adapter",
    "decode": "Adapter",
    "run": "Runner",
    "construct_factory": "LedgerApplication",
    "construct_mapper": "LedgerApplication",
    "construct_recorder": "LedgerApplication",
}
# Parameters that wait for more, or start processes, if they are true.
FIXED = {"follow": False, "workers": 1, "executor": None}
# Iterables with a documented bound. Others are taken whole, as `tuple` takes them.
BOUNDED = {("Ledger.append", "events"), ("Ledger.begin", "started")}
_UNBOUNDED_WORDS = ("Iterable", "Sequence", "Mapping", "tuple", "Any", "object", "ResultT")
_SECONDS = 240.0
_FEW = 4


def is_excluded(public: Public) -> bool:
    """Whether the named list leaves it out. So are errors: one that refuses would hide another."""
    if inspect.isclass(public.function) and issubclass(public.function, BaseException):
        return True
    last = public.name.rpartition(".")[2]
    if public.name in EXCLUDED:
        return True
    if last not in EXCLUDED or public.owner is None:
        return False
    if last in _OF:
        return _OF[last] in public.owner.__name__
    return hasattr(public.owner, "initial") or hasattr(public.owner, "adds")


CALLABLES = {
    name: public
    for name, public in public_callables().items()
    if not is_excluded(public) and public.parameters
}


@contextmanager
def watched() -> Iterator[None]:
    """End the process with a traceback if a call hangs, even in C, where no signal is handled."""
    faulthandler.dump_traceback_later(_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def leak_of(world: World, public: Public, target: inspect.Parameter, hostile: str) -> str | None:
    """Call with one hostile argument, the others valid; what came through that must not."""
    instance = None
    if public.owner is not None and not public.on_class:
        instance = world.instance(public.owner)
    positional, named = _arguments(world, public, target, HOSTILE[hostile](), instance)
    last = public.name.rpartition(".")[2]
    called = public.function
    if public.owner is not None:
        called = getattr(public.owner if public.on_class else instance, last)
    try:
        found = called(*positional, **named)
        if inspect.isgenerator(found):
            for _ in zip(range(50), found, strict=False):
                pass
        elif inspect.iscoroutine(found):
            asyncio.run(found)
        elif inspect.isasyncgen(found):
            asyncio.run(anext(found, None))
    except (TurnledgerError, TypeError):
        return None
    except pydantic.ValidationError:
        # What a pydantic model documents; it is a ValueError.
        if inspect.isclass(called) and issubclass(called, pydantic.BaseModel):
            return None
        return f"{public.name}({target.name}={hostile}): pydantic.ValidationError"
    except (BrokenPromiseError, MemoryError) as error:
        if _is_unbounded(public, target):
            return None
        return f"{public.name}({target.name}={hostile}): {error!r}"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:200]
        return f"{public.name}({target.name}={hostile}): {said}"
    return None


def _is_unbounded(public: Public, target: inspect.Parameter) -> bool:
    words = str(target.annotation)
    return (public.name, target.name) not in BOUNDED and any(
        word in words for word in _UNBOUNDED_WORDS
    )


def _arguments(
    world: World, public: Public, target: inspect.Parameter, hostile: Any, instance: Any
) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in public.parameters:
        if parameter is target or parameter == target:
            value = hostile
        elif parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        else:
            try:
                value = world.argument(public, parameter, instance)
            except NoValidValueError:
                value = hostile
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD) or (
            parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            and parameter is target
            and parameter.default is not parameter.empty
        ):
            named[parameter.name] = value
        else:
            positional.append(value)
    return positional, named


def leaks(public: Public, hostile: list[str], folder: Path) -> list[str]:
    """What comes through of these hostile values, in each parameter in turn."""
    world = World(folder)
    try:
        found = [
            leak_of(world, public, target, name)
            for target in public.parameters
            if target.name not in FIXED
            for name in hostile
            # It can't notice that it is taken for ever; the endless ones do.
            if name != "range" or not _is_unbounded(public, target)
        ]
    finally:
        world.close()
    return [one for one in found if one is not None]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hostile text is a file name too: what is made under it is made there."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("part", range(4))
def test_hostile_arguments_get_errors_of_the_project(part: int, tmp_path: Path) -> None:
    """Each parameter of every public callable, some hostile values in turn: no other error."""
    found = []
    with watched():
        for name in sorted(CALLABLES)[part::4]:
            dice = random.Random(name)
            found += leaks(CALLABLES[name], dice.sample(list(HOSTILE), _FEW), tmp_path)
    assert found == []


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_all_hostile_arguments_get_errors_of_the_project(name: str, tmp_path: Path) -> None:
    """The same for every hostile value."""
    with watched():
        assert leaks(CALLABLES[name], list(HOSTILE), tmp_path) == []


def test_every_public_callable_is_called_or_excluded_by_name() -> None:
    """What is left out is in the list, and the list names nothing that is gone."""
    names = set(public_callables())
    assert len(CALLABLES) > 200
    lasts = {name.rpartition(".")[2] for name in names}
    assert set(EXCLUDED) <= names | lasts


def test_most_callables_are_called_with_one_hostile_argument_only(tmp_path: Path) -> None:
    """A valid instance, and valid other arguments, can be made for all but a few."""
    world = World(tmp_path)
    without = []
    for name, public in CALLABLES.items():
        try:
            if public.owner is not None and not public.on_class:
                world.instance(public.owner)
            for parameter in public.parameters:
                if parameter.default is parameter.empty and parameter.kind not in (2, 4):
                    world.argument(public, parameter, None)
        except NoValidValueError:
            without.append(name)
    world.close()
    assert len(without) < 20, without


def test_a_leak_is_noticed(tmp_path: Path) -> None:
    """A function that lets another error through is reported with the argument."""

    def careless(run_id: int) -> str:
        return f"{run_id}".encode().decode() + run_id.strip()  # type: ignore[attr-defined, no-any-return]

    found = leaks(Public("careless", careless), ["0", "10**5000", "endless"], tmp_path)
    assert [one.split(":")[0] for one in found] == [
        "careless(run_id=0)",
        "careless(run_id=10**5000)",
        "careless(run_id=endless)",
    ]
    assert leaks(Public("careless", check_arguments(careless)), ["10**5000"], tmp_path) == []


def test_a_refused_argument_is_named_with_what_was_expected() -> None:
    """The error has the function, the parameter, the value if it is plain, and the type."""
    with Ledger.open("memory://") as ledger:
        with pytest.raises(InvalidInputError) as refused:
            ledger.claim("0195f5a0-0000-7000-8000-000000000000", ttl=60)  # type: ignore[arg-type]
        assert str(refused.value) == (
            "Ledger.claim: invalid ttl: got 60 (int), expected timedelta."
        )
        with pytest.raises(InvalidInputError, match="int that fits 64 bits"):
            next(ledger.tail(2**63))


@pytest.mark.parametrize("now", ["a clock at NaN", "a clock at None", "a clock at 2**70"])
def test_an_append_with_a_broken_clock_is_refused(now: str) -> None:
    """A clock that gives what is not a time, or an id that is not one, writes nothing."""
    with Ledger.open("memory://") as ledger:
        ledger._clock = HOSTILE[now]()
        draft = Draft(CustomEvent(kind="a.b"), "0195f5a0-0000-7000-8000-000000000001")
        with pytest.raises(TurnledgerError):
            ledger.append("0195f5a0-0000-7000-8000-000000000000", draft, ANY)
        assert next(ledger.tail(), None) is None


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**400])
def test_an_integer_beyond_64_bits_is_refused_in_every_free_field(number: int) -> None:
    """However deep it is in an event's free data; the largest that fits are taken."""
    run = "0195f5a0-0000-7000-8000-000000000000"
    with Ledger.open("memory://") as ledger:
        for data in (number, [number], {"a": [{"b": number}]}):
            with pytest.raises(InvalidInputError, match="64 bits"):
                ledger.append(run, CustomEvent(kind="a.b", data=data), ANY)
        ledger.append(run, CustomEvent(kind="a.b", data=[2**64 - 1, -(2**63), "9" * 30]), ANY)
        assert ledger.head(run) == 1
