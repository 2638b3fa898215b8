"""The formats of secrets that are known: keys of providers and clouds, tokens, passwords in URLs.

Each says how a secret is spelt, strictly enough that ids, digests and opaque data never look
like one. All of them are read in linear time. How text is searched for them is `ledger.redacting`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# A token begins where none can be going on: base64 holds every short prefix sooner or later.
# After an escape of JSON text (\n, \u001b) or of a URL (%20) a new one may begin.
_ESCAPED = r"(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2})"
_LEFT = rf"(?:(?<![A-Za-z0-9_-])|{_ESCAPED})"
# For a prefix of letters alone, that the other base64 can hold too.
_LEFT_OF_LETTERS = rf"(?:(?<![A-Za-z0-9_+/-])|{_ESCAPED})"
_RIGHT = r"(?![A-Za-z0-9_-])"
# What stands between a name and its value, in code, JSON, JSON within JSON, and headers.
_IS = r"""["'\\]{0,16}[ \t]{0,4}(?:=>|:=|==|[:=])[ \t]{0,4}["'`\\]{0,16}"""
_PEM_NAME = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
# Something in it is a digit: a long word is none of these.
_HAS_DIGIT = r"(?=[A-Za-z_+/=~.-]{0,200}[0-9])"


# A hint that is no word: three long parts with dots between them.
THREE_PARTS = "."


class SecretFormat(NamedTuple):
    """How a kind of secret is spelt.

    `regex` is tried where one of `literals` stands, `offset` characters before it; without
    literals it is searched for. What its group `secret` matches is replaced, else all of it.
    `hints` are words, in small letters, of which one is near it; without, a word begins with
    one of its literals. One that is `keyed` has a name before it: in an object, the key is that
    name. One that is `short` has no long word in it by which to find it.
    """

    name: str
    regex: re.Pattern[str]
    literals: tuple[str, ...]
    hints: tuple[str, ...] = ()
    offset: int = 0
    keyed: bool = False
    short: bool = False


def _token(name: str, prefixes: str, body: str, *, left: str = _LEFT) -> SecretFormat:
    """A token that is known by its beginning."""
    return SecretFormat(name, re.compile(left + body + _RIGHT), tuple(prefixes.split()))


def _named(name: str, names: str, value: str, hints: str, *, right: str = _RIGHT) -> SecretFormat:
    """A value that is known by the name before it."""
    spelt = re.compile(f"(?:{names}){_IS}(?P<secret>{value}){right}")
    return SecretFormat(name, spelt, (), tuple(hints.split()), keyed=True)


KNOWN: tuple[SecretFormat, ...] = (
    # --- models and what is around them ---
    _token(
        "anthropic-key",
        "sk-ant-",
        r"sk-ant-[a-z]{2,10}[0-9]{2}-[A-Za-z0-9_-]{60,200}",
    ),
    _token("openrouter-key", "sk-or-v1-", r"sk-or-v1-[0-9a-f]{64}"),
    _token(
        "openai-key",
        "sk-",
        r"sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{40,300}"
        r"|[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}|[A-Za-z0-9]{48})",
    ),
    _token(
        "langfuse-key",
        "sk-lf-",
        r"sk-lf-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    ),
    _token("deepseek-key", "sk-", r"sk-[0-9a-f]{32}"),
    _token("google-api-key", "AIza", r"AIza[A-Za-z0-9_-]{35}", left=_LEFT_OF_LETTERS),
    _token("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{40,64}"),
    _token("huggingface-token", "hf_ api_org_", r"(?:hf_|api_org_)[A-Za-z0-9]{34,40}"),
    _token("langsmith-key", "lsv2_", r"lsv2_[a-z]{2}_[0-9a-f]{32}_[0-9a-f]{10}"),
    _token("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{40,64}"),
    _token("pinecone-key", "pcsk_", r"pcsk_[A-Za-z0-9_]{50,100}"),
    _token("replicate-token", "r8_", r"r8_[A-Za-z0-9]{37}"),
    _token("xai-key", "xai-", r"xai-[A-Za-z0-9]{60,100}"),
    # --- clouds ---
    _token(
        "aws-access-key-id",
        "AKIA ASIA ABIA ACCA",
        r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}",
        left=_LEFT_OF_LETTERS,
    ),
    _token(
        "aws-bedrock-key",
        "ABSK",
        r"ABSK[A-Za-z0-9+/]{109,269}={0,2}",
        left=_LEFT_OF_LETTERS,
    )._replace(hints=("absk",)),
    _named(
        "aws-secret-access-key",
        r"(?i:(?:aws_?)?secret_?(?:access_?)?key)",
        r"[A-Za-z0-9/+]{40}",
        "key",
        right=r"(?![A-Za-z0-9/+=])",
    ),
    _named(
        "aws-session-token",
        r"(?i:(?:aws_?)?(?:session|security)_?token)",
        r"[A-Za-z0-9/+]{100,4000}={0,2}",
        "token",
        right=r"(?![A-Za-z0-9/+=])",
    ),
    SecretFormat(
        "azure-account-key",
        re.compile(r"Key=(?P<secret>[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{86}==)(?![A-Za-z0-9+/=])"),
        ("Key=",),
        ("key",),
    ),
    SecretFormat(
        "azure-sas-signature",
        re.compile(r"(?<=[?&;])sig=(?P<secret>[A-Za-z0-9%/+_-]{40,120}={0,2})"),
        ("sig=",),
        ("sig=",),
    ),
    SecretFormat(
        "azure-client-secret",
        re.compile(
            rf"(?:(?<![A-Za-z0-9_~.-])|{_ESCAPED})[A-Za-z0-9_~.]{{3}}[0-9]Q~"
            r"[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~-])"
        ),
        ("Q~",),
        ("q~",),
        offset=4,
    ),
    _token("databricks-token", "dapi", r"dapi[0-9a-f]{32}(?:-[0-9])?", left=_LEFT_OF_LETTERS),
    _token(
        "digitalocean-token",
        "dop_v1_ doo_v1_ dor_v1_",
        r"do[opr]_v1_[0-9a-f]{64}",
    ),
    _token("google-oauth-secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{28}"),
    _token("google-oauth-token", "ya29.", r"ya29\.(?:[a-z]\.)?[A-Za-z0-9_-]{20,2048}"),
    _token("google-refresh-token", "1//0", r"1//0[A-Za-z0-9_-]{40,512}")._replace(hints=("1//0",)),
    _token("vault-token", "hvs. hvb.", r"hv[sb]\.[A-Za-z0-9_-]{24,300}"),
    # --- places for code and packages ---
    _token(
        "github-token",
        "ghp_ gho_ ghu_ ghs_ ghr_",
        r"gh(?:[pour]_[A-Za-z0-9]{36,251}|s_[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){35,2048})",
    ),
    _token(
        "github-token",
        "github_pat_",
        r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",
    ),
    _token(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glsoat- glft- glagent- gloas-",
        r"gl(?:pat|dt|rt|cbt|ptt|soat|ft|agent|oas)-[A-Za-z0-9_-]{20,300}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
    ),
    _token("docker-token", "dckr_pat_ dckr_oat_", r"dckr_[op]at_[A-Za-z0-9_-]{27,40}"),
    _token("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _token("pypi-token", "pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{50,1000}"),
    # --- services ---
    SecretFormat(
        "discord-token",
        re.compile(
            rf"(?:(?<![A-Za-z0-9_.+/-])|{_ESCAPED})[MNO][A-Za-z0-9_-]{{23,25}}\.[A-Za-z0-9_-]{{6}}"
            r"\.[A-Za-z0-9_-]{27,38}(?![A-Za-z0-9_-]|\.[A-Za-z0-9_])"
        ),
        (),
        (THREE_PARTS,),
    ),
    SecretFormat(
        "discord-webhook",
        re.compile(r"/api/webhooks/[0-9]{15,22}/(?P<secret>[A-Za-z0-9_-]{60,100})"),
        ("/api/webhooks/",),
        ("/api/webhooks/",),
    ),
    _token("grafana-token", "glsa_", r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}"),
    _token("mailgun-key", "key-", r"key-[0-9a-f]{32}"),
    _token("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    _token("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _token(
        "slack-token",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-",
        r"(?:xox[a-eo-s](?:\.xox[a-z])?|xapp)-[A-Za-z0-9%-]{10,400}",
    ),
    SecretFormat(
        "slack-webhook",
        re.compile(
            r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_+-]{20,150})"
        ),
        ("hooks.slack.com/",),
        ("hooks.slack.com/",),
    ),
    _token(
        "stripe-key",
        "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_",
        r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{16,250}",
    ),
    SecretFormat(
        "stripe-webhook-secret",
        re.compile(_LEFT + r"whsec_[A-Za-z0-9+/]{24,100}={0,2}(?![A-Za-z0-9+/])"),
        ("whsec_",),
    ),
    SecretFormat(
        "telegram-token",
        re.compile(r"(?<=[0-9]{8}):(?P<secret>AA[A-Za-z0-9_-]{33})" + _RIGHT),
        (":AA",),
        (":aa",),
    ),
    SecretFormat(
        "twilio-key",
        re.compile(_LEFT_OF_LETTERS + r"SK[0-9a-f]{32}" + _RIGHT),
        tuple(f"SK{digit}" for digit in "0123456789abcdef"),
    ),
    _named(
        "twilio-auth-token",
        r"(?i:twilio[\w .-]{0,20}token)",
        r"[0-9a-f]{32}",
        "token",
    ),
    # --- whoever's ---
    SecretFormat(
        "jwt",
        re.compile(
            _LEFT_OF_LETTERS + r"eyJ[A-Za-z0-9_-]{10,8192}"
            r"\.eyJ[A-Za-z0-9_-]{10,16384}\.[A-Za-z0-9_-]{20,2048}"
        ),
        ("eyJ",),
    ),
    SecretFormat(
        "private-key",
        re.compile(
            rf"-----BEGIN {_PEM_NAME}(?:"
            rf"""(?:[^-"'`<>{{}}\[\]]++|-(?!----)){{0,5000}}+-----END {_PEM_NAME}"""
            # Cut off: lines of base64, and the rest of the last one.
            r"|(?:(?:\s|\\+[nr]){1,8}[A-Za-z0-9+/=]{16,1000}){1,400}+"
            r"""(?:(?:\s|\\+[nr]){1,8}[A-Za-z0-9+/=]{1,15}(?=\Z|["'`\\]))?)"""
        ),
        ("-----BEGIN ",),
        ("private key",),
    ),
    SecretFormat(
        "url-password",
        re.compile(
            r"""://[^\s/:@"'<>?#\\]{0,200}:(?P<secret>(?![$<*{])[^\s/"'<>?#]{1,256})@(?=[A-Za-z0-9\[._%-])"""
        ),
        ("://",),
        ("://",),
    ),
    SecretFormat(
        "dsn-password",
        re.compile(
            r"(?<=[;?&])[ ]?(?i:password|pwd|sslpassword)="
            r"""(?P<secret>(?![$<*{\[])[^\s;&"'\\<>#]{1,256})"""
        ),
        (),
        ("password=", "pwd="),
    ),
    SecretFormat(
        "bearer-token",
        re.compile(
            rf"(?i:bearer)[ ]{{1,4}}(?P<secret>{_HAS_DIGIT}[A-Za-z0-9._~+/-]{{16,4096}}={{0,2}})"
        ),
        (),
        ("bearer ",),
    ),
    SecretFormat(
        "basic-auth",
        re.compile(
            rf"(?i:authorization){_IS}(?i:basic)[ ]{{1,4}}"
            r"(?P<secret>[A-Za-z0-9+/]{6,1024}={0,2})"
        ),
        (),
        ("authorization",),
        keyed=True,
    ),
    _named(
        "api-key",
        r"(?i:(?:api|access|auth|client|secret|private|subscription)[_-]?(?:key|token|secret))",
        _HAS_DIGIT + r"(?=[0-9_+/=~-]{0,200}[A-Za-z])[A-Za-z0-9_+/~-]{20,200}={0,2}",
        "key token secret",
        right=r"(?![A-Za-z0-9_+/=~(\[-]|\.[A-Za-z0-9_])",
    ),
)

# Names of which a value may follow that is a secret; a `hint` of a format that is named.
NAMES = ("key", "token", "secret")
NAMED = re.compile(rf"""(?:{"|".join(NAMES)}){_IS}""")
# A user and a password before a host; a port is none.
IN_URL = re.compile(r"""://[^/:@\s]{0,200}:(?![0-9]{1,5}(?:[/?#"'\\,;)\s]|$))""")

# Right often, and wrong now and then: only who names it has it.
OPTIONAL: tuple[SecretFormat, ...] = (
    _named(
        "password",
        r"(?i:pass(?:word|wd|phrase)?|pwd)",
        r"""(?![$<*{\[])[^\s"'`\\,;&<>]{4,200}""",
        "pass pwd",
        right="",
    )._replace(short=True),
)

BY_NAME: dict[str, tuple[SecretFormat, ...]] = {
    one.name: tuple(other for other in (*KNOWN, *OPTIONAL) if other.name == one.name)
    for one in (*KNOWN, *OPTIONAL)
}
