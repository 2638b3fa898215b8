"""Lazy exports: a package's public names, imported on first use.

The names stand once, in the package's `__init__.pyi`, where type checkers and editors read them;
`lazy_exports` reads the same file. So importing a package costs nothing that is not used.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(
    package: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from its `__init__.pyi`."""
    source = sys.modules[package].__file__
    assert source is not None
    stub = ast.parse(Path(source).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {
        alias.asname: (statement.module, alias.name)
        for statement in stub.body
        if isinstance(statement, ast.ImportFrom) and statement.module is not None
        for alias in statement.names
        if alias.asname is not None
    }

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = homes[name]
        value = getattr(import_module(module), original)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(homes)
    return get, lambda: names, names
