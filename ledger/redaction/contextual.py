"""Contextual secret formats: private keys, passwords, headers and values after a telling name.

These have no prefix of their own; what is around them tells. The group `secret` of a pattern is
replaced and the context stays, so that a reader sees what the secret was for. `KNOWN` has all
formats that a redactor uses by default, those of `ledger.redaction.tokens` included.
"""

from __future__ import annotations

import re

from turnledger.ledger.redaction.patterns import (
    ESCAPED,
    HAS_DIGIT,
    IS,
    PLACEHOLDER,
    RIGHT,
    UUID,
    SecretFormat,
    is_not_identifier,
    is_random,
    named,
)
from turnledger.ledger.redaction.tokens import TOKENS

# --- private keys ---
_PEM_NAME = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
# What may be between the lines of a key that an agent printed: line breaks, quotes and commas of a
# list, a diff's marks, comments, line numbers, and file names as grep prints them.
_BETWEEN = (
    r"(?:\n[\w./@-]{1,80}?[:-](?:[0-9]{1,6}[:-])?(?=[A-Za-z0-9+/=]{16})"
    r"|(?:\\{1,16}[nrt]|[^A-Za-z0-9+/=]|(?:[0-9]{1,6}|[+/]{1,3})(?=[^A-Za-z0-9+/=])){1,80}+)"
)
_FEW = r"[A-Za-z0-9+/=]{1,15}"
_PEM_NAMES = r"(?:Proc-Type|DEK-Info|Version|Comment)"
_PEM_HEADERS = rf"(?:(?:\\{{1,8}}[nrt]|[^A-Za-z0-9]){{1,40}}{_PEM_NAMES}: [^\n\\]{{1,100}}){{0,4}}"
_BREAK = r"(?:\s|\\{1,8}[nrt]){1,24}"
# --- passwords ---
_NOT_MARKER = r"(?!\[redacted: )"
# Not a placeholder: a password in an example is not a secret.
_REAL = rf"""(?!{PLACEHOLDER}(?:[\s;&,"'\\@/?#:]|\Z)){_NOT_MARKER}"""
# The start of a word, but not of a URL's parameter, which has a format of its own.
_START = rf"(?:(?<![\w;?&-])|(?<=_)(?<![\w-]_)|{ESCAPED})"
_QUOTES = r"""["'\\]{0,8}"""
_LIBPQ = r"(?:host|hostaddr|port|dbname|user|sslmode|connect_timeout|application_name)"
_ADO = (
    r"(?i:server|data source|database|initial catalog|user|uid|host|port|encrypt|trust|integrated"
    r"|persist|application|driver|connection)"
)
_PASSWORD = ("password=", "password =", "password  =")
_PWD = ("pwd=", "pwd =", "pwd  =")
# Of a password in the environment: a digit or a capital, since "postgres" in an example is public.
_HARD = r"(?=[^\s0-9A-Z]{0,199}[0-9A-Z])"
# Between the name of a header and its value: a colon; as a key of an object, an equals sign.
_COLON = r"""(?:["'\\]{0,8}[ ]{0,2}:[ ]{0,4}["'\\]{0,8}|=)"""


def is_random_cookie(text: str) -> bool:
    """Whether one of the values in a header with cookies looks random."""
    parts = (found[0] for found in re.finditer("[^;,]+", text))
    values = (part.rpartition("=")[2].strip() or part for part in parts)
    return any(
        len(value) >= 16
        and any(char.isdigit() for char in value)
        and any(char.isalpha() for char in value)
        and "[redacted: " not in value
        and is_random(value)
        for value in values
    )


