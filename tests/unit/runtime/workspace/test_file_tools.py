"""The tools for files: what they do, and what they tell a model that asks for the impossible."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.workspace.agents import TOOLS, use
from turnledger.runtime import ToolContext
from turnledger.runtime.workspace import search

# What a file of text may hold: anything but NUL.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


def refused(root: Path, name: str, **arguments: Any) -> str:
    """The message of a call that must fail."""
    result = use(root, name, **arguments)
    assert not result.success
    return result.message


def done(root: Path, name: str, **arguments: Any) -> str:
    """The message of a call that must succeed."""
    result = use(root, name, **arguments)
    assert result.success, result.message
    return result.message


def test_ls_lists_names_sizes_and_where_links_lead(tmp_path: Path) -> None:
    """Sorted, with a slash after a directory; an empty one says so."""
    (tmp_path / "b").mkdir()
    (tmp_path / "a.txt").write_text("four")
    (tmp_path / "c").symlink_to("a.txt")
    assert done(tmp_path, "ls") == "a.txt (4 bytes)\nb/\nc -> a.txt"
    assert done(tmp_path, "ls", path="/b/") == "The directory is empty."
    assert refused(tmp_path, "ls", path="/a.txt") == "/a.txt: is not a directory"
    assert refused(tmp_path, "ls", path="/x/y") == "/x/y: 'x' does not exist"


def test_a_name_that_can_not_be_printed_is_escaped(tmp_path: Path) -> None:
    """So that it can neither look like another line nor break the record."""
    (tmp_path / "a\nb").write_text("")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("")
    assert done(tmp_path, "ls") == "a\\nb (0 bytes)\n\\udcff (0 bytes)"


def test_read_file_numbers_the_lines_and_tells_how_to_go_on(tmp_path: Path) -> None:
    """Numbers are those of the file, also after an offset."""
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    assert done(tmp_path, "read_file", file_path="a") == "     1\tone\n     2\ttwo\n     3\tthree"
    part = done(tmp_path, "read_file", file_path="/a", offset=1, limit=1)
    assert part == "     2\ttwo\n(Lines 3 to 3 follow: offset=2.)"
    assert refused(tmp_path, "read_file", file_path="a", offset=3) == "a: has only 3 lines"


@pytest.mark.parametrize("wrong", [{"offset": -1}, {"limit": 0}, {"limit": 2001}])
def test_a_range_that_makes_no_sense_is_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    """With the range that is expected."""
    (tmp_path / "a").write_text("one")
    assert "expected offset >= 0" in refused(tmp_path, "read_file", file_path="a", **wrong)


def test_files_that_are_not_plain_text_are_marked_or_refused(tmp_path: Path) -> None:
    """Empty, binary, other encodings, long lines and too large."""
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"ab\0")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "long").write_text("x" * 2010)
    (tmp_path / "wide").write_text(("y" * 1999 + "\n") * 100)
    (tmp_path / "huge").write_bytes(b"z" * (search.MOST_FILE_BYTES + 1))
    assert done(tmp_path, "read_file", file_path="empty") == "The file is empty."
    assert refused(tmp_path, "read_file", file_path="binary") == "binary: a binary file of 3 bytes"
    latin = done(tmp_path, "read_file", file_path="latin")
    assert latin == "(The file is not UTF-8: other bytes are shown as \\xNN.)\n     1\tcaf\\xe9"
    assert done(tmp_path, "read_file", file_path="long").endswith("x… (10 characters more)")
    assert done(tmp_path, "read_file", file_path="wide").endswith("follow: offset=50.)")
    assert "larger than 4194304 bytes" in refused(tmp_path, "read_file", file_path="huge")
    edit = {"old_string": "a", "new_string": "b"}
    assert "UTF-8" in refused(tmp_path, "edit_file", file_path="latin", **edit)


def test_write_file_creates_directories_and_never_replaces(tmp_path: Path) -> None:
    """Also what a link leads to is left as it is."""
    assert (
        done(tmp_path, "write_file", file_path="/a/b/c", content="é") == "Created /a/b/c (2 bytes)."
    )
    (tmp_path / "link").symlink_to("nowhere")
    for path in ("/a/b/c", "/a/b", "/link"):
        assert "exists already" in refused(tmp_path, "write_file", file_path=path, content="x")
    assert "is not a directory" in refused(tmp_path, "write_file", file_path="/a/b/c/d", content="")
    assert (tmp_path / "a/b/c").read_text() == "é"
    assert not (tmp_path / "nowhere").exists()


def test_text_that_is_not_unicode_or_too_long_is_not_written(tmp_path: Path) -> None:
    """A lone surrogate has no bytes, and a file has a size limit."""
    assert "UTF-8" in refused(tmp_path, "write_file", file_path="a", content="\ud800")
    large = "x" * (search.MOST_FILE_BYTES + 1)
    assert "larger than" in refused(tmp_path, "write_file", file_path="a", content=large)
    assert not list(tmp_path.iterdir())
    (tmp_path / "a").write_text("x" * 1_000_000)
    grow = {"old_string": "x", "new_string": "y" * 1_000_000, "replace_all": True}
    assert "larger than" in refused(tmp_path, "edit_file", file_path="a", **grow)


def test_edit_file_wants_exactly_one_match_unless_told_otherwise(tmp_path: Path) -> None:
    """The rest of the file, its permissions and other names of it stay as they are."""
    (tmp_path / "a").write_text("one two one\r\n")
    (tmp_path / "a").chmod(0o755)
    os.link(tmp_path / "a", tmp_path / "other")
    change = {"file_path": "a", "old_string": "one", "new_string": "1"}
    assert "is in the file 2 times" in refused(tmp_path, "edit_file", **change)
    assert done(tmp_path, "edit_file", **change, replace_all=True) == "Replaced 2 times in /a."
    assert (tmp_path / "a").read_bytes() == b"1 two 1\r\n"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "other").read_bytes() == b"one two one\r\n"
    assert "is not in the file" in refused(tmp_path, "edit_file", **change)
    for wrong in ({"old_string": ""}, {"old_string": "1", "new_string": "1"}):
        assert "Invalid old_string" in refused(tmp_path, "edit_file", **{**change, **wrong})
    assert sorted(os.listdir(tmp_path)) == ["a", "other"]


def test_rm_removes_files_links_and_whole_directories(tmp_path: Path) -> None:
    """A link itself and not what it leads to; never the workspace."""
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/f").write_text("")
    (tmp_path / "link").symlink_to("d")
    done(tmp_path, "rm", path="/link")
    assert (tmp_path / "d/e/f").exists()
    done(tmp_path, "rm", path="/d")
    assert refused(tmp_path, "rm", path="/d") == "/d: does not exist"
    assert refused(tmp_path, "rm", path="/") == "/: is the workspace itself"
    assert not list(tmp_path.iterdir())


def test_links_within_the_workspace_are_followed(tmp_path: Path) -> None:
    """Also through a directory above, as long as that is in the workspace."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/up").symlink_to("../../c")
    (tmp_path / "c").write_text("here")
    assert done(tmp_path, "read_file", file_path="/a/b/up") == "     1\there"
    edit = {"old_string": "here", "new_string": "there"}
    assert done(tmp_path, "edit_file", file_path="/a/b/up", **edit)
    assert (tmp_path / "c").read_text() == "there"
    assert (tmp_path / "a/b/up").is_symlink()


