"""Lazy exports: a package's public names, each imported on first use.

The names are listed once, in the package's `__init__.pyi`, as `from module import Name as Name`:
type checkers and editors read that file, and `lazy_exports` reads it too. This module imports
nothing but builtins, so that `import turnledger` costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # `typing` takes longer to import than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazy_exports(
    package: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Read a package's `__init__.pyi` and return its `__getattr__`, `__dir__` and `__all__`.

        __getattr__, __dir__, __all__ = lazy_exports(__name__)

    An unknown name is an AttributeError, as in any module.
    """
    module = sys.modules[package]
    assert module.__spec__ is not None
    loader: Any = module.__spec__.loader  # reads from a zip file as well
    stub = loader.get_data(f"{module.__path__[0]}/__init__.pyi").decode()
    homes = _homes(stub)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, original = homes[name]
        value = getattr(import_module(home), original)
        setattr(module, name, value)  # the next access does not come here
        return value

    names = sorted(homes)
    return get, lambda: names, names


def _homes(stub: str) -> dict[str, tuple[str, str]]:
    """Map each exported name to its module and its name there.

    A stub holds imports and comments only, so words are enough: `ast` would take most of the
    time that importing the package takes.
    """
    words = [word for line in stub.splitlines() for word in line.partition("#")[0].split()]
    homes = {}
    home = ""
    for before, word, after in zip(words, words[1:], words[2:], strict=False):
        if word == "import":
            home = before
        elif word == "as":
            homes[after.rstrip(",")] = home, before
    return homes
