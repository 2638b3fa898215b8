"""The public names of the packages: sorted, resolvable, typed, and those that the design names."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import turnledger
from turnledger import ledger
from turnledger._lazy import _homes
from turnledger.ledger import errors
from turnledger.ledger.events import types as events
from turnledger.runtime.agent.tools import function_tool
from turnledger.runtime.agents import agent, result
from turnledger.runtime.loop import events as run_events
from turnledger.runtime.steps import block, current, decorator, workflows

# Names that only the front door exports, and where they stand.
HOMES = {
    "tool": function_tool,
    "Agent": agent,
    "RunResult": result,
    **dict.fromkeys(("RunEnded", "TextDelta", "ToolEnded", "ToolStarted"), run_events),
    "run": block,
    "current_run": current,
    "step": decorator,
    "workflow": workflows,
}
PACKAGES = ["ledger", "projections", "runtime", "adapters"]
NAMED = {
    "ANY",
    "InnerMessage",
    "Ledger",
    "NEW",
    "Record",
    "ToolCallRecord",
    "TurnledgerError",
    "new_run_id",
}


# Their frameworks are installed elsewhere: see tests/frameworks.
FRAMEWORKS = "turnledger.adapters.frameworks."


def _packages(above: ModuleType) -> Iterator[str]:
    for found in pkgutil.iter_modules(above.__path__, f"{above.__name__}."):
        if found.ispkg and not found.name.startswith(FRAMEWORKS):
            yield found.name
            yield from _packages(import_module(found.name))


FACES = sorted(
    ["turnledger"]
    + [name for name in _packages(turnledger) if hasattr(import_module(name), "__all__")]
)


def _stub(module: ModuleType) -> Path:
    return Path(module.__path__[0], "__init__.pyi")


LAZY = [name for name in FACES if _stub(import_module(name)).exists()]


def test_the_packages_with_public_names_are_found() -> None:
    """So that the tests over them watch something."""
    assert {"turnledger", "turnledger.ledger", "turnledger.runtime.agent.tools"} < set(FACES)
    assert {"turnledger", "turnledger.runtime", "turnledger.adapters"} <= set(LAZY)


@pytest.mark.parametrize("package", FACES)
def test_all_is_sorted_and_every_name_in_it_is_there(package: str) -> None:
    """Plainly, by code point, each once."""
    module = import_module(package)
    assert list(module.__all__) == sorted(set(module.__all__))
    for name in module.__all__:
        assert hasattr(module, name), name


@pytest.mark.parametrize("package", FACES)
def test_every_public_class_and_function_says_what_it_is_for(package: str) -> None:
    """In a docstring of its own."""
    module = import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name


@pytest.mark.parametrize("package", sorted(set(FACES) - set(LAZY)))
def test_no_public_name_is_unlisted(package: str) -> None:
    """But for the modules of the package."""
    module = import_module(package)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public - {"annotations"} <= set(module.__all__)


@pytest.mark.parametrize("package", LAZY)
def test_a_lazy_package_exports_what_its_stub_says(package: str) -> None:
    """Type checkers read the stub as Python; each name is the object that it names there."""
    module = import_module(package)
    stub = ast.parse(_stub(module).read_text())
    homes = {}
    for statement in stub.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            assert alias.asname is not None, f"{alias.name} is not exported without `as`"
            homes[alias.asname] = (statement.module, alias.name)
    assert dir(module) == sorted(homes) == list(module.__all__)
    for name, (home, original) in homes.items():
        assert getattr(module, name) is getattr(import_module(home), original)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


def test_a_stub_may_wrap_its_lines_and_have_comments() -> None:
    """A formatter wraps what is long; a comment is no import."""
    stub = (
        "# from nowhere import nothing as nothing\n"
        "from a.b import One as One  # import it as it is\n"
        "from c import (\n    Two as Two,\n    three as Three,\n)\n"
    )
    assert _homes(stub) == {"One": ("a.b", "One"), "Two": ("c", "Two"), "Three": ("c", "three")}


@pytest.mark.process
def test_a_lazy_package_imports_nothing_that_is_not_used() -> None:
    """Not even typing; and a name brings in what it needs."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "import turnledger, turnledger.ledger, turnledger.runtime, turnledger.adapters\n"
        "assert len(turnledger.__all__) + len(turnledger.runtime.__all__) > 100\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "assert new <= {'turnledger', '__future__', 'importlib', 'warnings'}, new\n"
        "ours = {name for name in sys.modules if name.startswith('turnledger.')}\n"
        "packages = ('_lazy', 'adapters', 'ledger', 'runtime')\n"
        "assert ours == {f'turnledger.{name}' for name in packages}, ours\n"
        "turnledger.Tool, turnledger.runtime.Tool\n"
        "assert 'turnledger.runtime.agent.tools.tool' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_names_of_the_design_are_there() -> None:
    """With every event and every error."""
    every_event = {kind.__name__ for kind in events.EVENT_TYPES.values()}
    every_error = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
    }
    assert set(ledger.__all__) >= NAMED | every_event | every_error


@pytest.mark.parametrize(
    "method",
    [
        "append",
        "blob",
        "claim",
        "close",
        "continuation",
        "fork",
        "head",
        "heartbeat",
        "open",
        "read",
        "rebuild_index",
        "record",
        "release",
        "run",
        "runs",
        "tail",
        "verify",
        "verify_all",
    ],
)
def test_a_ledger_has_the_methods_of_the_design_and_says_what_they_do(method: str) -> None:
    """Each with a docstring."""
    assert inspect.getdoc(getattr(ledger.Ledger, method))


@pytest.mark.parametrize(
    "field", ["run_id", "version", "position", "event_id", "recorded_at", "digest", "event"]
)
def test_a_record_has_the_fields_of_the_design(field: str) -> None:
    """As properties."""
    assert isinstance(getattr(ledger.Record, field), property)


def test_the_package_is_typed() -> None:
    """py.typed is shipped, so that users' type checkers look inside."""
    from importlib.resources import files

    assert (files("turnledger") / "py.typed").is_file()


def test_the_front_door_fits_on_one_screen_and_opens() -> None:
    """At most 60 names, sorted, and each is the object that its package or module exports.

    `tool` stands in its module alone: in a package it would hide the module of the same name.
    Agents are used through the front door, so they are in no list of the runtime's. `step` is the
    durable one; that of the projections, which is what an event changed, is another.
    """
    assert len(turnledger.__all__) <= 60
    assert list(turnledger.__all__) == sorted(set(turnledger.__all__))
    packages = [import_module(f"turnledger.{name}") for name in PACKAGES]
    for name in turnledger.__all__:
        homes = [package for package in packages if name in package.__all__]
        (home,) = [HOMES[name]] if name in HOMES else homes
        assert getattr(turnledger, name) is getattr(home, name)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        turnledger.Nothing  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES)
def test_a_bare_import_is_refused(package: str) -> None:
    """A second identity of every class would pass silently otherwise."""
    with pytest.raises(ImportError, match=f"Import turnledger.{package}, not the bare name"):
        import_module(package)
