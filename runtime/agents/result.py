"""`RunResult`: what a run of an agent came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from turnledger.ledger import InnerMessage
from turnledger.projections.views.usage import Tokens
from turnledger.runtime.loop.events import PromptResponse
from turnledger.runtime.session.session import Session

OutputT = TypeVar("OutputT")


@dataclass(frozen=True)
class RunResult(Generic[OutputT]):
    """A completed run of an agent.

    Attributes:
        run_id: The run. `agent.run(..., continues=run_id)` goes on with the conversation.
        text: The model's last reply, as it wrote it.
        output: The reply as the agent's output type; without one, the text.
        usage: The tokens that the run used.
        session: The state, by type: `session[Cart].latest()`.
    """

    run_id: UUID
    text: str
    output: OutputT
    usage: Tokens
    session: Session

    @property
    def messages(self) -> tuple[InnerMessage, ...]:
        """The whole conversation, earlier turns of the chat included, the oldest first."""
        return self.session.select_all(InnerMessage)


def result_of(response: PromptResponse[OutputT], session: Session) -> RunResult[OutputT]:
    """The result of a run that a loop has brought to its end."""
    known = session.journal.known
    evaluation = known.progress.evaluation
    text = evaluation.reply_text if evaluation is not None else response.text or ""
    output: OutputT = response.output if response.output is not None else text  # type: ignore[assignment]
    assert response.run_id is not None
    return RunResult(
        run_id=response.run_id,
        text=text,
        output=output,
        usage=known.run.usage.total,
        session=session,
    )
