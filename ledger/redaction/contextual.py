"""Contextual secret formats: private keys, passwords, headers and values after a telling name.

These have no prefix of their own; what is around them tells. The group `secret` of a pattern is
replaced and the context stays, so that a reader sees what the secret was for. `KNOWN` has all
formats that a redactor uses by default, those of `ledger.redaction.tokens` included.
"""

from __future__ import annotations

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
    r"|(?:\\+[nrt]|[^A-Za-z0-9+/=]|(?:[0-9]{1,6}|[+/]{1,3})(?=[^A-Za-z0-9+/=])){1,80}+)"
)
_FEW = r"[A-Za-z0-9+/=]{1,15}"
# --- passwords ---
_NOT_MARKER = r"(?!\[redacted: )"
# Not a placeholder: a password in an example is not a secret.
_REAL = rf"""(?!{PLACEHOLDER}(?:[\s;&,"'\\@/?#:]|\Z)){_NOT_MARKER}"""
# The start of a word, but not of a URL's parameter, which has a format of its own.
_START = rf"(?:(?<![\w;?&-])|{ESCAPED})"
_QUOTES = r"""["'\\]{0,8}"""
_LIBPQ = r"(?:host|hostaddr|port|dbname|user|sslmode|connect_timeout|application_name)"
_ADO = (
    r"(?i:server|data source|database|initial catalog|user|uid|host|port|encrypt|trust|integrated"
    r"|persist|application|driver|connection)"
)
_PASSWORD_HINTS = ("password", "pwd")

_PRIVATE_KEYS = (
    SecretFormat(
        "private-key",
        rf"-----BEGIN {_PEM_NAME}(?:"
        rf"""(?:[^-"'`<>{{}}\[\]]++|-(?!----(?:BEGIN|END) )){{0,5000}}+-----END {_PEM_NAME}"""
        # In pieces or cut off (a tool's output is): lines of base64, and the rest of the last.
        rf"|{_BETWEEN}{HAS_DIGIT}[A-Za-z0-9+/=]{{16,1000}}"
        rf"(?:{_BETWEEN}[A-Za-z0-9+/=]{{16,1000}}){{0,400}}+"
        rf"""(?:{_BETWEEN}{_FEW}(?=\Z|["'`\\]|{_BETWEEN}-----END))?"""
        rf"(?:[^A-Za-z0-9]{{1,40}}END {_PEM_NAME})?)",
        ("-----BEGIN ",),
        ("private key",),
    ),
    SecretFormat(
        "private-key",
        r"Private-Lines: [0-9]{1,3}(?:\r?\n|\\+r\\+n|\\+n)"
        r"(?P<secret>(?:[A-Za-z0-9+/=]{1,64}(?:\r?\n|\\+r\\+n|\\+n|\Z)){1,100})",
        ("Private-Lines: ",),
        ("private-lines",),
    ),
)

