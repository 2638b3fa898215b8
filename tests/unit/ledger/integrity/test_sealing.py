"""Seals as files and their signatures: what is signed, and that no edit goes unnoticed."""

from __future__ import annotations

import stat
import subprocess
import sys
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.conformance.forging import small_book
from turnledger.ledger import (
    IntegrityFailureError,
    InvalidInputError,
    Ledger,
    MissingDependencyError,
)
from turnledger.ledger.integrity.seal import FORMAT, Head, Seal, make_seal, read_seal, seal_lines
from turnledger.ledger.integrity.signing import (
    Signer,
    is_signed_by,
    new_key,
    read_public_key,
    read_signer,
)

NOW = 1_700_000_000_000_000


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A private key, its public key beside it."""
    path = tmp_path / "seal.key"
    path.with_suffix(".pub").write_bytes(new_key(path))
    return path


def made(signer: Signer | None) -> Seal:
    with Ledger.open("memory://") as ledger:
        small_book(ledger)
        return make_seal(ledger, NOW, signer)


def file_of(seal: Seal) -> bytes:
    return b"".join(seal_lines(seal))


def rooted(seal: Seal, heads: list[Head]) -> Seal:
    """The seal with other heads and a root that fits them, as a forger would have it."""
    fields = [
        field
        for head in heads
        for field in (head.run_id.encode(), b"%d" % head.version, bytes.fromhex(head.digest))
    ]
    root = sha256(b"".join(b"%d:%b," % (len(field), field) for field in fields)).hexdigest()
    return msgspec.structs.replace(seal, heads=heads, runs=len(heads), root=root)


def test_a_file_gives_the_seal_back(key: Path) -> None:
    """Signed or not, one run a line."""
    for signer in (None, read_signer(key)):
        seal = made(signer)
        assert read_seal(file_of(seal)) == seal
        assert sum(line.startswith(b'    ["') for line in file_of(seal).splitlines()) == 4
    assert read_seal(file_of(seal), read_public_key(key.with_suffix(".pub"))) == seal


def test_what_is_signed_is_fixed() -> None:
    """The statement's bytes and the root are a format that others check: they never change."""
    head = Head("01890a5d-ac96-774b-bcce-b302099a8057", 12, "ab" * 32)
    # sha256 of "36:01890a5d-...,2:12,32:" and 32 bytes 0xab and ",", by sha256sum
    root = "d4c8e1025184933cbb6667e217e149b823e8c5da19925c258672a10fdf29adc2"
    seal = Seal(
        turnledger_seal=FORMAT,
        signed=False,
        sealed_at="2023-11-14T22:13:20.000000Z",
        runs=1,
        events=12,
        position=40,
        root=root,
        public_key=None,
        signature=None,
        heads=[head],
    )
    assert seal.statement == (
        b"15:turnledger seal,1:1,27:2023-11-14T22:13:20.000000Z,1:1,2:12,2:40,32:"
        + bytes.fromhex(root)
        + b","
    )
    assert read_seal(file_of(seal)) == seal


EDITS: dict[str, Any] = {
    "turnledger_seal": 2,
    "signed": False,
    "sealed_at": "2023-11-14T22:13:21.000000Z",
    "runs": 3,
    "events": 9,
    "position": 9,
    "root": "00" * 32,
    "public_key": b64encode(bytes(32)).decode(),
    "signature": b64encode(bytes(64)).decode(),
    "heads": [],
}


@pytest.mark.parametrize("field", Seal.__struct_fields__)
def test_an_edited_field_is_found(key: Path, field: str) -> None:
    """Whichever it is, the signed seal is refused, without knowing whose it should be."""
    forged = msgspec.structs.replace(made(read_signer(key)), **{field: EDITS[field]})
    with pytest.raises(IntegrityFailureError):
        read_seal(file_of(forged))


@pytest.mark.parametrize("field", ["public_key", "signature"])
@pytest.mark.parametrize("value", [None, "", "not base64!", "AAAA", "é"])
def test_a_broken_signature_is_an_integrity_failure(key: Path, field: str, value: Any) -> None:
    """No form of it is taken for no signature, or stumbled over."""
    forged = msgspec.structs.replace(made(read_signer(key)), **{field: value})
    with pytest.raises(IntegrityFailureError):
        read_seal(file_of(forged))


@pytest.mark.parametrize("field", ["public_key", "signature"])
def test_a_signature_has_one_spelling(key: Path, field: str) -> None:
    """Base64 has bits that decoding drops: with them set, it is not the file that was made."""
    seal = made(read_signer(key))
    text = getattr(seal, field)
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    end = len(text.rstrip("=")) - 1
    other = text[:end] + digits[digits.index(text[end]) ^ 1] + text[end + 1 :]
    assert b64decode(other) == b64decode(text)
    with pytest.raises(IntegrityFailureError, match="spelling"):
        read_seal(file_of(msgspec.structs.replace(seal, **{field: other})))


