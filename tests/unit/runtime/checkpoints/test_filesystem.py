"""A directory as a resource: snapshots that cost what changed, and exactly back to them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.clocks import StandingClock
from turnledger.ledger import blob_name
from turnledger.runtime import ResourceSnapshotError, SnapshotableFilesystem, SnapshotRestoreError
from turnledger.runtime.checkpoints import FilesystemSnapshot, filesystem
from turnledger.runtime.checkpoints import file_restore as file_restoring
from turnledger.runtime.checkpoints.file_tree import UNFINISHED


def later() -> StandingClock:
    """A clock by which every file has been left alone for long."""
    return StandingClock(datetime.now(UTC) + timedelta(hours=1))


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def contents(root: Path) -> dict[str, Any]:
    """Everything that is there, for comparison."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = "directory"
        else:
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def reading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are read from now on."""
    seen: list[str] = []
    real = filesystem.read

    def read(root: str, found: Any, most: int) -> bytes:
        seen.append(found.path)
        return real(root, found, most)

    monkeypatch.setattr(filesystem, "read", read)
    return seen


# --- snapshots -----------------------------------------------------------------------


def test_a_manifest_names_the_bytes_of_each_file(tmp_path: Path) -> None:
    """By the ledger's names for blobs; with what it takes to have the same again."""
    write(tmp_path, a="one", sub__b="two")
    (tmp_path / "run").write_text("#!")
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "empty").mkdir()
    (tmp_path / "sub" / "link").symlink_to("../a")
    snapshot = SnapshotableFilesystem(tmp_path).snapshot()
    assert snapshot.files == {
        "a": blob_name(b"one"),
        "empty/": blob_name(b""),
        "run//x": blob_name(b"#!"),
        "sub/b": blob_name(b"two"),
        "sub/link//l": blob_name(b"../a"),
    }
    assert snapshot.changed == snapshot.files
    assert set(snapshot.blobs) == set(snapshot.files.values())
    assert snapshot.digest == SnapshotableFilesystem(tmp_path).snapshot().digest


def test_a_snapshot_holds_only_what_was_not_there_before(tmp_path: Path) -> None:
    """Bytes that are known are not brought again, under whatever path."""
    write(tmp_path, a="one", b="two", c="three")
    resource = SnapshotableFilesystem(tmp_path)
    first = resource.snapshot()
    write(tmp_path, b="changed", d="one")
    (tmp_path / "c").unlink()
    second = resource.snapshot(first.files)
    assert set(second.changed) == {"b", "d"}
    assert second.removed == ("c",)
    assert second.blobs == {blob_name(b"changed"): b"changed"}
    third = resource.snapshot(second.files)
    assert (third.changed, third.removed, third.blobs) == ({}, (), {})
    assert third.digest == second.digest != first.digest


def test_files_that_were_left_alone_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot costs what changed."""
    write(tmp_path, a="one", b="two", sub__c="three")
    resource = SnapshotableFilesystem(tmp_path, clock=later())
    first = resource.snapshot()
    seen = reading(monkeypatch)
    assert resource.snapshot(first.files).changed == {}
    assert seen == []
    write(tmp_path, b="TWO")
    assert set(resource.snapshot(first.files).changed) == {"b"}
    assert seen == ["b"]


def test_files_that_had_only_just_changed_are_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change within the same tick of the disk's clock leaves no trace in its times."""
    write(tmp_path, a="one")
    resource = SnapshotableFilesystem(tmp_path)
    first = resource.snapshot()
    seen = reading(monkeypatch)
    resource.snapshot(first.files)
    assert seen == ["a"]


def test_no_change_is_missed_however_quickly_it_follows(tmp_path: Path) -> None:
    """The same size, the same file, no time in between."""
    resource = SnapshotableFilesystem(tmp_path)
    path = tmp_path / "a"
    path.write_text("0000")
    known = resource.snapshot().files
    for number in range(1, 300):
        with path.open("r+") as file:
            file.write(f"{number:04}")
        found = resource.snapshot(known)
        assert found.files == {"a": blob_name(f"{number:04}".encode())}
        known = found.files


