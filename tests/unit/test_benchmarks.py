"""The benchmarks' judgements: reached, missed, too noisy to tell, moved since the last run."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.measuring import Figure, Result, Time, in_turns, samples_ratio, speed_ratio
from benchmarks.recorded import Recorded, machine, path_for
from benchmarks.report import report


def result(median: float, noise: float = 0.0, bar: float | None = 0.8) -> Result:
    return Result("append", Figure(median, median - 0.05, median + 0.05, noise), bar, at_least=True)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (result(0.8), "ok"),
        (result(0.7), "missed"),
        (result(0.7, noise=0.12), "missed"),
        (result(0.7, noise=0.13), "too noisy to tell"),
        (result(0.9, noise=0.5), "ok"),
        (result(0.7, bar=None), ""),
        (Result("statements", 1, 0, at_least=False), "missed"),
        (Result("statements", 0, 0, at_least=False), "ok"),
        (Result("CPU", Figure(2.0, 1.9, 2.1, noise=0.2), 1.8, at_least=False), "too noisy to tell"),
    ],
)
def test_a_goal_is_missed_only_if_the_baseline_varies_less_than_the_gap(
    measured: Result, verdict: str
) -> None:
    """Else a busy machine would be taken for a slow program, or a slow program for noise."""
    assert measured.verdict == verdict


def test_a_ratio_has_its_quartiles_and_the_noise_of_its_baseline() -> None:
    """What is divided, and by what, decides all judgements."""
    ours = [Time(wall=2.0, cpu=3.0)] * 5
    theirs = [Time(wall=wall, cpu=1.0) for wall in (1.0, 2.0, 3.0, 4.0, 5.0)]
    figure = speed_ratio(ours, theirs)
    assert figure == Figure(1.5, 1.0, 2.0, noise=2 / 3, cpu=3.0)
    assert figure.inverse() == Figure(1 / 1.5, 0.5, 1.0, noise=2 / 3, cpu=3.0)


def test_works_take_turns_and_the_first_round_does_not_count() -> None:
    """Noise has to fall on all of them, and a cold start on none."""
    done: list[str] = []
    times = in_turns([lambda: done.append("a"), lambda: done.append("b")], rounds=2)
    assert done == ["a", "b", "b", "a", "a", "b"]
    assert [len(one) for one in times] == [2, 2]


def test_the_spread_of_samples_is_that_of_their_parts() -> None:
    """A single slow sample is noise, and neither moves the ratio nor widens it."""
    figure = samples_ratio([2.0] * 99 + [50.0], [1.0] * 100)
    assert (figure.median, figure.low, figure.high, figure.noise) == (2.0, 2.0, 2.0, 0.0)


def test_a_row_that_moved_more_than_its_spread_is_marked(tmp_path: Path) -> None:
    """Of the last run on the same machine, whatever was recorded before it."""
    file = tmp_path / "machine.jsonl"
    Recorded(file).add([result(0.5)])
    Recorded(file).add([result(0.7)])
    recorded = Recorded(file)
    assert recorded.moved(result(0.79)) == ""
    assert recorded.moved(result(0.81)) == "0.700"
    assert recorded.moved(Result("append", 0.9, 0.8, at_least=True)) == ""


def test_the_exit_code_is_for_missed_goals_only(tmp_path: Path) -> None:
    """Rows that a noisy machine can't tell are counted, and fail nothing."""
    written = StringIO()
    console = Console(file=written, width=200)
    rows = [result(0.9), result(0.7, noise=0.5), result(0.7, bar=None)]
    assert report(rows, Recorded(tmp_path / "a.jsonl"), console) == 0
    assert "3 rows: 1 ok, 1 too noisy to tell, 1 without a goal." in written.getvalue()
    assert report([result(0.5)], Recorded(tmp_path / "b.jsonl"), console) == 1
    assert report([result(0.9)], Recorded(tmp_path / "b.jsonl"), console) == 0
    assert "moved, was 0.500" in written.getvalue()


def test_results_are_kept_per_machine_in_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures of one machine are never compared with those of another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = path_for(machine())
    assert found.is_relative_to(tmp_path)
    assert "cores" in found.name
    assert path_for("another") != found
