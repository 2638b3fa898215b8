"""Every public callable, found by the packages' `__all__`: functions, constructors and methods.

A new public name is found by itself. What may not be called in a test is in EXCLUDED, each with
the reason.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any

PACKAGES = (
    "turnledger",
    "turnledger.ledger",
    "turnledger.projections",
    "turnledger.runtime",
    "turnledger.runtime.agent.overrides",
    "turnledger.runtime.workspace",
    "turnledger.adapters",
    "turnledger.adapters.sandboxes",
)


@dataclass(frozen=True)
class Public:
    """A public callable: a function, a class to construct, or a method of a public class."""

    name: str
    function: Any
    # The class that it is called on, or on an instance of: None for functions and constructors.
    owner: type | None = None
    on_class: bool = False

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The parameters that a caller gives, with their annotations."""
        found = list(inspect.signature(self.function).parameters.values())
        bound = self.owner is not None and not isinstance(
            inspect.getattr_static(self.owner, self.name.rpartition(".")[2]), staticmethod
        )
        return found[1:] if bound else found

    @property
    def globals(self) -> dict[str, Any]:
        """The names that its annotations use."""
        if inspect.isclass(self.function):
            return vars(import_module(self.function.__module__))
        found: dict[str, Any] = inspect.unwrap(self.function).__globals__
        return found


@functools.cache
def public_callables() -> dict[str, Public]:
    """All of them by name: `replay`, `Deadline`, `Deadline.after`."""
    seen: set[int] = set()
    found: dict[str, Public] = {}
    for package in map(import_module, PACKAGES):
        for name in package.__all__:
            thing = getattr(package, name)
            if id(thing) in seen or not callable(thing):
                continue
            seen.add(id(thing))
            found |= {one.name: one for one in _callables(name, thing)}
    return found


def _callables(name: str, thing: Any) -> Iterator[Public]:
    if not inspect.isclass(thing):
        if inspect.isfunction(thing):
            yield Public(name, thing)
        return
    if issubclass(thing, Enum) or getattr(thing, "_is_protocol", False):
        return
    if not inspect.isabstract(thing) and _has_signature(thing):
        yield Public(name, thing)
    if issubclass(thing, BaseException):  # its methods are for what raises it
        return
    for method in sorted(_names(thing)):
        raw = inspect.getattr_static(thing, method)
        function = raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw
        if inspect.isfunction(function) and _ours(function):
            yield Public(f"{name}.{method}", function, thing, not inspect.isfunction(raw))


def _names(kind: type) -> set[str]:
    return {name for base in kind.__mro__ for name in vars(base) if not name.startswith("_")}


def _ours(function: Any) -> bool:
    return str(inspect.unwrap(function).__module__).startswith("turnledger.")


def _has_signature(kind: type) -> bool:
    try:
        inspect.signature(kind)
    except ValueError:  # an error that takes what every exception takes
        return False
    return True
