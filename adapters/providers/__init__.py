"""The models' providers: each through its own SDK, which is an extra.

Provider quirks stay in here; the ledger and the loop never see them.
"""
