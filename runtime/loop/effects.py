"""Where a loop's answers come from: the world, or somebody who knows them.

A live loop asks the provider and runs the tools. A loop that is run again asks what is here:
the same loop, with another way to perform its effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from turnledger.projections import ToolCallView
from turnledger.runtime.agent.models.request import Reply, Request
from turnledger.runtime.agent.models.retry import FailedAttempt
from turnledger.runtime.errors import EvaluationPhase

if TYPE_CHECKING:
    from turnledger.runtime.loop.evaluation import Evaluation


class Asking(Protocol):
    """One turn of a model, as often as it has to be asked for."""

    def reply(self, attempt: int) -> Reply | None:
        """The reply to an attempt, by its number in the evaluation; what it raises failed.

        None is one that is recorded already.
        """
        ...

    def through(
        self, attempt: Callable[[int], None], failed: Callable[[FailedAttempt], None]
    ) -> None:
        """Make attempts, from 1 on, until one gets through or there is no use."""
        ...


class Answers(Protocol):
    """Somebody who knows the answers, instead of the world."""

    def begin(self, evaluation: Evaluation[Any]) -> None:
        """An evaluation is about to run."""
        ...

    def asking(self, evaluation: Evaluation[Any], request: Request) -> Asking:
        """How the model is asked for a turn."""
        ...

    def run_tools(self, evaluation: Evaluation[Any], calls: Sequence[ToolCallView]) -> None:
        """What running these calls comes to."""
        ...

    def check_limits(self, evaluation: Evaluation[Any], phase: EvaluationPhase) -> None:
        """PromptEvaluationError where time or tokens are used up."""
        ...
