"""What can be imported from `ledger`: everything that the design names, sorted."""

from __future__ import annotations

import inspect

import pytest

import ledger
from ledger import errors, events

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


@pytest.mark.parametrize("package", ["ledger", "projections", "runtime", "adapters"])
def test_packages_are_typed(package: str) -> None:
    """py.typed is shipped, so that users' type checkers look inside."""
    from importlib.resources import files

    assert (files(package) / "py.typed").is_file()
