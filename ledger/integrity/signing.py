"""Ed25519 keys in PEM files, and signatures: the only module that imports `cryptography`."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from turnledger.ledger.errors import InvalidInputError, MissingDependencyError

# A key in PEM has about a hundred bytes, with a certificate or comments around it a few thousand.
_LONGEST_KEY = 64 * 1024


class Signer(NamedTuple):
    """A private key: the function that signs, and the raw public key."""

    sign: Callable[[bytes], bytes]
    public_key: bytes


def read_signer(path: Path) -> Signer:
    """Read a private key from a PEM file (PKCS 8, not encrypted)."""
    kind = _ed25519().Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    wanted = "a private key that is not encrypted, `turnledger seal --new-key`"
    load = partial(load_pem_private_key, password=None)
    private = _loaded(path, load, wanted, kind)
    return Signer(private.sign, private.public_key().public_bytes_raw())


def read_public_key(path: Path) -> bytes:
    """Read a raw public key from a PEM file."""
    kind = _ed25519().Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    wanted = "a public key, `openssl pkey -in KEY -pubout`"
    public: bytes = _loaded(path, load_pem_public_key, wanted, kind).public_bytes_raw()
    return public


def new_key(path: Path) -> bytes:
    """Create a private key in a new file, readable by its owner only.

    Returns the public key in PEM, for those who check what is signed.
    """
    private = _ed25519().Ed25519PrivateKey.generate()
    from cryptography.hazmat.primitives import serialization as form

    pem = private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidInputError(
            f"{path} exists, and a key is never overwritten. Name another file."
        ) from None
    with os.fdopen(file, "wb") as out:
        out.write(pem)
        out.flush()
        os.fsync(out.fileno())
    kind = form.PublicFormat.SubjectPublicKeyInfo
    public: bytes = private.public_key().public_bytes(form.Encoding.PEM, kind)
    return public


def is_signed_by(public_key: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether a signature is of these bytes and this key."""
    kind = _ed25519().Ed25519PublicKey
    from cryptography.exceptions import InvalidSignature

    try:
        kind.from_public_bytes(public_key).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def _loaded(path: Path, load: Callable[[bytes], Any], wanted: str, kind: type) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    with path.open("rb") as file:
        content = file.read(_LONGEST_KEY)  # a device may have no end
    try:
        key = load(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidInputError(f"Invalid key in {path}: expected, in PEM, {wanted}.") from None
    if not isinstance(key, kind):
        raise InvalidInputError(f"Invalid key in {path}: expected Ed25519.")
    return key


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        what = "Signing a seal, or checking its signature,"
        raise MissingDependencyError(what, "seal") from error
    return ed25519