_PRIVATE_KEYS = (
    SecretFormat(
        "private-key",
        rf"-----BEGIN {_PEM_NAME}(?:"
        rf"""(?:[^-"'`<>{{}}\[\]]{{1,20000}}+|-(?!----(?:BEGIN|END) )){{0,40}}+"""
        rf"-----END {_PEM_NAME}"
        # In pieces or cut off (a tool's output is): lines of base64, and the rest of the last.
        rf"|{_PEM_HEADERS}{_BETWEEN}{HAS_DIGIT}[A-Za-z0-9+/=]{{16,1000}}"
        rf"(?:{_BETWEEN}[A-Za-z0-9+/=]{{16,1000}}){{0,400}}+"
        rf"""(?:{_BETWEEN}{_FEW}(?=\Z|["'`\\]|{_BETWEEN}-----END))?"""
        rf"(?:[^A-Za-z0-9]{{1,40}}END {_PEM_NAME})?)",
        "-----BEGIN PRIVATE KEY-----\n<base64:64>\n<base64:22>==\n-----END PRIVATE KEY-----",
        hints=("-----begin ",),
    ),
    SecretFormat(
        "private-key",
        rf"Private-Lines: [0-9]{{1,3}}{_BREAK}(?P<secret>(?:[A-Za-z0-9+/]{{64}}{_BREAK}){{0,100}}"
        r"[A-Za-z0-9+/=]{4,64})(?![A-Za-z0-9+/=-])",
        "Private-Lines: 1\n<base64:64>\nPrivate-MAC: 0",
        hints=("private-lines: ",),
    ),
)

_PASSWORDS = (
    # The public key of a project opens little and names it to all who read it; masked as well.
    SecretFormat(
        "sentry-dsn",
        r"://(?P<secret>[0-9a-f]{32}(?::[0-9a-f]{32})?)@[A-Za-z0-9._:-]{1,200}/(?:[\w.-]{1,50}/){0,3}"
        r"[0-9]{1,20}(?!_{0,2}[A-Za-z0-9-]|[./][A-Za-z0-9])",
        "https://<hex:32>@o450.ingest.sentry.io/4501",
        hints=("://",),
        literally=True,
    ),
    SecretFormat(
        "url-password",
        r"""://(?:[^\s/:@"'<>?#\\\[]{0,200}|\[redacted: [a-z-]{1,40}\]):"""
        rf"""(?![0-9]{{1,5}}[/?#,;)\]])(?P<secret>{_REAL}(?:[^\s/"'<>?#]{{1,256}}|[^\s"'<>@]{{1,128}}+))"""
        r"@(?=[A-Za-z0-9\[._%-])(?!sha(?:256|512):)",
        "postgresql://app:<base62:16>@db.example.com:5432/shop",
        hints=("://",),
        literally=True,
    ),
    SecretFormat(
        "url-password",
        r"jdbc:oracle:(?:thin|oci8?):[^\s/@:]{1,64}/"
        rf"""(?P<secret>{_REAL}[^\s@"'\\]{{1,128}})@""",
        "jdbc:oracle:thin:app/<base62:16>@db.example.com:1521:shop",
        hints=("jdbc:oracle:",),
        literally=True,
    ),
    SecretFormat(
        "otpauth-secret",
        r"(?i:secret)=(?P<secret>[A-Za-z2-7]{16,200}={0,6})(?![A-Za-z0-9])",
        "otpauth://totp/Shop:jane@example.com?secret=<base32:32>&issuer=Shop",
        hints=("secret=",),
        before=r"otpauth://[^\s\"'<>]{1,300}[?&;]",
    ),
    SecretFormat(
        "dsn-password",
        # PWD=/home/... is a shell's working directory.
        r"(?:(?<=[;?&])|(?<=[;?&] )|(?<=[;?&]  )|(?<=[;?&](?i:ssl)))(?!PWD=[/~.])"
        rf"(?i:password|pwd)[ ]{{0,2}}=[ ]{{0,2}}{_QUOTES}"
        rf"""(?P<secret>{_REAL}[^\s;&"'\\<>#]{{1,256}})""",
        "postgresql://db.example.com/shop?user=app&password=<base62:16>",
        hints=_PASSWORD + _PWD,
        literally=True,
    ),
    SecretFormat(
        "dsn-password",
        rf"{_START}(?i:password|pwd)[ ]{{0,2}}=[ ]{{0,2}}{_QUOTES}"
        rf"""(?P<secret>{_REAL}[^\s;&"'\\<>]{{1,128}}+){_QUOTES};[ ]{{0,2}}"""
        rf"(?={_ADO}[\w ]{{0,30}}=)",
        "Password=<base62:16>;Server=db;Database=shop",
        hints=_PASSWORD + _PWD,
        literally=True,
    ),
    SecretFormat(
        "dsn-password",
        rf"""(?<=[ ])password[ ]?=[ ]?{_QUOTES}(?P<secret>{_REAL}[^\s,"'\\<>()]{{1,256}})""",
        "host=db user=app password=<base62:16> dbname=shop",
        hints=_PASSWORD,
        before=rf"{_START}{_LIBPQ}=[^\s,()]{{1,100}}[ ]{{1,3}}",
        literally=True,
    ),
    SecretFormat(
        "dsn-password",
        rf"{_START}password[ ]?=[ ]?{_QUOTES}(?P<secret>{_REAL}[^\s,\"'\\<>()]{{1,128}}+)"
        rf"{_QUOTES}[ ]{{1,3}}(?={_LIBPQ}=)",
        "password=<base62:16> host=db.example.com",
        hints=_PASSWORD,
        literally=True,
    ),
    # Of the environment: POSTGRES_PASSWORD=..., in a file, a dump, a command or `docker -e`.
    SecretFormat(
        "env-password",
        rf"""PASSWORD=["'\\]{{0,8}}(?P<secret>{_REAL}(?![$({{]){_HARD}[^\s"'`\\;&|<>(){{}}]{{6,200}})""",
        "export DB_PASSWORD=<base62:16>",
        hints=("password=",),
        before=rf"{_START}[A-Z][A-Z0-9_]{{0,60}}",
        literally=True,
    ),
    # .netrc, .pgpass and curl -u.
    SecretFormat(
        "login-password",
        _START + r"machine\s{1,4}\S{1,200}\s{1,8}login\s{1,4}\S{1,100}\s{1,8}password\s{1,4}"
        rf"""(?P<secret>{_REAL}[^\s"'\\]{{1,128}})""",
        "machine api.example.com login me password <base62:16>",
        hints=("machine ",),
    ),
    SecretFormat(
        "login-password",
        r"(?<=[\w.*-]):(?:543[2-9]|6432|\*):[\w*-]{1,64}:[\w*.-]{1,64}:"
        rf"""(?P<secret>{_REAL}[^\s:"'\\]{{4,128}})""",
        "db.example.com:5432:shop:app:<base62:16>",
        hints=(":543", ":6432:", ":*:"),
    ),
    SecretFormat(
        "login-password",
        r"curl[ ](?:(?!curl )[^\n]){0,200}?(?<=[ ])(?:-u[ ]?|--user[ =])"
        r"""["'\\]{0,4}[^\s:"'\\/]{1,64}:"""
        rf"""(?P<secret>{_REAL}[^\s"'\\]{{4,128}})""",
        "curl -s -u admin:<base62:16> https://api.example.com/v1",
        hints=("curl ",),
    ),
)

