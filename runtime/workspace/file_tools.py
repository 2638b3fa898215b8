"""Tools for the files of a workspace: ls, read_file, write_file, edit_file, glob, grep, rm.

Paths begin at "/", the workspace; `runtime.workspace.directory` keeps them within it. What can't
be done is a failed result that tells the model why. The texts are part of the prompt's digest:
changing one makes recorded runs diverge.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from turnledger.runtime.agent.tool_context import ToolContext
from turnledger.runtime.agent.tools.tool import Tool, ToolResult
from turnledger.runtime.checkpoints.filesystem import SnapshotableFilesystem
from turnledger.runtime.errors import WorkspaceError
from turnledger.runtime.workspace.directory import Directory, printable, steps_of
from turnledger.runtime.workspace.search import (
    MOST_FILE_BYTES,
    PathPattern,
    Walked,
    readable_files,
    search,
)

ParamsT = TypeVar("ParamsT")

WORKSPACE = "workspace"
_MOST_LISTED = 500
_MOST_MATCHES = 200
_MOST_LINES = 2000
_MOST_LINE = 2000  # characters of a line
_MOST_SHOWN = 100_000  # characters of a result
_FROM_ROOT = 'From "/", the workspace.'


def _about(text: str, **more: Any) -> Any:
    return field(metadata={"description": text}, **more)


@dataclass(frozen=True)
class Ls:
    """Which directory to list."""

    path: str = _about(_FROM_ROOT, default="/")


@dataclass(frozen=True)
class ReadFile:
    """Which lines of a file to read."""

    file_path: str = _about(_FROM_ROOT)
    offset: int = _about("How many lines to leave out at the beginning.", default=0)
    limit: int = _about("How many lines to read.", default=_MOST_LINES)


@dataclass(frozen=True)
class WriteFile:
    """A new file."""

    file_path: str = _about(_FROM_ROOT)
    content: str = _about("The whole text of the file.")


@dataclass(frozen=True)
class EditFile:
    """A change of a file."""

    file_path: str = _about(_FROM_ROOT)
    old_string: str = _about("The text to replace, exactly as it is in the file.")
    new_string: str = _about("The text in its place.")
    replace_all: bool = _about("Replace it wherever it is.", default=False)


@dataclass(frozen=True)
class Glob:
    """Which paths to find."""

    pattern: str = _about('From `path`: "*.md", or "**/*.py" at any depth.')
    path: str = _about(f"The directory to search in. {_FROM_ROOT}", default="/")


@dataclass(frozen=True)
class Grep:
    """Which lines to find."""

    pattern: str = _about("A regular expression of Python; it is matched line by line.")
    path: str = _about(f"The directory or file to search in. {_FROM_ROOT}", default="/")
    glob: str | None = _about('Only in files like this, such as "**/*.py".', default=None)


@dataclass(frozen=True)
class Rm:
    """What to remove."""

    path: str = _about(_FROM_ROOT)


def workspace_of(resources: Mapping[str, Any] | None) -> SnapshotableFilesystem:
    """Return the workspace among the resources of a loop; WorkspaceError if it has none."""
    found = (resources or {}).get(WORKSPACE)
    if isinstance(found, SnapshotableFilesystem):
        return found
    what = "has no resource" if found is None else f"has a {type(found).__name__} as the resource"
    raise WorkspaceError(
        f"The loop {what} {WORKSPACE!r}: expected a directory for the workspace. Give the loop "
        f"resources={{{WORKSPACE!r}: SnapshotableFilesystem(directory)}}."
    )


def _on_files(
    handler: Callable[[ParamsT, Directory], str],
) -> Callable[..., ToolResult[None]]:
    """Make a tool's handler of a function over the workspace: its errors are failed results."""

    def handle(params: ParamsT, *, context: ToolContext) -> ToolResult[None]:
        try:
            return ToolResult(handler(params, Directory(workspace_of(context.resources).root)))
        except WorkspaceError as error:
            return ToolResult(str(error), success=False)
        except OSError as error:
            return ToolResult(f"It can't be done: {error.strerror}.", success=False)

    return handle


@_on_files
def ls(params: Ls, files: Directory) -> str:
    """Handler of `ls`."""
    entries = files.entries(params.path)
    lines = [
        f"{entry.shown} ({entry.size} bytes)" if stat.S_ISREG(entry.mode) else entry.shown
        for entry in entries[:_MOST_LISTED]
    ]
    if len(entries) > _MOST_LISTED:
        lines.append(f"… and {len(entries) - _MOST_LISTED} more; find them with glob.")
    return "\n".join(lines) or "The directory is empty."


@_on_files
def read_file(params: ReadFile, files: Directory) -> str:
    """Handler of `read_file`."""
    path = params.file_path
    if params.offset < 0 or not 1 <= params.limit <= _MOST_LINES:
        raise WorkspaceError(f"Invalid range: expected offset >= 0 and limit 1 to {_MOST_LINES}.")
    content, _ = files.read(path, MOST_FILE_BYTES)
    if b"\0" in content:
        raise WorkspaceError(f"a binary file of {len(content)} bytes", path=path)
    if not content:
        return "The file is empty."
    text, mark = _decoded(content)
    lines = text.removesuffix("\n").split("\n")
    if params.offset >= len(lines):
        raise WorkspaceError(f"has only {len(lines)} lines", path=path)
    shown, last = [mark] if mark else [], params.offset
    for line in lines[params.offset : params.offset + params.limit]:
        last += 1
        shown.append(f"{last:6}\t{_cut(line)}")
        if sum(map(len, shown)) > _MOST_SHOWN:
            break
    if last < len(lines):
        shown.append(f"(Lines {last + 1} to {len(lines)} follow: offset={last}.)")
    return "\n".join(shown)