def test_other_heads_with_a_root_that_fits_need_the_key(key: Path) -> None:
    """Leaving a run out, and recomputing the root, is found by the signature."""
    seal = made(read_signer(key))
    forged = rooted(seal, seal.heads[1:])
    with pytest.raises(IntegrityFailureError, match="signature"):
        read_seal(file_of(forged))


def test_an_unsigned_seal_can_be_forged_but_not_pass_for_a_signed_one(key: Path) -> None:
    """With a key, neither an unsigned seal nor one of another key is accepted."""
    seal = made(read_signer(key))
    bare = msgspec.structs.replace(seal, signed=False, public_key=None, signature=None)
    assert read_seal(file_of(rooted(bare, seal.heads[1:]))).runs == 3
    public = read_public_key(key.with_suffix(".pub"))
    with pytest.raises(IntegrityFailureError, match="not signed"):
        read_seal(file_of(bare), public)
    other = Ed25519PrivateKey.generate()
    theirs = made(Signer(other.sign, other.public_key().public_bytes_raw()))
    assert read_seal(file_of(theirs)) == theirs
    with pytest.raises(IntegrityFailureError, match="another key"):
        read_seal(file_of(theirs), public)


@pytest.mark.parametrize(
    "heads",
    [
        lambda heads: heads[::-1],
        lambda heads: [heads[0], *heads],
        lambda heads: [Head(heads[0].run_id.upper(), 1, heads[0].digest)],
        lambda heads: [Head("", 1, heads[0].digest)],
        lambda heads: [Head(heads[0].run_id, 0, heads[0].digest)],
        lambda heads: [Head(heads[0].run_id, 1, heads[0].digest[1:])],
    ],
)
def test_heads_have_one_spelling(heads: Any) -> None:
    """Sorted, each run once, ids and digests in lower case and whole."""
    seal = made(None)
    listed = heads(seal.heads)
    forged = msgspec.structs.replace(seal, heads=listed, runs=len(listed))
    with pytest.raises(IntegrityFailureError, match="list of runs"):
        read_seal(file_of(forged))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"turnledger_seal":1}', b"x"])
def test_what_is_no_seal_is_refused(content: bytes) -> None:
    """With an error that says so."""
    with pytest.raises(IntegrityFailureError, match="Not a seal"):
        read_seal(content)


def test_a_new_key_is_its_owners_and_never_overwritten(key: Path) -> None:
    """Mode 0600, and a second key of the same name is refused with the first intact."""
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    with pytest.raises(InvalidInputError, match="never overwritten"):
        new_key(key)
    assert key.read_bytes() == before
    assert read_signer(key).public_key == read_public_key(key.with_suffix(".pub"))


def test_a_signature_is_checked_to_the_byte(key: Path) -> None:
    """Neither other bytes nor another key's signature pass."""
    signer = read_signer(key)
    signature = signer.sign(b"said")
    assert is_signed_by(signer.public_key, signature, b"said")
    assert not is_signed_by(signer.public_key, signature, b"sad")
    assert not is_signed_by(bytes(32), signature, b"said")
    assert not is_signed_by(b"short", signature, b"said")


def test_other_files_are_no_keys(key: Path, tmp_path: Path) -> None:
    """Another kind of key, an encrypted one, the wrong half: each is refused by name."""
    curve = generate_private_key(SECP256R1())
    pem, pkcs8 = form.Encoding.PEM, form.PrivateFormat.PKCS8
    secret = form.BestAvailableEncryption(b"word")
    spki = form.PublicFormat.SubjectPublicKeyInfo
    wrong = {
        "text": b"hello",
        "curve": curve.private_bytes(pem, pkcs8, form.NoEncryption()),
        "locked": Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, secret),
        "public": key.with_suffix(".pub").read_bytes(),
    }
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInputError, match=name):
            read_signer(tmp_path / name)
    (tmp_path / "curve").write_bytes(curve.public_key().public_bytes(pem, spki))
    for path in (tmp_path / "text", tmp_path / "curve", key):
        with pytest.raises(InvalidInputError, match=path.name):
            read_public_key(path)


def test_without_the_package_only_signatures_are_missing(
    key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsigned seals are made and read; anything with a key says what to install."""
    signed = made(read_signer(key))
    for name in ("cryptography", *(n for n in sys.modules if n.startswith("cryptography."))):
        monkeypatch.setitem(sys.modules, name, None)
    assert read_seal(file_of(made(None))).runs == 4
    needing = (
        lambda: read_signer(key),
        lambda: read_public_key(key.with_suffix(".pub")),
        lambda: new_key(key.with_suffix(".other")),
        lambda: read_seal(file_of(signed)),
    )
    for call in needing:
        with pytest.raises(MissingDependencyError, match=r"pip install 'turnledger\[seal\]'"):
            call()
    assert not key.with_suffix(".other").exists()


@pytest.mark.process
def test_sealing_needs_no_extra_to_be_imported() -> None:
    """The package is loaded where a key is used, not before."""
    code = (
        "import sys, turnledger.ledger.integrity.seal\n"
        "from turnledger.adapters.cli import turnledger\n"
        "turnledger.load_all()\n"
        "sys.exit('cryptography' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