def test_a_file_whose_times_were_set_back_is_read_again(tmp_path: Path) -> None:
    """A program may write and then say that it did not."""
    write(tmp_path, a="one")
    resource = SnapshotableFilesystem(tmp_path, clock=later())
    first = resource.snapshot()
    before = (tmp_path / "a").stat()
    write(tmp_path, a="two")
    os.utime(tmp_path / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert set(resource.snapshot(first.files).changed) == {"a"}


def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And given up if it never stands still."""
    write(tmp_path, a="0")
    real = filesystem.read
    changes = [1]

    def read(root: str, found: Any, most: int) -> bytes:
        content = real(root, found, most)
        if changes:
            (tmp_path / "a").write_text("x" * (1 + found.stamp.size))
            changes.pop()
        return content

    monkeypatch.setattr(filesystem, "read", read)
    resource = SnapshotableFilesystem(tmp_path)
    assert resource.snapshot().files == {"a": blob_name(b"xx")}
    changes[:] = [1] * 100
    with pytest.raises(ResourceSnapshotError, match="changes while it is read"):
        resource.snapshot()


def outside_link(root: Path) -> None:
    (root / "bad").symlink_to("/etc/passwd")


def climbing_link(root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "bad").symlink_to("../../secret")


def winding_link(root: Path) -> None:
    (root / "bad").symlink_to("sub/../../secret")


def pipe(root: Path) -> None:
    os.mkfifo(root / "bad")


def listening(root: Path) -> None:
    folder = os.getcwd()
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(root)  # the name of a socket may not be long
        try:
            made.bind("bad")
        finally:
            os.chdir(folder)


def large(root: Path) -> None:
    (root / "bad").write_bytes(b"x" * 1001)


def odd_name(root: Path) -> None:
    (root / os.fsdecode(b"bad\xff")).write_text("")


@pytest.mark.parametrize(
    "make", [outside_link, climbing_link, winding_link, pipe, listening, large, odd_name]
)
@pytest.mark.process  # binds a socket, as a kind of file
def test_what_can_not_be_kept_is_refused_by_name(tmp_path: Path, make: Any) -> None:
    """It is not left out silently; and restoring takes it away like anything else."""
    write(tmp_path, good="one")
    resource = SnapshotableFilesystem(tmp_path, max_file_bytes=1000)
    good = resource.snapshot()
    make(tmp_path)
    with pytest.raises(ResourceSnapshotError) as caught:
        resource.snapshot(good.files)
    assert "bad" in caught.value.path
    resource.restore(good)
    assert resource.snapshot().files == good.files


def test_a_directory_that_is_not_there_is_no_empty_one(tmp_path: Path) -> None:
    """To snapshot it is an error; to restore it makes it."""
    resource = SnapshotableFilesystem(tmp_path / "work")
    with pytest.raises(ResourceSnapshotError, match="work"):
        resource.snapshot()
    resource.restore(FilesystemSnapshot({}))
    assert resource.snapshot().files == {}
    assert "work" in repr(resource)


# --- restoring -----------------------------------------------------------------------


def test_the_directory_is_put_back_exactly(tmp_path: Path) -> None:
    """What was changed, removed, added, or made into something else."""
    root = tmp_path / "work"
    write(root, a="one", sub__b="two", gone__c="three", becomes_directory="file")
    (root / "run").write_text("#!")
    (root / "run").chmod(0o755)
    (root / "empty").mkdir()
    (root / "link").symlink_to("sub/b")
    (root / "becomes_file").mkdir()
    resource = SnapshotableFilesystem(root)
    snapshot, before = resource.snapshot(), contents(root)

    write(root, a="ONE", new__d="four", empty__e="five")
    shutil.rmtree(root / "gone")
    (root / "run").chmod(0o644)
    (root / "link").unlink()
    (root / "link").symlink_to("/etc")
    (root / "becomes_directory").unlink()
    write(root, becomes_directory__x="six")
    (root / "becomes_file").rmdir()
    write(root, becomes_file="seven")
    (root / UNFINISHED).write_text("left by somebody who was interrupted")
    os.mkfifo(root / "pipe")

    resource.restore(snapshot)
    assert contents(root) == before
    assert resource.snapshot().files == snapshot.files


def test_a_manifest_is_restored_with_bytes_from_elsewhere(tmp_path: Path) -> None:
    """From a mapping, or from a function such as a ledger's `blob`."""
    files = {"a": blob_name(b"one"), "sub/b": blob_name(b"two")}
    blobs = {blob_name(content): content for content in (b"one", b"two")}
    for number, where in enumerate((blobs, blobs.__getitem__)):
        root = tmp_path / str(number)
        SnapshotableFilesystem(root).restore(files, where)
        assert contents(root) == {
            "a": (b"one", False),
            "sub": "directory",
            "sub/b": (b"two", False),
        }


def test_files_that_are_as_they_should_be_are_left_alone(tmp_path: Path) -> None:
    """Their bytes are not even asked for."""
    write(tmp_path, a="one", b="two")
    resource = SnapshotableFilesystem(tmp_path)
    files = resource.snapshot().files
    kept = (tmp_path / "a").stat().st_ino
    write(tmp_path, b="TWO")
    asked: list[str] = []

    def blob(name: str) -> bytes:
        asked.append(name)
        return b"two"

    resource.restore(files, blob)
    assert asked == [blob_name(b"two")]
    assert (tmp_path / "a").stat().st_ino == kept
    assert (tmp_path / "b").read_text() == "two"


@pytest.mark.parametrize(
    "key",
    [
        "../a",
        "a/../../b",
        "/etc/passwd",
        "",
        "a//b",
        "./a",
        "a/./b",
        "a\0b",
        "..",
        "a//",
        "//x",
        "../a//x",
        "../a/",
        UNFINISHED,
        f"sub/{UNFINISHED}",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, key: str) -> None:
    """Before anything is changed, inside or outside."""
    root = tmp_path / "work"
    write(root, kept="one")
    before = contents(tmp_path)
    with pytest.raises(SnapshotRestoreError):
        SnapshotableFilesystem(root).restore({key: blob_name(b"")}, {blob_name(b""): b""})
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "..", "../x", "a/../../x", "a/../b", "./../x", "", "a\0b"]
)
def test_a_link_that_leads_elsewhere_is_refused(tmp_path: Path, target: str) -> None:
    """So is one that may, through another."""
    root = tmp_path / "work"
    write(root, kept="one")
    content = target.encode()
    with pytest.raises(SnapshotRestoreError, match="bad"):
        SnapshotableFilesystem(root).restore(
            {"bad//l": blob_name(content)}, {blob_name(content): content}
        )
    assert contents(root) == {"kept": (b"one", False)}


