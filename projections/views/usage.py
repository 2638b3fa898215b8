"""View of token usage: totals, by model, and per turn."""

from __future__ import annotations

from typing import Any, final

import msgspec

from turnledger.ledger import ModelCallFailed, ModelReplied, Record, RunStarted, TokenUsage
from turnledger.ledger.arguments import explain_methods
from turnledger.projections.digests import canonical, combine
from turnledger.projections.persistent.hashed import HashedList
from turnledger.projections.persistent.lazy_json import lazy_list, plain_json
from turnledger.projections.projection import BulkProjection, Folding, as_json


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """Tokens of several model calls, added up.

    `estimated_calls` are those whose provider sent no usage: their tokens were counted here.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_calls: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def plus(self, usage: TokenUsage) -> Tokens:
        return Tokens(
            self.calls + 1,
            self.input_tokens + usage.input_tokens,
            self.output_tokens + usage.output_tokens,
            self.cached_tokens + usage.cached_tokens,
            self.reasoning_tokens + usage.reasoning_tokens,
            self.estimated_calls + usage.estimated,
        )


class TurnUsage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens of one model reply: of an evaluation's turn, or to a durable step."""

    evaluation_id: str
    turn: int
    model: str
    usage: TokenUsage
    # Of a step; it has no evaluation.
    call_id: str = ""


@final
class UsageState(msgspec.Struct, frozen=True):
    """Token usage of a run; models in the order of their first use."""

    total: Tokens = Tokens()
    by_model: dict[str, Tokens] = {}
    turns: HashedList[TurnUsage] = HashedList("turns")
    failed_calls: int = 0


@explain_methods(skip=("apply", "apply_all", "begin"))
class Usage(BulkProjection[UsageState]):
    """Adds up the token usage of model replies."""

    name = "usage"
    reads = (RunStarted, ModelReplied, ModelCallFailed)

    def initial(self) -> UsageState:
        return UsageState()

    def begin(self, state: UsageState) -> _Folding:
        return _Folding(state)

    def to_json(self, state: UsageState) -> Any:
        return plain_json(self.lazy_json(state))

    def lazy_json(self, state: UsageState) -> Any:
        return {
            "total": _json(state.total),
            "by_model": {model: _json(tokens) for model, tokens in state.by_model.items()},
            "turns": lazy_list(state.turns, _turn_json),
            "failed_calls": state.failed_calls,
        }

    def digest(self, state: UsageState) -> bytes:
        return combine(
            "usage",
            canonical(_digested(state.total)),
            canonical({model: _digested(one) for model, one in state.by_model.items()}),
            state.turns.digest,
            b"%d" % state.failed_calls,
        )


class _Folding(Folding[UsageState]):
    """Token usage while records are folded."""

    def __init__(self, state: UsageState) -> None:
        self._total = state.total
        self._models = dict(state.by_model)
        self._before = state.turns
        self._turns: list[TurnUsage] = []
        self._failed = state.failed_calls

    def take(self, record: Record) -> None:
        event = record.event
        if isinstance(event, ModelReplied):
            usage, model = event.usage, event.model
            self._total = self._total.plus(usage)
            self._models[model] = self._models.get(model, _NONE).plus(usage)
            one = TurnUsage(event.evaluation_id, event.turn, model, usage, event.call_id)
            self._turns.append(one)
        elif isinstance(event, ModelCallFailed):
            self._failed += 1
        else:
            self.__init__(UsageState())  # type: ignore[misc]

    def done(self) -> UsageState:
        turns = self._before.extend(self._turns)
        return UsageState(self._total, self._models, turns, self._failed)


_NONE = Tokens()


def _digested(tokens: Tokens) -> dict[str, int]:
    """What a digest is of: without the count of estimates if it is 0, as before there were any."""
    counts = msgspec.structs.asdict(tokens)
    if not tokens.estimated_calls:
        del counts["estimated_calls"]
    return counts


def _turn_json(turn: TurnUsage) -> dict[str, Any]:
    return {
        "evaluation_id": turn.evaluation_id,
        "turn": turn.turn,
        **({"call_id": turn.call_id} if turn.call_id else {}),
        "model": turn.model,
        **_json(_NONE.plus(turn.usage)),
    }


def _json(tokens: Tokens) -> dict[str, int]:
    return {**as_json(tokens), "total_tokens": tokens.total_tokens}
