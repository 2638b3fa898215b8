"""The chain: a digest is of each field, in its place, and of all that came before."""

from __future__ import annotations

from hashlib import sha256
from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from turnledger.ledger.events.chain import GENESIS, link

fields = st.tuples(
    st.binary(min_size=32, max_size=32),
    st.binary(max_size=12),
    st.integers(0, 10**6),
    st.binary(max_size=12),
    st.binary(max_size=12),
    st.integers(0, 10**6),
    st.binary(max_size=12),
)


def test_the_digest_is_what_the_docs_say() -> None:
    """SHA-256 over the fields, each with its length before it, so that others can check it."""
    spelt = b"32:" + GENESIS + b",1:r,1:7,2:id,6:custom,3:123,2:{},"
    assert link(GENESIS, b"r", 7, b"id", b"custom", 123, b"{}") == sha256(spelt).digest()


@given(fields, fields)
def test_other_fields_are_another_digest(
    one: tuple[object, ...], other: tuple[object, ...]
) -> None:
    """Two records share a digest only if they share everything."""
    assert (link(*one) == link(*other)) == (one == other)  # type: ignore[arg-type]


@given(st.binary(min_size=1, max_size=30), st.data())
def test_bytes_can_not_be_shifted_between_fields(text: bytes, data: st.DataObject) -> None:
    """The same bytes, cut into fields at other places, are another record."""

    def cut(at: list[int]) -> tuple[bytes, ...]:
        edges = [0, *at, len(text)]
        return tuple(text[a:b] for a, b in pairwise(edges))

    places = st.lists(st.integers(0, len(text)), min_size=3, max_size=3).map(sorted)
    one, other = cut(data.draw(places)), cut(data.draw(places))
    digests = [link(GENESIS, a, 1, b, c, 2, d) for a, b, c, d in (one, other)]
    assert (digests[0] == digests[1]) == (one == other)


def test_separators_and_lengths_can_not_be_forged() -> None:
    """Fields that contain what separates fields are still told apart."""
    tricky = [b"", b",", b"1:a,", b"0:,", b"a,1:b", b":", b"3:abc,", b"\x00"]
    made = [
        ((a, b, c, d), link(GENESIS, a, 1, b, c, 1, d))
        for a in tricky
        for b in tricky
        for c in tricky
        for d in tricky
    ]
    assert len({digest for _, digest in made}) == len(made)


def test_numbers_can_not_be_shifted_into_their_neighbours() -> None:
    """A version's digits and an id's do not run into each other."""
    digests = {
        link(GENESIS, b"run", version, event_id, b"t", moment, b"d")
        for version, event_id, moment in [
            (1, b"23", 4),
            (12, b"3", 4),
            (123, b"", 4),
            (1, b"2", 34),
            (1, b"", 234),
        ]
    }
    assert len(digests) == 5


def test_each_digest_depends_on_all_before_it() -> None:
    """Changing any record changes every later digest."""

    def chain(changed: int | None) -> list[bytes]:
        digest, digests = GENESIS, []
        for version in range(1, 8):
            data = b"other" if version == changed else b"data"
            digest = link(digest, b"run", version, b"id", b"tag", version, data)
            digests.append(digest)
        return digests

    plain = chain(None)
    for changed in range(1, 8):
        bent = chain(changed)
        assert bent[: changed - 1] == plain[: changed - 1]
        assert all(a != b for a, b in zip(bent[changed - 1 :], plain[changed - 1 :], strict=True))
    assert all(a != b for a, b in combinations(plain, 2))
