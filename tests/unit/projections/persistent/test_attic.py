"""What long states put away: it is the same when it is fetched, and the file is nobody's."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.long_events import declarations, long_run
from tests.unit.ledger.strategies import json_values
from tests.unit.projections.given import amends, answers, asks, records
from tests.unit.projections.random_runs import beginnings, messages, small_world
from tests.unit.projections.random_runs import declarations as random_declarations
from turnledger.ledger import Event
from turnledger.projections import RunState
from turnledger.projections.digests import canonical
from turnledger.projections.history import archive as past_histories
from turnledger.projections.history.archive import PastHistories
from turnledger.projections.history.message_history import MessageHistory
from turnledger.projections.persistent import hashed as persistent
from turnledger.projections.persistent import spill as attic
from turnledger.projections.persistent.hashed import HashedList
from turnledger.projections.persistent.sorted_view import InOrder
from turnledger.projections.persistent.spill import Away, AwayList, StateFileError, away

real_statvfs = os.fstatvfs


def open_files() -> set[str]:
    """The temporary files that this process has open."""
    links = (Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    found = {os.readlink(link) for link in links if link.is_symlink()}
    return {name for name in found if name.startswith(tempfile.gettempdir())}


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of another test is at hand or in the file that is written to, on whatever disk."""
    monkeypatch.setattr(attic, "_RESERVE", 4096)
    attic._latest.begin_anew()
    attic._let_go(0)
    yield
    attic._let_go(0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the last few items is put away."""
    put_away_early(monkeypatch)


def put_away_early(monkeypatch: pytest.MonkeyPatch, items: int = 2) -> None:
    monkeypatch.setattr(persistent, "_MOST", 2 * items)
    monkeypatch.setattr(persistent, "_LEFT", items)
    monkeypatch.setattr(persistent, "_PIECE", items)
    monkeypatch.setattr(past_histories, "_MOST_TURNS", 2 * items)
    monkeypatch.setattr(past_histories, "_TURNS_LEFT", items)
    monkeypatch.setattr(past_histories, "_AGAIN", items)


# --- the file -------------------------------------------------------------------------


def test_what_is_put_away_is_fetched_the_same() -> None:
    """Also when much else was fetched in between."""
    things = [Away((number, f"é{number}", {"n": [number, None]})) for number in range(100)]
    for _ in range(2):
        for number, thing in enumerate(things):
            assert thing.fetched() == (number, f"é{number}", {"n": [number, None]})


def test_the_file_has_no_name_and_goes_with_what_lies_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left in the folder, not even while it is used; nor is the file kept open."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    things = [Away("x" * 1000) for _ in range(3)]
    assert list(tmp_path.iterdir()) == []
    assert len(open_files()) == 1
    assert {thing.fetched() for thing in things} == {"x" * 1000}
    del things
    gc.collect()
    assert open_files() == set()
    assert Away("again").fetched() == "again"


def test_a_full_file_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that old ones can go one by one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(attic, "_FULL", 2500)
    things = [Away("x" * 1000) for _ in range(9)]
    assert len(open_files()) == 3
    del things[:3]
    gc.collect()
    assert len(open_files()) == 2
    assert things[-1].fetched() == "x" * 1000


def test_threads_put_away_and_fetch_at_once() -> None:
    """Nobody gets what is another's."""

    def work(name: int) -> bool:
        mine = [Away((name, number, "x" * number)) for number in range(200)]
        return all(
            thing.fetched() == (name, number, "x" * number) for number, thing in enumerate(mine)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_writes_where_its_parent_does_not() -> None:
    """Both go on from the same state, and each reads its own."""
    before = Away("before")
    child = os.fork()
    if not child:
        same = False
        try:
            mine = [Away(f"child {number}") for number in range(100)]
            same = [thing.fetched() for thing in mine] == [f"child {n}" for n in range(100)]
            same = same and before.fetched() == "before"
        finally:
            os._exit(0 if same else 1)  # whatever happened, this is no second test run
    ours = [Away(f"parent {number}") for number in range(100)]
    assert os.waitpid(child, 0)[1] == 0
    assert [thing.fetched() for thing in ours] == [f"parent {number}" for number in range(100)]


def no_room(*_: Any) -> int:
    raise OSError(28, "No space left on device")


def nearly_full(fd: int) -> os.statvfs_result:
    found = list(real_statvfs(fd))
    found[4] = 1  # block for those who are not root
    return os.statvfs_result(found)


def no_folder(**_: Any) -> Any:
    raise FileNotFoundError("No usable temporary directory found")


@pytest.mark.parametrize(
    ("module", "name", "fails", "why"),
    [
        (os, "pwrite", no_room, "No space left"),
        (os, "fstatvfs", nearly_full, "No space left"),
        (tempfile, "TemporaryFile", no_folder, "No usable temporary directory"),
    ],
    ids=["no room", "little room", "no folder"],
)
def test_where_nothing_can_be_written_all_stays_in_memory(
    few: None,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    fails: Callable[..., Any],
    why: str,
) -> None:
    """A state is never lost or refused for it."""
    monkeypatch.setattr(module, name, fails)
    with pytest.raises(OSError, match=why):
        Away(1)
    items: HashedList[int] = HashedList("test")
    for number in range(100):
        items = items.append(number)
    assert list(items) == list(range(100))
    assert not any(isinstance(piece, AwayList) for piece in items.pieces())
    folded = RunState.initial().after(records(list(long_run(120))))
    assert folded.history.to_list()


def test_what_can_not_be_written_stays_in_memory() -> None:
    """Values that pickle does not know are left alone."""
    things = [lambda: 1]
    assert away(things) is things


def test_a_file_that_can_not_be_read_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that the ledger has everything, and where to look."""
    thing, cut = Away("x"), Away("y")
    monkeypatch.setattr(os, "pread", no_room)
    with pytest.raises(StateFileError, match=r"TMPDIR.*fold the run again"):
        thing.fetched()
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    with pytest.raises(StateFileError, match="cut off"):
        cut.fetched()
    monkeypatch.undo()
    assert thing.fetched() == "x"
    os.pwrite(cut._file._file.fileno(), b"\xff", cut._start + cut._size // 2)
    with pytest.raises(StateFileError, match="not as it was written"):
        cut.fetched()
    cut._file._file.close()
    with pytest.raises(StateFileError, match="closed"):
        cut.fetched()


def test_a_state_can_be_looked_at_until_the_interpreter_ends() -> None:
    """Also by what was registered for its end before there was a state."""
    script = (
        "import atexit\n"
        "found = []\n"
        "atexit.register(lambda: print(found[0].fetched()))\n"
        "from turnledger.projections.persistent.spill import Away\n"
        "found.append(Away('still here'))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("still here\n", "")


# --- lists ----------------------------------------------------------------------------

fixture_is_fine = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


class Growth(msgspec.Struct):
    """One of the lists so far is gone on from, and perhaps asked for its digest before."""

    which: int
    items: list[Any]
    asked: bool


growths = st.lists(
    st.builds(Growth, st.integers(0, 100), st.lists(json_values, max_size=7), st.booleans()),
    max_size=25,
)


@fixture_is_fine
@given(growths)
def test_lists_that_are_put_away_are_the_lists_that_they_were(
    few: None, steps: list[Growth]
) -> None:
    """Whatever branches off from where: items, both ways and by place, and digests."""
    known: list[tuple[HashedList[Any], list[Any]]] = [(HashedList("test"), [])]
    for step in steps:
        ours, plain = known[step.which % len(known)]
        if step.asked:
            assert ours.digest
        longer = ours.extend(step.items)
        assert longer.goes_on_from(ours)
        known.append((longer, [*plain, *step.items]))
    for ours, plain in known:
        whole = HashedList[Any]("test", stays=True).extend(plain)
        assert (list(ours), len(ours), ours.digest) == (plain, len(plain), whole.digest)
        assert list(ours.backwards()) == plain[::-1]
        assert [ours[place] for place in range(len(plain))] == plain
        assert ours.last == (plain[-1] if plain else None)
        for other, others in known:
            if ours.goes_on_from(other):
                assert plain[: len(others)] == others


def in_memory(items: HashedList[Any]) -> int:
    return sum(len(piece) for piece in items.pieces() if not isinstance(piece, AwayList))


def test_a_long_list_has_few_items_in_memory(few: None) -> None:
    """However it grew: one by one, by many at once, or both."""
    one: HashedList[int] = HashedList("test")
    for number in range(200):
        one = one.append(number)
        assert in_memory(one) <= 3
    many = HashedList[int]("test").extend(range(100)).extend(range(100, 199)).append(199)
    for items in (one, many):
        assert in_memory(items) <= 3
        assert list(items) == list(range(200))
    assert len(one.pieces()) <= 104


@pytest.mark.parametrize("first", [range(4), range(5), range(1000)], ids=len)
def test_a_list_looks_for_what_to_put_away_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch, first: range
) -> None:
    """Not at every item after a large piece, nor for every list that goes on from the same."""
    put_away_early(monkeypatch, 10)
    looked = []
    look = HashedList._put_away

    def counted(items: HashedList[Any], near: int) -> int:
        looked.append(near)
        return look(items, near)

    monkeypatch.setattr(HashedList, "_put_away", counted)
    items = HashedList[int]("test").extend(first)
    for number in range(100):
        items = items.append(number)
    assert len(looked) <= 11
    while items._near != 19:
        items = items.append(0)
    looked.clear()
    branches = [items.append(number) for number in range(50)]
    assert len(looked) == 1
    assert [list(branch)[-1] for branch in branches] == list(range(50))


def test_those_who_go_through_lists_side_by_side_read_each_piece_once(
    few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: each holds the piece at which it is."""
    lists = [HashedList[int]("test") for _ in range(3 * attic._AT_HAND)]
    for number in range(41):
        lists = [items.append(number) for items in lists]
    ways = [iter(InOrder(items, (), int)) for items in lists]
    attic._let_go(0)
    read = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *a: read.append(a) or pread(*a))
    for number in range(41):
        assert [next(way) for way in ways] == [number] * len(ways)
    assert len(read) <= len(lists) * 20


def test_a_programs_own_values_stay_the_objects_that_they_are(few: None) -> None:
    """A list that stays never puts anything away."""
    things = [object() for _ in range(50)]
    items: HashedList[object] = HashedList("test", stays=True)
    for thing in things:
        items = items.append(thing)
    assert all(one is other for one, other in zip(items, things, strict=True))


# --- histories ------------------------------------------------------------------------


def test_past_histories_are_put_away_but_for_the_last(few: None) -> None:
    """Each is equal when it is asked for, and the digest is that of all."""
    past, kept = PastHistories(), {}
    for number in range(30):
        history = MessageHistory.new().add_user_text(f"{number}")
        past, kept[f"e{number}"] = past.put(f"e{number}", history), history
    assert list(past) == list(kept)
    assert {name: past.get(name) for name in past} == kept
    assert dict(past.items()) == kept
    in_memory = sum(past.get(name) is history for name, history in kept.items())
    assert 1 <= in_memory <= 4
    other = PastHistories()
    for name, history in reversed(kept.items()):
        other = other.put(name, history)
    assert past.digest == other.digest
    assert past.remove("e3").get("e3") is None
    assert past.get("e3") == kept["e3"]


# --- states ---------------------------------------------------------------------------


def shown(state: RunState) -> tuple[Any, ...]:
    """All that there is to see of a state."""
    evaluations = (*state.conversation.earlier, state.conversation.evaluation_id)
    return (
        canonical(state.to_json()),
        state.state_digest,
        state.outcome_digest,
        state.tools.calls,
        state.timeline.spans,
        state.timeline.gaps(),
        [
            (state.conversation.history(name).to_list(), state.conversation.history(name).repairs)
            for name in evaluations
        ],
    )


# Messages more often than all else, or there would never be enough of them.
talkative = st.booleans().flatmap(lambda often: messages if often else small_world | beginnings)


@given(st.lists(talkative, min_size=1, max_size=40), st.data())
def test_the_state_of_any_run_is_the_same_when_parts_of_it_are_put_away(
    events: list[Event], data: st.DataObject
) -> None:
    """Folded at once or step by step, with the messages among the slices; and an earlier state
    is still what it was."""
    all_records = records(events)
    cut = data.draw(st.integers(0, len(events)))
    initial = RunState.initial(random_declarations())
    expected = [initial.after(all_records[:n]) for n in (cut, len(events))]
    with pytest.MonkeyPatch.context() as monkeypatch:
        put_away_early(monkeypatch)
        state = at_cut = initial
        for number, record in enumerate(all_records, 1):
            state = state.after([record])
            if number == cut:
                at_cut = state
        at_once = initial.after(all_records)
        assert shown(at_cut) == shown(expected[0])
        assert shown(state) == shown(at_once) == shown(expected[1])


def test_the_end_of_an_evaluation_does_not_look_at_the_run(
    few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last completed call is found without fetching what others asked for before it, or what
    of that was amended."""
    others = [
        event
        for number in range(20)
        for event in (
            asks(2 * number, f"c{number}", turn=number, evaluation_id="e1"),
            answers(2 * number + 1, f"c{number}", evaluation_id="e1"),
            amends(2 * number + 1, "the parsed output"),
        )
    ]
    ours = (asks(90, "ours", evaluation_id="e2"), answers(91, "ours", evaluation_id="e2"))
    state = RunState.initial()
    for record in records([*others, *ours]):
        state = state.after([record])
    tools = state.tools
    monkeypatch.setattr(os, "pread", no_room)
    found = tools.last_completed("e2")
    assert found is not None
    assert found.call_id == "ours"
    with pytest.raises(StateFileError):
        tools.in_order()


def test_a_long_run_is_put_away_and_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty evaluations with tools, slices and checkpoints, in pages as they are read."""
    all_records = records(list(long_run(6_000)))
    expected = RunState.initial(declarations()).after(all_records)
    put_away_early(monkeypatch, 50)
    state = RunState.initial(declarations()).after(all_records)
    assert any(isinstance(piece, AwayList) for piece in state.tools.settled.pieces())
    assert shown(state) == shown(expected)
