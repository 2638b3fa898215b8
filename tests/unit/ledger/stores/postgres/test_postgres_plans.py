"""How PostgreSQL plans listings of runs: seldom, and along the index of what is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.ledger.stores.postgres.ledgers import Opened, Sql
from turnledger.ledger import Ledger

# Listings for which PostgreSQL makes plans for the values given, before it may keep one for any.
TRIALS = 5
COMMON, RARE = "019b0000-0000-7000-8000-000000000000", "019b0000-0000-7000-9000-000000000000"
# Runs of one status, prompt and parent, and then one that has others. PostgreSQL has counted the
# values before that one came.
FILL = f"""INSERT INTO runs SELECT '019b0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'), 1, '',
    n, 0, 'completed', n, 'ns/common', 'fork', '{COMMON}', 0, '{{}}', n
    FROM generate_series(1, 10000) n"""
ADD = f"""INSERT INTO runs VALUES ('{RARE}', 1, '', 0, 0, 'failed', 0, 'ns/rare', 'fork',
    '{RARE}', 0, '{{}}', 0)"""


@pytest.fixture
def filled(url: str, sql: Sql, opened: Opened) -> Ledger:
    ledger = opened(url)
    sql.execute("SET search_path = turnledger")
    sql.execute(FILL)
    sql.execute("ANALYZE runs")
    sql.execute(ADD)
    return ledger


def listings(ledger: Ledger) -> list[Any]:
    """The listings of runs that the server has prepared: name, text and number of its plans."""
    with ledger.store.pool.reader() as db:
        return db.execute(
            "SELECT name, statement, custom_plans FROM pg_prepared_statements "
            "WHERE statement LIKE '%%FROM runs WHERE%%'"
        ).fetchall()


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"status": "completed", "limit": 500}, 500),
        ({"prompt": "ns/common", "limit": 500}, 500),
        ({"parent": COMMON, "limit": 5}, 5),
        ({"id_part": "000000000007"}, 1),
    ],
)
def test_a_listing_is_not_planned_each_time(
    filled: Ledger, asked: dict[str, Any], found: int
) -> None:
    """Planning costs as much as reading: after a few trials, one plan is kept for any value."""
    for _ in range(TRIALS + 3):
        assert len(list(filled.runs(**asked))) == found
    plans = {statement: custom for _, statement, custom in listings(filled)}
    assert set(plans.values()) == {TRIALS}, plans


def plan_for_any(ledger: Ledger) -> str:
    """The plan of the one listing so far, as it is for any values."""
    ((name, statement),) = [one[:2] for one in listings(ledger) if "ORDER BY" in one[1]]
    values = ", ".join(["NULL"] * statement.count("$"))
    with ledger.store.pool.reader() as db:
        db.execute("SET plan_cache_mode = force_generic_plan")
        return str(db.execute(f"EXPLAIN EXECUTE {name}({values})").fetchall())


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({"status": "failed"}, "runs_by_status"),
        ({"prompt": "ns/rare"}, "runs_by_prompt"),
        ({"parent": RARE}, "runs_by_parent"),
    ],
)
def test_a_plan_for_any_value_finds_a_rare_one_by_its_index(
    filled: Ledger, asked: dict[str, Any], index: str
) -> None:
    """Where nearly all runs have another value, it does not go through all of them."""
    assert [str(run.run_id) for run in filled.runs(**asked, limit=5)] == [RARE]
    plan = plan_for_any(filled)
    assert f"using {index} " in plan, plan


def test_a_plan_for_any_value_does_not_sort(filled: Ledger, sql: Sql) -> None:
    """Of a status that most runs have, though there are many, only those listed are read."""
    sql.execute("UPDATE runs SET status = 's' || started_at / 10 % 5 WHERE started_at % 10 = 0")
    sql.execute("ANALYZE runs")
    assert len(list(filled.runs(status="completed", limit=500))) == 500
    plan = plan_for_any(filled)
    assert "using runs_by_status " in plan
    assert "Sort" not in plan


def test_few_ids_are_looked_up_whatever_else_is_asked(filled: Ledger, sql: Sql) -> None:
    """A prompt that most runs have is not taken for a rare one because there are many prompts."""
    sql.execute("UPDATE runs SET prompt = 'ns/' || started_at WHERE started_at % 10 = 0")
    sql.execute("ANALYZE runs")
    assert len(list(filled.runs(prompt="ns/common", id_part="000000000007", limit=1))) == 1
    plan = plan_for_any(filled)
    assert "using runs_pkey " in plan, plan