_PASSWORDS = (
    SecretFormat(
        "url-password",
        r"""://(?:[^\s/:@"'<>?#\\\[]{0,200}|\[redacted: [a-z-]{1,40}\]):"""
        rf"""(?![0-9]{{1,5}}[/?#,;)\]])(?P<secret>{_REAL}(?:[^\s/"'<>?#]{{1,256}}|[^\s"'<>@]{{1,256}}+))"""
        r"@(?=[A-Za-z0-9\[._%-])(?!sha(?:256|512):)",
        ("://",),
        ("://",),
    ),
    # A URL that is a parameter of another URL: percent-encoded.
    SecretFormat(
        "url-password",
        r"(?i:%3A%2F%2F)[A-Za-z0-9._~+-]{0,200}(?:%40[A-Za-z0-9._~+-]{0,200})?(?i:%3A)"
        r"(?P<secret>[A-Za-z0-9%!$*()._~+-]{1,256}?)%40",
        ("%3A%2F%2F", "%3a%2f%2f"),
        ("%3a%2f%2f",),
    ),
    SecretFormat(
        "url-password",
        r"jdbc:oracle:(?:thin|oci8?):[^\s/@:]{1,64}/"
        rf"""(?P<secret>{_REAL}[^\s@"'\\]{{1,128}})@""",
        ("jdbc:oracle:",),
        ("jdbc:oracle:",),
    ),
    SecretFormat(
        "dsn-password",
        # PWD=/home/... is a shell's working directory.
        r"(?<=[;?&])[ ]{0,2}(?!PWD=[/~.])(?i:password|pwd|sslpassword)[ ]{0,2}=[ ]{0,2}"
        rf"""{_QUOTES}(?P<secret>{_REAL}[^\s;&"'\\<>#]{{1,256}})""",
        (),
        _PASSWORD_HINTS,
    ),
    SecretFormat(
        "dsn-password",
        rf"{_START}(?i:password|pwd)[ ]{{0,2}}=[ ]{{0,2}}{_QUOTES}"
        rf"""(?P<secret>{_REAL}[^\s;&"'\\<>]{{1,256}}){_QUOTES};[ ]{{0,2}}"""
        rf"(?={_ADO}[\w ]{{0,30}}=)",
        (),
        _PASSWORD_HINTS,
    ),
    SecretFormat(
        "dsn-password",
        rf"{_START}{_LIBPQ}=[^\s,()]{{1,100}}[ ]{{1,3}}password[ ]?=[ ]?{_QUOTES}"
        rf"""(?P<secret>{_REAL}[^\s,"'\\<>()]{{1,256}})""",
        (),
        _PASSWORD_HINTS,
    ),
    SecretFormat(
        "dsn-password",
        rf"{_START}password[ ]?=[ ]?{_QUOTES}(?P<secret>{_REAL}[^\s,\"'\\<>()]{{1,256}})"
        rf"{_QUOTES}[ ]{{1,3}}(?={_LIBPQ}=)",
        (),
        _PASSWORD_HINTS,
    ),
    # .netrc, .pgpass and curl -u.
    SecretFormat(
        "login-password",
        _START + r"machine\s{1,4}\S{1,200}\s{1,8}login\s{1,4}\S{1,100}\s{1,8}password\s{1,4}"
        rf"""(?P<secret>{_REAL}[^\s"'\\]{{1,128}})""",
        ("machine ",),
        _PASSWORD_HINTS,
    ),
    SecretFormat(
        "login-password",
        r"(?<=[\w.*-]):(?:543[2-9]|6432|\*):[\w*-]{1,64}:[\w*.-]{1,64}:"
        rf"""(?P<secret>{_REAL}[^\s:"'\\]{{4,128}})""",
        (":543", ":6432:", ":*:"),
        (":543", ":6432:", ":*:"),
    ),
    SecretFormat(
        "login-password",
        r"curl[ ](?:(?!curl )[^\n]){0,200}?(?<=[ ])(?:-u[ ]?|--user[ =])"
        r"""["'\\]{0,4}[^\s:"'\\/]{1,64}:"""
        rf"""(?P<secret>{_REAL}[^\s"'\\]{{4,128}})""",
        ("curl ",),
        ("curl ",),
    ),
)

# --- keys and signatures in URLs and connection strings ---

_IN_URLS = (
    SecretFormat(
        "azure-account-key",
        r"(?:(?<=Account)|(?<=Access))Key="
        r"(?P<secret>[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{86}==)(?![A-Za-z0-9+/=])",
        ("Key=",),
        ("accountkey=", "accesskey="),
    ),
    SecretFormat(
        "azure-sas-signature",
        r"(?<=[?&;])sig=(?P<secret>[A-Za-z0-9%/+_-]{40,120}={0,2})",
        ("sig=",),
        ("sig=",),
    ),
    SecretFormat(
        "presigned-url",
        r"X-(?:Amz|Goog)-Signature=(?P<secret>[0-9a-f]{64,600})" + RIGHT,
        ("X-Amz-Signature=", "X-Goog-Signature="),
        ("-signature=",),
    ),
    SecretFormat(
        "discord-webhook",
        r"/api/webhooks/[0-9]{15,22}/(?P<secret>[A-Za-z0-9_-]{60,100})",
        ("/api/webhooks/",),
        ("/api/webhooks/",),
    ),
    SecretFormat(
        "slack-webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_+-]{20,150})",
        ("hooks.slack.com/",),
        ("hooks.slack.com/",),
    ),
    SecretFormat(
        "teams-webhook",
        r"webhook\.office\.com/webhookb2/[0-9a-f-]{36}@[0-9a-f-]{36}/IncomingWebhook/"
        r"(?P<secret>[0-9a-f]{32}/[0-9a-f-]{36})",
        ("webhook.office.com/",),
        ("webhook.office.com/",),
    ),
)

# --- headers ---

_GAP = r"(?:\\{0,8}[ \t]|%20|\+){1,4}"
_HEADERS = (
    SecretFormat(
        "bearer-token",
        rf"(?i:bearer){_GAP}(?P<secret>{HAS_DIGIT}[A-Za-z0-9._~+/-]{{16,4096}}={{0,2}})",
        (),
        ("bearer",),
        accepts=is_not_identifier,
    ),
    SecretFormat(
        "basic-auth",
        rf"(?i:authorization){IS}(?i:basic){_GAP}(?P<secret>[A-Za-z0-9+/]{{6,1024}}={{0,2}})",
        (),
        ("authorization",),
        keyed=True,
    ),
    SecretFormat(
        "auth-header",
        rf"(?i:authorization){IS}(?:(?i:token|ssws|apikey|api-key|key){_GAP})?(?i:token=)?"
        rf"""["'\\]{{0,8}}(?P<secret>{HAS_DIGIT}[A-Za-z0-9._~+/-]{{20,4096}}={{0,2}})""",
        (),
        ("authorization",),
        keyed=True,
        accepts=is_not_identifier,
    ),
    # Docker's config.json: user and password in base64, so the length is a multiple of four.
    SecretFormat(
        "basic-auth",
        r"""(?<![\w.-])auth(?:["'\\]{1,8}[ ]{0,4}:|=)\s{0,4}["'\\]{0,8}(?P<secret>"""
        r"(?=[A-Za-z+/]{0,99}[0-9])(?=[^A-Z\s]{0,99}[A-Z])(?:[A-Za-z0-9+/]{4}){3,200}"
        r"(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)(?![A-Za-z0-9+/=._-])",
        (),
        ('auth"', "auth'", "auth\\", "auth="),
        keyed=True,
        accepts=is_not_identifier,
    ),
)

