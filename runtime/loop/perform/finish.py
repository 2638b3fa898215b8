"""The end of an evaluation: the last reply as text or as parsed output, recorded and told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from turnledger.ledger import EvaluationFinished, Event, InvalidInputError, ToolMessageAmended
from turnledger.runtime.agent.schema.values import to_plain
from turnledger.runtime.errors import SchemaError
from turnledger.runtime.journal.loop_progress import EvaluationProgress
from turnledger.runtime.loop.events import PromptExecuted, PromptResponse

if TYPE_CHECKING:
    from turnledger.runtime.loop.evaluation import Evaluation

OutputT = TypeVar("OutputT")


def finish(evaluation: Evaluation[OutputT]) -> PromptResponse[OutputT]:
    """The answer that the last reply is; PromptEvaluationError if it is none."""
    progress = evaluation.progress
    if not progress.finished:  # an answer that stands is not taken back
        evaluation.check_limits("response")
    text: str | None = progress.reply_text
    output: OutputT | None = None
    plain: Any = None
    if evaluation.wants_output:
        output = _parsed(evaluation, progress)
        plain, text = to_plain(output), None
    if not progress.finished:
        _record_answer(evaluation, progress, plain)
    evaluation.journal.commit()
    response = PromptResponse(
        prompt_name=evaluation.prompt.label,
        text=text,
        output=output,
        tool_results=tuple(evaluation.invoked),
        provider_payload=evaluation.payload,
    )
    _publish_executed(evaluation, response)
    return response


def _parsed(evaluation: Evaluation[OutputT], progress: EvaluationProgress) -> OutputT:
    spec = evaluation.rendered.output
    assert spec is not None
    try:
        if progress.parsed is not None:
            return spec.parse_native(progress.parsed)
        return spec.parse(progress.reply_text)
    except SchemaError as error:
        evaluation.journal.commit()
        raise evaluation.failed(
            f"The reply is no {spec.container} as asked: {error}", "response"
        ) from error


def _record_answer(
    evaluation: Evaluation[OutputT], progress: EvaluationProgress, output: Any
) -> None:
    """The answer; the last tool that succeeded carries a parsed one, for the next turn."""
    answer: list[Event] = []
    tools = evaluation.journal.state.tools
    last = tools.last_completed(progress.evaluation_id) if output is not None else None
    if last is not None and last.message_id is not None:
        content = f"{last.result or ''}\n\n{msgspec.json.encode(output).decode()}".lstrip()
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
        evaluation.journal.add(*answer)
    except InvalidInputError as error:
        evaluation.journal.commit()
        raise evaluation.failed(f"The answer can't be recorded: {error}", "response") from error


def _publish_executed(evaluation: Evaluation[OutputT], response: PromptResponse[OutputT]) -> None:
    used = evaluation.journal.state.usage.total
    usage = type(used)(
        *(getattr(used, n) - getattr(evaluation.used_before, n) for n in used.__struct_fields__)
    )
    evaluation.bus.publish(
        PromptExecuted(
            ns=evaluation.rendered.ns,
            key=evaluation.rendered.key,
            name=evaluation.rendered.name,
            adapter=evaluation.adapter.name,
            session_id=evaluation.session.session_id,
            response=response,
            usage=usage,
        )
    )
