"""Base of the wire formats: encodes a conversation as a provider's messages, turn by turn.

A `WireFormat` is pure. It knows how one turn looks on its provider's wire; what was written of
a conversation is kept from one request to the next, so that a request costs what is new in it.
Ids and names that a provider would refuse (they may come from another provider) are made fit.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from turnledger.adapters.providers.media import LoadedMedia, UnsupportedMediaError, loaded
from turnledger.ledger.events.messages import Modality
from turnledger.projections import ChatTurn, MediaBlock, TextBlock
from turnledger.runtime import Reply, Request
from turnledger.runtime.agent.models import ToolChoice

Source: TypeAlias = Literal["url", "bytes"]
WhenUnsupported: TypeAlias = Literal["error", "hint"]

URL: frozenset[Source] = frozenset({"url"})
BYTES: frozenset[Source] = frozenset({"bytes"})
BOTH: frozenset[Source] = URL | BYTES


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a provider's wire format can say.

    `media` has the modalities that it takes, and how: by URL, as bytes. `mimes` has the types
    that it takes as bytes, where it is particular.
    """

    media: Mapping[Modality, frozenset[Source]] = field(default_factory=dict)
    mimes: Mapping[Modality, tuple[str, ...]] = field(default_factory=dict)

    def takes(self, modality: Modality, source: Source) -> bool:
        return source in self.media.get(modality, frozenset())


class Written:
    """A conversation as far as it was written: what a format keeps between requests."""

    __slots__ = ("before", "ids", "media", "messages", "names", "open", "system", "turns")

    def __init__(self, system: str) -> None:
        self.system = system
        self.turns: list[ChatTurn] = []
        # Before each turn: how many messages, media and ids there were.
        self.before: list[tuple[int, int, int]] = []
        self.messages: list[Any] = []
        self.media = 0
        # Every call id on the wire, in the order in which they came, with the call's name.
        self.ids: dict[str, str] = {}
        # The last assistant turn's calls: the id in the record, the id on the wire.
        self.open: dict[str, str] = {}
        self.names: dict[str, str] = {}

    def cut(self, turns: int) -> None:
        """Forget all turns after the first ones; a turn of results is cut with its calls."""
        if turns >= len(self.turns):
            return
        messages, self.media, ids = self.before[turns]
        del self.turns[turns:], self.before[turns:], self.messages[messages:]
        while len(self.ids) > ids:
            self.ids.popitem()


class WireFormat(ABC):
    """One provider's format. `unsupported_media` says what becomes of media that it can't take:
    an error before anything is sent, or a line of text with the hint.
    """

    # What transcripts of this format are called, and what its provider data is kept under.
    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    # Which call ids and tool names the provider takes; without a pattern all ids in ASCII.
    longest_id: ClassVar[int] = 64
    id_pattern: ClassVar[re.Pattern[str] | None] = re.compile(r"[a-zA-Z0-9_-]+")
    name_pattern: ClassVar[re.Pattern[str]] = re.compile(r"[a-zA-Z0-9_-]{1,64}")
    # Whether the conversation must begin with a user's turn. If not, the synthetic one is left
    # out where the system text is a message: an empty list would be refused too.
    needs_lead: ClassVar[bool] = True

    def __init__(self, *, unsupported_media: WhenUnsupported = "error") -> None:
        self.unsupported_media = unsupported_media

    # --- what a format implements ---

    @abstractmethod
    def payload(self, request: Request, messages: list[Any]) -> dict[str, Any]:
        """The whole request, around its messages."""

    @abstractmethod
    def write(self, turn: ChatTurn, page: Page) -> None:
        """Add the messages of one turn to `page.out`."""

    @abstractmethod
    def decode(self, raw: Any) -> Reply:
        """The reply in an answer: the SDK's object, or the same as data."""

    def lead(self, request: Request) -> list[Any]:
        """The messages before those of the turns, where the system text is one of them."""
        return []

    # --- what all share ---

    def encode(self, request: Request) -> dict[str, Any]:
        """The request on the wire.

        The list of messages is the one of the request before it, extended: copy a payload to
        keep it.
        """
        return self.payload(request, self.messages(request))

    def messages(self, request: Request) -> list[Any]:
        written = request.kept.get(self.name)
        if written is None or written.system != request.system:
            written = request.kept[self.name] = Written(request.system)
            written.messages += self.lead(request)
        standing, fresh = request.history.for_send_after(written.turns)
        if 0 < standing < len(written.turns) and fresh and fresh[0].role == "user":
            # Results need to know the calls that they answer: write those again too.
            standing -= 1
            fresh.insert(0, written.turns[standing])
        written.cut(standing)
        page = Page(self, written, request)
        turns, before, out, ids = written.turns, written.before, written.messages, written.ids
        write = self.write
        try:
            for turn in fresh:
                before.append((len(out), written.media, len(ids)))
                turns.append(turn)
                if turn.role == "assistant":
                    written.open = {}
                elif turn.synthetic and out and not self.needs_lead:
                    continue
                write(turn, page)
        except BaseException:
            del request.kept[self.name]  # a partly written turn can't be extended
            raise
        return out


