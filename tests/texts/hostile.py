"""Hostile text: units that, repeated, made or could make a search for secrets slow.

Each is the beginning of a format over and over, a near miss of one, what is around secrets, or one
class of characters. `hostile` repeats one up to a size.
"""

from __future__ import annotations

UNITS: dict[str, str] = {
    # Beginnings of tokens.
    "sk-": "sk-",
    "eyJ": "eyJ",
    "eyJ.": "eyJ.",
    "AKIA": "AKIA",
    "ghs with dots": "ghs_a.",
    "xox": "xoxb-",
    "EAAA": "EAAA",
    "pat with letters": "patABCDEFGHIJKLMNO.",
    "fm2 with commas": "fm2_,",
    "1//0": "1//0",
    "ya29.": "ya29.",
    "Q~": "Q~",
    ".atlasv1.": ".atlasv1.",
    ":AA after digits": "12345678:AA",
    "sig=": "sig=",
    "?sig=a": "?sig=a",
    "M.": "M.",
    "hex and dashes": "0123456789abcdef0123456789abcdef-",
    "M of Discord": "MTAxMjM0NTY3ODkwMTIzNDU2Nzg.",
    "secret_": "secret_1",
    "many prefixes": "sk-ghp_AKIAeyJxoxb-hf_glpat-npm_SG.AIza",
    # Near misses: one character too few, too many or wrong.
    "GitHub, too short": "ghp_0123456789abcdefghijABCDEFGHIJ01234 ",
    "GitHub, too long": "github_pat_0123456789abcdefghijAB_" + "x" * 58 + " ",
    "JWT of two parts": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0. ",
    "AWS secret of 41": "aws_secret_access_key=" + "aB3/" * 10 + "x ",
    "long sk-": "sk-" + "a1" * 160 + " ",
    "presigned, too short": "X-Amz-Signature=" + "0a" * 31 + " ",
    "key that is a name": "api_key=my_service_api_key_name_v2_for_tests ",
    # Passwords and URLs.
    "pwd=x;": "pwd=x;",
    ";password=": ";password=",
    "password=": "password=",
    "PASSWORD = ' ": "PASSWORD = ' ",
    "pwd of spaces": "pwd  =  ",
    "://": "://",
    "://a:": "://a:",
    "://a:b": "://a:b",
    "://a:b@": "://a:b@",
    "%3A%2F%2F": "%3A%2F%2Fa%3A",
    "host=a": "host=a ",
    "machine login": "machine a login ",
    "curl -u": "curl -u a",
    ":5432:": "a:5432:a:a:",
    "jdbc": "jdbc:oracle:thin:a/",
    # Names before values, and headers.
    "key=": "key=",
    "api_key=": "api_key=",
    "token: '": "token: '",
    "--key": "--key ",
    "secret of quotes": "secret\"'\\\"'\\\"'\\ ",
    "Bearer 1": "Bearer 1",
    "authorization:": "authorization: ",
    "auth=": 'auth="',
    "cookie": "Set-Cookie: a=",
    "cookies in one line": "Cookie: a=" + "0123456789abcdefA1; ",
    "cookies that are words": "Cookie: a=abcdefghijklmnopqrst; ",
    "bearer+": "bearer+a1",
    # Private keys.
    "-----BEGIN ": "-----BEGIN ",
    "BEGIN without END": "-----BEGIN RSA PRIVATE KEY-----\n",
    "BEGIN and a line": "-----BEGIN RSA PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAAA\n",
    "BEGIN and dashes": "-----BEGIN PRIVATE KEY-----" + "A" * 60 + "-",
    "file names of grep": "\n1 a-",
    # Escapes and markers.
    "\\/": "\\/",
    "\\u0041": "\\u0041",
    "backslashes": "\\",
    "percent": "%41%",
    "colours": "\x1b[01;31m\x1b[Ka",
    "escaped colours": "\\n\\u001b[31mghp_",
    "markers": "[redacted: jwt] ",
    # One class of characters.
    "words of 31": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ",
    "lower case": "abcdefghijklmnopqrstuvwxyz",
    "upper case": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "digits": "0123456789",
    "base64": "aB3/x+9Z",
    "words with dots": "ab1.",
    "quotes": "\"'",
    "spaces": " ",
    "lines": "\n",
}


def hostile(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]
