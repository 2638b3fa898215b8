"""Hostile paths: whatever a model asks for, nothing outside of the workspace is read or changed."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.workspace.agents import use
from turnledger.runtime.workspace import directory

CANARY = "canary-7f3a"
# Entries of the world below that lead out, nowhere, round in circles, or are no files.
TRAPS = ("out", "abs", "bird", "root", "up", "loop", "ping", "far", "pipe", "sock", "zero", "dir")
STEPS = ("..", ".", "", "...", "..;", "%2e%2e", "..\\", "~", "canary", "new", "etc", *TRAPS)

WRITTEN = [
    "..", "../", "../..", "../outside/canary", "/..", "/../outside/canary", "//..//..//etc/passwd",
    "./../outside/canary", "dir/../../outside/canary", "dir/./../../outside", "....//outside",
    "..././outside", "..\\outside\\canary", "..%2foutside%2fcanary", "%2e%2e/outside/canary",
    "%252e%252e/outside", "..%c0%af..%c0%afetc/passwd", "..\u2215outside", "\u2025/outside",
    "\uff0e\uff0e/outside", ".\u200b./outside", "/etc/passwd", "//etc/passwd",
    "/proc/self/environ", "/proc/self/root/etc/passwd", "/proc/self/fd/0", "/dev/zero",
    "/dev/stdin", "/dev/fd/0", "/sys/kernel", "~/.ssh/id_rsa", "~root", "$HOME", "${HOME}/x",
    "$(id)", "`id`", "; rm -rf /", "| cat /etc/passwd", "file:///etc/passwd",
    "C:\\Windows\\win.ini", "\\\\server\\share", "con", "nul", "out", "out/", "out/.",
    "out/canary", "/out/canary", "out//canary", "./out/./canary", "abs/canary", "bird", "/bird",
    "bird/", "root/etc/passwd", "root/proc/self/environ", "up/canary", "up/outside/canary",
    "up/../outside/canary", "loop", "loop/x", "ping", "pong/x", "far", "far/x", "pipe", "pipe/x",
    "sock", "zero", "zero/x", "dir/out", "dir/out/canary", "dir/out/../canary", "canary\0", "\0",
    "a\0b", "../outside/canary\0.txt", "a\nb", "\r", "\x1b[2J", "\x7f", "\u202e", "\ud800",
    "a/\udcff", "x" * 256, "\u00e9" * 200, "x" * 5000, "a/" * 40, "a/" * 600, "../" * 300,
    "/" * 1000, "./" * 500, ".turnledger-restoring", "dir/.turnledger-restoring", "-rf", "--", "-",
    "*", "?", "[", "[!a]", "**", "{a,b}", " ", "  /  ", ".", "/", "", "\\", "'", '"', "&&", "#",
    "!",
]  # fmt: skip


def generated(count: int) -> list[str]:
    """Paths of steps that may be dangerous together, the same ones every time."""
    every = [sep.join(steps) for steps in product(STEPS, repeat=3) for sep in ("/", "//", "/./")]
    return Random(15).sample(every, count)


@contextmanager
def world() -> Iterator[tuple[Path, Path]]:
    """A workspace full of traps, and the folder above it, which has the canary."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        outside, root = top / "outside", top / "workspace"
        outside.mkdir()
        (outside / "canary").write_text(CANARY)
        (root / "dir").mkdir(parents=True)
        links = {"out": "../outside", "abs": str(outside), "bird": "../outside/canary"}
        links |= {"root": "/", "up": "..", "loop": "loop", "ping": "pong", "pong": "ping"}
        links |= {"zero": "/dev/zero", "dir/out": "../../outside", "far": "step0"}
        links |= {f"step{n}": f"step{n + 1}" for n in range(25)}
        for name, target in links.items():
            (root / name).symlink_to(target)
        os.mkfifo(root / "pipe")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(root / "sock"))
        yield top, root


def uses_of(path: str) -> dict[str, dict[str, str]]:
    """Each tool on a path; those that change something come last. `grep` is another test's."""
    return {
        "ls": {"path": path},
        "read_file": {"file_path": path},
        "glob": {"pattern": "**", "path": path},
        "edit_file": {"file_path": path, "old_string": CANARY, "new_string": "cooked"},
        "write_file": {"file_path": path, "content": "cooked"},
        "rm": {"path": path},
    }


def check_contained(paths: list[str]) -> None:
    left = iter(paths)
    while (path := next(left, None)) is not None:
        with world() as (top, root):
            is_whole = True
            while path is not None and is_whole:
                told = {name: use(root, name, **given) for name, given in uses_of(path).items()}
                said = "\n".join(one.message for one in told.values())
                said += use(root, "glob", pattern=path).message
                said.encode()
                assert CANARY not in said, path
                assert "root:x:0" not in said, path
                assert sorted(os.listdir(top)) == ["outside", "workspace"], path
                assert os.listdir(top / "outside") == ["canary"], path
                assert (top / "outside/canary").read_text() == CANARY, path
                is_whole = not told["rm"].success and not told["write_file"].success
                path = next(left, None) if is_whole else None


def test_two_hundred_hostile_paths_are_contained() -> None:
    """Written by hand and generated, for every tool, with a canary outside."""
    assert len(set(WRITTEN)) > 100
    check_contained([*WRITTEN, *generated(150)])


@pytest.mark.full
def test_two_thousand_more_are_contained() -> None:
    """All from the same steps."""
    check_contained(generated(2000))


@given(st.lists(st.sampled_from(STEPS) | st.text(max_size=4), max_size=6).map("/".join))
def test_any_path_is_contained(path: str) -> None:
    """Of steps that are dangerous and of any text."""
    check_contained([path])


@pytest.mark.process
@pytest.mark.parametrize("path", ["/", "out", "abs/canary", "bird", "up/outside", "dir", "pipe"])
def test_grep_is_contained_too(path: str) -> None:
    """It follows no link out, and waits for no pipe."""
    with world() as (_, root):
        assert CANARY not in use(root, "grep", pattern="canary-.*", path=path).message


@pytest.mark.parametrize("name", uses_of(""))
def test_a_directory_that_becomes_a_link_meanwhile_leads_nowhere(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a step and its opening: the moment of a check-then-open race."""
    real = directory._mode

    def look_and_swap(step: str, parent: int) -> int:
        found = real(step, parent)
        if step == "dir":
            (root / "dir").rename(root / "moved")
            (root / "dir").symlink_to("../outside")
        return found

    monkeypatch.setattr(directory, "_mode", look_and_swap)
    with world() as (top, root):
        path = "dir" if name in ("ls", "glob") else "dir/canary"
        told = use(root, name, **uses_of(path)[name])
        assert (root / "moved").is_dir()
        assert not told.success
        assert CANARY not in told.message
        assert os.listdir(top / "outside") == ["canary"]
        assert (top / "outside/canary").read_text() == CANARY