class Page:
    """Where the turns of one request are written: what a format needs to write them."""

    __slots__ = (
        "_fits_id",
        "_fits_name",
        "_format",
        "_ids",
        "_longest",
        "_names",
        "_request",
        "_written",
        "has_provider_data",
        "out",
    )

    def __init__(self, wire: WireFormat, written: Written, request: Request) -> None:
        self.out = written.messages
        # Whether any reply of the conversation came with more than its message.
        self.has_provider_data = bool(request.provider_data)
        self._format = wire
        self._written = written
        self._ids = written.ids
        self._names = written.names
        self._request = request
        self._fits_id = wire.id_pattern.fullmatch if wire.id_pattern else str.isascii
        self._fits_name = wire.name_pattern.fullmatch
        self._longest = wire.longest_id

    # --- calls ---

    def call_id(self, call_id: str, name: str) -> str:
        """The id that a call has on the wire: its own, if the provider takes that.

        No id is used twice in a conversation.
        """
        ids, fit = self._ids, call_id
        if call_id in ids or len(call_id) > self._longest or not self._fits_id(call_id):
            fit = self._made_up(call_id)
        ids[fit] = name
        self._written.open[call_id] = fit
        return fit

    def _made_up(self, call_id: str) -> str:
        number = 0
        while True:
            seed = f"{call_id}\0{number}" if number else call_id
            fit = "call_" + sha256(seed.encode()).hexdigest()[:24]
            if fit not in self._ids:
                return fit
            number += 1

    def result_id(self, call_id: str) -> str:
        """The id on the wire of the call that a result answers."""
        return self._written.open[call_id]

    def result_name(self, call_id: str) -> str:
        """The name on the wire of the call that a result answers."""
        return self._ids[self._written.open[call_id]]

    def name(self, name: str) -> str:
        """A tool's name as the provider takes it: a model may have made one up."""
        fit = self._names.get(name)
        if fit is None:
            fit = name
            if not self._fits_name(name):
                fit = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]
                if not self._fits_name(fit):
                    fit = "_" + fit[:63]
            self._names[name] = fit
        return fit

    # --- the rest ---

    @property
    def provider_data(self) -> Any:
        """What this format kept of the reply whose turn is being written; None if nothing."""
        if not self.has_provider_data:
            return None
        kept = self._request.provider_data.get(len(self._written.turns))
        return kept.get(self._format.name) if isinstance(kept, dict) else None

    def media(self, block: MediaBlock) -> tuple[str, LoadedMedia | None]:
        """The label of media and what is sent; None if the label is all that can be sent."""
        self._written.media += 1
        label = f"Media {self._written.media}:"
        if block.prompt_hint:
            label += f" {block.prompt_hint}"
        try:
            media = loaded(block, self._request.blob)
            self._check(block, media)
        except UnsupportedMediaError:
            if self._format.unsupported_media == "error":
                raise
            return f"{label} ({_described(block)}, which can't be shown here)", None
        return label, media

    def said(
        self,
        turn: ChatTurn,
        text: Callable[[str], Any],
        part: Callable[[LoadedMedia], dict[str, Any] | None],
    ) -> list[Any]:
        """The parts of a user's turn that are not results: texts, and media after their labels.

        Args:
            turn: The turn.
            text: A text as the format writes it.
            part: Media as the format writes it; None if there is nothing to be seen in it.
        """
        said: list[Any] = []
        for block in turn.blocks:
            if type(block) is TextBlock:
                said.append(text(block.text))
            elif type(block) is MediaBlock:
                label, media = self.media(block)
                said.append(text(label))
                if media is not None and (shown := part(media)) is not None:
                    said.append(shown)
        return said

    def media_said(self, block: MediaBlock) -> str:
        """Media as text, where a provider takes none at all: in what its own side said."""
        self._written.media += 1
        hint = f" {block.prompt_hint}" if block.prompt_hint else ""
        return f"Media {self._written.media}:{hint} ({_described(block)})"

    def _check(self, block: MediaBlock, media: LoadedMedia) -> None:
        able = self._format.capabilities
        source: Source = "bytes" if media.data is not None else "url"
        if not able.takes(block.modality, source):
            raise UnsupportedMediaError(self._format.name, block.modality, source, able.media)
        mimes = able.mimes.get(block.modality)
        if source == "bytes" and mimes is not None and media.mime not in mimes:
            raise UnsupportedMediaError(
                self._format.name, block.modality, source, able.media, media.mime, mimes
            )


