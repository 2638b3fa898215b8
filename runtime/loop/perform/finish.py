"""The end of an evaluation: the last reply becomes text or parsed output, and is recorded."""

from __future__ import annotations

from typing import Any, TypeVar
from uuid import uuid4

import msgspec

from turnledger.ledger import (
    EvaluationFinished,
    Event,
    InvalidInputError,
    OutputRejected,
    ToolMessageAmended,
)
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.errors import SchemaError
from turnledger.runtime.journal.loop_progress import EvaluationProgress
from turnledger.runtime.loop.context import EvaluationContext
from turnledger.runtime.loop.effects import Effects
from turnledger.runtime.loop.events import PromptExecuted, PromptResponse

OutputT = TypeVar("OutputT")


def finish(context: EvaluationContext[OutputT], effects: Effects) -> PromptResponse[OutputT] | None:
    """The response made of the last reply; None if it can't be parsed and is asked for again.

    PromptEvaluationError if it can't be parsed and the model was asked often enough.
    """
    progress = context.progress
    if not progress.finished:  # an answer that is recorded is not taken back
        effects.check_limits(context, "response")
    text: str | None = progress.reply_text
    output: OutputT | None = None
    plain: Any = None
    if context.wants_output:
        try:
            output = _parsed(context, progress)
        except SchemaError as error:
            if not progress.finished and effects.asks_again(context):
                _reject(context, progress, error)
                return None
            raise _failed(context, error) from error
        plain, text = to_plain(output), None
    if not progress.finished:
        _record_answer(context, progress, plain)
    context.journal.commit()
    response = PromptResponse(
        prompt_name=context.prompt.label,
        text=text,
        output=output,
        tool_results=tuple(context.notes.invoked),
        provider_payload=context.notes.payload,
    )
    _publish_executed(context, response)
    return response


def _parsed(context: EvaluationContext[OutputT], progress: EvaluationProgress) -> OutputT:
    spec = context.rendered.output
    assert spec is not None
    if progress.parsed is not None:
        return spec.parse_native(progress.parsed)
    return spec.parse(progress.reply_text)


def _failed(context: EvaluationContext[Any], error: SchemaError) -> Exception:
    spec = context.rendered.output
    assert spec is not None
    context.journal.commit()
    return context.failed(
        f"The reply is not the {spec.container} that was asked for: {error}", "response"
    )


def _reject(
    context: EvaluationContext[Any], progress: EvaluationProgress, error: SchemaError
) -> None:
    """Record what is wrong with the reply, and the message that tells the model.

    Both texts are compared by a replay: a changed word makes recorded runs diverge.
    """
    spec = context.rendered.output
    assert spec is not None
    reply = progress.reply_text if progress.parsed is None else progress.parsed
    rejected = OutputRejected(
        evaluation_id=progress.evaluation_id,
        message_id=progress.reply_id,
        asked_id=uuid4(),
        error=spec.problem(reply, error),
    )
    words = (
        f"Your answer is not the JSON {spec.container} that was asked for: {rejected.error}. "
        f"Answer again with the corrected JSON {spec.container} and nothing else."
    )
    message = context.later_message("user", words, message_id=rejected.asked_id)
    context.journal.add(rejected, message)


def _record_answer(
    context: EvaluationContext[OutputT], progress: EvaluationProgress, output: Any
) -> None:
    """Record the answer; a parsed one is added to the last tool message, for the next turn."""
    answer: list[Event] = []
    tools = context.journal.state.tools
    last = tools.last_completed(progress.evaluation_id) if output is not None else None
    if last is not None and last.message_id is not None:
        said = last.result if last.amended is None else last.amended
        content = f"{said or ''}\n\n{msgspec.json.encode(output).decode()}".lstrip()
        answer.append(
            ToolMessageAmended(
                message_id=last.message_id, content=content, reason="the parsed output"
            )
        )
    answer.append(
        EvaluationFinished(
            evaluation_id=progress.evaluation_id, message_id=progress.reply_id, output=output
        )
    )
    try:
        context.journal.add(*answer)
    except InvalidInputError as error:
        context.journal.commit()
        raise context.failed(f"The answer can't be recorded: {error}", "response") from error


def _publish_executed(
    context: EvaluationContext[OutputT], response: PromptResponse[OutputT]
) -> None:
    used = context.journal.state.usage.total
    usage = type(used)(
        *(getattr(used, n) - getattr(context.used_before, n) for n in used.__struct_fields__)
    )
    context.bus.publish(
        PromptExecuted(
            ns=context.rendered.ns,
            key=context.rendered.key,
            name=context.rendered.name,
            adapter=context.adapter.name,
            session_id=context.session.session_id,
            response=response,
            usage=usage,
        )
    )
