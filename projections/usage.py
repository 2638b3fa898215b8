"""What a run used: tokens by model, and per turn. Sums, never replacements."""

from __future__ import annotations

from typing import Any, final

import msgspec

from ledger import ModelCallFailed, ModelReplied, Record, RunStarted, TokenUsage
from projections.persistent import HashedList, HashedMap
from projections.projection import Projection, as_json
from projections.running_hash import canonical, combine


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """A sum of model calls."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

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
        )


class TurnUsage(msgspec.Struct, frozen=True, gc=False):
    """What one model reply used."""

    evaluation_id: str
    turn: int
    model: str
    usage: TokenUsage


@final
class UsageState(msgspec.Struct, frozen=True):
    """The sums so far."""

    total: Tokens = Tokens()
    by_model: HashedMap[Tokens] = HashedMap()
    turns: HashedList[TurnUsage] = HashedList("turns")
    failed_calls: int = 0


class Usage(Projection[UsageState]):
    """Adds up what model replies say that they used."""

    name = "usage"
    reads = (RunStarted, ModelReplied, ModelCallFailed)

    def initial(self) -> UsageState:
        return UsageState()

    def apply(self, state: UsageState, record: Record) -> UsageState:
        event = record.event
        if isinstance(event, ModelReplied):
            model = event.model
            return UsageState(
                state.total.plus(event.usage),
                state.by_model.put(
                    model, (state.by_model.get(model) or Tokens()).plus(event.usage)
                ),
                state.turns.append(TurnUsage(event.evaluation_id, event.turn, model, event.usage)),
                state.failed_calls,
            )
        if isinstance(event, ModelCallFailed):
            return msgspec.structs.replace(state, failed_calls=state.failed_calls + 1)
        return self.initial()

    def to_json(self, state: UsageState) -> Any:
        return {
            "total": _json(state.total),
            "by_model": {model: _json(tokens) for model, tokens in state.by_model.items()},
            "turns": [
                {
                    "evaluation_id": turn.evaluation_id,
                    "turn": turn.turn,
                    "model": turn.model,
                    **_json(Tokens().plus(turn.usage)),
                }
                for turn in state.turns
            ],
            "failed_calls": state.failed_calls,
        }

    def digest(self, state: UsageState) -> bytes:
        return combine(
            "usage",
            canonical(state.total),
            state.by_model.digest,
            state.turns.digest,
            b"%d" % state.failed_calls,
        )


def _json(tokens: Tokens) -> dict[str, int]:
    return {**as_json(tokens), "total_tokens": tokens.total_tokens}
