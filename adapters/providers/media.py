"""Media in requests: its URL or bytes, and its MIME type."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from turnledger.ledger import InvalidInputError
from turnledger.projections import MediaBlock

# What a file begins with. Each is (offset, bytes, type).
_MAGIC = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"%PDF-", "application/pdf"),
)
_ALSO_KNOWN_AS = {"image/jpg": "image/jpeg", "audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav"}


class UnsupportedMediaError(InvalidInputError):
    """A provider can't take this media: nothing was sent."""

    def __init__(
        self,
        wire: str,
        modality: str,
        source: str,
        takes: Mapping[Any, frozenset[Any]],
        mime: str | None = None,
        mimes: Sequence[str] = (),
    ) -> None:
        self.modality = modality
        self.source = source
        how = {"url": "by URL", "bytes": "as bytes"}
        if mimes:
            why = f"{modality} of type {mime or 'unknown'}; it takes {', '.join(mimes)}"
        else:
            ways = sorted(takes.get(modality, ()))
            other = f"; it takes it {' or '.join(how[one] for one in ways)}" if ways else ""
            why = f"{modality} {how.get(source, source)}{other}"
        super().__init__(
            f"{wire} can't take {why}. Send it another way, or say unsupported_media='hint' to "
            "send its hint as text."
        )


class UnknownMediaTypeError(UnsupportedMediaError):
    """The MIME type of the bytes is not given, and the bytes do not show it."""

    def __init__(self, modality: str) -> None:
        self.modality = modality
        self.source = "bytes"
        InvalidInputError.__init__(
            self, f"The type of this {modality} is not known: say it, for example mime='image/png'."
        )


@dataclass(frozen=True)
class LoadedMedia:
    """Media that can be sent: a URL, or bytes and their type."""

    modality: str
    url: str | None = None
    data: bytes | None = None
    mime: str | None = None
    id: str | None = None

    @cached_property
    def base64(self) -> str:
        return b64encode(self.data or b"").decode()

    @property
    def data_url(self) -> str:
        return f"data:{self.mime};base64,{self.base64}"

    @property
    def filename(self) -> str:
        """A name for those who want one."""
        kind = (self.mime or "").rpartition("/")[2]
        endings = {"plain": "txt", "mpeg": "mp3", "jpeg": "jpg"}
        return f"{self.id or self.modality}.{endings.get(kind, kind) or 'bin'}"


def loaded(block: MediaBlock, blob: Callable[[str], bytes]) -> LoadedMedia:
    """The media of a block, its bytes with it; UnknownMediaTypeError if their type is unknown."""
    mime = _ALSO_KNOWN_AS.get(block.mime or "", block.mime)
    if block.blob is None:
        return LoadedMedia(block.modality, url=block.url, mime=mime, id=block.id)
    data = blob(block.blob)
    mime = mime or type_of(data)
    if mime is None:
        raise UnknownMediaTypeError(block.modality)
    return LoadedMedia(block.modality, data=data, mime=mime, id=block.id)


def type_of(data: bytes) -> str | None:
    """The type that bytes show by what they begin with; None if they show none."""
    for offset, magic, mime in _MAGIC:
        if data[offset : offset + len(magic)] == magic:
            return mime
    return None
