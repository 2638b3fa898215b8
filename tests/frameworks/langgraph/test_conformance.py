"""LangGraph's conformance suite for checkpointers, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from langgraph.checkpoint.conformance import checkpointer_test, validate

from tests.conformance.harness import StoreUnderTest
from turnledger.langgraph import TurnledgerSaver


def test_every_capability_conforms_on_every_store(store: StoreUnderTest) -> None:
    """The saver does all that LangGraph asks of a checkpointer, whatever store is beneath it."""

    @checkpointer_test(name="TurnledgerSaver")
    async def made() -> AsyncIterator[TurnledgerSaver]:
        yield TurnledgerSaver(store.open())

    report = asyncio.run(validate(made))
    failures = {name: found.failures for name, found in report.results.items() if found.failures}
    assert failures == {}
    assert report.passed_all_base()
