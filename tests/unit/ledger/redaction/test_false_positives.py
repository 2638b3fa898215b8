"""Text without secrets stays as it is: the standard library, this repository, generated text."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.texts.ordinary import KINDS, ROOT, STDLIB
from turnledger.ledger import Redactor

REDACTOR = Redactor()
MARKER = re.compile(r"\[redacted: ([a-z0-9-]+)\]")
# What is not the standard library, though it is in its folder.
OTHERS = {"site-packages", "dist-packages"}
# All of it is for `make full`; `make test` takes every so many of the files.
EVERY = 16
# Generated text, in characters: 20 million in all.
MADE = {
    "prose": 5_000_000,
    "JSON rows": 4_000_000,
    "logs": 4_000_000,
    "lock files": 3_000_000,
    "base64": 1_000_000,
    "hex": 1_000_000,
    "encoded files": 2_000_000,
}

# Changed all the same: why, and of which files the formats.
KNOWN: dict[str, dict[str, str]] = {
    "Made-up passwords in tests of URLs, .netrc and headers, in the place of real ones.": {
        "test/test_netrc.py": "login-password",
        "test/test_urllib.py": "url-password",
        "test/test_urllib2.py": "url-password",
        "test/test_urllib2net.py": "url-password",
        "test/test_urlparse.py": "url-password",
        "test/test_xmlrpc.py": "basic-auth",
        "tests/unit/adapters/http/client/test_ledger_client.py": "url-password",
        "tests/unit/ledger/stores/postgres/test_postgres.py": "url-password dsn-password",
    },
    "Made-up secrets that redaction is shown with, or tested with.": {
        "docs/how-to/keep-secrets-out.md": "url-password github-token",
        "tests/replay/test_replay_user_code.py": "aws-access-key-id",
        "tests/texts/hostile.py": "dsn-password",
        "tests/unit/adapters/clients/test_wire_requests.py": "openai-key",
        "tests/unit/adapters/clients/wrapped.py": "openai-key",
        "tests/unit/ledger/redaction/test_redacting.py": "url-password api-key",
        "tests/unit/ledger/redaction/test_secret_formats.py": (
            "url-password aws-secret-access-key basic-auth api-key heroku-key"
        ),
    },
}
LISTED = {
    (path, kind)
    for files in KNOWN.values()
    for path, kinds in files.items()
    for kind in kinds.split()
}


def changed(text: str) -> Counter[str]:
    """The formats of which something was replaced, and how often."""
    found = REDACTOR.text(text)
    made = Counter(MARKER.findall(found))
    made.subtract(MARKER.findall(text))
    assert (found is text) == (not +made)
    return +made


def _in_files(paths: list[Path], folder: Path) -> set[tuple[str, str]]:
    """In which files of text something was replaced, and of which format."""
    return {
        (path.relative_to(folder).as_posix(), kind)
        for path in paths
        for kind in changed(_text(path))
    }


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""  # bytes, or another encoding: a test of an import


def _standard_library() -> list[Path]:
    return [path for path in sorted(STDLIB.rglob("*.py")) if not OTHERS.intersection(path.parts)]


def _tracked() -> list[Path]:
    """The files that git has; a copy of the sources without git has no list of them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def test_some_of_the_standard_library_stays() -> None:
    """Source code is what agents read most, and write back."""
    assert _in_files(_standard_library()[::EVERY], STDLIB) - LISTED == set()


@pytest.mark.full
def test_the_standard_library_stays() -> None:
    """The same with all of it."""
    assert _in_files(_standard_library(), STDLIB) - LISTED == set()


def test_some_of_this_repository_stays() -> None:
    """Docs, tests and lock files of a project that speaks of secrets on every other page."""
    assert _in_files(_tracked()[::EVERY], ROOT) - LISTED == set()


@pytest.mark.full
def test_this_repository_stays() -> None:
    """The same with all of its files, and what is listed is still changed."""
    found = _in_files(_tracked(), ROOT)
    assert found - LISTED == set()
    assert {one for one in LISTED - found if (ROOT / one[0]).exists()} == set()


def _made(kind: str, size: int, seed: int) -> Iterator[str]:
    """Texts of a kind, of very different lengths, as tools give them."""
    random = Random(seed)
    while size > 0:
        length = min(int(10 ** random.uniform(2, 5.5)), size)
        yield KINDS[kind](random, length)
        size -= length


def _in_made(kind: str, size: int, seed: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for text in _made(kind, size, seed):
        found += changed(text)
    return found


@pytest.mark.parametrize("kind", MADE)
def test_some_generated_text_stays(kind: str) -> None:
    """Ids, digests, signatures and images, in the shapes in which programs print them."""
    assert _in_made(kind, MADE[kind] // 40, 1) == {}


@pytest.mark.full
@pytest.mark.parametrize("kind", MADE)
def test_generated_text_stays(kind: str) -> None:
    """The same with twenty million characters."""
    assert _in_made(kind, MADE[kind], 2) == {}


def test_a_key_in_such_text_is_noticed() -> None:
    """Else a redactor that does nothing would pass."""
    random = Random(3)
    for kind in MADE:
        key = "AKIA" + "".join(random.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=16))
        text = KINDS[kind](random, 3_000)
        assert changed(f"{text}\n{key}\n{text}") == {"aws-access-key-id": 1}, kind
