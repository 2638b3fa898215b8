"""Prepares the resources of a run that starts: sections put in what their tools need."""

from __future__ import annotations

from typing import Any

from turnledger.ledger.errors import error_message
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.errors import PromptEvaluationError

# `RunFailed.step` of a run that ended here.
PREPARE = "prepare"


def prepare_resources(prompt: Prompt[Any], state: ExecutionState) -> None:
    """Call `prepare` of all sections; PromptEvaluationError if one fails."""
    for _, _, section in prompt.template.walk():
        try:
            section.prepare(state.resources)
        except Exception as error:
            raise PromptEvaluationError(
                state.session.journal.ledger.redact_text(error_message(error)),
                prompt_name=prompt.label,
                phase="request",
                step=PREPARE,
            ) from error
