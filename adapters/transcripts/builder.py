"""Transcript builder: what all readers share, message by message.

The rules that do not depend on a format: system texts are joined, results go with the user's
message after them, calls without ids get one, and what can't be taken over becomes a text in
its place and a note.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from turnledger.adapters.providers.registry import reply_of
from turnledger.adapters.transcripts.json_cursor import Node
from turnledger.adapters.transcripts.transcript import Note, Transcript
from turnledger.ledger import blob_name
from turnledger.ledger.events.messages import Modality
from turnledger.projections import (
    Block,
    ChatTurn,
    MediaBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from turnledger.projections.history.blocks import STUB_TEXT

# The line that stands before media when they are sent: with the hint, if there is one.
_LABEL = re.compile(r"Media (\d{1,9}):(?: (.*))?", re.DOTALL)
_DATA_URL = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.IGNORECASE)
_NAMING = ("file_id", "fileUri", "file_uri", "id", "call_id", "name")
_LONGEST_NAME = 120
# The key for arguments that are not an object, where a provider wants an object.
UNREADABLE = "unreadable_arguments"


def blocks_in(content: Node | None, part: Callable[[Node], Block]) -> list[Block]:
    """A message's content: nothing, one text, or parts."""
    if content is None:
        return []
    if content.is_text:
        return [TextBlock(content.text())] if content.value else []
    return [part(one) for one in content.each()]


def texts_in(blocks: Iterable[Block]) -> str:
    """The texts among blocks, one below the other."""
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


