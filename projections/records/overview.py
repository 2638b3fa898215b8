"""Overview of a run for a list of runs: its tokens, and its shape in at most 60 characters.

It is extended by what was appended since it was made, so that a list costs what is new in its
runs, however long they are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from threading import Lock
from typing import Final

import msgspec

from turnledger.ledger import Ledger, ModelReplied, Record, RunInfo
from turnledger.projections.projection import PAGE
from turnledger.projections.records.shape import character_of

# Characters of a small shape at most: an even number, since two of them become one.
LONGEST: Final = 60
# What one character stands for is the first of these that is in it: doubts, failures, resumes,
# waits, then the rest.
STRONGEST: Final = "?XMTE+zxq$^akpustdmrcwe."
_RANK: Final = {character: rank for rank, character in enumerate(STRONGEST)}
# Overviews that are kept.
KEPT: Final = 10_000


class RunOverview(msgspec.Struct, frozen=True):
    """Tokens of a run's own model calls, and its small shape, up to a version of it.

    Each character of `shape` stands for the same number of events, the last one for the rest:
    for the smallest power of two by which it has at most 60 characters.
    """

    version: int = 0
    digest: str = ""
    tokens: int = 0
    shape: str = ""


def overview(
    ledger: Ledger,
    run: RunInfo,
    known: RunOverview | None = None,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> RunOverview:
    """The overview of a run, up to its version or as far as it came before it was cancelled.

    Args:
        ledger: The ledger that has the run.
        run: The run, as it is in the index.
        known: An earlier overview of the same run: only what was appended since is read.
        cancelled: Asked before each page of events.
    """
    made = known or RunOverview()
    if made.version > run.version or (made.version, made.digest) == (run.version, run.digest):
        return made
    records = ledger.read(run.run_id, max(made.version - 1, 0), run.version)
    if made.version:
        last = next(records, None)
        if last is None or last.digest != made.digest:  # not the same events any more
            return overview(ledger, run, cancelled=cancelled)
    while not cancelled() and (page := list(islice(records, PAGE))):
        made = _extended(made, page, run.parent_version)
    return made


def _extended(known: RunOverview, page: list[Record], parent_version: int) -> RunOverview:
    shape, width = list(known.shape), _width(known.version)
    tokens, version = known.tokens, known.version
    for record in page:
        character = character_of(record.tag)
        if version % width:
            shape[-1] = min(shape[-1], character, key=_RANK.__getitem__)
        elif len(shape) < LONGEST:
            shape.append(character)
        else:
            pairs = zip(shape[::2], shape[1::2], strict=True)
            shape = [min(pair, key=_RANK.__getitem__) for pair in pairs]
            shape.append(character)
            width *= 2
        version = record.version
        if version > parent_version and record.tag == ModelReplied.tag:
            event = record.event
            assert isinstance(event, ModelReplied)
            tokens += event.usage.input_tokens + event.usage.output_tokens
    return RunOverview(version, page[-1].digest, tokens, "".join(shape))


def _width(version: int) -> int:
    """Events that one character stands for."""
    width = 1
    while width * LONGEST < version:
        width *= 2
    return width


class Overviews:
    """Cache of overviews for many readers. Thread-safe; those asked for last are kept.

    Args:
        ledger: The ledger that has the runs.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = Lock()
        self._kept: OrderedDict[str, RunOverview] = OrderedDict()

    def of(self, run: RunInfo, cancelled: Callable[[], bool]) -> RunOverview | None:
        """The overview of a run at its version or later; None if it was cancelled before.

        What was read by then is kept: ask again to go on.
        """
        name = str(run.run_id)
        with self._lock:
            known = self._kept.get(name)
        found = overview(self._ledger, run, known, cancelled=cancelled)
        with self._lock:
            self._kept[name] = found
            self._kept.move_to_end(name)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found if found.version >= run.version else None
