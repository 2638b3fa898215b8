"""The check of a run's prompt before it is recovered: it is the recorded one, or a choice is made.

It comes before the claim, so that nothing is written to a run that goes no further: the prompt is
made and rendered in a journal that has no claim and never commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from turnledger.ledger import Ledger
from turnledger.ledger.events.types import PromptChoice
from turnledger.projections import RunState
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.journal.journal import Journal
from turnledger.runtime.loop.context import EvaluationOptions
from turnledger.runtime.loop.evaluation import Evaluation
from turnledger.runtime.loop.host import LoopHost
from turnledger.runtime.loop.live_effects import LiveEffects
from turnledger.runtime.loop.run import made_prompt
from turnledger.runtime.recovery.request_types import request_from
from turnledger.runtime.recovery.run_reader import RunReader
from turnledger.runtime.session.session import Session

# What the caller of `recover` says about a prompt that differs from the recorded one.
OnChangedPrompt: TypeAlias = Literal["check", "recorded", "accept"]
_CHOICES: dict[OnChangedPrompt, PromptChoice] = {
    "check": "",
    "recorded": "recorded",
    "accept": "accepted",
}


@dataclass(frozen=True)
class CheckedPrompt:
    """A prompt that a run can go on with.

    Attributes:
        prompt: The prompt; None if there is nothing to check, and it is not made yet.
        choice: How the run goes on, if the prompt differs from the recorded one.
    """

    prompt: Prompt[Any] | None = None
    choice: PromptChoice = ""


class PromptCheck:
    """Compares the program's prompt with that of the evaluation that goes on, if there is one.

    Each of its methods raises PromptMismatch if the prompt differs and nothing was chosen, or the
    recorded one was and the program lacks tools of it. create_prompt is called at most once.
    """

    def __init__(self, host: LoopHost, session: Session, asked: OnChangedPrompt) -> None:
        """Prepare it.

        Args:
            host: The loop.
            session: Its session; it need not be attached to the run.
            asked: What to do if the prompt differs.
        """
        self._host = host
        self._session = session
        self._asked: OnChangedPrompt = asked
        self._checked = CheckedPrompt()
        # The version of the run at which that was found.
        self._version: int | None = None

    def before_claim(self, ledger: Ledger, reader: RunReader) -> None:
        """Check it before the claim, if that can be done.

        Not if another worker has the run, or if it goes back to a state that is not restored yet.
        """
        run_id, started = reader.run_id, reader.known.progress.started
        if started is None or ledger.worker_of(run_id) is not None:
            return
        host, session = self._host, self._session
        known = reader.declare(session.declarations, again=True)
        if goes_back(known.run):
            return
        session.session_id = started.session_id or session.session_id
        request = request_from(
            str(run_id), host.request_type, started.request_type, started.request
        )
        # Without a claim, and nothing is ever added to it.
        journal = Journal(
            ledger, run_id, declarations=session.declarations, clock=host.clock, known=known
        )
        self.check(journal, request)

    def after_claim(self, journal: Journal, request: Any) -> CheckedPrompt:
        """The prompt once the run is claimed: it is checked again if the run went on since."""
        if goes_back(journal.state):
            # The evaluation is not restored yet: it finds itself whether the prompt differs.
            return CheckedPrompt(choice=_CHOICES[self._asked])
        version = journal.committed.version
        if self._version is not None and version <= self._version + 1:  # the claim is one event
            return self._checked
        return self.check(journal, request)

    def check(self, journal: Journal, request: Any) -> CheckedPrompt:
        """Check it in the run of this journal, to which nothing is added."""
        known, host, session = journal.known, self._host, self._session
        found, prompt = known.progress.evaluation, self._checked.prompt
        choice: PromptChoice = ""
        if found is not None and found.goes_on and known.prompt_base is not None:
            if prompt is None:
                prompt = made_prompt(host, session, journal, request)[0]
            choice = self._choice(prompt, journal)
        self._checked, self._version = CheckedPrompt(prompt, choice), known.version
        return self._checked

    def _choice(self, prompt: Prompt[Any], journal: Journal) -> PromptChoice:
        host = self._host
        options = EvaluationOptions(
            bus=host.bus, overrides_store=host.overrides_store, overrides_tag=host.overrides_tag
        )
        evaluation = Evaluation(
            host.adapter, prompt, self._session, options, LiveEffects(), journal
        )
        mismatch = evaluation.mismatch()
        if mismatch is None:
            return ""
        if self._asked == "check":
            raise mismatch
        if self._asked == "recorded":
            evaluation.recorded_prompt()
        return _CHOICES[self._asked]


def goes_back(state: RunState) -> bool:
    """Whether a run goes back to a checkpoint that a user saved."""
    latest = state.checkpoints.latest
    return latest is not None and latest.stored is not None