def _described(block: MediaBlock) -> str:
    return f"{block.modality} at {block.url}" if block.url else f"{block.modality} {block.blob}"


# --- pieces of requests -----------------------------------------------------------------


def forced_tool(choice: ToolChoice) -> str | None:
    """The name of the tool that must be called; None if no single one must."""
    if isinstance(choice, str):
        return None
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(
            'tool_choice is "auto", "none", "required", or names a tool: '
            '{"type": "function", "function": {"name": "search"}}'
        )
    return name


_decode = msgspec.json.Decoder().decode


def arguments_object(text: str) -> dict[str, Any]:
    """Arguments for a provider that wants an object, whatever a model wrote once."""
    try:
        found = _decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return {"unreadable_arguments": text}
    return found if isinstance(found, dict) else {"unreadable_arguments": text}


def is_strict(schema: Any) -> bool:
    """Whether a schema is one that OpenAI's strict mode takes: closed, and nothing optional."""
    if isinstance(schema, list):
        return all(is_strict(one) for one in schema)
    if not isinstance(schema, dict):
        return True
    if schema.keys() & _NOT_STRICT:
        return False
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties") or {}
        if schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required") or ()) != set(properties):
            return False
        if not is_strict(list(properties.values())):
            return False
    inside = [schema[key] for key in ("items", "anyOf") if key in schema]
    return is_strict(inside) and is_strict(list((schema.get("$defs") or {}).values()))


_NOT_STRICT = frozenset(
    {"oneOf", "allOf", "not", "if", "then", "else", "patternProperties", "prefixItems"}
    | {"propertyNames", "uniqueItems", "contains", "default", "minProperties", "maxProperties"}
)


# --- pieces of answers ---------------------------------------------------------------------


def field_of(thing: Any, name: str, default: Any = None) -> Any:
    """A field of an SDK's object, of a plain one, or of data: what is there and is not None."""
    found = thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
    return default if found is None else found


def count_of(thing: Any, *path: str) -> int:
    """A number of tokens; what is absent, or none, is 0."""
    for name in path:
        thing = field_of(thing, name)
    return thing if type(thing) is int and thing > 0 else 0
