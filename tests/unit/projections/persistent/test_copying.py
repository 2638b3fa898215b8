"""States are values: pickled and copied they are the same, however long they are."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.long_events import long_run
from tests.unit.projections.given import answers, asks, records, said
from tests.unit.projections.random_runs import beginnings, small_world
from turnledger.ledger import Event
from turnledger.projections import RunState
from turnledger.projections.digests import canonical
from turnledger.projections.persistent.containers import PersistentMap, Stack, in_order, pushed
from turnledger.projections.persistent.hashed import HashedMap


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


copies = pytest.mark.parametrize("copied", [pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
DEEP = 5 * sys.getrecursionlimit()


def shown(state: RunState) -> tuple[Any, ...]:
    return canonical(state.to_json()), state.state_digest, state.outcome_digest, state.version


@copies
def test_a_long_state_is_copied_whole(copied: Callable[[Any], Any]) -> None:
    """It goes on like the first."""
    all_records = records(list(long_run(3_000)))
    state = RunState.initial().after(all_records[:2_500])
    twin = copied(state)
    assert shown(twin) == shown(state)
    assert shown(twin.after(all_records[2_500:])) == shown(state.after(all_records[2_500:]))


@given(st.lists(small_world | beginnings, max_size=30), st.booleans())
def test_any_state_is_copied_whole(events: list[Event], asked: bool) -> None:
    """Whether or not its digest was asked for before, and amended later or not."""
    all_records = records(events)
    state = RunState.initial().after(all_records[:20])
    if asked:
        assert state.state_digest
    for twin in (pickled(state), copy.deepcopy(state)):
        assert shown(twin) == shown(state)
        assert shown(twin.after(all_records[20:])) == shown(state.after(all_records[20:]))


@copies
def test_nothing_is_too_deep_to_be_copied(copied: Callable[[Any], Any]) -> None:
    """One evaluation with thousands of turns, and thousands of evaluations."""
    one = [asks(0, "c"), answers(1, "c")]
    one += [said("user" if n % 2 else "assistant", "x", n + 2, turn=n) for n in range(DEEP)]
    many = [said("user", "x", n, evaluation_id=f"e{n}") for n in range(DEEP)]
    for events in (one, many):
        state = RunState.initial().after(records(events))
        assert copied(state).state_digest == state.state_digest
    stack: Stack[int] | None = None
    found: HashedMap[int] = HashedMap()
    for number in range(DEEP):
        stack, found = pushed(stack, number), found.put(str(number), number)
    assert in_order(copied(stack)) == list(range(DEEP))
    assert copied(found).digest == found.digest


@pytest.mark.process
@pytest.mark.parametrize("seed", ["0", "77"])
def test_another_process_reads_what_was_pickled(tmp_path: Path, seed: str) -> None:
    """Where text has other hashes, a map still finds its keys."""
    state = RunState.initial().after(records(list(long_run(1_500))))
    keys: PersistentMap[int] = PersistentMap()
    for number in range(200):
        keys = keys.put(f"key {number}", number)
    file = tmp_path / "state"
    file.write_bytes(pickle.dumps((state, keys)))
    code = (
        "import pickle, sys\n"
        "state, keys = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "assert [keys.get(f'key {n}') for n in range(200)] == list(range(200))\n"
        "print(state.state_digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == state.state_digest