# --- keys and signatures in URLs and connection strings ---

_IN_URLS = (
    SecretFormat(
        "azure-account-key",
        r"Acc(?:ount|ess)Key="
        r"(?P<secret>[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{86}==)(?![A-Za-z0-9+/=])",
        "AccountName=a;AccountKey=<base64:86>==;EndpointSuffix=x.net",
        hints=("accountkey=", "accesskey="),
    ),
    SecretFormat(
        "azure-sas-signature",
        r"(?<=[?&;])sig=(?P<secret>[A-Za-z0-9%/+_-]{40,120}={0,2})",
        "https://a.blob.core.windows.net/c?sp=r&sig=<base62:43>%3D",
        hints=("sig=",),
    ),
    SecretFormat(
        "presigned-url",
        r"(?<=X-Amz-)Signature=(?P<secret>[0-9a-f]{64,600})" + RIGHT,
        "https://b.s3.amazonaws.com/k?X-Amz-Signature=<hex:64>",
        hints=("signature=",),
    ),
    SecretFormat(
        "presigned-url",
        r"(?<=X-Goog-)Signature=(?P<secret>[0-9a-f]{64,600})" + RIGHT,
        "https://storage.googleapis.com/b/k?X-Goog-Signature=<hex:512>",
        hints=("signature=",),
    ),
    SecretFormat(
        "discord-webhook",
        r"(?<=/api/web)hooks/[0-9]{15,22}/(?P<secret>[A-Za-z0-9_-]{60,100})",
        "https://discord.com/api/webhooks/<digits:19>/<url64:68>",
        hints=("hooks/",),
    ),
    SecretFormat(
        "slack-webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_+-]{20,150})",
        "https://hooks.slack.com/services/T<upper:8>/B<upper:10>/<base62:24>",
        hints=("hooks.slack.com/",),
    ),
    SecretFormat(
        "teams-webhook",
        r"(?<=web)hook\.office\.com/webhookb2/[0-9a-f-]{36}@[0-9a-f-]{36}/IncomingWebhook/"
        r"(?P<secret>[0-9a-f]{32}/[0-9a-f-]{36})",
        "https://a.webhook.office.com/webhookb2/<uuid>@<uuid>/IncomingWebhook/<hex:32>/<uuid>",
        hints=("hook.office.com/",),
    ),
)

