"""The checks of `doctor` for a ledger in PostgreSQL: what an acknowledged commit is worth there.

Pure functions over what the server says of itself, and of its disk if that is on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from turnledger.adapters.cli.maintain.doctor.check import Check, Verdict, judge, number_of, span
from turnledger.adapters.cli.maintain.doctor.sqlite import MIB, Place, flushing, free_space

# A write transaction this old (seconds) noticeably holds followers of the ledger back.
LONG_TRANSACTION = 60.0
# Transaction numbers that may be used before PostgreSQL takes no more writes: about two billion.
LAST_NUMBERS = 1_500_000_000
# A log that is kept for a standby that does not come.
MUCH_LOG = 1024 * MIB
OLDEST_SUPPORTED = 14


def check_postgres(facts: Mapping[str, str], place: Place | None) -> Iterator[Check]:
    """All checks for a ledger in PostgreSQL; `place` is its folder, if it is of this machine."""
    yield _version(facts)
    yield _must_be(
        facts, "fsync", "on", "A crash of the machine can destroy the database. Set fsync = on."
    )
    yield from _commits(facts)
    yield _must_be(
        facts,
        "full_page_writes",
        "on",
        "A crash can leave torn pages. Set full_page_writes = on, unless the file system "
        "writes pages whole.",
        otherwise=Verdict.WARN,
    )
    yield _must_be(
        facts,
        "data_checksums",
        "on",
        "A disk that gives back wrong bytes is not noticed by the server (`verify` notices what "
        "it covers). Stop the server and run pg_checksums --enable.",
        otherwise=Verdict.WARN,
    )
    yield _must_be(
        facts,
        "zero_damaged_pages",
        "off",
        "Damaged pages are emptied without an error: events vanish. Set it to off.",
    )
    yield _role(facts)
    yield _rebase(facts)
    yield from _transactions(facts)
    yield _slots(facts)
    yield _privacy(facts)
    if place is None:
        advice = "Watch it there: a server whose log can't grow stops."
        yield Check("disk", Verdict.OK, "on the server's machine, not visible from here", advice)
    else:
        yield free_space(place)
        yield flushing(place)


def _version(facts: Mapping[str, str]) -> Check:
    found = facts.get("server_version", "unknown")
    major = found.split(".")[0].split(" ")[0]
    old = major.isdecimal() and int(major) < OLDEST_SUPPORTED
    return judge(
        "PostgreSQL",
        found,
        Verdict.WARN if old else None,
        "Its makers no longer mend it. Upgrade, and keep to the newest minor version.",
    )


def _must_be(
    facts: Mapping[str, str],
    name: str,
    good: str,
    advice: str,
    *,
    otherwise: Verdict = Verdict.FAIL,
) -> Check:
    found = facts.get(name)
    if found is None:
        return Check(name, Verdict.WARN, "unknown", f"Look at it yourself: SHOW {name}.")
    return judge(name, found, None if found == good else otherwise, advice)


# --- what a commit waits for ----------------------------------------------------------


def _commits(facts: Mapping[str, str]) -> Iterator[Check]:
    level = facts.get("synchronous_commit")
    names = facts.get("synchronous_standby_names", "")
    if level is None:
        advice = "Look at it yourself: SHOW synchronous_commit."
        yield Check("synchronous_commit", Verdict.WARN, "unknown", advice)
    elif level not in ("on", "remote_apply", "remote_write", "local"):
        yield Check(
            "synchronous_commit",
            Verdict.FAIL,
            level,
            "Acknowledged events can be lost when the server crashes. The ledger sets it to on "
            "for its own commits: something overrides that.",
        )
    else:
        yield _reach(level, names)
    yield _standbys(facts, names)


def _reach(level: str, names: str) -> Check:
    name = "synchronous_commit"
    if not names or level in ("on", "remote_apply"):
        return Check(name, Verdict.OK, level)
    if level == "local":
        advice = "Commits don't wait for the standby: a fail-over can lose acknowledged events. "
    else:
        advice = (
            "The standby has a commit in memory, not yet on its disk: acknowledged events are "
            "lost if it loses power in the moment when it takes over. "
        )
    return Check(name, Verdict.WARN, level, f"{advice}The ledger sets on: something overrides it.")


def _standbys(facts: Mapping[str, str], names: str) -> Check:
    name = "standbys"
    count = facts.get("standbys", "unknown")
    if not names:
        if count in ("0", "unknown"):
            advice = (
                "Acknowledged events are on one disk. If it dies, they are gone up to the last "
                "backup: a synchronous standby (synchronous_standby_names) keeps them."
            )
            return Check(name, Verdict.OK, "none that commits wait for", advice)
        advice = (
            "No commit waits for them: a fail-over can lose acknowledged events, and followers "
            "may then see positions again. Set synchronous_standby_names."
        )
        return Check(name, Verdict.WARN, f"{count} connected, none synchronous", advice)
    in_sync = facts.get("standbys_in_sync")
    found = f"commits wait for {names}, {in_sync or 'unknown'} in sync"
    if facts.get("standby") == "true":
        return Check(name, Verdict.OK, f"would wait for {names} if promoted")
    return judge(
        name,
        found,
        Verdict.FAIL if in_sync == "0" else None,
        "No such standby is connected: appends wait until one is. Bring it back, or take it out "
        "of synchronous_standby_names. Don't cancel waiting commits: they are on this server only.",
    )


def _role(facts: Mapping[str, str]) -> Check:
    if facts.get("standby") == "true":
        advice = (
            "It can be read; appends are refused. Name all servers in the URL, with "
            "target_session_attrs=read-write, to find the one that takes writes."
        )
        return Check("role", Verdict.WARN, "a standby", advice)
    return judge(
        "role",
        "primary",
        Verdict.FAIL if facts.get("default_transaction_read_only") == "on" else None,
        "default_transaction_read_only is on: appends are refused.",
    )


def _rebase(facts: Mapping[str, str]) -> Check:
    return judge(
        "transaction numbers",
        "below the stored positions" if facts.get("needs_rebase") == "true" else "go on",
        Verdict.FAIL if facts.get("needs_rebase") == "true" else None,
        "It was restored from a dump: appends are refused until you run `turnledger rebase` once.",
    )


# --- what holds others up -------------------------------------------------------------


def _transactions(facts: Mapping[str, str]) -> Iterator[Check]:
    yield _long(
        facts,
        "longest_write_seconds",
        "oldest transaction",
        "`tail` waits behind it (`read` and `log` don't). Find it: SELECT pid, xact_start, "
        "query FROM pg_stat_activity ORDER BY xact_start LIMIT 1.",
    )
    yield _long(
        facts,
        "longest_idle_in_transaction_seconds",
        "idle in a transaction",
        "A program forgot to end its transaction; if it wrote something, `tail` waits behind it. "
        "Set idle_in_transaction_session_timeout.",
    )
    count = facts.get("prepared_transactions", "unknown")
    age = number_of(facts, "oldest_prepared_seconds") or 0.0
    yield judge(
        "prepared transactions",
        count if count in ("0", "unknown") else f"{count}, the oldest {_age(age)}",
        Verdict.WARN if age >= LONG_TRANSACTION else None,
        "`tail` waits until it is ended, for ever if nobody does: SELECT * FROM "
        "pg_prepared_xacts, then COMMIT PREPARED or ROLLBACK PREPARED.",
    )
    used = number_of(facts, "oldest_frozen_age") or 0
    yield judge(
        "vacuum",
        f"{used:.0f} transactions since all was frozen",
        Verdict.WARN if used > LAST_NUMBERS else None,
        "The server takes no more writes at two billion. Find out what keeps autovacuum from "
        "its work (old transactions, slots), or run VACUUM FREEZE.",
    )


def _long(facts: Mapping[str, str], fact: str, name: str, advice: str) -> Check:
    seconds = number_of(facts, fact)
    if seconds is None:
        text = facts.get(fact, "unknown")
        return Check(name, Verdict.WARN, text, "Look at pg_stat_activity yourself.")
    found = _age(seconds)
    if hidden := int(number_of(facts, "hidden_sessions") or 0):
        found += f", as far as this role may see: {hidden} sessions are hidden from it"
        if seconds < LONG_TRANSACTION and number_of(facts, "transactions_tail_waits_for"):
            advice = "Others are at work that it can't see: GRANT pg_read_all_stats TO the role."
            return Check(name, Verdict.WARN, found, advice)
    return judge(name, found, Verdict.WARN if seconds >= LONG_TRANSACTION else None, advice)


def _age(seconds: float) -> str:
    return span(timedelta(seconds=seconds))


def _slots(facts: Mapping[str, str]) -> Check:
    count = facts.get("idle_slots", "unknown")
    kept = number_of(facts, "idle_slots_bytes") or 0
    return judge(
        "idle replication slots",
        count if count in ("0", "unknown") else f"{count}, keep {kept / MIB:.0f} MiB of log",
        Verdict.WARN if kept > MUCH_LOG else None,
        "The log that they keep fills the disk, and the server stops then. Bring back who reads "
        "them, or pg_drop_replication_slot.",
    )


def _privacy(facts: Mapping[str, str]) -> Check:
    public = facts.get("public_may_read") == "true"
    return judge(
        "privacy",
        "every role may read the events" if public else "only roles that were granted it",
        Verdict.WARN if public else None,
        "REVOKE SELECT ON ALL TABLES IN SCHEMA ... FROM PUBLIC.",
    )
