"""PostgreSQL schema: tables, how they are made and upgraded, and SQL for positions.

Readable with `psql`. Triggers refuse to change or delete an event or a blob. A position is the
number of the transaction that wrote the event, shifted, plus the event's place in it;
`xid_offset` keeps positions growing when a dump is restored where transaction numbers are lower.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from psycopg import Connection, errors
from psycopg.sql import SQL, Identifier

from turnledger.ledger.errors import NotALedgerError, StoreUnavailableError
from turnledger.ledger.events.types import CATALOGUE
from turnledger.ledger.stores.postgres.errors import RIGHTS
from turnledger.ledger.stores.sql import END

APPLICATION = "turnledger"
FORMAT = 4
# Formats that can be used as they are by a role that may make no tables: without access tokens, or
# slower where a run is looked for.
_USABLE = ("2", "3")
# The advisory lock of processes that create a ledger in a database: one at a time.
CREATING = 0x544C4447  # "TLDG"
ORDINAL_BITS = 12

# Text is compared by its bytes, whatever the database's language.
_TEXT = 'text COLLATE "C"'
_SHELVES = (
    # Room on each page, so that a new text can stand beside the one that it replaces.
    f"""CREATE TABLE shelves (
        name {_TEXT} PRIMARY KEY,
        fingerprint {_TEXT} NOT NULL,
        generation bigint NOT NULL,
        position bigint NOT NULL,
        state {_TEXT} NOT NULL
    ) WITH (fillfactor = 70)""",
    f"""CREATE TABLE shelf_rows (
        shelf {_TEXT} NOT NULL,
        generation bigint NOT NULL,
        key {_TEXT} NOT NULL,
        value {_TEXT} NOT NULL,
        PRIMARY KEY (shelf, generation, key)
    ) WITH (fillfactor = 70)""",
)
_TOKENS = (
    f"""CREATE TABLE access_tokens (
        token_id {_TEXT} PRIMARY KEY,
        name {_TEXT} NOT NULL,
        role {_TEXT} NOT NULL,
        secret_hash bytea NOT NULL,
        created_at bigint NOT NULL,
        expires_at bigint,
        revoked_at bigint
    )""",
)
# By what a run is looked for: the end of its id, and the run that it is a fork of.
END_OF_ID = f"right(run_id, {END})"
_FINDING = (
    f"CREATE INDEX runs_by_end ON runs ({END_OF_ID})",
    "CREATE INDEX runs_by_parent ON runs (parent, started_at, run_id) WHERE (parent IS NOT NULL)",
)
# The statements that upgrade a ledger of a format to the next one, and the tables that are new.
_UPGRADES = {
    "1": (_SHELVES, ("shelves", "shelf_rows")),
    "2": (_TOKENS, ("access_tokens",)),
    "3": (_FINDING, ("runs_by_end", "runs_by_parent")),
}
# What a ledger of an older format does not have: the format that brought it.
_TOKENS_SINCE = 3
_SINCE = {"access_tokens": _TOKENS_SINCE, "runs_by_end": 4, "runs_by_parent": 4}
STATEMENTS = (
    f"CREATE TABLE meta (key {_TEXT} PRIMARY KEY, value text NOT NULL)",
    f"""CREATE TABLE events (
        position bigint PRIMARY KEY,
        run_id {_TEXT} NOT NULL,
        version bigint NOT NULL,
        tag {_TEXT} NOT NULL,
        event_id {_TEXT} NOT NULL,
        recorded_at bigint NOT NULL,
        digest bytea NOT NULL,
        data {_TEXT} NOT NULL
    )""",
    "CREATE UNIQUE INDEX events_by_run ON events (run_id, version)",
    "CREATE UNIQUE INDEX events_by_id ON events (event_id)",
    f"CREATE TABLE blobs (name {_TEXT} PRIMARY KEY, content bytea NOT NULL)",
    # Blobs are media, compressed already: no time is spent on trying again.
    "ALTER TABLE blobs ALTER COLUMN content SET STORAGE EXTERNAL",
    # Room on each page, so that a run's next state can stand beside its last.
    f"""CREATE TABLE runs (
        run_id {_TEXT} PRIMARY KEY,
        version bigint NOT NULL,
        digest bytea NOT NULL,
        recorded_at bigint NOT NULL,
        epoch bigint NOT NULL,
        status {_TEXT} NOT NULL,
        started_at bigint NOT NULL,
        prompt {_TEXT} NOT NULL,
        kind {_TEXT} NOT NULL,
        parent {_TEXT},
        parent_version bigint NOT NULL,
        tags {_TEXT} NOT NULL,
        position bigint NOT NULL
    ) WITH (fillfactor = 70)""",
    "CREATE INDEX runs_by_start ON runs (started_at, run_id)",
    "CREATE INDEX runs_by_status ON runs (status, started_at, run_id)",
    "CREATE INDEX runs_by_prompt ON runs (prompt, started_at, run_id)",
    f"""CREATE TABLE run_tags (
        key {_TEXT} NOT NULL, value {_TEXT} NOT NULL, run_id {_TEXT} NOT NULL,
        PRIMARY KEY (key, value, run_id)
    )""",
    f"""CREATE TABLE leases (
        run_id {_TEXT} PRIMARY KEY,
        worker {_TEXT} NOT NULL,
        epoch bigint NOT NULL,
        holder {_TEXT} NOT NULL,
        expires_at bigint NOT NULL
    ) WITH (fillfactor = 70)""",
    """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION '% are never changed or deleted', TG_TABLE_NAME
                USING ERRCODE = 'restrict_violation';
        END $$""",
    *(
        f"""CREATE TRIGGER {table}_refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"""
        for table in ("events", "blobs")
    ),
    """CREATE VIEW log AS SELECT position, run_id, version, tag, event_id,
        to_char(to_timestamp(recorded_at / 1e6) AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS recorded_at,
        encode(digest, 'hex') AS digest, data FROM events ORDER BY position""",
    *_SHELVES,
    *_TOKENS,
    *_FINDING,
)
_TABLES = (
    "meta",
    "events",
    "blobs",
    "runs",
    "run_tags",
    "leases",
    "log",
    "shelves",
    "shelf_rows",
    "access_tokens",
)

# --- triggers and rules ---------------------------------------------------------------

# A trigger's type: before, each statement, on DELETE, UPDATE and TRUNCATE.
_REFUSING = 2 + 8 + 16 + 32
_NAMES = ", ".join(f"'{name}'" for name in _TABLES if name != "log")
_OURS = "c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'events'::regclass)"
_OUR_TABLES = f"{_OURS} AND c.relname IN ({_NAMES})"
_IS_OURS = f"""c.relname IN ('events', 'blobs') AND t.tgname = c.relname || '_refuse_change'
    AND t.tgtype = {_REFUSING} AND t.tgenabled IN ('O', 'A') AND t.tgqual IS NULL
    AND p.proname = 'refuse_change' AND p.pronamespace = c.relnamespace"""
_TRIGGERS = f"""pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE {_OUR_TABLES} AND NOT t.tgisinternal"""
# Whether the triggers and rules on our tables are those that this program makes, and no others.
# Asked in every append: by the tables' numbers, for which the catalogues have indexes.
# A table that was dropped has none.
_NUMBERS = ", ".join(f"to_regclass('{name}')" for name in _TABLES if name != "log")
UNTOUCHED = f"""((SELECT count(*) = 2 AND bool_and(
        (tgrelid = 'events'::regclass AND tgname = 'events_refuse_change'
            OR tgrelid = 'blobs'::regclass AND tgname = 'blobs_refuse_change')
        AND tgtype = {_REFUSING} AND tgenabled IN ('O', 'A') AND tgqual IS NULL
        AND tgfoid = 'refuse_change()'::regprocedure)
    FROM pg_trigger WHERE tgrelid IN ({_NUMBERS}) AND NOT tgisinternal)
    AND NOT EXISTS (SELECT FROM pg_rewrite WHERE ev_class IN ({_NUMBERS})))"""

# --- what verify compares ---

_COLUMNS = f"""SELECT c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod)
    || coalesce((SELECT ' COLLATE "' || l.collname || '"' FROM pg_collation l
        WHERE l.oid = a.attcollation AND l.collname <> 'default'), '')
    || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
    || CASE WHEN a.attgenerated <> '' OR a.attidentity <> '' THEN ' GENERATED' ELSE '' END
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE {_OUR_TABLES} AND a.attnum > 0 AND NOT a.attisdropped"""
_KINDS = f"""SELECT c.relname, CASE WHEN c.relkind = 'v' THEN 'view' WHEN c.relkind <> 'r'
        THEN 'relation of kind ' || c.relkind::text
        WHEN c.relpersistence <> 'p' THEN 'table that does not survive a crash'
        WHEN c.relrowsecurity THEN 'table with row security' ELSE 'table' END
    FROM pg_class c WHERE {_OURS} AND c.relname IN ({_NAMES}, 'log')"""
_INDEXES = f"""SELECT i.relname, CASE WHEN x.indisunique THEN 'unique ' ELSE '' END
    || CASE WHEN x.indisvalid THEN '' ELSE 'invalid ' END
    || c.relname || ' (' || (SELECT string_agg(
        replace(pg_get_indexdef(x.indexrelid, k, true), '"', ''), ', ' ORDER BY k)
        FROM generate_series(1, x.indnkeyatts) k) || ')'
    || coalesce(' WHERE ' || pg_get_expr(x.indpred, x.indrelid), '')
    FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class c ON c.oid = x.indrelid
    WHERE {_OUR_TABLES}"""
_CONSTRAINTS = f"""SELECT o.conname, c.relname || ': ' || o.contype::text FROM pg_constraint o
    JOIN pg_class c ON c.oid = o.conrelid WHERE {_OUR_TABLES} AND o.contype <> 'n'"""
_ACTING = f"""SELECT t.tgname, c.relname || CASE WHEN {_IS_OURS} THEN '' ELSE ', other' END
    FROM {_TRIGGERS}"""
_RULES = f"""SELECT r.rulename, c.relname FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
    WHERE {_OUR_TABLES}"""
_FUNCTIONS = f"""SELECT c.proname, c.prosrc FROM pg_proc c
    WHERE {_OURS.replace("relnamespace =", "pronamespace =", 1)} AND c.proname = 'refuse_change'"""


def changed_schema(read: Callable[[str], list[Any]]) -> Iterator[str]:
    """Differences from the schema that this program makes, one text each.

    Tables of other programs are left alone, and so are further indexes. `read` runs a query.
    """
    made = _made()
    number = _format(read)
    missing = tuple(name for name, since in _SINCE.items() if number < since)
    for what, query, may_have_others in (
        ("relation", _KINDS, False),
        ("column", _COLUMNS, False),
        ("index", _INDEXES, True),
        ("constraint", _CONSTRAINTS, False),
        ("trigger", _ACTING, False),
        ("rule", _RULES, False),
        ("function", _FUNCTIONS, True),
    ):
        found = {str(name): " ".join(str(text).split()) for name, text in read(query)}
        for name, definition in made[what].items():
            if name.startswith(missing):
                continue
            if name not in found:
                yield f"the {definition if what == 'relation' else what} {name} is missing"
            elif found[name] != definition:
                yield f"the {what} {name} is not defined as this program does"
        for name in found.keys() - made[what].keys():
            if not may_have_others:
                yield f"the {what} {name!r:.80} is not the ledger's"


def _format(read: Callable[[str], list[Any]]) -> int:
    """The format of a ledger that is open; this program's if that was changed meanwhile."""
    found = read("SELECT value FROM meta WHERE key = 'format'")
    return int(found[0][0]) if found and str(found[0][0]) in _USABLE else FORMAT


