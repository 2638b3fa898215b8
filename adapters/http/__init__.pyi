# The public names of `turnledger.adapters.http`, each with the module it comes from.
from turnledger.adapters.http.client.errors import NotServedError as NotServedError
from turnledger.adapters.http.client.errors import ServerRefusedError as ServerRefusedError
from turnledger.adapters.http.client.ledger_client import AsyncLedgerClient as AsyncLedgerClient
from turnledger.adapters.http.client.ledger_client import LedgerClient as LedgerClient
