"""Ed25519 keys in PEM files, and signatures: the only module that imports `cryptography`.

Keys are as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` write them. What is
signed is up to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from turnledger.ledger.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


# A key in PEM has about a hundred bytes, with a certificate or comments around it a few thousand.
_LONGEST_KEY = 64 * 1024


class Signer(NamedTuple):
    """A private key: the function that signs, and the raw public key."""

    sign: Callable[[bytes], bytes]
    public_key: bytes


def read_signer(path: Path) -> Signer:
    """Read a private key from a PEM file (PKCS 8, not encrypted)."""
    private = _private_key(path)
    return Signer(private.sign, private.public_key().public_bytes_raw())


def read_public_key(path: Path) -> bytes:
    """Read a raw public key from a PEM file."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise _missing() from error
    key = _loaded(path, load_pem_public_key, "a public key, `openssl pkey -in KEY -pubout`")
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInputError(f"Invalid key in {path}: expected Ed25519.")
    return key.public_bytes_raw()


def new_key(path: Path) -> bytes:
    """Create a private key in a new file, readable by its owner only.

    Returns the public key in PEM, for those who check what is signed.
    """
    try:
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise _missing() from error
    private = Ed25519PrivateKey.generate()
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
    public = private.public_key()
    return public.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)


def is_signed_by(public_key: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether a signature is of these bytes and this key."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise _missing() from error
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def _private_key(path: Path) -> Ed25519PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise _missing() from error
    key = _loaded(
        path,
        lambda content: load_pem_private_key(content, password=None),
        "a private key that is not encrypted, `turnledger seal --new-key`",
    )
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInputError(f"Invalid key in {path}: expected Ed25519.")
    return key


def _loaded(path: Path, load: Callable[[bytes], Any], wanted: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    with path.open("rb") as file:
        content = file.read(_LONGEST_KEY)  # a device may have no end
    try:
        return load(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidInputError(f"Invalid key in {path}: expected, in PEM, {wanted}.") from None


def _missing() -> MissingDependencyError:
    return MissingDependencyError("Signing a seal, or checking its signature,", "seal")
