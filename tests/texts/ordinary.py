"""Ordinary text without secrets, the same for a seed: prose, rows, logs, lock files, encoded bytes.

Made of what is at hand: words of the standard library's docstrings and of the docs, and random
ids, digests and signatures in the shapes that programs print. `KINDS` has a generator for each.
"""

from __future__ import annotations

import base64
import re
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from textwrap import wrap
from uuid import UUID

ROOT = Path(__file__).resolve().parents[2]
STDLIB = Path(sysconfig.get_paths()["stdlib"])

_NAMES = (
    "order", "shop", "invoice", "user", "token", "key", "auth", "cache", "secret", "worker", "api",
    "gateway", "risk", "task", "disk", "sk", "pat", "fw", "tfp", "re", "pa", "fc", "csk", "session",
    "metrics", "billing", "search", "index", "event", "ledger", "proxy", "password", "vault",
)  # fmt: skip


# --- random parts of templates ---


def _time(random: Random, _: int) -> str:
    day = f"2026-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
    return f"{day}T{random.randrange(24):02}:{random.randrange(60):02}:07.{random.randrange(999)}Z"


def _base64(random: Random, count: int) -> str:
    return base64.b64encode(random.randbytes(count)).decode()


def _hex(random: Random, count: int) -> str:
    return f"{random.getrandbits(4 * count):0{count}x}"


_PARTS: dict[str, Callable[[Random, int], str]] = {
    "name": lambda r, _: "-".join(r.sample(_NAMES, r.randint(1, 3))),
    "time": _time,
    "ip": lambda r, _: ".".join(str(r.randrange(1, 255)) for _ in range(4)),
    "version": lambda r, _: ".".join(str(r.randrange(30)) for _ in range(3)),
    "uuid": lambda r, _: str(UUID(int=r.getrandbits(128), version=4)),
    "int": lambda r, count: str(r.randrange(10**count)),
    "hex": _hex,
    "HEX": lambda r, count: _hex(r, count).upper(),
    # Of so many random bytes.
    "base64": _base64,
    "url64": lambda r, count: base64.urlsafe_b64encode(r.randbytes(count)).decode().rstrip("="),
    "lines64": lambda r, count: "\n".join(wrap(_base64(r, count), 64)),
    "lines76": lambda r, count: "\n".join(wrap(_base64(r, count), 76)),
    "escaped": lambda r, count: "".join(f"\\x{byte:02x}" for byte in r.randbytes(count)),
}
_PART = re.compile(rf"<({'|'.join(_PARTS)})(?: ([0-9]+))?>")


def _line(random: Random, templates: Sequence[str]) -> str:
    template = random.choice(templates)
    return _PART.sub(lambda part: _PARTS[part[1]](random, int(part[2] or 0)), template)


def _templates(templates: Sequence[str]) -> Callable[[Random, int], str]:
    """A generator of templates in random order, each with random parts in it."""

    def made(random: Random, size: int) -> str:
        lines: list[str] = []
        length = 0
        while length < size:
            lines.append(_line(random, templates))
            length += len(lines[-1]) + 1
        return "\n".join(lines)[:size]

    return made


# --- prose and code ---


@cache
def _modules() -> tuple[str, ...]:
    return tuple(path.read_text() for path in sorted(STDLIB.glob("*.py")))


@cache
def _followers() -> dict[str, list[str]]:
    """A word model: which words come after a word."""
    texts = [path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))]
    for module in _modules():
        texts += re.findall(r'"""(.*?)"""', module, re.DOTALL)
    model: dict[str, list[str]] = {}
    word = "."
    for text in texts:
        # Only words and punctuation: what looks like a key, in an example, is not prose.
        for follower in re.findall(r"(?<![^\s(])[A-Za-z']{1,18}[,.;:!?]?(?!\S)", text):
            model.setdefault(word, []).append(follower)
            word = "." if follower.endswith(".") else follower
    return model


_NAMED = (
    "https://<name>.example.com/<name>?page=<int 2>&id=<uuid>.",
    "`<name>(<int 2>)`.",
    "commit <hex 40>.",
    "version <version>.",
    "<name>@example.com.",
    "/usr/share/<name>/<name>.py:<int 3>.",
    "the run <uuid>.",
    "<int 6> tokens (key: <name>).",
)


def prose(random: Random, size: int) -> str:
    """Paragraphs of a word model, with a URL, a name or an id now and then."""
    model, word = _followers(), "."
    parts: list[str] = []
    length = 0
    while length < size:
        if random.random() < 0.015:
            part = _line(random, _NAMED)
        else:
            part = random.choice(model.get(word, model["."]))
        word = "." if part.endswith(".") else part
        if word == ".":
            part += "\n\n" if random.random() < 0.2 else "\n" if random.random() < 0.1 else ""
        parts.append(part)
        length += len(part) + 1
    return " ".join(parts)[:size]