@pytest.mark.parametrize(
    "keys",
    [
        ("a", "a//x"),
        ("a", "a/b"),
        ("a//l", "a/b"),
        ("a/", "a/b"),
        ("a/b", "a/b/c/d"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    tmp_path: Path, keys: tuple[str, str]
) -> None:
    """Nothing is written through a link that the manifest brings along."""
    write(tmp_path, kept="one")
    name = blob_name(b"sub")
    with pytest.raises(SnapshotRestoreError):
        SnapshotableFilesystem(tmp_path).restore(dict.fromkeys(keys, name), {name: b"sub"})
    assert contents(tmp_path) == {"kept": (b"one", False)}


def test_nothing_is_written_through_a_link_that_is_there(tmp_path: Path) -> None:
    """It is replaced by the directory that should be there."""
    outside, root = tmp_path / "outside", tmp_path / "work"
    outside.mkdir()
    root.mkdir()
    (root / "sub").symlink_to(outside)
    name = blob_name(b"one")
    SnapshotableFilesystem(root).restore({"sub/a": name}, {name: b"one"})
    assert contents(outside) == {}
    assert contents(root) == {"sub": "directory", "sub/a": (b"one", False)}


@pytest.mark.parametrize("blobs", [{}, {blob_name(b"one"): b"two"}])
def test_bytes_that_are_missing_or_wrong_are_found_before_anything_is_changed(
    tmp_path: Path, blobs: dict[str, bytes]
) -> None:
    """The error names the path."""
    write(tmp_path, kept="kept")
    with pytest.raises(SnapshotRestoreError, match="'a'"):
        SnapshotableFilesystem(tmp_path).restore({"a": blob_name(b"one")}, blobs)
    assert contents(tmp_path) == {"kept": (b"kept", False)}


def test_a_reader_finds_the_old_file_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put in its place at once; interrupted, the old one is there."""
    write(tmp_path, a="old")
    resource = SnapshotableFilesystem(tmp_path)
    name = blob_name(b"new")

    def interrupted(*given: Any) -> None:
        assert (tmp_path / "a").read_text() == "old"
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(file_restoring.os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            resource.restore({"a": name}, {name: b"new"})
    assert (tmp_path / "a").read_text() == "old"
    assert resource.snapshot().files == {"a": blob_name(b"old")}
    resource.restore({"a": name}, {name: b"new"})
    assert contents(tmp_path) == {"a": (b"new", False)}


def test_what_the_disk_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restoring again, when it is mended, does the rest."""
    name = blob_name(b"new")
    resource = SnapshotableFilesystem(tmp_path)

    def refused(*given: Any) -> None:
        raise PermissionError(13, "no")

    with monkeypatch.context() as patched:
        patched.setattr(file_restoring.os, "replace", refused)
        with pytest.raises(SnapshotRestoreError, match="partly"):
            resource.restore({"a": name}, {name: b"new"})
    resource.restore({"a": name}, {name: b"new"})
    assert contents(tmp_path) == {"a": (b"new", False)}


# --- as data -------------------------------------------------------------------------


def test_a_snapshot_comes_back_from_plain_json(tmp_path: Path) -> None:
    """With the bytes of files, whatever they are."""
    (tmp_path / "a").write_bytes(bytes(range(256)))
    resource = SnapshotableFilesystem(tmp_path)
    plain = resource.snapshot().to_plain()
    (tmp_path / "a").unlink()
    resource.restore(plain)
    assert (tmp_path / "a").read_bytes() == bytes(range(256))


@pytest.mark.parametrize(
    "data",
    [None, 5, {}, {"files": 5}, {"files": {"a": 1}}, {"files": {}, "blobs": {"x": "no base64!"}}],
)
def test_data_that_is_no_snapshot_is_refused(tmp_path: Path, data: Any) -> None:
    """As SnapshotRestoreError."""
    with pytest.raises(SnapshotRestoreError):
        FilesystemSnapshot.from_plain(data)


def test_a_difference_is_recorded_in_events_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has what is gone, the last the digest of the whole."""
    monkeypatch.setattr(filesystem, "_PATHS", 2)
    write(tmp_path, a="1", b="2", c="3")
    snapshot = SnapshotableFilesystem(tmp_path).snapshot({"old": blob_name(b"0")})
    first, second = snapshot.events("files")
    assert (set(first.files), first.removed, first.digest) == ({"a", "b"}, ("old",), "")
    assert (set(second.files), second.removed) == ({"c"}, ())
    assert second.digest == snapshot.digest


names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
trees = st.dictionaries(paths, st.binary(max_size=5) | st.none(), max_size=6)


def build(root: Path, tree: dict[str, bytes | None]) -> None:
    """Files and, for None, directories; what can't be beside what is there is left out."""
    for name, content in tree.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.mkdir(exist_ok=True)
            elif not path.is_dir():
                path.write_bytes(content)
        except (FileExistsError, NotADirectoryError):
            continue


@given(trees, trees)
def test_any_directory_is_put_back_from_any_other(
    one: dict[str, bytes | None], other: dict[str, bytes | None]
) -> None:
    """By whole snapshots and by differences."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "work"
        root.mkdir()
        resource = SnapshotableFilesystem(root)
        build(root, one)
        first, before = resource.snapshot(), contents(root)
        shutil.rmtree(root)
        root.mkdir()
        build(root, other)
        second, after = resource.snapshot(first.files), contents(root)
        files = {**first.files, **second.changed}
        for path in second.removed:
            del files[path]
        assert files == second.files
        blobs = {**first.blobs, **second.blobs}
        resource.restore(first)
        assert contents(root) == before
        resource.restore(second.files, blobs)
        assert contents(root) == after


def nested(root: Path, levels: int, name: str = "d") -> None:
    """Make directories within each other, deeper than any path can name."""
    folder = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=folder)
        above, folder = folder, os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(above)
    os.close(folder)


@pytest.mark.parametrize(("levels", "name"), [(300, "d"), (30, "d" * 200)])
def test_directories_nested_too_deep_are_refused_and_can_be_removed(
    tmp_path: Path, levels: int, name: str
) -> None:
    """A program can nest directories deeper than a path reaches; restoring removes them."""
    files = SnapshotableFilesystem(tmp_path / "files")
    write(files.root, kept="kept")
    before = files.snapshot()
    nested(files.root, levels, name)
    with pytest.raises(ResourceSnapshotError, match="within each other"):
        files.snapshot()
    files.restore(before)
    assert contents(files.root) == {"kept": (b"kept", False)}


def test_a_directory_with_the_temporary_name_of_restoring_is_refused(tmp_path: Path) -> None:
    """A snapshot with it could never be restored."""
    files = SnapshotableFilesystem(tmp_path / "files")
    write(files.root, kept="kept")
    before = files.snapshot()
    (files.root / UNFINISHED).mkdir()
    (files.root / UNFINISHED / "inner").touch()
    with pytest.raises(ResourceSnapshotError, match="neither a file"):
        files.snapshot()
    write(files.root, kept="changed")
    files.restore(before)
    assert contents(files.root) == {"kept": (b"kept", False)}


def test_directories_that_their_owner_may_not_enter_are_removed() -> None:
    """Restoring needs no rights that a program has taken away; root has them anyway."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        try:
            files = SnapshotableFilesystem(f"{folder}/files")
            write(files.root, kept="kept")
            before = files.snapshot()
            write(files.root, closed__inner__file="")
            for path in (files.root / "closed/inner", files.root / "closed", files.root):
                path.chmod(0)
            files.restore(before)
            assert contents(files.root) == {"kept": (b"kept", False)}
        finally:
            if is_root:
                os.seteuid(0)
