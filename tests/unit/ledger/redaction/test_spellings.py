"""Every known format in twelve ways of writing it: what is redacted, and what reaches a file."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.secret_samples import MAKERS, samples
from tests.texts.spellings import PIECE, SPELLINGS, is_left, pieces, readings
from turnledger.ledger import (
    NEW,
    CustomEvent,
    Event,
    InnerMessage,
    InvalidInputError,
    Ledger,
    MessageAppended,
    ModelCallFailed,
    Redactor,
    RunStarted,
    ToolCallCompleted,
    ToolCallRecord,
    export_runs,
    new_run_id,
)
from turnledger.runtime.main_loop import logger

REDACTOR = Redactor()
SEED = 20261118
# Of a hundred secrets, in all formats and ways together.
MISSES = 1
# What secrets consist of, but for a few characters.
WORD = re.compile(r"[\w+/=.~$!*-]{8,}", re.ASCII)
# Of the missed texts, in the message of a test that fails.
SHOWN = 40


class Written(NamedTuple):
    """A secret, and a text that has it in one of the ways."""

    format: str
    way: str
    secret: str
    text: str


@cache
def written(seed: int = SEED) -> list[Written]:
    """Each maker of each format in each variant of each way."""
    random = Random(seed)
    made = []
    for name, makers in MAKERS.items():
        for way, variants in SPELLINGS.items():
            for variant in variants:
                for one in samples(random.getrandbits(60), len(makers), [name]):
                    made.append(Written(name, way, one.secret, variant(random, one)))
    return made


@cache
def missed() -> list[Written]:
    return [one for one in written() if is_left(one.secret, REDACTOR.text(one.text))]


def _table() -> str:
    """The missed texts of each format and way, of how many."""
    count = Counter((one.format, one.way) for one in missed())
    of = Counter((one.format, one.way) for one in written())
    ways, total = Counter(one.way for one in missed()), Counter(one.way for one in written())
    lines = [f"{'':24}" + "".join(f"{way:>14}" for way in SPELLINGS)]
    lines.append(f"{'all':24}" + "".join(f"{ways[way]:>8}/{total[way]:<5}" for way in SPELLINGS))
    for name in MAKERS:
        if any(count[name, way] for way in SPELLINGS):
            cells = (
                f"{count[name, way]:>8}/{of[name, way]:<5}" if count[name, way] else " " * 14
                for way in SPELLINGS
            )
            lines.append(f"{name:24}" + "".join(cells))
    examples = {(one.format, one.way): one for one in missed()}
    lines += [f"{name}, {way}: {one.text[:120]!r}" for (name, way), one in examples.items()][:SHOWN]
    share = 100 * len(missed()) / len(written())
    return "\n".join((f"{len(missed())} of {len(written())} missed: {share:.2f} %", *lines))


def test_a_hundred_formats_are_redacted_in_twelve_ways_of_writing_them() -> None:
    """A key in a coloured line, a URL or escaped JSON opens as much as one that stands alone."""
    assert len(MAKERS) >= 100
    assert len(SPELLINGS) == 12
    assert 100 * len(missed()) <= MISSES * len(written()), _table()


def test_a_way_of_writing_keeps_the_secret() -> None:
    """Else the matrix would find nothing left of secrets that were never there."""
    for one in written():
        assert is_left(one.secret, one.text), one
        last = pieces(one.secret)[-1]
        assert any(last in reading for reading in readings(one.text)), one


def test_redacting_a_spelling_twice_changes_nothing() -> None:
    """An append that is tried again must be the same record, whatever the text is spelled like."""
    for one in written():
        once = REDACTOR.text(one.text)
        assert REDACTOR.text(once) == once, one


def test_json_stays_json_when_a_spelled_secret_is_redacted() -> None:
    """A marker that ends in the middle of an escape would break a tool call's arguments."""
    for one in written():
        if one.way in ("JSON", "JSON in JSON", "\\u"):
            json.loads(REDACTOR.text(one.text))


def test_what_is_found_in_text_is_found_in_a_value() -> None:
    """Events are JSON values: a prefilter that ruled one out would let its secrets through."""
    lost = {id(one) for one in missed()}
    for one in written():
        if id(one) not in lost:
            found = REDACTOR.value({"rows": [{"note": one.text}], "n": 1})
            assert not is_left(one.secret, found["rows"][0]["note"]), one


# --- files ---


def _said(text: str) -> MessageAppended:
    message = InnerMessage(role="user", content=text, evaluation_id="e", sequence=0)
    return MessageAppended(message=message)


def _called(text: str) -> MessageAppended:
    call = ToolCallRecord("c", "run", json.dumps({"command": text}))
    message = InnerMessage(
        role="assistant", content="", evaluation_id="e", sequence=0, tool_calls=(call,)
    )
    return MessageAppended(message=message)