def source_code(random: Random, size: int) -> str:
    """Modules of the standard library, in random order."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(random.choice(_modules()))
        length += len(parts[-1])
    return "".join(parts)[:size]


# --- rows, logs and lock files ---

_ROWS = (
    (
        '{"id": "<uuid>", "created_at": "<time>", "customer": {"name": "<name>", "vip": true, '
        '"mail": "<name>@example.com"}, "primary_key": <int 9>, "price": <int 3>.<int 2>, '
        '"etag": "<hex 32>"}'
    ),
    (
        '{"token_count": <int 5>, "checksum": "sha256:<hex 64>", "call_id": "call_<hex 24>", '
        '"items": [{"sku": "SKU<int 8>", "secret": false}, {"sku": "SKU<int 8>", "key": "<name>"}]}'
    ),
    '{"nextPageToken": "<url64 24>", "image": "data:image/png;base64,<base64 90>"}',
    '{"signature": "<base64 120>", "url": "https://cdn.example.com/<hex 16>/<name>.png?v=<int 9>"}',
    '{"name": "<name>", "password": null, "api_key": "", "roles": ["admin", "<name>"]}',
)

_LOGS = (
    (
        '<ip> - - [18/Nov/2026:20:01:07 +0000] "GET /<name>/<uuid>?sort=asc&page=2 HTTP/1.1" 200 '
        '<int 5> "https://example.com/" "Mozilla/5.0 (X11; Linux x86_64)"'
    ),
    "<time> INFO <name> request_id=<uuid> trace_id=<hex 32> key=<name>:<int 6> took=<int 3>ms",
    "<time> DEBUG cache key=<hex 64> hit=true prompt_tokens=<int 5>",
    "Nov 18 20:01:07 node kubelet[<int 4>]: pod/<name>-<hex 10>-x7k2p: image@sha256:<hex 64>",
    "\x1b[32mPASS\x1b[39m <name> \x1b[2m(<int 3> ms)\x1b[22m",
    "\x1b[36mINFO\x1b[0m[<int 4>] auth token refreshed for <name>",
    '{"level": "info", "ts": "<time>", "msg": "secret <name> mounted", "sha": "<hex 40>"}',
    '  File "/srv/<name>/<name>.py", line <int 3>, in password_reset',
    "ValueError: invalid literal for int(): '<name>'; session=<uuid>",
    "<- 200 OK x-amz-request-id: <HEX 16> x-amz-id-2: <base64 56>",
    'ETag: W/"<hex 32>"; traceparent: 00-<hex 32>-<hex 16>-01',
    "<hex 40> refs/heads/<name>",
    "Step <int 2>/40 : RUN pip install <name>==<version>",
    "connected to postgresql://<name>@db.example.com:5432/shop as user <name>",
    "Authorization: Bearer [hidden]; cookie jar of <name> is empty",
    "idempotency-key: <uuid> accepted, 0x<hex 16>",
    '<name>_tokens_total{key="<name>",job="<name>"} <int 9>',
    "-rw-r--r-- 1 root root <int 6> Nov 18 20:01 <hex 64>.blob",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI<url64 32> <name>@host",
)

_LOCK_FILES = (
    (
        '    "node_modules/<name>": {\n      "version": "<version>",\n      "resolved": "https://'
        'registry.npmjs.org/<name>/-/<name>-<version>.tgz",\n      '
        '"integrity": "sha512-<base64 64>"\n    },'
    ),
    (
        '<name>@^<version>:\n  version "<version>"\n  resolved "https://registry.yarnpkg.com/<name>/-/'
        '<name>-<version>.tgz#<hex 40>"\n  integrity sha1-<base64 20>'
    ),
    (
        '[[package]]\nname = "<name>"\nversion = "<version>"\nsource = "registry+https://github.com/'
        'rust-lang/crates.io-index"\nchecksum = "<hex 64>"'
    ),
    (
        '    {url = "https://files.example.org/packages/<hex 2>/<hex 2>/<hex 60>/<name>-<version>'
        '-py3-none-any.whl", hash = "sha256:<hex 64>"},'
    ),
    "github.com/<name>/<name> v<version> h1:<base64 32>",
    "<name>==<version> \\\n    --hash=sha256:<hex 64>",
    '      "narHash": "sha256-<base64 32>",\n      "rev": "<hex 40>",',
    '    "zh:<hex 64>",\n    "h1:<base64 32>",',
    "  <name>@<version>:\n    resolution: {integrity: sha512-<base64 64>}",
    "  image: registry.example.com/<name>:<version>@sha256:<hex 64>",
)


# --- encoded bytes ---

_ENCODED = (
    "<lines76 1200>",
    "data:font/woff2;base64,<base64 3000>",
    '{"thought_signature": "<base64 900>", "id": "<uuid>"}',
    "msg_<url64 18> <url64 400>",
    "-----BEGIN CERTIFICATE-----\n<lines64 700>\n-----END CERTIFICATE-----",
    "<hex 8>: <hex 4> <hex 4> <hex 4> <hex 4> <hex 4> <hex 4> <hex 4> <hex 4>  .ELF..=@-k",
    "<hex 64>  <name>-<version>.tar.gz",
    "<hex 128>",
    "b'<escaped 60>'",
    "<HEX 2>:<HEX 2>:<HEX 2>:<HEX 2>:<HEX 2>:<HEX 2>:<HEX 2>:<HEX 2>:<HEX 2>:<HEX 2>:<HEX 2>",
)


KINDS: dict[str, Callable[[Random, int], str]] = {
    "prose": prose,
    "JSON rows": _templates(_ROWS),
    "source code": source_code,
    "logs": _templates(_LOGS),
    # As npm, yarn, pnpm, Cargo, uv, pip, Go, Nix, Terraform and Docker write them.
    "lock files": _templates(_LOCK_FILES),
    # One long line each.
    "hex": _hex,
    "base64": lambda random, size: _base64(random, size)[:size],
    # Certificates, dumps, signatures, fonts and lists of digests.
    "encoded files": _templates(_ENCODED),
}
