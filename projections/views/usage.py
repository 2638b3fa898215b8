"""View of token usage: totals, by model, and per turn."""

from __future__ import annotations

from typing import Any, ClassVar, final

import msgspec

from turnledger.ledger import ModelCallFailed, ModelReplied, Record, RunStarted, TokenUsage
from turnledger.ledger.arguments import explain_methods
from turnledger.projections.digests import canonical, combine
from turnledger.projections.persistent.hashed import HashedList
from turnledger.projections.persistent.lazy_json import lazy_list, plain_json
from turnledger.projections.projection import BulkProjection, Folding, Takes, as_json


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

    def plus(self, *used: TokenUsage) -> Tokens:
        return Tokens(
            self.calls + len(used),
            self.input_tokens + sum([one.input_tokens for one in used]),
            self.output_tokens + sum([one.output_tokens for one in used]),
            self.cached_tokens + sum([one.cached_tokens for one in used]),
            self.reasoning_tokens + sum([one.reasoning_tokens for one in used]),
            self.estimated_calls + sum([one.estimated for one in used]),
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
        # Replies of this fold, added up by model in `done`.
        self._state = state
        self._turns: list[TurnUsage] = []
        self._failed = state.failed_calls

    def _run_started(self, event: RunStarted, record: Record) -> None:
        self.__init__(UsageState())  # type: ignore[misc]

    def _replied(self, event: ModelReplied, record: Record) -> None:
        self._turns.append(
            TurnUsage(event.evaluation_id, event.turn, event.model, event.usage, event.call_id)
        )

    def _call_failed(self, event: ModelCallFailed, record: Record) -> None:
        self._failed += 1

    def done(self) -> UsageState:
        before, by_model = self._state, dict[str, list[TokenUsage]]()
        for turn in self._turns:
            by_model.setdefault(turn.model, []).append(turn.usage)
        models = dict(before.by_model)
        for model, used in by_model.items():
            models[model] = models.get(model, _NONE).plus(*used)
        total = before.total.plus(*(turn.usage for turn in self._turns))
        return UsageState(total, models, before.turns.extend(self._turns), self._failed)

    takes: ClassVar[Takes] = {
        RunStarted: _run_started,
        ModelReplied: _replied,
        ModelCallFailed: _call_failed,
    }


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