# --- headers ---

_GAP = r"(?:\\{0,8}[ \t]|%20|\+){1,4}"
_HEADERS = (
    SecretFormat(
        "bearer-token",
        rf"(?i:bearer){_GAP}(?P<secret>{HAS_DIGIT}[A-Za-z0-9._~+/-]{{16,4096}}={{0,2}})",
        "Authorization: Bearer <base62:40>",
        hints=("bearer",),
        accepts=is_not_identifier,
    ),
    SecretFormat(
        "basic-auth",
        rf"(?i:authorization){IS}(?i:basic){_GAP}(?P<secret>[A-Za-z0-9+/]{{6,1024}}={{0,2}})",
        "Authorization: Basic <base64:24>",
        hints=("auth",),
        keyed=True,
    ),
    SecretFormat(
        "auth-header",
        rf"(?i:authorization){IS}(?:(?i:token|ssws|apikey|api-key|key){_GAP})?(?i:token=)?"
        rf"""["'\\]{{0,8}}(?P<secret>{HAS_DIGIT}[A-Za-z0-9._~+/-]{{20,4096}}={{0,2}})""",
        "Authorization: Token <hex:40>",
        hints=("auth",),
        keyed=True,
        accepts=is_not_identifier,
    ),
    # Docker's config.json: user and password in base64, so the length is a multiple of four.
    SecretFormat(
        "basic-auth",
        r"""(?<![\w.-])(?<!(?i:cookie): )auth(?:["'\\]{1,8}[ ]{0,4}:|=)"""
        r"""\s{0,4}["'\\]{0,8}(?P<secret>"""
        r"(?=[A-Za-z+/]{0,99}[0-9])(?=[^A-Z\s]{0,99}[A-Z])(?:[A-Za-z0-9+/]{4}){3,200}"
        r"(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)(?![A-Za-z0-9+/=._-])",
        '"auth": "<base64:24>"',
        hints=("auth",),
        keyed=True,
        accepts=is_not_identifier,
    ),
    # Of what a server sets, the value; of what a client sends, all values.
    SecretFormat(
        "cookie",
        rf"(?<=(?i:set-))(?i:cookie){_COLON}[\w.$~-]{{1,100}}=(?P<secret>[^\s;,\"'\\<>]{{16,4096}})",
        "Set-Cookie: sid=<url64:43>; Path=/; HttpOnly",
        hints=("cookie",),
        keyed=True,
        accepts=is_random_cookie,
    ),
    SecretFormat(
        "cookie",
        rf"{_START}(?i:cookie){_COLON}(?P<secret>[\w.$~-]{{1,100}}=[^\r\n\"'\\<>]{{16,8000}})",
        "Cookie: theme=dark; sessionid=<small:32>",
        hints=("cookie",),
        keyed=True,
        accepts=is_random_cookie,
    ),
)

# --- values after a telling name ---

