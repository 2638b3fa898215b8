"""The check of a run's prompt before it is recovered: it is the recorded one, or a choice is made.

It comes before the claim, so that nothing is written to a run that goes no further: the prompt is
made and rendered in a journal that has no claim and never commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from turnledger.ledger.events.types import PromptChoice
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.loop.context import EvaluationOptions
from turnledger.runtime.loop.evaluation import Evaluation
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.loop.live_effects import LiveEffects
from turnledger.runtime.loop.run import made_prompt
from turnledger.runtime.session.session import Session

# What the caller of `recover` says about a prompt that differs from the recorded one.
OnChangedPrompt: TypeAlias = Literal["check", "recorded", "accept"]
CHOICES: dict[OnChangedPrompt, PromptChoice] = {
    "check": "",
    "recorded": "recorded",
    "accept": "accepted",
}


@dataclass(frozen=True)
class CheckedPrompt:
    """A prompt that a run can go on with.

    Attributes:
        version: The version of the run at which it was checked.
        prompt: The prompt; None if there is nothing to check, and it is not made yet.
        choice: How the run goes on, if the prompt differs from the recorded one.
    """

    version: int
    prompt: Prompt[Any] | None = None
    choice: PromptChoice = ""


def check_prompt(
    host: LoopHost,
    session: Session,
    journal: Journal,
    request: Any,
    asked: OnChangedPrompt,
    prompt: Prompt[Any] | None = None,
) -> CheckedPrompt:
    """Compare the prompt with that of the evaluation that goes on, if there is one.

    Args:
        host: The loop.
        session: Its session, attached to the journal or not.
        journal: The run. Nothing is added to it.
        request: The run's request.
        asked: What to do if the prompt differs.
        prompt: The prompt, if it was made already.

    Raises:
        PromptMismatch: It differs, and nothing was chosen; or the recorded text was, and the
            program lacks tools of it.
    """
    known = journal.known
    found = known.progress.evaluation
    if found is None or not found.goes_on or known.prompt_base is None:
        return CheckedPrompt(known.version, prompt)
    if prompt is None:
        prompt = made_prompt(host, session, journal, request)[0]
    options = EvaluationOptions(
        bus=host.bus, overrides_store=host.overrides_store, overrides_tag=host.overrides_tag
    )
    evaluation = Evaluation(host.adapter, prompt, session, options, LiveEffects(), journal)
    mismatch = evaluation.mismatch()
    if mismatch is None:
        return CheckedPrompt(known.version, prompt)
    if asked == "check":
        raise mismatch
    if asked == "recorded":
        evaluation.recorded_prompt()
    return CheckedPrompt(known.version, prompt, CHOICES[asked])