@cache
def _made() -> dict[str, dict[str, str]]:
    """What STATEMENTS make, in the words of the queries above: definitions by kind and name."""
    made: dict[str, dict[str, str]] = {
        "relation": {"log": "view"},
        "column": {},
        "index": {},
        "constraint": {},
        "trigger": {f"{table}_refuse_change": table for table in ("events", "blobs")},
        "rule": {},
        "function": {},
    }
    for statement in map(" ".join, map(str.split, STATEMENTS)):
        if table := re.match(r"CREATE TABLE (\w+) \((.*?)\)(?: WITH \(.*\))?$", statement):
            _add_table(made, table[1], table[2])
        elif index := re.match(r"CREATE (UNIQUE )?INDEX (\w+) ON (.*)$", statement):
            made["index"][index[2]] = f"{(index[1] or '').lower()}{index[3]}"
        elif function := re.match(r"CREATE FUNCTION (\w+)\(\).* AS \$\$ (.*) \$\$$", statement):
            made["function"][function[1]] = function[2]
    return made


def _add_table(made: dict[str, dict[str, str]], table: str, items: str) -> None:
    made["relation"][table] = "table"
    made["constraint"][f"{table}_pkey"] = f"{table}: p"
    for item in re.split(r", (?![^(]*\))", items.strip()):
        name, definition = item.split(" ", 1)
        if name == "PRIMARY":
            made["index"][f"{table}_pkey"] = f"unique {table} {definition.removeprefix('KEY ')}"
            continue
        if definition.endswith(" PRIMARY KEY"):
            made["index"][f"{table}_pkey"] = f"unique {table} ({name})"
        made["column"][f"{table}.{name}"] = definition.replace(" PRIMARY KEY", " NOT NULL")