# `aws configure set aws_secret_access_key VALUE` has only a space.
_IS_OR_SPACE = rf"(?:{IS}|[ \t]{{1,4}}[\"']?)"
_OWNERS = (
    "api|access|auth|client|secret|private|subscription|refresh|webhook|jwt|app|bot|signing"
    "|encryption|session|deploy|personal"
)
# Each before the name, as a place of its own: faster than a search for where they begin.
_WHOSE = "|".join(rf"(?<={word}{dash})" for word in _OWNERS.split("|") for dash in ("", "[ _-]"))
# A page token (next_token, sync-token) says where to go on and opens nothing. The prefilter knows
# the first of them, the most frequent word in answers of APIs.
_NOT_PAGING = "".join(
    rf"(?<!{word}{dash})"
    for word in ("page", "next", "ation", "sync", "cursor", "client", "request", "resume", "start")
    for dash in ("", "_", "-")
)
_VALUE = (
    rf"(?:{HAS_DIGIT}(?=[0-9_+/=~.-]{{0,200}}[A-Za-z])"
    r"[A-Za-z0-9_+/~-]{20,200}(?:\.[A-Za-z0-9_+/~-]{10,200}){0,3}={0,2}|[0-9]{32,200})"
)
_END = r"(?![A-Za-z0-9_+/=~(\[-]|\.[A-Za-z0-9_])"
_NAMED = (
    SecretFormat(
        "kubeconfig-key",
        rf"key-data{IS}(?P<secret>[A-Za-z0-9+/]{{100,16000}}={{0,2}})(?![A-Za-z0-9+/=])",
        "client-key-data: <base64:400>==",
        hints=("key",),
        before="client-",
        keyed=True,
    ),
    named(
        "aws-secret-access-key",
        r"secret[_-]?(?:access[_-]?)?",
        "key",
        r"[A-Za-z0-9/+]{40}",
        "aws_secret_access_key = <base64:40>",
        between=_IS_OR_SPACE,
        right=r"(?![A-Za-z0-9/+=])",
        accepts=is_not_identifier,
    ),
    named(
        "aws-session-token",
        r"(?:session|security)[_-]?",
        "token",
        r"[A-Za-z0-9/+%]{100,4000}={0,2}",
        '"SessionToken": "<base64:356>=="',
        between=_IS_OR_SPACE,
        right=r"(?![A-Za-z0-9/+=])",
    ),
    named(
        "twilio-auth-token",
        r"twilio[\w .-]{0,20}",
        "token",
        r"[0-9a-f]{32}",
        "TWILIO_AUTH_TOKEN=<hex:32>",
    ),
    SecretFormat(
        "twilio-auth-token",
        r"""AC[0-9a-f]{32}["'\\]{1,8},\s{0,4}["'\\]{1,8}(?P<secret>[0-9a-f]{32})""" + RIGHT,
        "Client('AC<hex:32>', '<hex:32>')",
        literals=tuple(f"AC{digit}" for digit in "0123456789abcdef"),
    ),
    named("heroku-key", r"heroku[\w-]{0,20}", "key", UUID, "HEROKU_API_KEY=<uuid>"),
    named("npm-token", "_auth", "token", UUID, "//registry.npmjs.org/:_authToken=<uuid>"),
    named("api-key", "api[ _-]?", "key", UUID, "api-key: <uuid>"),
    named(
        "api-key",
        _WHOSE,
        "key token secret",
        _VALUE,
        "client_secret = '<base62:40>'",
        right=_END,
        accepts=is_random,
    ),
    named(
        "api-key", _NOT_PAGING, "token", _VALUE, "token=<base62:32>", right=_END, accepts=is_random
    ),
    named(
        "api-key",
        _START + r"--(?:[a-z0-9]{1,20}-){0,5}(?:api)?",
        "key token secret",
        _VALUE,
        "tool --api-key <base62:32> run",
        between=r"[ \t]{1,4}[\"'\\]{0,4}",
        right=_END,
        accepts=is_random,
    )._replace(keyed=False),
)

# Has false positives, so a redactor uses it only if it is asked for by name (`also`).
OPTIONAL: tuple[SecretFormat, ...] = (
    SecretFormat(
        "password",
        rf"(?i:pass(?:word|wd|phrase)?|pwd){IS}"
        r"""(?P<secret>(?![$<*{\[])[^\s"'`\\,;&<>]{4,200})""",
        "password: <base62:12>",
        hints=("pass", "pwd"),
        keyed=True,
    ),
)

# In this order: of secrets that overlap, the first format names what is replaced.
KNOWN: tuple[SecretFormat, ...] = (
    *_PRIVATE_KEYS,
    *TOKENS,
    *_PASSWORDS,
    *_IN_URLS,
    *_HEADERS,
    *_NAMED,
)

BY_NAME: dict[str, list[SecretFormat]] = {}
for _format in (*KNOWN, *OPTIONAL):
    BY_NAME.setdefault(_format.name, []).append(_format)
