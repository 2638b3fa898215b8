"""`TurnledgerHooks`: starts and ends of model calls and tools beside a session's items.

The SDK saves a session after a turn. The hooks are awaited, so that a start is on disk before the
tool runs. They record, for the views; a run that shall be resumed within a turn needs steps.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from turnledger.adapters.frameworks.openai_agents.session import (
    KIND,
    EventIds,
    Place,
    TurnledgerSession,
    find_place,
    message_writer,
    session_start,
    turns_in,
)
from turnledger.adapters.frameworks.packages import framework
from turnledger.adapters.frameworks.sessions import append_new, session_run
from turnledger.ledger import (
    Event,
    Ledger,
    ModelCalled,
    ModelReplied,
    TokenUsage,
    ToolCallCompleted,
    ToolCallStarted,
)
from turnledger.runtime.steps import current_scope

with framework("agents", extra="openai-agents", integration="turnledger.openai_agents"):
    from agents import RunHooks


class TurnledgerHooks(RunHooks[Any]):
    """Run hooks that record model calls and tool calls in the run of a session.

        session = TurnledgerSession("chat-17", "sessions.db")
        await Runner.run(agent, "Pay.", session=session, hooks=TurnledgerHooks(session))

    Inside of a run they do nothing: the steps of a durable agent say the same.

    A tool that was running when the process died is a call that has started and not ended:
    `turnledger tools` and `pending` show it.

    Args:
        session: The session of the runs that these hooks are given to.
    """

    def __init__(self, session: TurnledgerSession) -> None:
        self._session = session
        # The turn of the model call that is under way, for each of the SDK's runs.
        self._turns: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._last = 0

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]
    ) -> None:
        """Record that a model is about to be asked."""
        model = agent.model if isinstance(agent.model, str) else ""

        def called(place: Place) -> Event:
            # Of several runs on one session, each call has a turn of its own.
            turn = self._turns[context] = self._last = max(self._last, place.turn) + 1
            return ModelCalled(
                evaluation_id=place.evaluation_id, turn=turn, request_digest="", model=model
            )

        await self._record(called)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        """Record the model's reply, and its usage: a call in it is on disk before it begins."""
        if current_scope() is not None:
            return
        turns, _ = turns_in(response.to_input_items())

        def work(ledger: Ledger) -> None:
            session_id = self._session.session_id
            run_id, version = session_run(ledger, session_id, KIND)
            writer, ids = message_writer(ledger, run_id, version), EventIds(ledger)
            said: list[Any] = [event for turn in turns for event in writer.write(turn)]
            last = said[-1].message if said else None
            replied = ModelReplied(
                evaluation_id=writer.evaluation_id,
                turn=self._turns.get(context, 0),
                message_id=last.message_id if last else None,
                usage=token_usage(response.usage),
                model=agent.model if isinstance(agent.model, str) else "",
            )
            group = [ids.draft(event) for event in (*said, replied)]
            append_new(ledger, run_id, session_start(session_id, run_id), [group], {})

        await self._session.store.call(work)
        self._session.replied.extend(turns)

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Record that a tool is about to run, before it does."""
        call_id = getattr(context, "tool_call_id", "")
        if call_id:
            await self._record(
                lambda place: ToolCallStarted(
                    evaluation_id=place.evaluation_id,
                    call_id=call_id,
                    name=tool.name,
                    arguments=getattr(context, "tool_arguments", "") or "",
                )
            )

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        """Record that a tool returned. Its result is in the session, with the turn."""
        call_id = getattr(context, "tool_call_id", "")
        if call_id:
            await self._record(
                lambda place: ToolCallCompleted(
                    evaluation_id=place.evaluation_id, call_id=call_id, name=tool.name
                )
            )

    async def _record(self, make: Any) -> None:
        if current_scope() is not None:
            return

        def work(ledger: Ledger) -> None:
            session_id = self._session.session_id
            run_id, version = session_run(ledger, session_id, KIND)
            event = make(find_place(ledger, run_id) if version else Place())
            group = [EventIds(ledger).draft(event)]
            append_new(ledger, run_id, session_start(session_id, run_id), [group], {})

        await self._session.store.call(work)


def token_usage(usage: Any) -> TokenUsage:
    """The SDK's usage of one model call as it is recorded."""
    return TokenUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens or 0,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens or 0,
    )