@_on_files
def write_file(params: WriteFile, files: Directory) -> str:
    """Handler of `write_file`."""
    content = _encoded(params.content, params.file_path)
    files.create(params.file_path, content)
    return f"Created {_shown(params.file_path)} ({len(content)} bytes)."


@_on_files
def edit_file(params: EditFile, files: Directory) -> str:
    """Handler of `edit_file`."""
    path, old, new = params.file_path, params.old_string, params.new_string
    if not old or old == new:
        raise WorkspaceError("Invalid old_string: expected text that differs from new_string.")
    count = 0

    def change(content: bytes) -> bytes:
        nonlocal count
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise WorkspaceError("not a text file in UTF-8", path=path) from None
        count = text.count(old)
        if count == 0:
            raise WorkspaceError("old_string is not in the file", path=path)
        if count > 1 and not params.replace_all:
            raise WorkspaceError(
                f"old_string is in the file {count} times: give more of the text around it, or "
                "set replace_all",
                path=path,
            )
        if len(text) + count * (len(new) - len(old)) > MOST_FILE_BYTES:  # before it is made
            raise _too_large(path)
        return _encoded(text.replace(old, new), path)

    files.edit(path, MOST_FILE_BYTES, change)
    return f"Replaced {count} time{'s' if count > 1 else ''} in {_shown(path)}."


@_on_files
def glob(params: Glob, files: Directory) -> str:
    """Handler of `glob`."""
    pattern, walked = PathPattern(params.pattern), Walked(files, params.path)
    lines: list[str] = []
    for entry in walked:
        if pattern.matches(entry.path):
            if len(lines) == _MOST_LISTED:
                walked.is_whole = False
                break
            lines.append(_shown(f"{params.path}/") + entry.shown)
    if not walked.is_whole:
        lines.append("(There may be more: the search was stopped. Use a longer path.)")
    return "\n".join(lines) or "Nothing matches."


@_on_files
def grep(params: Grep, files: Directory) -> str:
    """Handler of `grep`."""
    pattern = None if params.glob is None else PathPattern(params.glob)
    with files.at(params.path) as place:
        is_file = place.mode and place.directory is None
    walked, left_out = Walked(files, params.path), list[str]()
    if is_file:
        texts = {params.path: files.read(params.path, MOST_FILE_BYTES)[0]}
    else:
        texts, left_out = readable_files(files, params.path, walked, pattern)
    found = search(params.pattern, texts, _MOST_MATCHES + 1)
    lines = [f"{_shown(one.path)}:{one.line}: {one.text}" for one in found[:_MOST_MATCHES]]
    if not walked.is_whole or len(found) > _MOST_MATCHES:
        lines.append("(There may be more: the search was stopped. Use a longer path.)")
    if left_out:
        named = ", ".join(map(printable, left_out[:5]))
        lines.append(f"(Not searched, too large or not readable: {len(left_out)} files: {named})")
    return "\n".join(lines) or "Nothing matches."


@_on_files
def rm(params: Rm, files: Directory) -> str:
    """Handler of `rm`."""
    files.remove(params.path)
    return f"Removed {_shown(params.path)}."


def _decoded(content: bytes) -> tuple[str, str]:
    """The text of a file, and a line that says so if it is not UTF-8."""
    try:
        return content.decode(), ""
    except UnicodeDecodeError:
        mark = "(The file is not UTF-8: other bytes are shown as \\xNN.)"
        return content.decode(errors="backslashreplace"), mark


def _encoded(text: str, path: str) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise WorkspaceError("the text has characters that UTF-8 can't have", path=path) from None
    if len(content) > MOST_FILE_BYTES:
        raise _too_large(path)
    return content


def _too_large(path: str) -> WorkspaceError:
    return WorkspaceError(f"would be larger than {MOST_FILE_BYTES} bytes", path=path)


def _cut(line: str) -> str:
    if len(line) <= _MOST_LINE:
        return line
    return f"{line[:_MOST_LINE]}… ({len(line) - _MOST_LINE} characters more)"


def _shown(path: str) -> str:
    end = "/" if path.endswith("/") else ""
    return f"/{'/'.join(steps_of(path))}{end}".replace("//", "/")


FILE_TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool[Ls, None](
        name="ls",
        description="List a directory: names, sizes, and where links lead.",
        handler=ls,
    ),
    Tool[ReadFile, None](
        name="read_file",
        description="Read a text file; every line comes with its number and a tab before it.",
        handler=read_file,
    ),
    Tool[WriteFile, None](
        name="write_file",
        description=(
            "Create a file, and the directories that it is in. A file that exists is left as it "
            "is: change it with edit_file."
        ),
        handler=write_file,
    ),
    Tool[EditFile, None](
        name="edit_file",
        description=(
            "Replace text in a file. old_string must be in it exactly once, unless replace_all "
            "is set; the numbers that read_file shows are not part of the text."
        ),
        handler=edit_file,
    ),
    Tool[Glob, None](
        name="glob",
        description='Find files and directories by their paths, such as "**/*.py".',
        handler=glob,
    ),
    Tool[Grep, None](
        name="grep",
        description="Find lines of text files that match a regular expression.",
        handler=grep,
    ),
    Tool[Rm, None](
        name="rm",
        description="Remove a file, a link, or a directory with everything in it.",
        handler=rm,
    ),
)
