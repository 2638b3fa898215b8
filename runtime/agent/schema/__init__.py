"""JSON schemas of Python types, and decoding of JSON into them."""

from turnledger.runtime.agent.schema.schema import decode, json_schema
from turnledger.runtime.agent.schema.values import read_json, to_plain

__all__ = [
    "decode",
    "json_schema",
    "read_json",
    "to_plain",
]
