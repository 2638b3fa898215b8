"""Rules of `doctor` for a ledger in PostgreSQL: what an acknowledged commit is worth there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from turnledger.adapters.cli.maintain.doctor.rules import (
    FLUSHING,
    FREE_SPACE,
    MIB,
    Case,
    Rule,
    Subject,
    above,
    differs,
    equals,
    fact,
    fail,
    fine,
    span,
    warn,
)

# A write transaction this old (seconds) noticeably delays followers of the ledger.
LONG_TRANSACTION = 60.0
# Transaction numbers used before PostgreSQL refuses writes: about two billion.
LAST_NUMBERS = 1_500_000_000
# Log that is kept for a standby that does not come back.
MUCH_LOG = 1024 * MIB
OLDEST_SUPPORTED = 14


def _setting(name: str, *cases: Case) -> Rule:
    unknown = warn(lambda s: name not in s.facts, f"Check it with: SHOW {name}.")
    return Rule(name, fact(name), unknown, *cases)


def _is_old(subject: Subject) -> bool:
    major = subject.get("server_version").split(".")[0].split(" ")[0]
    return major.isdecimal() and int(major) < OLDEST_SUPPORTED


def _level_is(*levels: str) -> Callable[[Subject], bool]:
    return lambda s: s.get("synchronous_commit") in levels


def _names(subject: Subject) -> str:
    return subject.facts.get("synchronous_standby_names", "")


_OVERRIDDEN = "The ledger sets on for its own commits: something overrides it."

DURABILITY_RULES = (
    Rule(
        "PostgreSQL",
        fact("server_version"),
        warn(_is_old, "This version gets no more fixes. Upgrade, also to new minor versions."),
    ),
    _setting(
        "fsync",
        fail(differs("fsync", "on"), "A power cut can destroy the database. Set fsync = on."),
    ),
    _setting(
        "synchronous_commit",
        warn(
            lambda s: _names(s) and _level_is("local")(s),
            "Commits don't wait for the standby: a fail-over can lose acknowledged events. "
            f"{_OVERRIDDEN}",
        ),
        warn(
            lambda s: _names(s) and _level_is("remote_write")(s),
            "The standby has a commit in memory, not yet on its disk: acknowledged events are "
            f"lost if it loses power at the moment it takes over. {_OVERRIDDEN}",
        ),
        fail(
            lambda s: not _level_is("on", "remote_apply", "remote_write", "local")(s),
            f"A crash of the server can lose acknowledged events. {_OVERRIDDEN}",
        ),
    ),
    Rule(
        "standbys",
        lambda s: f"commits wait for {_names(s)}, {s.get('standbys_in_sync')} in sync",
        fine(
            lambda s: not _names(s) and s.get("standbys") in ("0", "unknown"),
            "Acknowledged events are on one disk. If it fails, those since the last backup are "
            "lost: a synchronous standby (synchronous_standby_names) keeps them.",
            "none that commits wait for",
        ),
        warn(
            lambda s: not _names(s),
            "No commit waits for them: a fail-over can lose acknowledged events, and followers "
            "may then see positions again. Set synchronous_standby_names.",
            lambda s: f"{s.get('standbys')} connected, none synchronous",
        ),
        fine(equals("standby", "true"), "", lambda s: f"would wait for {_names(s)} if promoted"),
        fail(
            equals("standbys_in_sync", "0"),
            "No such standby is connected: appends wait until one is. Bring it back, or take it "
            "out of synchronous_standby_names. Don't cancel waiting commits: they are on this "
            "server only.",
        ),
    ),
    _setting(
        "full_page_writes",
        warn(
            differs("full_page_writes", "on"),
            "A crash can leave torn pages. Set full_page_writes = on, unless the file system "
            "writes pages whole.",
        ),
    ),
    _setting(
        "data_checksums",
        warn(
            differs("data_checksums", "on"),
            "The server does not notice a disk that returns wrong bytes (`verify` notices what it "
            "covers). Stop the server and run pg_checksums --enable.",
        ),
    ),
    _setting(
        "zero_damaged_pages",
        fail(
            differs("zero_damaged_pages", "off"),
            "Damaged pages are emptied without an error: events vanish. Set it to off.",
        ),
    ),
)

ROLE_RULES = (
    Rule(
        "role",
        "primary",
        warn(
            equals("standby", "true"),
            "It can be read; appends are refused. Name all servers in the URL, with "
            "target_session_attrs=read-write, to find the one that takes writes.",
            "a standby",
        ),
        fail(
            equals("default_transaction_read_only", "on"),
            "default_transaction_read_only is on: appends are refused.",
        ),
    ),
    Rule(
        "transaction numbers",
        "continue after the stored positions",
        fail(
            equals("needs_rebase", "true"),
            "It was restored from a dump: appends are refused until you run `turnledger rebase` "
            "once.",
            "below the stored positions",
        ),
    ),
)

# --- what delays others -------------------------------------------------------------


def _age(subject: Subject, name: str) -> str:
    return span(timedelta(seconds=subject.number(name) or 0.0))


def _is_long(name: str) -> Callable[[Subject], bool]:
    return lambda s: (s.number(name) or 0.0) >= LONG_TRANSACTION


def _transaction(check: str, name: str, advice: str) -> Rule:
    """The age of the oldest transaction of a kind, as far as this role may see."""

    def found(subject: Subject) -> str:
        hidden = int(subject.number("hidden_sessions") or 0)
        seen = f", as far as this role may see: {hidden} sessions are hidden from it"
        return _age(subject, name) + (seen if hidden else "")

    return Rule(
        check,
        found,
        warn(lambda s: s.number(name) is None, "Check pg_stat_activity.", fact(name)),
        warn(_is_long(name), advice),
        warn(
            lambda s: s.number("hidden_sessions") and s.number("transactions_tail_waits_for"),
            "Sessions that it can't see are at work: GRANT pg_read_all_stats TO the role.",
        ),
    )


def _counted(name: str, rest: Callable[[Subject], str]) -> Callable[[Subject], str]:
    """A count, and more about what was counted if it is not 0."""
    return lambda s: s.get(name) + (f", {rest(s)}" if s.get(name) not in ("0", "unknown") else "")


TRANSACTION_RULES = (
    _transaction(
        "oldest transaction",
        "longest_write_seconds",
        "`tail` waits for it (`read` and `log` don't). Find it: SELECT pid, xact_start, "
        "query FROM pg_stat_activity ORDER BY xact_start LIMIT 1.",
    ),
    _transaction(
        "idle in a transaction",
        "longest_idle_in_transaction_seconds",
        "A program did not end its transaction; if it wrote something, `tail` waits for it. "
        "Set idle_in_transaction_session_timeout.",
    ),
    Rule(
        "prepared transactions",
        _counted(
            "prepared_transactions", lambda s: f"the oldest {_age(s, 'oldest_prepared_seconds')}"
        ),
        warn(
            _is_long("oldest_prepared_seconds"),
            "`tail` waits until it is ended: SELECT * FROM pg_prepared_xacts, then COMMIT "
            "PREPARED or ROLLBACK PREPARED.",
        ),
    ),
    Rule(
        "vacuum",
        lambda s: f"{s.number('oldest_frozen_age') or 0:.0f} transactions since all was frozen",
        warn(
            above("oldest_frozen_age", LAST_NUMBERS),
            "The server refuses writes at two billion. Find out what keeps autovacuum from "
            "running (old transactions, slots), or run VACUUM FREEZE.",
        ),
    ),
    Rule(
        "idle replication slots",
        _counted(
            "idle_slots",
            lambda s: f"keep {(s.number('idle_slots_bytes') or 0) / MIB:.0f} MiB of log",
        ),
        warn(
            above("idle_slots_bytes", MUCH_LOG),
            "The log that they keep fills the disk, and then the server stops. Bring back their "
            "readers, or drop them: pg_drop_replication_slot.",
        ),
    ),
)

SERVER_RULES = (
    *DURABILITY_RULES,
    *ROLE_RULES,
    *TRANSACTION_RULES,
    Rule(
        "privacy",
        "only roles that were granted it",
        warn(
            equals("public_may_read", "true"),
            "REVOKE SELECT ON ALL TABLES IN SCHEMA ... FROM PUBLIC.",
            "every role may read the events",
        ),
    ),
    FREE_SPACE,
    FLUSHING,
)
