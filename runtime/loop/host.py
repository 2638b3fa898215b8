"""`LoopHost`: everything that running one run needs of the loop that it belongs to.

`MainLoop.loop_host` makes one for live work. A replay takes that one and replaces what must not be
reached again: the bus, the resources, the checkpoint files, and the effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from turnledger.ledger import Clock, Ledger, RunStarted
from turnledger.runtime.agent.prompts.override_texts import PromptOverridesStore
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.bus import EventBus
from turnledger.runtime.checkpoints.checkpoint import CheckpointBackend, RecoveryConfig
from turnledger.runtime.checkpoints.execution_state import ExecutionState
from turnledger.runtime.loop.context import Provider
from turnledger.runtime.loop.evaluation import Evaluate
from turnledger.runtime.loop.perform.prepare import prepare_resources
from turnledger.runtime.session.session import Session


@dataclass(frozen=True, kw_only=True)
class LoopHost:
    """A loop as a value: its code, its provider, and where it records.

    Attributes:
        evaluate: The adapter's own `evaluate`, or `evaluate_with` other effects than live ones.
        create_prompt: The user's prompt for a request.
        create_session: The user's session, with its messages recorded.
        resources: Makes or returns the resources of a run, by name.
        request_type: The type of the requests; None if it is not declared.
        ledger: Where runs are recorded; None if they live in memory only.
        recovery: None if there is neither a ledger nor a checkpoint backend.
        backend: Where checkpoints are saved besides the ledger; None if nowhere.
        lease: How long a claim lasts without a heartbeat.
        name: The name of the agent whose runs these are; empty if it has none.
        prepare: Lets the sections of a prompt put what they need into the resources of a new run.
        tool_timeout: Seconds for tools that have no time-out of their own.
        output_retries: How often the model is asked again for an output that can't be parsed.
        overrides_store: Has texts that replace those of the prompt; None if there is none.
        overrides_tag: Which of the store's texts new evaluations are begun with.
        needs_optimization: Whether a workspace digest is written before an evaluation begins.
        optimize: Has it written by a run of its own, for the prompt and its state.
        limited: Gives a run's first event with the limits that the run has.
    """

    adapter: Provider
    evaluate: Evaluate
    bus: EventBus
    clock: Clock
    create_prompt: Callable[[Any], Prompt[Any]]
    create_session: Callable[[], Session]
    resources: Callable[[], Mapping[str, Any]]
    request_type: Any
    ledger: Ledger | None
    recovery: RecoveryConfig | None
    backend: CheckpointBackend | None
    lease: timedelta
    name: str = ""
    prepare: Callable[[Prompt[Any], ExecutionState], None] = prepare_resources
    tool_timeout: float | None = None
    output_retries: int = 0
    overrides_store: PromptOverridesStore | None = None
    overrides_tag: str = "latest"
    needs_optimization: Callable[[Session], bool] = lambda session: False
    optimize: Callable[[Prompt[Any], ExecutionState], object] = lambda prompt, state: None
    limited: Callable[[RunStarted], RunStarted] = lambda started: started
