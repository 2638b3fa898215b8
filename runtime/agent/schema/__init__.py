"""JSON schemas of Python types, decoding JSON into them, and encoding values as JSON."""

from turnledger.runtime.agent.schema.schema import decode, json_schema
from turnledger.runtime.agent.schema.values import read_json, to_plain

__all__ = [
    "decode",
    "json_schema",
    "read_json",
    "to_plain",
]