PLACES: tuple[Callable[[str], Event], ...] = (
    _said,
    _called,
    lambda text: CustomEvent(kind="acme.note", data={"rows": [{"note": text}]}),
    lambda text: CustomEvent(kind="acme.key", data={text: 1}),
    lambda text: ToolCallCompleted(evaluation_id="e", call_id="c", name="t", value=text),
    lambda text: ModelCallFailed(
        evaluation_id="e", turn=1, error_type="AuthError", error_message=text
    ),
)


def _one_of_each() -> list[Written]:
    """Each maker in each way once, with secrets that have no piece in common."""
    random = Random(SEED + 1)
    made = []
    for name, makers in MAKERS.items():
        for number, (way, variants) in enumerate(SPELLINGS.items()):
            for place, one in enumerate(samples(random.getrandbits(60), len(makers), [name])):
                variant = variants[(number + place) % len(variants)]
                made.append(Written(name, way, one.secret, variant(random, one)))
    return made


def _left_in(content: bytes, secrets: list[Written]) -> list[Written]:
    """The secrets of which pieces are in the bytes, as they are or decoded."""
    shared = Counter(piece for one in secrets for piece in {*pieces(one.secret)})
    words: set[str] = set()
    for reading in readings(content.decode("latin-1")):
        words.update(WORD.findall(reading))
    found = {word[at : at + PIECE] for word in words for at in range(len(word) - PIECE + 1)}
    # One piece alone may be nearly all of a constant, which secrets of the format share.
    return [
        one
        for one in secrets
        if sum(shared[piece] == 1 and piece in found for piece in pieces(one.secret)) > 1
    ]


def _error_texts(ledger: Ledger, texts: list[str]) -> Iterator[str]:
    """What is said when an event with the text is refused."""
    for number, text in enumerate(texts):
        wrong: Event = (
            CustomEvent(kind=text),
            CustomEvent(kind="acme.x", data={text: {1, 2}}),
            RunStarted(tags={"a": (text, 1)}),  # type: ignore[dict-item]
        )[number % 3]
        with pytest.raises(InvalidInputError) as caught:
            ledger.append(new_run_id(), wrong, NEW)
        yield "".join(traceback.format_exception(caught.value))


@pytest.mark.slow
def test_no_spelled_secret_is_in_a_file_a_log_an_export_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret that is written once is in the WAL, in backups and in what others are sent."""
    secrets = _one_of_each()
    known = {id(one) for one in secrets if is_left(one.secret, REDACTOR.text(one.text))}
    texts = [one.text for one in secrets]
    exported, log = BytesIO(), StringIO()
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(log)])
    monkeypatch.setattr(logger, "propagate", False)
    with Ledger.open(tmp_path / "runs.db") as ledger:
        for start in range(0, len(texts), 50):
            several = enumerate(texts[start : start + 50])
            events = [PLACES[(start + n) % len(PLACES)](text) for n, text in several]
            started = RunStarted(request={"body": texts[start : start + 50]})
            ledger.append(new_run_id(), [started, *events], NEW)
        errors = "\n".join(_error_texts(ledger, texts))
        for text in texts:
            _log(text)
        export_runs(ledger, exported)
        assert (tmp_path / "runs.db-wal").stat().st_size > 0
        open_files = _files(tmp_path)
        assert ledger.verify_all().ok
    places = {
        "files of the open ledger": open_files,
        "files of the closed ledger": _files(tmp_path),
        "export": exported.getvalue(),
        "log": log.getvalue().encode(),
        "errors": errors.encode(),
    }
    for place, content in places.items():
        assert content.count(b"[redacted: ") > len(secrets) / 4, place
        left = [one for one in _left_in(content, secrets) if id(one) not in known]
        assert not left, (place, len(left), [(one.way, one.text[:120]) for one in left[:SHOWN]])


def _files(folder: Path) -> bytes:
    """All bytes of the ledger: the database, its WAL and its index."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def _log(text: str) -> None:
    """A line and a traceback, by a logger of the runtime."""
    logger.warning("The tool said %s", text)
    try:
        raise ValueError(text)
    except ValueError:
        logger.exception("The tool failed")


def test_the_search_in_files_finds_what_is_there() -> None:
    """Of a ledger without a redactor, all secrets are in the export, whatever the way."""
    secrets: list[Written] = _one_of_each()[::7]
    with Ledger.open("memory://", redactor=None) as ledger:
        ledger.append(new_run_id(), [_said(one.text) for one in secrets], NEW)
        file = BytesIO()
        export_runs(ledger, file)
    assert len(_left_in(file.getvalue(), secrets)) == len(secrets)
