"""`Agent.run`, `arun`, chats and approvals: killed anywhere, they end as if they had not been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.driver import drive
from tests.matrices import cells

PAID = {
    "sync": ["pay_now"],
    "async": ["pay_later"],
    "mixed": ["pay_now", "pay_later"],
}


def ended(url: str, folder: Path, way: str, tools: str, kind: str, stride: int = 1) -> None:
    """Check that all that were killed ended as the last one, which was not."""
    runs: list[dict[str, Any]] = drive(
        "front_door",
        seconds=240,
        url=url,
        folder=str(folder),
        way=way,
        tools=tools,
        kind=kind,
        stride=stride,
    )["runs"]
    *killed, undisturbed = runs
    turns = (1, 2, 3) if kind == "chat" else (1,)
    expected = [f"t{turn}-{name}" for turn in turns for name in PAID[tools]]
    assert undisturbed["effects"] == expected
    assert len(killed) * stride > 8
    for one in runs:
        assert one["divergence"] == "", one
        assert one["outcome"] == undisturbed["outcome"], one
        done = [call for call in one["effects"] if call not in one["doubts"]]
        assert sorted(done) == sorted(set(done)), one
        assert set(one["effects"]) == set(expected), one


@pytest.mark.parametrize(("way", "tools"), cells(["run", "arun"], ["sync", "async", "mixed"]))
def test_a_chat_that_was_killed_anywhere_ends_as_if_it_had_not_been(
    way: str, tools: str, file_url: str, tmp_path: Path
) -> None:
    """Three turns: none is lost or doubled, and a replay calls no tool and no model."""
    ended(file_url, tmp_path, way, tools, "chat", stride=7)


@pytest.mark.parametrize(("way", "tools"), cells(["run", "arun"], ["sync", "async", "mixed"]))
def test_a_run_that_waits_for_approval_survives_every_kill(
    way: str, tools: str, file_url: str, tmp_path: Path
) -> None:
    """Before, while and after it waits: a call runs once for each approval."""
    ended(file_url, tmp_path, way, tools, "approval", stride=4)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["chat", "approval"])
@pytest.mark.parametrize("tools", ["sync", "async", "mixed"])
@pytest.mark.parametrize("way", ["run", "arun"])
def test_the_same_at_every_moment(
    way: str, tools: str, kind: str, file_url: str, tmp_path: Path
) -> None:
    """Every moment of a chat, and of a run that waits."""
    ended(file_url, tmp_path, way, tools, kind)


@pytest.mark.full
def test_the_same_on_postgresql(server_url: str, tmp_path: Path) -> None:
    """Where a killed worker is known by its session."""
    ended(server_url, tmp_path, "arun", "mixed", "chat", stride=5)
