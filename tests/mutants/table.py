"""Table of mutants: for each requirement, changes of the source that break it.

`S0.toml` to `X.toml` beside this module hold the lines. A line says in a few words what is
required. Each of its mutants names a file, a text that occurs exactly once in it, the text that
replaces it, and the tests that fail then: the tests that protect the line. What of a line nothing
implements is `missing`. docs/requirements.md is made from this table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The parts in the order of the page: a heading, and the number of their lines.
PARTS = {
    "S0": ("Inner messages", 24),
    "S1": ("Messages with media and options", 16),
    "S2": ("Main loop and restart recovery", 24),
    "S3": ("Message history, invariant by construction", 7),
    "S4": ("Adapters", 24),
    "X": ("Where requirements disagree: what this project does", 29),
}


@dataclass(frozen=True)
class Mutant:
    """A change that breaks a requirement, and the tests that notice."""

    line: str
    number: int
    file: str
    text: str
    becomes: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.line}.{self.number}"

    def applied(self, source: str) -> str:
        """The file's text with the change; ValueError if the place is not there exactly once."""
        found = source.count(self.text)
        if found != 1:
            raise ValueError(
                f"{self.name} is stale: its text occurs {found} times in {self.file}, expected "
                "once. Choose another text in tests/mutants."
            )
        return source.replace(self.text, self.becomes)


@dataclass(frozen=True)
class Line:
    """A requirement: its mutants, and what of it nothing implements (`missing`)."""

    name: str
    what: str
    mutants: tuple[Mutant, ...] = ()
    missing: str = ""

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that protect it, each once."""
        return tuple(dict.fromkeys(test for mutant in self.mutants for test in mutant.tests))


def read_table() -> dict[str, Line]:
    """All lines by name, in the order of the files."""
    lines: dict[str, Line] = {}
    for part in PARTS:
        entries = tomllib.loads(Path(__file__).with_name(f"{part}.toml").read_text())
        for name, entry in entries.items():
            lines[name] = _line(name, **entry)
    return lines


def _line(name: str, *, what: str, missing: str = "", mutants: Iterable[dict] = ()) -> Line:
    made = tuple(
        Mutant(name, number, one["file"], one["text"], one["becomes"], tuple(one["tests"]))
        for number, one in enumerate(mutants, start=1)
    )
    return Line(name, what, made, missing)


def required() -> list[str]:
    """The names of all lines."""
    return [
        f"{part}{'' if part == 'X' else '-'}{number}"
        for part, (_, count) in PARTS.items()
        for number in range(1, count + 1)
    ]


def problems(lines: dict[str, Line]) -> list[str]:
    """What is wrong with the table itself: lines, stale mutants, one mutant for two lines."""
    found: list[str] = []
    if list(lines) != required():
        wrong = set(lines).symmetric_difference(required()) or "their order"
        found.append(f"the lines differ from the requirements: {wrong}")
    seen: dict[tuple[str, str, str], str] = {}
    for line in lines.values():
        if not line.mutants and not line.missing:
            found.append(f"{line.name} needs mutants, or the reason why it is missing")
        for mutant in line.mutants:
            other = seen.setdefault((mutant.file, mutant.text, mutant.becomes), mutant.name)
            if other != mutant.name:
                found.append(f"{mutant.name} is the same change as {other}")
            if not mutant.tests:
                found.append(f"{mutant.name} names no test")
            try:
                compile(mutant.applied((ROOT / mutant.file).read_text()), mutant.file, "exec")
            except SyntaxError as error:
                found.append(f"{mutant.name} is not Python any more: {error}")
            except (OSError, ValueError) as error:
                found.append(str(error))
    return found


def page(lines: dict[str, Line]) -> str:
    """docs/requirements.md."""
    rows: list[str] = []
    for part, (heading, _) in PARTS.items():
        rows += [
            f"## {part}: {heading}",
            "",
            "| line | what | protected by |",
            "| --- | --- | --- |",
        ]
        rows += [
            f"| {name} | {line.what} | {_cell(line)} |"
            for name, line in lines.items()
            if name.startswith(part)
        ]
        rows.append("")
    return "\n".join([*_LEAD, *rows])


def _cell(line: Line) -> str:
    cells = [f"[`{name}`](../{path})" for path, _, name in (t.partition("::") for t in line.tests)]
    return "<br>".join([*cells, f"**Not there:** {line.missing}"] if line.missing else cells)


_LEAD = [
    "# What is required, and which tests protect it",
    "",
    "<!-- Generated by `make docs` from tests/mutants/*.toml. Change those, not this page. -->",
    "",
    "Every line of the requirements: inner messages (S0), messages with media and options (S1),",
    "the main loop and its recovery (S2), message history (S3), adapters (S4), and what this",
    "project does where these disagree (X). `make mutants` breaks each line in a way of its own,",
    "and demands that each test named here fails then. What is not there is said.",
    "",
]
