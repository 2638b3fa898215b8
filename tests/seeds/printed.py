"""Comparing a class as a seed prints it with the class of this project."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Any

# The seeds' own decorator.
FrozenDataclass: Callable[[], Any] = partial(dataclass, frozen=True)


def assert_same_fields(printed: Any, ours: Any) -> None:
    """Ours begins with the printed fields, in that order; what is optional there is so here."""
    wanted, found = fields(printed), fields(ours)
    assert [one.name for one in wanted] == [one.name for one in found[: len(wanted)]]
    for one, other in zip(wanted, found, strict=False):
        if one.default is not MISSING:
            assert other.default == one.default, one.name
        elif one.default_factory is not MISSING:
            assert other.default_factory is not MISSING, one.name
            assert type(other.default_factory()) is type(one.default_factory()), one.name
    for more in found[len(wanted) :]:
        assert (more.default, more.default_factory) != (MISSING, MISSING), more.name


def assert_callable_as(printed: Callable[..., Any], ours: Callable[..., Any]) -> None:
    """Ours has each printed parameter, of the same kind and with the same default, if any."""
    found = inspect.signature(ours).parameters
    for name, one in inspect.signature(printed).parameters.items():
        assert found[name].kind is one.kind, name
        if one.default is not inspect.Parameter.empty:
            assert found[name].default == one.default, name
