"""ToolContext: what a tool's handler may use beside its parameters.

It refers to prompts, which hold tools, so it is in a module above both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnledger.runtime.agent.models.limits import Deadline
from turnledger.runtime.agent.prompts.prompt import Prompt
from turnledger.runtime.agent.prompts.render import RenderedPrompt
from turnledger.runtime.bus import EventBus


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The call, the prompt, the session and the limits of the tool call that is running.

    Attributes:
        call_id: The same when an interrupted call runs again, so it can be an idempotency key.
        is_resume: Whether this is such a repeated run.
        prompt: The prompt that is evaluated.
        rendered_prompt: The same prompt as it was sent to the model.
        adapter: The provider adapter; untyped, so that handlers need not import it.
        session: The session; untyped for the same reason.
        event_bus: The bus of the evaluation.
        deadline: When the evaluation has to end.
        resources: The resources of the loop, by name.
    """

    call_id: str = ""
    is_resume: bool = False
    prompt: Prompt[Any] | None = None
    rendered_prompt: RenderedPrompt[Any] | None = None
    adapter: Any = None
    session: Any = None
    event_bus: EventBus | None = None
    deadline: Deadline | None = None
    resources: Any = None
