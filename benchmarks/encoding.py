"""What a provider's payload costs: all of a long history at once, and one more turn of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.measuring import Figure, Result, samples_ratio
from benchmarks.workload import conversation
from turnledger.adapters.providers.registry import FORMATS, wire_of
from turnledger.adapters.providers.wire import WireFormat
from turnledger.ledger import NEW, Ledger, Record, new_run_id
from turnledger.projections import (
    ChatTurn,
    MessageHistory,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.projection import fold_together
from turnledger.projections.views.conversation import Conversation
from turnledger.runtime import Request

MESSAGES = 5_000
SHORT = 50
ROUNDS = 15
TURNS = 200


def measure(folder: Path) -> Iterator[Result]:
    with Ledger.open("memory://") as ledger:
        records = _recorded(ledger)
    for name in FORMATS:
        yield Result(
            f"encode 5,000 messages for {name}, times msgspec",
            _whole(wire_of(name), records),
            3,
            at_least=False,
        )
    for name in FORMATS:
        yield Result(
            f"encode a further turn for {name}, at 5,000 times at 50",
            _further(wire_of(name), records),
            1.5,
            at_least=False,
        )


def _recorded(ledger: Ledger) -> list[Record]:
    run_id = new_run_id()
    events = list(conversation(MESSAGES))
    for start in range(0, len(events), 500):
        expected = ledger.head(run_id) if start else NEW
        ledger.append(run_id, events[start : start + 500], expected_version=expected)
    return list(ledger.read(run_id))


def _history(records: list[Record]) -> MessageHistory:
    projection = Conversation()
    return fold_together(records, (projection,), (projection.initial(),))[0].history()


def _request(history: MessageHistory, kept: dict[str, object]) -> Request:
    return Request(
        evaluation_id="e",
        turn=1,
        prompt_name="p",
        system=history.system,
        history=history,
        model="m",
        kept=kept,
    )


def _whole(wire: WireFormat, records: list[Record]) -> Figure:
    """A history as it comes from the ledger, encoded for the first time, against its JSON."""
    ratios, bare = [], []
    encoder = msgspec.json.Encoder()
    for _ in range(ROUNDS):
        history = _history(records)
        gc.collect()
        gc.freeze()
        started = time.perf_counter()
        payload = wire.encode(_request(history, {}))
        ours = time.perf_counter() - started
        started = time.perf_counter()
        encoder.encode(payload)
        bare.append(time.perf_counter() - started)
        ratios.append(ours / bare[-1])
        del payload
        gc.unfreeze()
    return Figure.of(ratios, bare)


def _further(wire: WireFormat, records: list[Record]) -> Figure:
    """One more reply and its result, and the request after it: processor time, the median."""
    long, short = _history(records), _history(records[:SHORT])
    return samples_ratio(_turn_costs(wire, long), _turn_costs(wire, short))


def _turn_costs(wire: WireFormat, history: MessageHistory) -> list[float]:
    kept: dict[str, object] = {}
    wire.encode(_request(history, kept))
    costs: list[float] = []
    gc.collect()
    gc.freeze()
    for number in range(TURNS):
        call = ToolUseBlock(f"more_{number}", "find_invoice", '{"month": "2026-03"}')
        history = history.add(ChatTurn("assistant", (TextBlock("One more."), call)))
        history = history.add(ChatTurn("user", (ToolResultBlock(call.call_id, "Found."),)))
        request = _request(history, kept)
        started = time.thread_time_ns()
        wire.encode(request)
        costs.append(time.thread_time_ns() - started)
    gc.unfreeze()
    return costs
