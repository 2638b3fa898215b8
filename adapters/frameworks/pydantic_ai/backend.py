"""`StepOperationBackend`: runs one operation of pydantic-ai as one durable step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pydantic_ai.durable_exec import (
    DurableOperationId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
)
from pydantic_ai.exceptions import ModelAPIError, ToolFailed

from turnledger.adapters.frameworks.pydantic_ai import model_errors
from turnledger.adapters.frameworks.pydantic_ai.model_replies import complete
from turnledger.adapters.frameworks.pydantic_ai.operations import Asked
from turnledger.adapters.frameworks.pydantic_ai.tool_results import payload_of, recorded_result
from turnledger.ledger import InvalidInputError
from turnledger.runtime.agent.tools.tool import OnInterrupt
from turnledger.runtime.loop.perform.tool_in_doubt import UNKNOWN
from turnledger.runtime.steps import (
    OpenStep,
    StepOutcome,
    StepScope,
    current_scope,
    off_loop,
    raise_outcome,
)
from turnledger.runtime.steps.record.recorder import DECIDED_FAILED, UNKNOWN_OUTCOME
from turnledger.runtime.steps.scope import raise_failure

POLICY = "on_interrupt"
_POLICIES = ("retry", "fail", "ask")
Raises = tuple[type[Exception], ...]


class NotJsonError(Exception):
    """The result of an operation has no JSON form."""


class StepOperationBackend(JournalCallableOperationBackend[OnInterrupt]):
    """Runs operations as steps of the current run."""

    def __init__(self, *, agent: str, default_model_id: str | None, raises: Raises) -> None:
        """Make a backend.

        Args:
            agent: The agent's name.
            default_model_id: The agent's default model, if it is known by an id.
            raises: Error classes of tools that are raised again as themselves.
        """
        config = RoleBasedOperationConfig[OnInterrupt](
            model="retry", event="retry", capability="retry", tool="retry", resolve_tool=policy_of
        )
        super().__init__(agent_name=agent, default_model_id=default_model_id, config=config)
        self._agent, self._raises = agent, (*raises, *model_errors.OF_TEXT)

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: OnInterrupt,
    ) -> object:
        """Perform an operation as a step, or answer it from the record.

        Args:
            operation_id: Its typed id.
            name: pydantic-ai's name for it.
            body: Performs it; gives its result as JSON data.
            cache_key: Its inputs.
            config: Its policy.
        """
        scope = current_scope()
        if scope is None:
            return await body()
        asked = Asked(self._agent, scope, operation_id, name, cache_key, config, self._raises)
        begun = await asked.begin()
        if isinstance(begun, StepOutcome):
            return _answer(asked, begun)
        try:
            with scope.inside(begun):
                payload = await body()
        except NotJsonError as error:
            ended = partial(begun.unrecordable, str(error))
        except Exception as error:
            await off_loop(partial(_raise_failure, scope, begun, error))
        except BaseException:
            begun.leave()
            raise
        else:
            ended = partial(_complete, asked, begun, payload)
        return _answer(asked, await off_loop(ended))


def policy_of(operation_id: Any, tool: Any, tool_name: str) -> OnInterrupt:
    """The policy in a tool's metadata: `metadata={"on_interrupt": "ask"}`.

    Args:
        operation_id: What is done with the tool; only a call has a policy.
        tool: The tool, if there is one.
        tool_name: Its name.
    """
    if tool is None or not isinstance(operation_id, ToolsetCallToolId):
        return "retry"
    policy: OnInterrupt = (tool.tool_def.metadata or {}).get(POLICY, "retry")
    if policy not in _POLICIES:
        raise InvalidInputError(
            f"Invalid {POLICY} {policy!r} in the metadata of tool {tool_name!r}: expected one of "
            f"{', '.join(_POLICIES)}."
        )
    return policy


def _complete(asked: Asked, step: OpenStep, payload: object) -> StepOutcome:
    if step.spec.kind == "model":
        return complete(asked, step, payload)
    return step.complete(recorded_result(payload) if asked.is_tool_call else payload)


def _answer(asked: Asked, outcome: StepOutcome) -> object:
    """The result of an operation, the same in the live run and on every resume."""
    if asked.is_tool_call and outcome.error_type == UNKNOWN_OUTCOME:
        raise ToolFailed(UNKNOWN)
    if asked.is_tool_call and outcome.error_type == DECIDED_FAILED:
        raise ToolFailed(outcome.error_message)
    error = model_errors.made_again(outcome)
    if error is not None:
        raise error
    raise_outcome(outcome, asked.raises)
    return payload_of(outcome.value) if asked.is_tool_call else outcome.value


def _raise_failure(scope: StepScope, step: OpenStep, error: Exception) -> None:
    """Record what an operation raised, and raise what a resume will raise too."""
    if isinstance(error, ModelAPIError) and step.spec.kind == "model" and not scope.recorder.halted:
        outcome = model_errors.fail(step, error)
        made = model_errors.made_again(outcome)
        if made is not None:
            raise made from error
        raise_outcome(outcome, step.spec.raises)
    raise_failure(scope, step, error)
