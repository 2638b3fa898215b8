"""Types of the three kinds, with the same fields, and strategies for their values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
from hypothesis import strategies as st


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class PointDataclass:
    x: int
    y: float = 0.0


class PointStruct(msgspec.Struct, frozen=True):
    x: int
    y: float = 0.0


class PointModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)

    x: int
    y: float = 0.0


@dataclass(frozen=True)
class ShapeDataclass:
    """A shape."""

    name: Annotated[str, msgspec.Meta(description="What it is called.")]
    colour: Colour
    points: list[PointDataclass]
    kind: Literal["open", "closed"] = "open"
    area: float | None = None
    tags: frozenset[str] = frozenset({"new", "plain", "small"})
    weights: dict[str, int] = field(default_factory=dict)
    drawn: date | None = None
    seen_at: datetime | None = None
    ident: UUID | None = None


class ShapeStruct(msgspec.Struct, frozen=True):
    """A shape."""

    name: Annotated[str, msgspec.Meta(description="What it is called.")]
    colour: Colour
    points: list[PointStruct]
    kind: Literal["open", "closed"] = "open"
    area: float | None = None
    tags: frozenset[str] = frozenset({"new", "plain", "small"})
    weights: dict[str, int] = {}
    drawn: date | None = None
    seen_at: datetime | None = None
    ident: UUID | None = None


class ShapeModel(pydantic.BaseModel):
    """A shape."""

    name: str = pydantic.Field(description="What it is called.")
    colour: Colour
    points: list[PointModel]
    kind: Literal["open", "closed"] = "open"
    area: float | None = None
    tags: frozenset[str] = frozenset({"new", "plain", "small"})
    weights: dict[str, int] = {}
    drawn: date | None = None
    seen_at: datetime | None = None
    ident: UUID | None = None


@dataclass
class Tree:
    """Contains itself."""

    label: str
    children: list[Tree] = field(default_factory=list)


class TreeModel(pydantic.BaseModel):
    label: str
    children: list[TreeModel] = []


@dataclass
class MixedDataclass:
    """A dataclass with the two others in it."""

    struct: PointStruct
    model: PointModel
    models: list[PointModel] = field(default_factory=list)
    maybe: PointModel | None = None


class Circle(msgspec.Struct, tag=True, rename="camel"):
    outer_radius: float


class Square(msgspec.Struct, tag=True, rename="camel"):
    side_length: float


SHAPES: list[tuple[Any, Any]] = [
    (ShapeDataclass, PointDataclass),
    (ShapeStruct, PointStruct),
    (ShapeModel, PointModel),
]
POINTS: list[Any] = [PointDataclass, PointStruct, PointModel]

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
whole = st.integers(-(2**63), 2**63 - 1)
real = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(timezones=st.just(UTC))


@st.composite
def shapes(draw: st.DrawFn, shape: Any, point: Any) -> Any:
    """A shape of one kind."""
    points = st.builds(point, x=whole, y=real)
    return shape(
        name=draw(text),
        colour=draw(st.sampled_from(Colour)),
        points=draw(st.lists(points, max_size=3)),
        kind=draw(st.sampled_from(["open", "closed"])),
        area=draw(st.none() | real),
        tags=draw(st.frozensets(text, max_size=4)),
        weights=draw(st.dictionaries(text, whole, max_size=3)),
        drawn=draw(st.none() | st.dates()),
        seen_at=draw(st.none() | moments),
        ident=draw(st.none() | st.uuids()),
    )


any_shape = st.sampled_from(SHAPES).flatmap(lambda kinds: shapes(*kinds))

json_data = st.recursive(
    st.none() | st.booleans() | whole | real | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
