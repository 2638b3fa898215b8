"""The runtime's errors: under the one root, as the docstring draws them, and what they say."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from inspect import getmembers, isclass

import pytest

from turnledger import runtime
from turnledger.ledger.errors import TurnledgerError
from turnledger.runtime import errors
from turnledger.runtime.errors import (
    BudgetExceededError,
    CheckpointCorruptedError,
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConversationNotFound,
    DeadlineExceededError,
    DecisionRequiredError,
    PromptEvaluationError,
    PromptMismatch,
    PromptRenderError,
    RecoveryError,
    RequestTypeMismatchError,
    SnapshotRestoreError,
    ThrottledError,
)


def drawn() -> dict[str, tuple[str, ...]]:
    """Each error of the docstring's tree with its bases, the one of the tree first."""
    bases: dict[str, tuple[str, ...]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r" {4}([│├└─ ]*)([A-Z]\w+)(?: \((\w+)\))?", line)
        if match:
            depth = len(match[1]) // 4
            del above[depth:]
            parent = above[-1] if above else "Exception"
            bases[match[2]] = (parent, *([match[3]] if match[3] else []))
            above.append(match[2])
    return bases


def test_the_tree_of_the_runtimes_errors_is_the_drawn_one() -> None:
    """Every class, under its parent, with its other base."""
    real = {
        name: tuple(base.__name__ for base in kind.__bases__)
        for name, kind in getmembers(errors, isclass)
        if kind.__module__ == errors.__name__ and issubclass(kind, Exception)
    }
    assert drawn() == {"TurnledgerError": ("Exception",), **real}
    assert len(real) > 20


def test_every_error_of_the_runtime_is_exported() -> None:
    """From the package itself."""
    for name in drawn():
        if name != "TurnledgerError":
            assert issubclass(getattr(runtime, name), TurnledgerError)
            assert name in runtime.__all__


@pytest.mark.parametrize("kind", [ConversationNotFound, PromptMismatch, SnapshotRestoreError])
def test_resume_errors_are_value_errors(kind: type[Exception]) -> None:
    """S0-20, X8: the seed's code raises ValueError where it names these."""
    assert issubclass(kind, ValueError)


def test_recovery_errors_are_runtime_errors_and_a_waiting_run_is_none() -> None:
    """S2-22: and whoever abandons what can't be recovered leaves a waiting run alone."""
    assert issubclass(RecoveryError, RuntimeError)
    for kind in (
        CheckpointNotFoundError,
        CheckpointExpiredError,
        CheckpointCorruptedError,
        RequestTypeMismatchError,
    ):
        assert issubclass(kind, RecoveryError)
    assert not issubclass(DecisionRequiredError, RecoveryError)


def test_an_evaluations_error_says_the_prompt_the_phase_and_the_payload() -> None:
    """S4-3: as attributes, for programs."""
    error = PromptEvaluationError(
        "no reply", prompt_name="reviews/code", phase="request", provider_payload={"status": 500}
    )
    assert (error.message, error.prompt_name, error.phase) == (
        "no reply",
        "reviews/code",
        "request",
    )
    assert error.provider_payload == {"status": 500}
    assert "reviews/code (request): no reply" in str(error)


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (
            BudgetExceededError("max_total_tokens", allowed=5, used=9),
            ["max_total_tokens", "5", "9"],
        ),
        (ConversationNotFound(), ["no conversation", "resume=True"]),
        (PromptMismatch("key", recorded="a", found="b"), ["key", "'a'", "'b'"]),
        (DecisionRequiredError("r1", ["c1"]), ["r1", "c1", "turnledger resolve r1"]),
        (
            DecisionRequiredError("r1", ["c1"], approvals=["c1"]),
            ["r1", "turnledger pending r1", "turnledger resolve r1 c1 --approve", "--deny TEXT"],
        ),
        (CheckpointNotFoundError("r1"), ["r1"]),
        (
            CheckpointExpiredError("r1", age=timedelta(days=2), limit=timedelta(days=1)),
            ["r1", "2 days", "1 day", "max_resume_age"],
        ),
        (RequestTypeMismatchError("r1", expected="A", found="B"), ["r1", "'A'", "'B'"]),
        (PromptRenderError("why", prompt="a/b", section="c.d"), ["'a/b'", "'c.d'", "why"]),
    ],
)
def test_an_error_of_the_runtime_says_what_was_found_and_what_to_do(
    error: TurnledgerError, parts: list[str]
) -> None:
    """In its message, for people."""
    for part in parts:
        assert part in str(error)


def test_limits_carry_what_a_program_may_want() -> None:
    """The moment, the seconds to wait."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert DeadlineExceededError(expires_at=moment).expires_at == moment
    assert DeadlineExceededError("too late").expires_at is None
    assert ThrottledError("slow down", retry_after=2.5, attempts=3).retry_after == 2.5
