"""Overrides store in files, for people who keep prompts in git: `{ns}/{key}/{tag}.json`.

    {"tone": {"body": "Be brief.", "replaces": "9f86d081..."}}

`replaces` is the digest of the authored text (see `override_texts.text_digest`); an entry without
it replaces any text. The store keeps no versions: git does. A file is replaced as a whole, so
that a reader never finds a half-written one.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from turnledger.ledger.arguments import check_methods
from turnledger.ledger.events.types import LATEST
from turnledger.runtime.agent.overrides.ledger_store import AnyPrompt, check_tag, template_of
from turnledger.runtime.agent.prompts.override_texts import (
    OverrideTexts,
    authored_texts,
    replaced_digest,
    text_digest,
)
from turnledger.runtime.agent.prompts.template import PromptTemplate
from turnledger.runtime.errors import PromptError

# Far more than the texts of any prompt.
_MOST_BYTES = 16 * 1024 * 1024


class OverridesFileError(PromptError):
    """A file of prompt overrides can't be read or written; `path` is the file."""

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        super().__init__(f"The overrides in {str(path)!r} can't be used: {why}. Fix the file.")


class _Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    body: str
    replaces: str = ""


_Overrides: TypeAlias = dict[str, _Override]


@check_methods()
class FilesystemOverridesStore:
    """Overrides as JSON files under a folder, without versions.

    An evaluation records what it used of them. If a file is edited while a run is interrupted,
    the run goes on with the recorded texts.
    """

    name = "filesystem"

    def __init__(self, root: str | Path) -> None:
        """Use the files under this folder, which is made with the first file."""
        self.root = Path(root)

    def section_overrides(self, ns: str, key: str, tag: str = LATEST) -> OverrideTexts | None:
        """Return the texts of a prompt's file; None if there is no such file.

        Args:
            ns: The prompt's namespace.
            key: The prompt's key.
            tag: The name of the file.

        Raises:
            OverridesFileError: The file can't be read, or does not hold overrides.
        """
        path = self._path(PromptTemplate[Any](ns=ns, key=key), tag)
        with _explained(path):
            found = self._read(path)
        if found is None:
            return None
        return OverrideTexts(
            {name: one.body for name, one in found.items()},
            {name: one.replaces for name, one in found.items()},
        )

    def set_section_override(
        self, prompt: AnyPrompt, *, tag: str = LATEST, path: str, body: str
    ) -> None:
        """Override a text of a prompt. It is applied while the prompt has the text it has now.

        Args:
            prompt: The prompt, or its template.
            tag: The name of the file.
            path: A section's path, or "tool:NAME" for the description of a tool.
            body: The text; for a section a template, as in MarkdownSection.
        """
        template = template_of(prompt)
        made = _Override(body, replaced_digest(template, path, body))
        self._change(template, tag, lambda found: {**found, path: made})

    def delete(self, prompt: AnyPrompt, *, tag: str = LATEST, path: str | None = None) -> None:
        """Remove the override of a text, or all; a file without overrides is removed.

        Args:
            prompt: The prompt, or its template.
            tag: The name of the file.
            path: The text's path; None for all of them.
        """
        self._change(
            template_of(prompt),
            tag,
            lambda found: {name: one for name, one in found.items() if path not in (None, name)},
        )

    def seed(self, prompt: AnyPrompt, *, tag: str = LATEST) -> None:
        """Write the authored texts that have no override yet into the file, to be edited.

        Args:
            prompt: The prompt, or its template.
            tag: The name of the file.
        """
        template = template_of(prompt)
        authored = {
            path: _Override(text, text_digest(text))
            for path, text in authored_texts(template).items()
        }
        self._change(template, tag, lambda found: {**authored, **found})

    def _path(self, template: PromptTemplate[Any], tag: str) -> Path:
        """The file of a prompt and a tag. Names are checked: none leads out of the root."""
        if tag != LATEST:
            check_tag(tag)
        return self.root / template.ns / template.key / f"{tag}.json"

    def _change(
        self, template: PromptTemplate[Any], tag: str, change: Callable[[_Overrides], _Overrides]
    ) -> None:
        path = self._path(template, tag)
        with _explained(path):
            self._check_inside(path.parent)
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path.parent):
                found = self._read(path)
                after = change(found or {})
                if after == (found or {}):
                    return
                if after:
                    content = msgspec.json.encode(after, order="sorted")
                    _replace(path, msgspec.json.format(content, indent=2) + b"\n")
                else:
                    path.unlink()

    def _read(self, path: Path) -> _Overrides | None:
        try:
            target = path.resolve(strict=True)
        except FileNotFoundError:
            return None
        self._check_inside(target)
        # A pipe or a device is not waited for.
        handle = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
                raise ValueError(f"expected a file of at most {_MOST_BYTES} bytes")
            return msgspec.json.decode(file.read(_MOST_BYTES), type=_Overrides)

    def _check_inside(self, path: Path) -> None:
        """ValueError for a link that leads out of the root."""
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise ValueError(f"it is a link that leads out of {self.root}")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise OverridesFileError(path, str(error)) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time change the files in a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
        os.fsync(handle)
    finally:
        os.close(handle)


def _replace(path: Path, content: bytes) -> None:
    """Write a file as a whole; a reader finds the old or the new content."""
    unfinished = path.with_name(f".{uuid4()}.part")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
