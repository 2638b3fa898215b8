"""Search in a workspace: patterns for paths, and regular expressions for lines of files.

Both are bounded, whatever the model asks for and whatever the files are. A regular expression may
take exponential time and can't be interrupted, so it runs in a process of its own, which is
killed when its time is up and has limits of its own if this process dies.
"""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

import msgspec

from turnledger.runtime.errors import WorkspaceError
from turnledger.runtime.workspace.directory import (
    MOST_ENTRIES,
    MOST_STEPS,
    Directory,
    Entry,
    steps_of,
)

SECONDS = 10
MOST_FILE_BYTES = 4 * 1024 * 1024
_MOST_BYTES = 32 * 1024 * 1024
_MOST_LINE = 500

# Reads a JSON line (pattern, the files' sizes, the most matches), then the files' bytes; prints
# JSON. Standard library only, and nothing from the environment.
_CHILD = f"""
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
asked = json.loads(sys.stdin.buffer.readline())
found, problem = [], ""
try:
    search = re.compile(asked["pattern"]).search
    for number, size in enumerate(asked["sizes"]):
        text = sys.stdin.buffer.read(size).decode("utf-8", "replace")
        for place, line in enumerate(text.split("\\n"), 1):
            if len(found) < asked["most"] and search(line):
                found.append((number, place, line[:{_MOST_LINE}]))
except Exception as error:
    problem = str(error) or type(error).__name__
print(json.dumps({{"found": found, "problem": problem}}))
"""


class _Answer(msgspec.Struct):
    found: list[tuple[int, int, str]]
    problem: str


class Match(NamedTuple):
    """A line that matches."""

    path: str
    line: int
    text: str


class Walked:
    """Entries below a directory; `is_whole` tells after the walk whether all were looked at."""

    def __init__(self, files: Directory, path: str) -> None:
        self.is_whole = True
        self._files, self._path = files, path
        self._ends = time.monotonic() + SECONDS

    def __iter__(self) -> Iterator[Entry]:
        with closing(self._files.walk(self._path)) as walk:
            for count, entry in enumerate(walk):
                if count >= MOST_ENTRIES or time.monotonic() > self._ends:
                    self.is_whole = False
                    return
                if stat.S_ISDIR(entry.mode) and entry.path.count("/") + 1 >= MOST_STEPS:
                    self.is_whole = False
                yield entry


class PathPattern:
    """A pattern for paths: `*`, `?` and `[...]` within a step, `**` for any number of steps."""

    def __init__(self, pattern: str) -> None:
        self._steps = tuple(steps_of(pattern))
        if not self._steps:
            raise WorkspaceError('Invalid pattern: expected one such as "**/*.py".')

    def matches(self, path: str) -> bool:
        names, steps = path.split("/"), self._steps

        @cache
        def match(name: int, step: int) -> bool:
            if step == len(steps):
                return name == len(names)
            if steps[step] == "**":
                return match(name, step + 1) or (name < len(names) and match(name + 1, step))
            return (
                name < len(names)
                and fnmatchcase(names[name], steps[step])
                and match(name + 1, step + 1)
            )

        return match(0, 0)


def search(expression: str, files: dict[str, bytes], most: int) -> list[Match]:
    """Find the lines of files that match an expression; WorkspaceError if it is invalid or slow.

    Args:
        expression: A regular expression of Python.
        files: Bytes by path.
        most: How many matches are enough.
    """
    sizes = [len(content) for content in files.values()]
    asked = msgspec.json.encode({"pattern": expression, "sizes": sizes, "most": most})
    try:
        ended = subprocess.run(  # noqa: S603 - this interpreter, with the text above
            [sys.executable, "-I", "-S", "-c", _CHILD],
            input=b"".join((asked, b"\n", *files.values())),
            capture_output=True,
            timeout=SECONDS,
            env={},
            cwd="/",
            check=True,
        )
        answer = msgspec.json.decode(ended.stdout, type=_Answer)
    except subprocess.TimeoutExpired:
        raise WorkspaceError(
            f"The search took longer than {SECONDS} seconds and was stopped. Use a simpler "
            "expression (nested repetitions are slow), or search in fewer files."
        ) from None
    except (OSError, subprocess.CalledProcessError, msgspec.DecodeError) as error:
        raise WorkspaceError(f"The search could not be run: {error}.") from error
    if answer.problem:
        raise WorkspaceError(f"Invalid expression {expression!r}: {answer.problem}.")
    paths = list(files)
    return [Match(paths[number], line, text) for number, line, text in answer.found]


def readable_files(
    files: Directory, path: str, walked: Walked, pattern: PathPattern | None
) -> tuple[dict[str, bytes], list[str]]:
    """Read the text files below a directory; returns them and the paths of those left out.

    Args:
        files: The workspace.
        path: Where the walk began.
        walked: The walk.
        pattern: Only files that match it, from there.
    """
    found: dict[str, bytes] = {}
    left_out: list[str] = []
    size = 0
    for entry in walked:
        if not stat.S_ISREG(entry.mode) or (pattern and not pattern.matches(entry.path)):
            continue
        full = f"{path.rstrip('/')}/{entry.path}"
        try:
            content, _ = files.read(full, min(MOST_FILE_BYTES, _MOST_BYTES - size))
        except (WorkspaceError, OSError):
            left_out.append(full)
            continue
        if b"\0" not in content:
            found[full] = content
            size += len(content)
    return found, left_out
