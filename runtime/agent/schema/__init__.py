"""JSON schemas of Python types, and decoding of JSON into them."""
