"""`turnledger doctor`: checks of a ledger's files or server, with advice."""
