"""The rules of a redactor, as people write them in TOML: good ones redact, others are refused."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from warnings import catch_warnings, simplefilter

from tests.fuzz.byte_changes import FAST
from tests.fuzz.mutating import mutate_bytes
from tests.fuzz.targets import Target, promise
from turnledger.ledger import InvalidInputError
from turnledger.ledger.redaction import Redactor

FILES = (
    b"""also = ["password"]
fields = ["pin", "card.number"]

[[patterns]]
name = "acme-token"
regex = 'ACME-[0-9]{6}'
fields = ["note"]
""",
    b"""formats = []
[[patterns]]
name = "a"
regex = "(?i)key=(?P<secret>[a-z0-9]+)"
[[patterns]]
name = "b"
regex = "x{2,5}|y+"
""",
    b'fields = ["a.b.c"]\n',
)
# What regular expressions are made of, and what may take them for ever.
PIECES = (
    b"(a+)+$",
    b"(?P<n>",
    b")",
    b"(?<=a)",
    b"\\\\1",
    b"{1000000}",
    b"*",
    b"[",
    b".*.*.*",
    b"(x|x)*",
    b"(?i)",
    b"''",
    b'""',
    b"\\u0000",
    b"[[patterns]]\n",
    b"a" * 5000,
)
TEXT = "ACME-123456 key=abc " + "a" * 40 + "! xx yyy " + "x" * 60


class RedactorFiles(Target):
    """Files for `--redactor`."""

    name = "redactor-files"
    inputs = 30_000
    few = 1_500
    goal = 30_000

    @contextmanager
    def prepared(self) -> Iterator[None]:
        where = FAST if FAST.is_dir() else None
        with TemporaryDirectory(prefix="redactors-", dir=where) as folder:
            self._path = Path(folder) / "redactor.toml"
            yield

    def draw(self, dice: random.Random) -> bytes:
        content = dice.choice(FILES)
        if dice.random() < 0.5:
            at = dice.randrange(len(content))
            content = content[:at] + dice.choice(PIECES) + content[at + dice.choice((0, 1, 5)) :]
        return mutate_bytes(dice, content) if dice.random() < 0.7 else content

    def check(self, given: bytes) -> bool:
        self._path.write_bytes(given)
        try:
            with catch_warnings():
                simplefilter("ignore", FutureWarning)  # of `re`, about what it may mean one day
                redactor = Redactor.read(self._path)
        except InvalidInputError:
            return False
        once = redactor.text(TEXT)
        promise(redactor.text(once) == once, f"redacting twice gives another text: {once}")
        redactor.value({"pin": "1234", "card": {"number": 5}, "note": [TEXT, None]})
        return True

    def shown(self, given: bytes) -> str:
        return f"base64 {b64encode(given).decode()}"