# --- positions -----------------------------------------------------------------------

_OFFSET = "(SELECT value::bigint FROM meta WHERE key = 'xid_offset')"
# The position of the first event of the transaction that asks.
FIRST_POSITION = f"((pg_current_xact_id()::text::bigint + {_OFFSET}) << {ORDINAL_BITS})"
# The same if it has a number already; null if not.
OWN_POSITION = f"((pg_current_xact_id_if_assigned()::text::bigint + {_OFFSET}) << {ORDINAL_BITS})"
_NEWEST = "coalesce((SELECT max(position) FROM events), 0)"
# Whether the next transaction's number is too low for what is stored: a restored dump.
RESTORED = (
    f"(pg_snapshot_xmax(pg_current_snapshot())::text::bigint + {_OFFSET}) << {ORDINAL_BITS} "
    f"<= {_NEWEST}"
)
# Below this no event can appear any more: every transaction with a lower number has ended.
# In a restored ledger no append is possible before `rebase`, so all of it may be read.
SETTLED = f"""(SELECT CASE WHEN restored THEN newest + 1 ELSE edge END FROM (SELECT
    {RESTORED} AS restored, {_NEWEST} AS newest,
    (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + {_OFFSET}) << {ORDINAL_BITS} AS edge
    ) AS now)"""
