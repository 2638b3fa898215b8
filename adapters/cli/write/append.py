"""Command `append`."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import click

from turnledger.adapters.cli.shared.command import command, open_ledger, printer
from turnledger.adapters.cli.shared.files import read_path, read_whole
from turnledger.adapters.cli.shared.output import say
from turnledger.adapters.cli.shared.parameters import (
    RUN_OR_NEW,
    as_expected,
    file_option,
    version_option,
)
from turnledger.adapters.cli.shared.views import view_of
from turnledger.adapters.cli.write.events_input import parse_events
from turnledger.ledger import (
    ANY,
    NEW,
    Appended,
    StoreUnavailableError,
    blob_name,
)
from turnledger.ledger.runs.append_request import Expected


@command(
    example="""\
echo '{"type": "custom", "data": {"kind": "acme.note", "data": "hi"}}' \\
  | turnledger append new
turnledger append 099a8057 events.jsonl --expect 7""",
)
@click.argument("run", type=RUN_OR_NEW)
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--expect",
    type=as_expected,
    metavar="N|new|any",
    help="Expected version of the run: a number, `new` if it must not exist, or `any`. "
    "Required unless RUN is `new`.",
)
@version_option("--epoch", help="Epoch of your claim.")
@file_option(
    "--blob",
    "blobs",
    exists=True,
    multiple=True,
    help="Blob that the events refer to by its SHA-256. May be repeated.",
)
def append(
    run: UUID | str,
    file: BinaryIO,
    expect: int | Expected | None,
    epoch: int | None,
    blobs: tuple[Path, ...],
) -> None:
    """Append events to a run, atomically.

    They are durable when the command returns. RUN is a run id, or `new` for a new run, whose
    id is printed. FILE (or stdin) holds one event, a JSON array of events, or one event
    per line: {"type": "message.appended", "event_id": "...", "data": {...}}. With event ids
    of your own, appending again is safe. The ledger is created if it does not exist.
    """
    expected = _expected(run, expect)
    events = parse_events(read_whole(file, "The input"))
    contents = [read_path(path) for path in blobs]
    for path, content in zip(blobs, contents, strict=True):
        say(f"{path} is blob {blob_name(content)}")
    with open_ledger(create=True) as ledger:
        run_id = run if isinstance(run, UUID) else UUID(ledger.clock.new_id())
        try:
            appended = ledger.append(run_id, events, expected, epoch, blobs=contents)
        except StoreUnavailableError as error:
            _say_ids(run_id, error)
            raise
        _print(appended)


def _expected(run: UUID | str, expect: int | Expected | None) -> int | Expected:
    if isinstance(run, UUID):
        if expect is None:
            raise click.UsageError(
                "Missing option '--expect': the expected version of the run, 'new' or 'any'."
            )
        return expect
    if expect not in (None, NEW, ANY, 0):
        raise click.UsageError(
            f"Invalid --expect {expect}: a new run has no version. Leave it out."
        )
    return NEW


def _say_ids(run_id: UUID, error: StoreUnavailableError) -> None:
    """Print the ids that this command made: retrying with them is safe."""
    say(f"Run {run_id}. To retry safely, give the events these ids, in this order:")
    for draft in error.drafts:
        say(f"  {draft.event_id}")


def _print(appended: Appended) -> None:
    views = [view_of(record) for record in appended.records]
    if appended.duplicate:
        say("These events were recorded before: nothing was appended.")
    for version, parts in appended.redacted.items():
        for part in parts:
            say(f"Event {version}, {part.path}: redacted ({', '.join(part.formats)}).")
    # Without the events' data.
    names = ("version", "position", "type", "event_id", "recorded_at", "digest")
    value = {
        "run_id": views[0].run_id,
        "version": appended.version,
        "position": appended.position,
        "digest": appended.digest,
        "duplicate": appended.duplicate,
        "records": [{name: getattr(v, name) for name in names} for v in views],
    }
    headings = ("run", "version", "position", "type", "event id", "digest")
    rows = ((v.run_id, v.version, v.position, v.type, v.event_id, v.digest) for v in views)
    out = printer()
    out.one(value, lambda: out.rows(headings, rows))
