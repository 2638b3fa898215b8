"""A run begun on one provider goes on on another: the history is nobody's in particular."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.conformance.providers.harness import PROVIDERS, UnderTest, under_test
from tests.matrices import cells
from tests.servers.serving import Answer, Call, replies
from tests.unit.runtime.evaluations import again, events, on, prompt_of, tool
from turnledger.ledger import EvaluationFinished, Ledger, ModelReplied

ANSWERS = (
    Answer("Two first.", calls=(Call("add", '{"n": 2}'),), thinking="A small sum."),
    Answer(calls=(Call("add", '{"n": 3}'), Call("add", '{"n": 4}')), thinking="Two more."),
    Answer("One more.", calls=(Call("add", '{"n": 5}'),), thinking="Nearly there."),
    Answer("Fourteen.", thinking="Done."),
)
# Where a provider has to be asked to think at all.
THINKING: dict[str, dict[str, Any]] = {
    "anthropic": {"thinking": {"type": "enabled", "budget_tokens": 1024}}
}

PAIRS = [pair for pair in product(PROVIDERS, repeat=2) if pair[0] != pair[1]]


class _StoppedError(BaseException):
    """The process is gone."""


def _stopping_after(adapter: Any, requests: int) -> Any:
    """An adapter whose process stops when so many requests were answered."""
    send, sent = adapter.send, []

    def sending(payload: Any, how: Any) -> Any:
        if len(sent) == requests:
            raise _StoppedError
        sent.append(payload)
        return send(payload, how)

    adapter.send = sending
    return adapter


def _adapter(provider: UnderTest) -> Any:
    return provider.adapter(**THINKING.get(provider.provider.name, {}))


@pytest.mark.parametrize(("pair", "requests"), cells(PAIRS, [1, 2, 3]))
def test_a_run_goes_on_with_another_provider(pair: tuple[str, str], requests: int) -> None:
    """For every ordered pair, stopped at every turn, with thoughts of the first on record."""
    first, second = pair
    prompt = prompt_of(tool())
    with Ledger.open("memory://") as ledger, under_test(first) as one, under_test(second) as other:
        one.tells(replies(*ANSWERS))
        other.tells(replies(*ANSWERS))
        session = on(ledger)
        with pytest.raises(_StoppedError):
            _stopping_after(_adapter(one), requests).evaluate(prompt, session=session)
        resumed = again(session)
        answer = _adapter(other).evaluate(prompt, session=resumed, resume=True)
        assert answer.text == "Fourteen."
        assert (one.server.refused, other.server.refused) == ([], [])
        assert len(other.server.asked) == 4 - requests
        assert len(events(resumed, ModelReplied)) == 4
        assert len(events(resumed, EvaluationFinished)) == 1


@pytest.mark.parametrize("second", PROVIDERS)
def test_a_run_goes_through_every_provider_in_turn(second: str) -> None:
    """One turn each, and back to the first: what each left behind troubles none of the others."""
    order = [second, *(name for name in PROVIDERS if name != second)]
    answers = [
        Answer(calls=(Call("add", f'{{"n": {number}}}'),), thinking=f"Thought {number}.")
        for number in range(1, len(order) + 1)
    ]
    prompt = prompt_of(tool())
    with Ledger.open("memory://") as ledger:
        session = on(ledger)
        for turn, name in enumerate(order):
            with under_test(name) as one:
                one.tells(replies(*answers))
                with pytest.raises(_StoppedError):
                    _stopping_after(_adapter(one), 1).evaluate(
                        prompt, session=session, resume=turn > 0
                    )
                assert one.server.refused == []
            session = again(session)
        with under_test(second) as one:
            one.tells(replies(*answers, Answer("Fifteen.")))
            answer = _adapter(one).evaluate(prompt, session=session, resume=True)
            assert answer.text == "Fifteen."
            assert one.server.refused == []
