"""Commands `rebuild` and `projections`: rebuilds tables, and lists views and tables."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import click
import msgspec

from turnledger.adapters.cli.shared.command import command, finish, open_ledger, printer
from turnledger.adapters.cli.shared.damage import SkippedRuns
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.output import Format, Printer, json_text, say, shortened
from turnledger.adapters.cli.shared.parameters import flag
from turnledger.adapters.cli.shared.progress import bar
from turnledger.adapters.cli.shared.tables import TABLES, TableParam
from turnledger.ledger import Ledger, MissingDependencyError, StoreUnavailableError
from turnledger.projections import Rebuilt, Table, TableNotMadeError, rebuild
from turnledger.projections.run_state.state import built_in
from turnledger.projections.tables.builtin import BUILT_IN_TABLES
from turnledger.projections.tables.storage import KeptTable, kept_tables

# Width of a value in a table.
CELL = 60
# Seconds that the scheduler of a cluster has to answer.
CLUSTER_WAIT = 10


@command(
    "rebuild",
    example="""\
turnledger rebuild
turnledger rebuild tool-statistics --workers 4
turnledger rebuild --dask tcp://scheduler:8786
turnledger rebuild usage-by-day --verify
turnledger rebuild acme.tables:FailuresByTool""",
)
@click.argument("name", type=TableParam(), required=False)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of processes. Default: 1.",
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Scheduler of a Dask cluster whose workers do it: tcp://HOST:PORT or tls://HOST:PORT.",
)
@flag(
    "--verify",
    help="Change nothing; print the differences, and exit with 5 if there are any.",
)
def rebuild_command(
    name: Table[Any] | None, workers: int | None, dask: str | None, verify: bool
) -> None:
    """Rebuild tables from the events and swap them in.

    NAME is a table that `turnledger projections` lists, or module:Class for one of your
    own; by default all built-in tables. Readers see the old table until the new one is
    complete. Records that can't be read are not counted: their runs are named, and the exit
    code is 5. Workers of a Dask cluster get the ledger's URL without its password: they find
    that in their own environment (PGPASSWORD, PGPASSFILE, PGSERVICE).
    """
    if dask is not None and workers is not None:
        raise click.UsageError("--dask and --workers can't be combined: a cluster has its workers.")
    reports, skipped = [], SkippedRuns()
    with open_ledger() as ledger, _pool(dask, workers or 1) as pool:
        for table in [name] if name is not None else TABLES.values():
            try:
                reports.append(_rebuilt(ledger, table, pool, verify))
            except TableNotMadeError as error:
                if name is not None or not verify:
                    raise
                say(str(error))
    for report in reports:
        skipped.records(report.skipped)
    _print(printer(), reports)
    finish(skipped.code if all(r.ok for r in reports) else ExitCode.INTEGRITY_FAILURE)


class _Pool(NamedTuple):
    """What folds the runs, how many workers it has, and the errors by which it tells their loss."""

    executor: Executor | None
    workers: int
    lost: tuple[type[Exception], ...] = (BrokenExecutor,)


@contextmanager
def _pool(dask: str | None, workers: int) -> Iterator[_Pool]:
    """The workers of a Dask cluster, or so many processes."""
    if dask is None:
        yield _Pool(None, workers)
        return
    try:
        from distributed import Client, KilledWorker
    except ImportError as error:
        raise MissingDependencyError("Rebuilding by Dask", "dask") from error
    try:
        client = Client(dask, timeout=CLUSTER_WAIT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"Can't reach the Dask scheduler at {dask}: {error} Start one with `dask scheduler`, "
            "and workers with `dask worker ADDRESS`."
        ) from error
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise click.ClickException(
                f"The Dask cluster at {dask} has no workers. Start some: `dask worker {dask}`."
            )
        # Not pure: the same task may give another result once the ledger has changed.
        yield _Pool(client.get_executor(pure=False), threads, (BrokenExecutor, KilledWorker))


def _rebuilt(ledger: Ledger, table: Table[Any], pool: _Pool, verify: bool) -> Rebuilt:
    try:
        with bar(table.name) as tell:
            progress = partial(tell, table.name) if tell is not None else None
            return rebuild(
                ledger,
                table,
                executor=pool.executor,
                workers=pool.workers,
                verify=verify,
                progress=progress,
            )
    except pool.lost as error:
        raise click.ClickException(
            f"A worker process died; {table.name} was not changed. ({error})"
        ) from error
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"A worker can't import {error.name}; {table.name} was not changed. Install it where "
            "the workers run."
        ) from error


def _print(out: Printer, reports: list[Rebuilt]) -> None:
    if out.form is not Format.TABLE:
        out.many({**msgspec.structs.asdict(r), "ok": r.ok} for r in reports)
        return
    out.rows(
        ("name", "version", "position", "events", "rows", "verdict"),
        ((r.name, r.version, r.position, r.events, r.rows, _verdict(r)) for r in reports),
    )
    if any(not r.ok for r in reports):
        out.line("")
        out.rows(("name", "what", "key", "stored", "rebuilt"), _differences(reports))


def _verdict(report: Rebuilt) -> str:
    if not report.verified:
        return "rebuilt"
    return "ok" if report.ok else f"{len(report.differences)} DIFFERENCES"


def _differences(reports: list[Rebuilt]) -> Iterator[tuple[str | None, ...]]:
    for report in reports:
        for found in report.differences:
            values = (found.stored, found.folded)
            texts = (None if v is None else shortened(json_text(v), CELL) for v in values)
            yield (report.name, found.kind, found.key, *texts)


# --- projections --------------------------------------------------------------------


@command(example="turnledger projections -o json")
def projections() -> None:
    """List the views of a run and the tables of all runs.

    A view's name is the value of --projection and the first part of pointers. Tables are
    stored up to a position; BEHIND is how many events they lag. The version is raised when
    the meaning changes.
    """
    found = [*_views(), *_tables()]
    names = ("name", "kind", "version", "position", "behind", "reads")
    printer().listing(found, names, lambda thing: [_cell(thing, n) for n in names], nothing="")


def _cell(thing: dict[str, Any], name: str) -> Any:
    value, kept = thing.get(name), thing.get("kept_version")
    if isinstance(value, list):
        return " ".join(value)
    if name == "version" and kept not in (None, value):
        return f"{value} (stored: {kept})"
    return value


def _views() -> Iterator[dict[str, Any]]:
    for view in built_in():
        tags = [kind.tag for kind in view.reads]
        yield {"name": view.name, "kind": "view", "version": view.version, "reads": tags}


def _tables() -> Iterator[dict[str, Any]]:
    """The built-in tables, stored or not, and other tables that the ledger stores."""
    kept = {table.name: table for table in _kept()}
    for table in BUILT_IN_TABLES:
        tags = [kind.tag for kind in table.reads]
        yield _table(table.name, table.version, tags, kept.pop(table.name, None))
    for other in kept.values():
        yield _table(other.name, other.version, list(other.reads), other)


def _table(name: str, version: int, reads: list[str], kept: KeptTable | None) -> dict[str, Any]:
    table = {"name": name, "kind": "table", "version": version, "reads": reads}
    stored = (kept.version, kept.position, kept.behind) if kept else (None, None, None)
    return table | dict(zip(("kept_version", "position", "behind"), stored, strict=True))


def _kept() -> list[KeptTable]:
    try:
        with open_ledger() as ledger:
            return kept_tables(ledger)
    except StoreUnavailableError as error:
        say(f"No tables are stored: {error}")
        return []
