"""Codec: events to JSON text and back.

What `encode` accepts, `decode` gives back equal: it is decoded once before it is let through.
Both raise only the errors that they document, for any input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, get_type_hints

import msgspec

from turnledger.ledger.arguments import check_methods
from turnledger.ledger.errors import (
    EventDecodeError,
    IntegrityFailureError,
    InvalidEventError,
    InvalidInputError,
    LimitExceededError,
    RedactedStateError,
    UnknownEventTypeError,
    short_repr,
)
from turnledger.ledger.events.limits import Limits, check_json
from turnledger.ledger.events.messages import InnerMessage
from turnledger.ledger.events.types import CATALOGUE, EVENT_TYPES, Event, MessageAppended
from turnledger.ledger.events.upcasters import UPCASTERS, Upcaster, upcast
from turnledger.ledger.redaction import Redactor
from turnledger.ledger.redaction.events import (
    RedactedPart,
    may_hold_secrets,
    redacted,
    redacted_parts,
    replaced_parts,
)

_MOST_SHOWN = 10_000
# Bytes of events that are looked at for secrets at once: a batch with a text that may be a secret
# is searched event by event, and a large one only in its part.
_LOOK_BYTES = 64 * 1024
# An event's tag and JSON text, the event as it will be read, and what of it was redacted.
Encoded: TypeAlias = tuple[str, bytes, Event, tuple[RedactedPart, ...]]
# Integers beyond 64 bits have 19 digits at least.
_LONG_INTEGER = re.compile(rb"[0-9]{19}")
# The same without a regular expression, for long texts: every digit is made a 0.
_LONG_DIGITS = b"0" * 19
_DIGITS = bytes(48 if 48 <= code < 58 else 32 for code in range(256))
_EXACT: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}
_MARKER = re.compile(r"\[redacted: [^]]*\]")
# Values that hold no integer, and nest nothing.
_LEAVES = frozenset({type(None), str, bool, float})


@cache
def _free_fields(kind: type[Event]) -> tuple[str, ...]:
    """The fields of an event type that take any JSON; a message's are those of what it holds."""
    hints = get_type_hints(InnerMessage if kind is MessageAppended else kind)
    return tuple(name for name, hint in hints.items() if hint is Any)