class TranscriptBuilder:
    """Collects the messages of one transcript as a reader meets them."""

    def __init__(self, wire: str) -> None:
        self.format = wire
        self.model = ""
        self._system: list[str] = []
        self._turns: list[ChatTurn] = []
        self._results: list[Block] = []
        self._beyond: dict[int, Any] = {}
        self._notes: list[Note] = []
        self._blobs: dict[str, bytes] = {}
        self._media = 0
        # Every call so far, and those of the last assistant's message that have no result.
        self._ids: set[str] = set()
        self._open: dict[str, str] = {}

    def done(self) -> Transcript:
        self._flush()
        return Transcript(
            format=self.format,
            system="\n\n".join(self._system),
            turns=tuple(self._turns),
            blobs=self._blobs,
            notes=tuple(self._notes),
            provider_data=self._beyond,
            model=self.model,
        )

    # --- who says what ---

    def system(self, node: Node, text: str) -> None:
        """A system text, wherever it stands."""
        if not text.strip():
            return
        if self._turns or self._results:
            self.note(node, "a system text in the middle: moved to the beginning")
        self._system.append(text)

    def user(self, blocks: list[Block]) -> None:
        """A user's message, with the results that came before it."""
        said, self._results = self._results + self._labelled(blocks), []
        self._turns.append(ChatTurn("user", tuple(said)))

    def assistant(self, blocks: list[Block], beyond: Any = None) -> None:
        """An assistant's message; `beyond` is what its provider wants back with it."""
        self._flush()
        if beyond is not None:
            self._beyond[len(self._turns)] = beyond
        self._turns.append(ChatTurn("assistant", tuple(self._labelled(blocks))))

    def answered(self, blocks: list[Block], answer: dict[str, Any]) -> None:
        """An assistant's message; `answer` is the same as its provider's answer had it.

        Where the provider wants more back than the message, which knows the order of all, it is
        as a live run records it: text, then calls.
        """
        replied = reply_of(self.format, answer)
        if replied is None or any(isinstance(block, MediaBlock) for block in blocks):
            self.assistant(blocks)
            return
        reply, beyond = replied
        asked = [block.call_id for block in blocks if isinstance(block, ToolUseBlock)]
        said: list[Block] = [TextBlock(reply.text)] if reply.text else []
        for place, call in enumerate(reply.tool_calls):
            call_id = call.call_id or asked[place]
            said.append(ToolUseBlock(call_id, call.name, call.arguments))
        self.assistant(said, beyond)

    def result(self, node: Node, call_id: str, said: list[Block], is_error: bool = False) -> None:
        """A result; media in it, which a result has no room for, stand behind the results."""
        media: list[Block] = [block for block in said if isinstance(block, MediaBlock)]
        if media:
            self.note(node, "media in a result: imported behind the results")
        self._open.pop(call_id, None)
        content = texts_in(said)
        is_error = is_error or content == STUB_TEXT
        self._results.append(ToolResultBlock(call_id, content, is_error))
        self._results.extend(self._labelled(media))

    def _flush(self) -> None:
        if self._results:
            self.user([])

    # --- calls ---

    def asking(self) -> None:
        """An assistant's message begins: results from here on are for its calls."""
        self._open = {}

    def call(self, call_id: str, name: str, arguments: str) -> ToolUseBlock:
        """A call; one without an id is given one."""
        if not call_id:
            number = len(self._ids) + 1
            while (call_id := f"call_{number}") in self._ids:
                number += 1
        self._ids.add(call_id)
        self._open[call_id] = name
        return ToolUseBlock(call_id, name, arguments)

    def arguments(self, given: Node | None) -> str:
        """Arguments that are an object, as JSON text."""
        if given is None:
            return "{}"
        if given.is_object and given.value.keys() == {UNREADABLE}:
            written = given.get(UNREADABLE)
            if written is not None and written.is_text:
                return written.text()
        return given.text() if given.is_text else given.as_json()

    def answering(self, name: str) -> str:
        """The id of the call that a result without an id answers: the first one of that name."""
        for call_id, known in self._open.items():
            if not name or known == name:
                return call_id
        return ""

    # --- what can't be taken over ---

    def note(self, node: Node, text: str) -> None:
        self._notes.append(Note(node.path, text))

    def left_out(self, node: Node, what: str, why: str = "") -> TextBlock:
        """The text that stands for something that can't be taken over."""
        named = f"{what} {name}" if (name := _name_in(node.value)) else what
        self.note(node, f"{named}: not imported{f', {why}' if why else ''}")
        return TextBlock(f"[{named}: not imported]")

    # --- media ---

    def media_at(self, node: Node, url: str, modality: Modality, mime: str | None = None) -> Block:
        """Media at an address; at a data URL, the bytes in it."""
        if url[:5].lower() != "data:":
            if not url:
                return self.left_out(node, modality, "it has no address")
            return MediaBlock(modality, url=url, mime=mime)
        found = _DATA_URL.match(url)
        if found is None:
            return self.left_out(node, modality, "its data URL can't be read")
        mime = found[1].strip().lower() or mime
        if found[2].lower().endswith(";base64"):
            return self.media(node, url[found.end() :], modality, mime)
        return self._kept(node, unquote_to_bytes(url[found.end() :]), modality, mime)

    def media(self, node: Node, base64: str, modality: Modality, mime: str | None) -> Block:
        """Media whose bytes stand in the transcript."""
        plain = "".join(base64.split()).replace("-", "+").replace("_", "/").rstrip("=")
        try:
            content = b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        except (NoBase64, ValueError):
            return self.left_out(node, modality, "its data is not base64")
        return self._kept(node, content, modality, mime)

    def file(self, node: Node) -> Block:
        """A document whose `file_data` is a data URL, or just the base64 of one."""
        data = node.text_at("file_data")
        if not data:
            return self.left_out(node, "file")
        if data[:5].lower() != "data:":
            return self.media(node, data, "document", "application/pdf")
        mime = data[5:].partition(",")[0].partition(";")[0].strip().lower()
        return self.media_at(node, data, modality_of(mime))

    def text_file(self, node: Node, text: str) -> Block:
        """A document that stands as text."""
        content = text.encode("utf-8", "replace")
        return self._kept(node, content, "document", "text/plain")

    def _kept(self, node: Node, content: bytes, modality: Modality, mime: str | None) -> Block:
        if not content:
            return self.left_out(node, modality, "it has no bytes")
        self._blobs[blob_name(content)] = content
        return MediaBlock(modality, blob=blob_name(content), mime=mime)

    def _labelled(self, blocks: list[Block]) -> list[Block]:
        """Labels as an export writes them before media become the media's hints again."""
        out: list[Block] = []
        for block in blocks:
            if isinstance(block, MediaBlock):
                self._media += 1
                before = out[-1] if out else None
                label = _LABEL.fullmatch(before.text) if isinstance(before, TextBlock) else None
                if label is not None and int(label[1]) >= self._media:
                    self._media = int(label[1])
                    out.pop()
                    block = msgspec.structs.replace(block, prompt_hint=label[2] or None)
            out.append(block)
        return out


def modality_of(mime: str | None) -> Modality:
    """What kind of media a type is."""
    match (mime or "").partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return kind
    return "document"


def _name_in(value: Any) -> str:
    """By what a piece is known, if it says so."""
    if not isinstance(value, dict):
        return ""
    for name in _NAMING:
        found = value.get(name)
        if isinstance(found, str) and found:
            return found[:_LONGEST_NAME]
    return ""