def test_glob_finds_paths_by_pattern(tmp_path: Path) -> None:
    """A star stays within a step, two stars are any number of steps, links are not entered."""
    for path in ("a.py", "b.md", "d/c.py", "d/e/f.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "loop").symlink_to(".")
    assert done(tmp_path, "glob", pattern="*.py") == "/a.py"
    assert done(tmp_path, "glob", pattern="**/*.py") == "/a.py\n/d/c.py\n/d/e/f.py"
    assert done(tmp_path, "glob", pattern="/d/**") == "/d/\n/d/c.py\n/d/e/\n/d/e/f.py"
    assert done(tmp_path, "glob", pattern="[!a].??") == "/b.md"
    assert done(tmp_path, "glob", pattern="*/f.py", path="/d") == "/d/e/f.py"
    assert done(tmp_path, "glob", pattern="x") == "Nothing matches."
    assert "Invalid pattern" in refused(tmp_path, "glob", pattern="/")
    assert '".."' in refused(tmp_path, "glob", pattern="../*")


def test_a_walk_of_a_huge_tree_is_stopped_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many entries, so many results, so much time, or at so deep a directory."""
    (tmp_path / "/".join("x" * 33)).mkdir(parents=True)
    assert "There may be more" in done(tmp_path, "glob", pattern="none")
    for name in map(str, range(20)):
        (tmp_path / "x" / name).write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(search, "MOST_ENTRIES", 5)
        assert "There may be more" in done(tmp_path, "glob", pattern="none", path="/x")
    (tmp_path / "x/x").rename(tmp_path / "y")
    assert done(tmp_path, "glob", pattern="none", path="/x") == "Nothing matches."
    with monkeypatch.context() as patch:
        patch.setattr(search, "SECONDS", -1)
        assert "There may be more" in done(tmp_path, "glob", pattern="none", path="/x")


@pytest.mark.process
def test_grep_finds_lines_by_expression(tmp_path: Path) -> None:
    """In a file, in a directory, or in files of a pattern; binary files are left out."""
    (tmp_path / "d").mkdir()
    (tmp_path / "a.py").write_text("one\nimport os\n")
    (tmp_path / "d/b.md").write_bytes(b"import\xff\n" + b"import " + b"x" * 600)
    (tmp_path / "c").write_bytes(b"import\0")
    (tmp_path / "out").symlink_to("/etc")
    found = done(tmp_path, "grep", pattern=r"^im\w+").split("\n")
    assert found[:2] == ["/a.py:2: import os", "/d/b.md:1: import�"]
    assert found[2:] == [f"/d/b.md:2: import {'x' * 493}"]
    assert done(tmp_path, "grep", pattern="import", glob="**/*.py") == "/a.py:2: import os"
    assert done(tmp_path, "grep", pattern="os$", path="/a.py") == "/a.py:2: import os"
    assert done(tmp_path, "grep", pattern="nowhere") == "Nothing matches."
    assert "Invalid expression '(': missing )" in refused(tmp_path, "grep", pattern="(")
    assert "does not exist" in refused(tmp_path, "grep", pattern="x", path="/none")


@pytest.mark.process
def test_grep_tells_what_it_left_out(tmp_path: Path) -> None:
    """Too many matches, and files that are too large."""
    (tmp_path / "many").write_text("x\n" * 300)
    (tmp_path / "huge").write_bytes(b"x" * (search.MOST_FILE_BYTES + 1))
    found = done(tmp_path, "grep", pattern="x").split("\n")
    assert len(found) == 202
    assert "There may be more" in found[200]
    assert found[201] == "(Not searched, too large or not readable: 1 files: /huge)"


@pytest.mark.process
@pytest.mark.parametrize("expression", ["(a+)+$", "(a|a)*b", "(.*)*" * 20 + "x"])
def test_an_expression_that_backtracks_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    """A failed result says why; the process that searched is gone."""
    (tmp_path / "a").write_text("a" * 5000 + "c")
    monkeypatch.setattr(search, "SECONDS", 0.2)
    assert "was stopped" in refused(tmp_path, "grep", pattern=expression)


def test_without_a_workspace_a_tool_says_what_the_loop_lacks() -> None:
    """None at all, or one of another kind."""
    tool = TOOLS["ls"]
    for resources in (None, {}, {"workspace": object()}):
        result = tool.handler(tool.params_type(), context=ToolContext(resources=resources))
        assert not result.success
        assert "SnapshotableFilesystem(directory)" in result.message


@given(TEXTS)
def test_what_was_written_is_what_is_read(text: str) -> None:
    """Line by line, for every text."""
    with tempfile.TemporaryDirectory() as folder:
        done(Path(folder), "write_file", file_path="/a", content=text)
        shown = done(Path(folder), "read_file", file_path="/a")
        numbered = [f"{n:6}\t{one}" for n, one in enumerate(text.removesuffix("\n").split("\n"), 1)]
        assert shown == ("\n".join(numbered) if text else "The file is empty.")


@given(st.text("ab\n", max_size=12), st.text("ab", max_size=3), TEXTS, st.booleans())
def test_an_edit_is_a_replacement_or_changes_nothing(
    text: str, old: str, new: str, every: bool
) -> None:
    """The same as `str.replace`, if the text is there once or all of it is meant."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(text.encode())
        change = {"old_string": old, "new_string": new, "replace_all": every}
        edited = use(Path(folder), "edit_file", file_path="/a", **change).success
        count = text.count(old) if old and old != new else 0
        assert edited == (count == 1 or (every and count > 1))
        assert path.read_bytes().decode() == (text.replace(old, new) if edited else text)