def _plain(value: Any) -> Any:
    """Text, or a number, as such: called for values of classes that msgspec does not know.

    LangChain's texts and numpy's floats, say, are subclasses. What their methods do is not asked.
    """
    for kind in (str, int, float):
        if isinstance(value, kind):
            return _EXACT[kind](value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _check_names(event: Event, exact: Collection[str]) -> None:
    known = getattr(event, "__struct_fields__", ())
    named = isinstance(exact, Collection) and not isinstance(exact, str)
    if not named or not all(name in known for name in exact):
        raise InvalidInputError(
            f"Invalid exact={short_repr(exact)}: expected names of {type(event).__name__}'s "
            f"fields, ({', '.join(known)})."
        )


def _refuse_redacted(given: Event, made: Event, exact: Collection[str]) -> None:
    """Refuse an event of which the redactor has replaced a part that must stay as it is."""
    kind = type(given).__name__
    parts = [
        part
        for name in exact
        for part in replaced_parts(getattr(given, name), getattr(made, name), f"{kind}.{name}")
    ]
    if parts:
        _, _, made = parts[0]
        found = _MARKER.search(str(made))
        marker = found.group() if found else str(made)[:100]
        raise RedactedStateError([path[:200] for path, *_ in parts], marker=marker)


@check_methods(skip=("are_stored_so", "encode", "encode_all", "encode_checked", "decode"))
class Codec:
    """Encodes and decodes events, within limits.

    `written` is the highest event catalogue that wrote what is being read, if known:
    it tells an outdated program from damaged data. With a `redactor`, what it encodes is
    without secrets, and so is what it says of events that it refuses.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        written: int | None = None,
        redactor: Redactor | None = None,
        upcasters: Mapping[str, Upcaster] = UPCASTERS,
    ) -> None:
        self.limits = limits or Limits()
        self.written = written
        self.redactor = redactor
        self._upcasters = upcasters
        # With no more brackets than this, nothing can be nested too deep.
        self._shallow = self.limits.max_json_depth
        self._max_bytes = self.limits.max_event_bytes
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        self._decoders: dict[str, msgspec.json.Decoder[Event]] = {
            tag: msgspec.json.Decoder(kind) for tag, kind in EVENT_TYPES.items()
        }
        self._plans: dict[type[Event], tuple[str, Callable[[bytes], Event], tuple[str, ...]]] = {
            kind: (tag, self._decoders[tag].decode, _free_fields(kind))
            for tag, kind in EVENT_TYPES.items()
        }

    def encode(self, event: Event) -> tuple[str, bytes]:
        """An event's tag and its JSON text, checked against its type and the limits."""
        return self.encode_checked(event)[:2]

    def are_stored_so(self, events: Sequence[Event], texts: Sequence[bytes]) -> bool:
        """Whether `encode_checked` gives each event and its text back, with nothing to refuse.

        False where it is not certain: then `encode_checked` has to be called. An event that is
        encoded to the same text as it was decoded of need not be decoded again.

        Args:
            events: Events of the catalogue's types.
            texts: The JSON text that each was decoded of.
        """
        try:
            if list(map(self._encode, events)) != list(texts):
                return False
        except (ValueError, TypeError, OverflowError, RecursionError):
            return False
        for event, text in zip(events, texts, strict=True):
            if len(text) > self._max_bytes or (self._nests(event) and self._is_too_much(text)):
                return False
        return self.redactor is None or not may_hold_secrets(events, self.redactor)

    def _nests(self, event: Event) -> bool:
        """Whether a free JSON field nests or holds an integer, as in `_encode_checked`."""
        kind = type(event)
        _, _, free = self._plans[kind]
        holder = event.message if kind is MessageAppended else event  # type: ignore[union-attr]
        for name in free:  # noqa: SIM110 - a generator for each event costs more than the look
            if type(getattr(holder, name)) not in _LEAVES:
                return True
        return False

    def _is_too_much(self, text: bytes) -> bool:
        """Whether JSON may be nested too deep, or have an integer beyond 64 bits."""
        brackets = text.count(b"[") + text.count(b"{")
        return brackets > self._shallow or _LONG_DIGITS in text.translate(_DIGITS)

    def encode_all(self, events: Sequence[Event]) -> list[Encoded]:
        """What `encode_checked` gives for each event, with one look for secrets at many."""
        if self.redactor is None or len(events) == 1:
            return [self.encode_checked(event) for event in events]
        made: list[Encoded] = []
        seen = size = 0
        try:
            for event in events:
                tag, data, decoded = self._encode_checked(event)
                made.append((tag, data, decoded, ()))
                size += len(data)
                if size >= _LOOK_BYTES:
                    self._redact(made, seen, self.redactor)
                    seen, size = len(made), 0
            self._redact(made, seen, self.redactor)
        except InvalidInputError as error:
            if self._hide_secrets(error):
                raise error from None
            raise
        return made

    def _redact(self, made: list[Encoded], first: int, redactor: Redactor) -> None:
        """Replace the encoded events from `first` on that hold secrets."""
        if may_hold_secrets([event for _, _, event, _ in made[first:]], redactor):
            for place in range(first, len(made)):
                _, _, event, _ = made[place]
                without = redacted(event, redactor)
                if without is not event:
                    parts = redacted_parts(event, without)
                    made[place] = (*self._encode_checked(without), parts)

    def encode_checked(self, event: Event, exact: Collection[str] = ()) -> Encoded:
        """An event encoded and checked, without secrets.

        RedactedStateError if the redactor would change a field that `exact` names, unless its
        `on_redacted` is "warn".
        """
        if exact != ():
            _check_names(event, exact)
        if self.redactor is None:
            return *self._encode_checked(event), ()
        try:
            tag, data, decoded = self._encode_checked(event)
            without = redacted(decoded, self.redactor)
            if without is decoded:
                return tag, data, decoded, ()
            if exact and self.redactor.on_redacted == "refuse":
                _refuse_redacted(decoded, without, exact)
            return *self._encode_checked(without), redacted_parts(decoded, without)
        except InvalidInputError as error:
            if self._hide_secrets(error):
                # Without its cause, whose text could show the secret in a traceback.
                raise error from None
            raise

    def _hide_secrets(self, error: InvalidInputError) -> bool:
        """Redact what an error says of the event that was refused; whether it held a secret."""
        before = str(error)
        said = before if self.redactor is None else self.redactor.text(before)
        if said != before:
            error.args = (said, *error.args[1:])
        return said != before

    def _encode_checked(self, event: Event) -> tuple[str, bytes, Event]:
        kind = type(event)
        plan = self._plans.get(kind)
        if plan is None:
            raise InvalidEventError(
                f"Unknown event type {kind.__name__}: it is not in the catalogue. "
                "Use a CustomEvent for events of your own."
            )
        tag, decode, free = plan
        try:
            data = self._encode(event)
            decoded = decode(data)
            changed = decoded != event
            if free:
                # By `kind`: a function less for every event.
                holder = event.message if kind is MessageAppended else event  # type: ignore[union-attr]
                nests = False
                for name in free:
                    nests = nests or type(getattr(holder, name)) not in _LEAVES
                # Integers beyond 64 bits are not looked for in large texts.
                if changed or (
                    nests
                    and (
                        data.count(b"[") + data.count(b"{") > self._shallow
                        or _LONG_INTEGER.search(data) is not None
                    )
                ):
                    self._check_free_fields(holder, free)
            if changed:
                self._refuse_changes(decoded, event, kind.__name__)
        except msgspec.ValidationError as error:
            raise InvalidEventError(f"{kind.__name__}: {error}") from error
        except (InvalidEventError, LimitExceededError) as error:
            error.args = (f"{kind.__name__}: {error.args[0]}", *error.args[1:])
            raise
        except RecursionError as error:
            limit = self.limits.max_json_depth
            what, found = f"{kind.__name__}: JSON nesting", limit + 1
            raise LimitExceededError(
                what, limit=limit, found=found, setting="max_json_depth"
            ) from error
        except MemoryError:
            raise
        except Exception as error:
            # No JSON form, not of its field's type, or an object whose methods raise.
            raise InvalidEventError(f"{kind.__name__} can't be written as JSON: {error}") from error
        if len(data) > self._max_bytes:
            self.limits.check(f"{kind.__name__}, in bytes", len(data), "max_event_bytes")
        return tag, data, decoded

    def _check_free_fields(self, holder: msgspec.Struct, names: tuple[str, ...]) -> None:
        """Refuse values in free JSON fields that are not JSON, or nested too deep."""
        for name in names:
            check_json(getattr(holder, name), name, self.limits)

    def _refuse_changes(self, read: Any, given: Any, path: str) -> None:
        """Refuse a value that would be read differently than it was given; lists may be tuples."""
        exact = _EXACT.get(type(read))
        if exact is not None and isinstance(given, type(read)):
            given = exact(given)  # a subclass may say that it is not equal
        if read == given:
            return
        if isinstance(given, msgspec.Struct) and type(read) is type(given):
            for name in given.__struct_fields__:
                self._refuse_changes(getattr(read, name), getattr(given, name), f"{path}.{name}")
        elif (
            isinstance(given, dict)
            and isinstance(read, dict)
            and list(read) == [_plain(key) for key in given]
        ):
            for (key, found), value in zip(read.items(), given.values(), strict=True):
                self._refuse_changes(found, value, f"{path}.{key}")
        elif (
            isinstance(given, list | tuple)
            and isinstance(read, list | tuple)
            and len(read) == len(given)
        ):
            for place, value in enumerate(given):
                self._refuse_changes(read[place], value, f"{path}[{place}]")
        else:
            raise TypeError(f"{path}, {self._brief(given)}, would be read as {self._brief(read)}")

    def _brief(self, value: Any) -> str:
        """A value for a message: redacted before it is cut, so that no part of a secret is left."""
        said = repr(value)[:_MOST_SHOWN]
        return (self.redactor.text(said) if self.redactor is not None else said)[:100]

    def decode(self, tag: str, data: str | bytes) -> Event:
        """The event that was recorded under this tag, old payloads brought up to date."""
        decoder = self._decoders.get(tag)
        try:
            if decoder is not None:
                return decoder.decode(data)
            return self._decode_retired(tag, data)
        except msgspec.ValidationError as error:
            hint = f"This program knows event catalogue {CATALOGUE}"
            if self.written is not None and self.written > CATALOGUE:
                hint += (
                    f", the ledger was written with catalogue {self.written}: the program is too "
                    "old. Upgrade turnledger to read it"
                )
            raise EventDecodeError(
                f"The data of a {tag!r} event does not fit its type: {error}. {hint}.", tag=tag
            ) from error
        except (msgspec.DecodeError, ValueError, TypeError, RecursionError) as error:
            if isinstance(error, EventDecodeError):
                raise
            raise EventDecodeError(
                f"The data of a {tag!r} event is not JSON: {error}", tag=tag
            ) from error

    def _decode_retired(self, tag: object, data: str | bytes) -> Event:
        if not isinstance(tag, str):
            # The same bytes stored as another type, which no query would find: tampering.
            raise IntegrityFailureError(f"A record's tag is not stored as text: {short_repr(tag)}.")
        if tag not in self._upcasters:
            raise UnknownEventTypeError(tag, known=CATALOGUE, written=self.written)
        payload = msgspec.json.decode(data, type=dict[str, Any])
        try:
            successor, payload = upcast(tag, payload, self._upcasters)
            kind = EVENT_TYPES[successor]
        except (KeyError, TypeError, AttributeError) as error:
            raise EventDecodeError(
                f"The data of a {tag!r} event could not be brought up to date: {error!r}", tag=tag
            ) from error
        return msgspec.convert(payload, kind)
