"""Model providers: an adapter and a wire format for each, over its own SDK, which is an extra.

What is particular to a provider stays in here; the ledger and the loop never see it.
"""
