"""The errors: one root, and the tree that the docstring draws."""

from __future__ import annotations

import re
from inspect import getmembers, isclass

import pytest

from turnledger import ledger
from turnledger.ledger import errors
from turnledger.ledger.errors import (
    BlobNotFoundError,
    ConcurrentAppendError,
    EventIdConflictError,
    LimitExceededError,
    MissingDependencyError,
    RecordNotFoundError,
    RedactedStateError,
    RunClaimedError,
    RunNotFoundError,
    StaleEpochError,
    StoreUnavailableError,
    TurnledgerError,
    UnknownEventTypeError,
    error_message,
    error_text,
)


def drawn() -> dict[str, tuple[str, ...]]:
    """Each error of the docstring's tree with its bases, the one of the tree first."""
    bases: dict[str, tuple[str, ...]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r" {4}([│├└─ ]*)(\w+Error)(?: \((\w+)\))?", line)
        if match:
            depth = len(match[1]) // 4
            del above[depth:]
            parent = above[-1] if above else "Exception"
            bases[match[2]] = (parent, *([match[3]] if match[3] else []))
            above.append(match[2])
    return bases


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    """Every class, under its parent, with its other base."""
    real = {
        name: tuple(base.__name__ for base in kind.__bases__)
        for name, kind in getmembers(errors, isclass)
        if kind.__module__ == errors.__name__
    }
    assert drawn() == real
    assert len(real) > 20


def test_every_error_is_exported_and_under_the_one_root() -> None:
    """From the package itself."""
    for name in drawn():
        assert issubclass(getattr(ledger, name), TurnledgerError)
        assert name in ledger.__all__


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (ConcurrentAppendError("r1", expected=3, found=5), ["r1", "version 3", "version 5"]),
        (ConcurrentAppendError("r1", expected=0, found=5), ["to be new"]),
        (ConcurrentAppendError("r1", expected=3, found=0), ["does not exist"]),
        (StaleEpochError("r1", epoch=1, found=2), ["r1", "epoch 1", "epoch 2"]),
        (RunClaimedError("r1", worker="ann", epoch=2), ["r1", "'ann'", "epoch 2"]),
        (
            EventIdConflictError("e1", run_id="r1", version=4, why="has other content"),
            ["e1", "r1", "version 4", "has other content", "new ids"],
        ),
        (RunNotFoundError("r1"), ["r1", "turnledger runs"]),
        (RecordNotFoundError("r1", 9, 4), ["r1", "event 9", "1 to 4"]),
        (BlobNotFoundError("sha256:x"), ["sha256:x", "blobs="]),
        (
            LimitExceededError("An event", limit=5, found=6, setting="max_event_bytes"),
            ["An event", "6", "5", "Limits(max_event_bytes="],
        ),
        (
            RedactedStateError(
                ["CustomEvent.data.a", "CustomEvent.data.b"], marker="[redacted: x]"
            ),
            ["CustomEvent.data.a", "1 more", "[redacted: x]", "redactor="],
        ),
        (UnknownEventTypeError("a.b", known=1, written=2), ["'a.b'", "too old", "Upgrade"]),
        (MissingDependencyError("PostgreSQL", "postgres"), ["pip install 'turnledger[postgres]'"]),
    ],
)
def test_an_error_says_what_was_asked_what_was_found_and_what_to_do(
    error: TurnledgerError, parts: list[str]
) -> None:
    """In its message, for people."""
    for part in parts:
        assert part in str(error)


def test_an_unknown_outcome_carries_the_drafts_to_retry() -> None:
    """For programs."""
    assert StoreUnavailableError("gone", drafts=[1, 2]).drafts == (1, 2)
    assert StoreUnavailableError("gone").drafts == ()


class SilentError(Exception):
    """Can't be put into words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "message", "text"),
    [
        (ValueError("no file"), "no file", "ValueError: no file"),
        (ValueError(), "", "ValueError"),
        (SilentError(), "(it can't say why)", "SilentError (it can't say why)"),
        (ValueError("half \ud800 pair"), "half ? pair", "ValueError: half ? pair"),
        (KeyError("a"), "'a'", "KeyError: 'a'"),
    ],
)
def test_any_error_has_a_text_that_can_be_stored(error: Exception, message: str, text: str) -> None:
    """Whatever its `__str__` does."""
    assert error_message(error) == message
    assert error_text(error) == text


def test_a_long_text_of_an_error_is_cut() -> None:
    """Some errors hold whole pages."""
    assert error_message(ValueError("x" * 30_000)) == "x" * 20_000
    assert error_text(ValueError("x" * 30_000)) == "ValueError: " + "x" * 19_988
