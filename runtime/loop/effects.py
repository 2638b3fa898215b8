"""Effects: everything in which a loop touches the world, behind one protocol.

Three classes implement it, and the loop does not know which one it has:

- `loop.live_effects.LiveEffects` calls the provider and the tools;
- `replaying.effects.RecordedEffects` reads what came of them from the record;
- `replaying.live.effects.PartlyLiveEffects` does one or the other, by part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from turnledger.projections import ToolCallView
from turnledger.runtime.agent.models.request import Reply, Request
from turnledger.runtime.agent.models.retry import FailedAttempt
from turnledger.runtime.errors import EvaluationPhase
from turnledger.runtime.loop.context import EvaluationContext

OutputT = TypeVar("OutputT")


class ModelTurn(Protocol):
    """One turn of a model, with as many attempts as it takes."""

    def reply(self, attempt: int) -> Reply | None:
        """The reply to an attempt, by its number in the evaluation; an error if it failed.

        None is a reply that is on record already, and is not to be recorded again.
        """
        ...

    def run_attempts(
        self, attempt: Callable[[int], None], failed: Callable[[FailedAttempt], None]
    ) -> None:
        """Call `attempt` with 1, 2, ... until one succeeds; raises the error of the last."""
        ...


class Effects(Protocol):
    """How an evaluation's effects come about."""

    def begin(self, context: EvaluationContext[OutputT]) -> EvaluationContext[OutputT]:
        """Called once before an evaluation runs; the context that it runs with."""
        ...

    def check_limits(
        self, context: EvaluationContext[Any], phase: EvaluationPhase, *, reserve: int = 0
    ) -> None:
        """PromptEvaluationError if time or tokens are used up.

        Args:
            context: The evaluation.
            phase: What would come next.
            reserve: Tokens that it uses at the least.
        """
        ...

    def model_turn(self, context: EvaluationContext[Any], request: Request) -> ModelTurn:
        """The turn that a request asks for; an error if the request can't be made."""
        ...

    def ask_approval(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        """Record whether each of these calls needs a person's approval before it runs.

        A call with invalid arguments is refused instead: it never runs.
        """
        ...

    def run_tools(self, context: EvaluationContext[Any], calls: Sequence[ToolCallView]) -> None:
        """Run these calls, or the first of them, and record what came of each."""
        ...

    def asks_again(self, context: EvaluationContext[Any]) -> bool:
        """Whether the model is asked again for an output that could not be parsed."""
        ...