REBASE = f"""UPDATE meta SET value = greatest(value::bigint,
    ({_NEWEST} >> {ORDINAL_BITS}) + 1 - pg_current_xact_id()::text::bigint)::text
    WHERE key = 'xid_offset'"""


# --- creation ------------------------------------------------------------------------


def prepare_schema(db: Connection[Any], schema: str, where: str, *, create: bool) -> bool:
    """Make the tables that are missing; refuse a schema that holds something else.

    Gives whether there is a table of access tokens. A ledger of an older format has none if it
    could not be upgraded: on a standby, or by a role that may make no tables.
    """
    if not _has_meta(db, schema):
        if not create:
            raise StoreUnavailableError(f"There is no ledger at {where}.")
        _create(db, schema, where)
    _check_usage(db, schema, where)
    found = _meta(db)
    if found.get("application") != APPLICATION:
        raise NotALedgerError(
            f"{where} holds other tables, not a ledger: it was left as it was. "
            "Choose another schema: postgresql://...?schema=NAME"
        )
    if found.get("format") in _UPGRADES:
        found = _upgrade(db, schema, where, found)
    if found.get("format") not in (str(FORMAT), *_USABLE):
        raise NotALedgerError(
            f"{where} has ledger format {found.get('format')}, this program uses {FORMAT}. "
            "Use a turnledger that knows that format."
        )
    if int(found["catalogue"]) < CATALOGUE:
        # Who can't write that, can't write an event of this catalogue either.
        with suppress(errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction):
            db.execute(
                "UPDATE meta SET value = %s WHERE key = 'catalogue' AND value::int < %s",
                (str(CATALOGUE), CATALOGUE),
            )
    return int(found["format"]) >= _TOKENS_SINCE


