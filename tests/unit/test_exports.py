"""What can be imported from `ledger`: everything that the design names, sorted."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

import turnledger
from turnledger import ledger
from turnledger.ledger import errors
from turnledger.ledger.events import types as events

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


def test_all_is_sorted_and_says_everything_once() -> None:
    """Plainly, by code point."""
    assert list(ledger.__all__) == sorted(set(ledger.__all__))


def test_every_name_in_all_is_there_and_no_other() -> None:
    """Nothing public is unlisted, but for the modules of the package."""
    for name in ledger.__all__:
        assert hasattr(ledger, name), name
    public = {
        name
        for name, value in vars(ledger).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(ledger.__all__)


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
    """At most 60 names, sorted, and each is the object that its package exports."""
    assert len(turnledger.__all__) <= 60
    assert list(turnledger.__all__) == sorted(set(turnledger.__all__))
    packages = [import_module(f"turnledger.{name}") for name in PACKAGES]
    for name in turnledger.__all__:
        (home,) = (package for package in packages if name in package.__all__)
        assert getattr(turnledger, name) is getattr(home, name)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        turnledger.Nothing  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES)
def test_a_bare_import_is_refused(package: str) -> None:
    """A second identity of every class would pass silently otherwise."""
    with pytest.raises(ImportError, match=f"Import turnledger.{package}, not the bare name"):
        import_module(package)