# --- values after a telling name ---

# `aws configure set aws_secret_access_key VALUE` has only a space.
_IS_OR_SPACE = rf"(?:{IS}|[ \t]{{1,4}}[\"']?)"
_WHOSE = (
    r"api|access|auth|client|secret|private|subscription|refresh|webhook|jwt|app|bot|signing"
    r"|encryption|session|deploy|personal"
)
# A page token (next_token, sync-token) says where to go on and opens nothing.
_NOT_PAGING = "".join(
    rf"(?<!{word}{dash})"
    for word in ("next", "page", "ation", "sync", "cursor", "client", "request", "resume", "start")
    for dash in ("", "_", "-")
)
_VALUE = (
    rf"(?:{HAS_DIGIT}(?=[0-9_+/=~.-]{{0,200}}[A-Za-z])"
    r"[A-Za-z0-9_+/~-]{20,200}(?:\.[A-Za-z0-9_+/~-]{10,200}){0,3}={0,2}|[0-9]{32,200})"
)
_END = r"(?![A-Za-z0-9_+/=~(\[-]|\.[A-Za-z0-9_])"
_NAMED = (
    named(
        "aws-secret-access-key",
        r"(?i:(?:aws[_-]?)?secret[_-]?(?:access[_-]?)?key)",
        r"[A-Za-z0-9/+]{40}",
        "key",
        between=_IS_OR_SPACE,
        right=r"(?![A-Za-z0-9/+=])",
        accepts=is_not_identifier,
    ),
    named(
        "aws-session-token",
        r"(?i:(?:aws[_-]?)?(?:session|security)[_-]?token)",
        r"[A-Za-z0-9/+%]{100,4000}={0,2}",
        "token",
        between=_IS_OR_SPACE,
        right=r"(?![A-Za-z0-9/+=])",
    ),
    named("twilio-auth-token", r"(?i:twilio[\w .-]{0,20}token)", r"[0-9a-f]{32}", "token"),
    SecretFormat(
        "twilio-auth-token",
        r"""AC[0-9a-f]{32}["'\\]{1,8},\s{0,4}["'\\]{1,8}(?P<secret>[0-9a-f]{32})""" + RIGHT,
        tuple(f"AC{digit}" for digit in "0123456789abcdef"),
    ),
    named("heroku-key", r"(?i:heroku[\w-]{0,20}key)", UUID, "key"),
    named("npm-token", r"_authToken", UUID, "token"),
    named("api-key", r"(?i:api[ _-]?key)", UUID, "key"),
    named(
        "api-key",
        rf"(?i:(?:{_WHOSE})[ _-]?(?:key|token|secret))",
        _VALUE,
        "key token secret",
        right=_END,
        accepts=is_random,
    ),
    named("api-key", rf"(?i:{_NOT_PAGING}token)", _VALUE, "token", right=_END, accepts=is_random),
    named(
        "api-key",
        _START + r"(?i:--(?:[a-z0-9]{1,20}-){0,5}(?:api)?(?:key|token|secret))",
        _VALUE,
        "key token secret",
        between=r"[ \t]{1,4}[\"'\\]{0,4}",
        right=_END,
        accepts=is_random,
    )._replace(keyed=False),
)

VALUES: tuple[SecretFormat, ...] = (*_PRIVATE_KEYS, *_PASSWORDS, *_IN_URLS, *_HEADERS, *_NAMED)

# Has false positives, so a redactor uses it only if it is asked for by name (`also`).
OPTIONAL: tuple[SecretFormat, ...] = (
    named(
        "password",
        r"(?i:pass(?:word|wd|phrase)?|pwd)",
        r"""(?![$<*{\[])[^\s"'`\\,;&<>]{4,200}""",
        "pass pwd",
        right="",
    )._replace(short=True),
)


KNOWN: tuple[SecretFormat, ...] = (*TOKENS, *VALUES)

BY_NAME: dict[str, list[SecretFormat]] = {}
for _format in (*KNOWN, *OPTIONAL):
    BY_NAME.setdefault(_format.name, []).append(_format)
