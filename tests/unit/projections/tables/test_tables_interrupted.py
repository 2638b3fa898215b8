"""Any interleaving of runs, any size of batches, interrupted anywhere: the rows of a plain fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables import (
    TABLES,
    breaks,
    calls,
    clean_fold,
    completes,
    doubts,
    fails,
    note,
    replies,
    starts,
)
from turnledger.ledger import ANY, NEW, Ledger, RunStarted, new_run_id
from turnledger.projections import Table, catch_up, rebuild, table_rows

FOR_EVER = 10**9
call_ids = st.sampled_from(["a", "b"])
tools = st.sampled_from(["search", "pay"])
turns = st.integers(1, 2)
events = st.one_of(
    st.builds(starts, call_ids, tools),
    st.builds(completes, call_ids, tools),
    st.builds(fails, call_ids, tools),
    st.builds(doubts, call_ids, tools),
    st.builds(calls, turns),
    st.builds(replies, turns, input_tokens=st.integers(0, 5)),
    st.builds(breaks, turns),
    st.builds(note),
)
runs = st.integers(0, 2)
appends = st.tuples(st.just("append"), runs, st.lists(events, min_size=1, max_size=6))
changes = st.one_of(
    appends,
    appends,
    st.tuples(st.just("fork"), runs, runs),
    st.tuples(st.just("continue"), runs, runs),
)
# What is done with the table, in batches of which size, and how far that gets.
works = st.one_of(
    st.tuples(st.just("catch up"), st.integers(1, 9), st.integers(6, 14) | st.integers(1, 40)),
    st.tuples(st.just("catch up"), st.integers(1, 9), st.just(FOR_EVER)),
    st.tuples(st.just("rebuild"), st.just(0), st.integers(1, 50) | st.just(FOR_EVER)),
)
rounds = st.lists(st.tuples(st.lists(changes, min_size=1, max_size=4), works), max_size=8)


class KilledError(BaseException):
    """Stands for the end of a process."""


class Fuse:
    """Lets a ledger's store work so many times, and then never again."""

    def __init__(self, ledger: Ledger, length: int) -> None:
        self._left = length
        self._methods = [
            *((ledger.store, name) for name in ("rows_after", "rows", "list_runs", "write")),
            *((ledger.store.derived, name) for name in ("watermark", "get", "page")),
        ]
        for owner, name in self._methods:
            setattr(owner, name, self._wrapped(getattr(owner, name)))

    def remove(self) -> None:
        for owner, name in self._methods:
            delattr(owner, name)

    def _wrapped(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def limited(*args: Any, **kwargs: Any) -> Any:
            self._burn()
            answer = method(*args, **kwargs)
            self._burn()  # it was done, but the answer is lost
            return answer

        return limited

    def _burn(self) -> None:
        self._left -= 1
        if self._left <= 0:
            raise KilledError


def check_what_is_shown(ledger: Ledger, table: Table[Any]) -> None:
    """At every moment a table is exactly what the events up to its position come to."""
    if ledger.derived_data(f"table:{table.name}").watermark():
        position, rows = table_rows(ledger, table)
        assert rows == clean_fold(ledger, table, position)


def interrupted(url: str, length: int, work: Callable[[Ledger], object]) -> None:
    """Do something through a handle that may break in the middle of it."""
    with Ledger.open(url) as ledger:
        fuse = Fuse(ledger, length)
        try:
            work(ledger)
        except KilledError:
            pass
        finally:
            fuse.remove()


def change(ledger: Ledger, current: list[UUID], kind: str, first: int, second: Any) -> None:
    if kind == "append":
        ledger.append(current[first], second, ANY)
    elif kind == "fork":
        current[second] = ledger.fork(current[first], ledger.head(current[first]))
    else:
        current[second] = ledger.continuation(current[first])


@settings(max_examples=120)
@given(st.sampled_from(TABLES), rounds, st.integers(1, 9))
def test_rows_are_those_of_a_plain_fold(
    table: Table[Any], given_rounds: list[Any], batch: int
) -> None:
    """However the events came, were taken in, and what was killed; a rebuild gives the same."""
    url = f"memory://{new_run_id()}"
    with Ledger.open(url) as ledger:
        current = [new_run_id() for _ in range(3)]
        for run in current:
            ledger.append(run, [RunStarted()], NEW)
        for wanted, (work, size, length) in given_rounds:
            for one in wanted:
                change(ledger, current, *one)
            if work == "rebuild":
                interrupted(url, length, lambda it: rebuild(it, table))
            else:
                interrupted(url, length, lambda it, size=size: catch_up(it, table, batch=size))
            check_what_is_shown(ledger, table)
        catch_up(ledger, table, batch=batch)
        expected = clean_fold(ledger, table)
        assert table_rows(ledger, table).rows == expected
        assert rebuild(ledger, table, verify=True).ok
        rebuild(ledger, table)
        assert table_rows(ledger, table).rows == expected