def _has_meta(db: Connection[Any], schema: str) -> bool:
    return _found(db, schema, ["meta"]) is not None


def _found(db: Connection[Any], schema: str, names: Sequence[str]) -> Any:
    """The name of a table that the schema has, of these, in a row; None without one."""
    return db.execute(
        "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE nspname = %s AND relname = ANY(%s)",
        (schema, list(names)),
    ).fetchone()


def _check_usage(db: Connection[Any], schema: str, where: str) -> None:
    """Check the right to use the schema: without it, tables look as if they did not exist."""
    found = db.execute(
        "SELECT current_user, has_schema_privilege(%s, 'USAGE')", (schema,)
    ).fetchone()
    assert found is not None
    user, may_use = found
    if not may_use:
        raise StoreUnavailableError(
            f"{where} is there, and the role {user!r} may not use it: "
            f'GRANT USAGE ON SCHEMA "{schema}" TO "{user}". {RIGHTS}'
        )


def _meta(db: Connection[Any]) -> dict[str, str]:
    columns = db.execute(
        "SELECT count(*) FROM pg_attribute WHERE attrelid = 'meta'::regclass "
        "AND attname IN ('key', 'value') AND atttypid = 'text'::regtype"
    ).fetchone()
    if columns != (2,):
        return {}
    return dict(db.execute("SELECT key, value FROM meta").fetchall())


def _create(db: Connection[Any], schema: str, where: str) -> None:
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
        if _has_meta(db, schema):
            return  # another process was quicker
        _check_free(db, schema, where, _TABLES)
        if not db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone():
            db.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        for statement in STATEMENTS:
            db.execute(statement)
        for row in (
            ("application", APPLICATION),
            ("format", str(FORMAT)),
            ("catalogue", str(CATALOGUE)),
            ("xid_offset", "0"),
        ):
            db.execute("INSERT INTO meta VALUES (%s, %s)", row)


def _upgrade(db: Connection[Any], schema: str, where: str, found: dict[str, str]) -> dict[str, str]:
    try:
        return _upgrade_locked(db, schema, where)
    except errors.ReadOnlySqlTransaction:
        if found["format"] in _USABLE:
            return found
        raise
    except errors.InsufficientPrivilege as error:
        if found["format"] in _USABLE:
            return found
        raise StoreUnavailableError(
            f"{where} has an older ledger format than {FORMAT}, and this role may not make the "
            "tables that are new since. Open the ledger once as the owner of its tables, and "
            "grant this role the use of the new ones."
        ) from error


def _upgrade_locked(db: Connection[Any], schema: str, where: str) -> dict[str, str]:
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
        # Asked again under the lock: another process may have been quicker.
        while (old := _meta(db)["format"]) in _UPGRADES:
            statements, tables = _UPGRADES[old]
            _check_free(db, schema, where, tables)
            for statement in statements:
                db.execute(statement)
            db.execute("UPDATE meta SET value = %s WHERE key = 'format'", (str(int(old) + 1),))
        return _meta(db)


def _check_free(db: Connection[Any], schema: str, where: str, names: Sequence[str]) -> None:
    taken = _found(db, schema, names)
    if taken is not None:
        raise NotALedgerError(
            f"{where} has a table {taken[0]!r} that does not belong to a ledger: it was left as "
            "it was. "
            "Choose another schema: postgresql://...?schema=NAME"
        )
