"""Check a seal of a ledger with nothing of Turnledger's; a signature needs `cryptography`.

Recomputes every digest. Does not read blobs, whose names are digests in the data."""

import argparse
import base64
import json
import sqlite3
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
COLUMNS = "run_id, version, event_id, tag, recorded_at, data, digest"


def fields(*values):
    """Encode values for hashing and signing: each as its length, a colon, its bytes, a comma."""
    raw = (v if isinstance(v, bytes) else str(v).encode() for v in values)
    return b"".join(b"%d:%b," % (len(value), value) for value in raw)


def checked(seal, public_key):
    """Check the root and the signature of a seal; returns who signed it."""
    heads = [fields(run, version, bytes.fromhex(digest)) for run, version, digest in seal["heads"]]
    if sha256(b"".join(heads)).hexdigest() != seal["root"] or len(heads) != seal["runs"]:
        raise ValueError("the seal was edited: its list of runs does not fit its root")
    if seal["signature"] is None and not public_key:
        return "NOT SIGNED"
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    raw = base64.b64decode(seal["public_key"] or "")
    if public_key and load_pem_public_key(public_key.read_bytes()).public_bytes_raw() != raw:
        raise ValueError("the seal is not signed with that key")
    said = [seal[name] for name in ("turnledger_seal", "sealed_at", "runs", "events", "position")]
    statement = fields("turnledger seal", *said, bytes.fromhex(seal["root"]))
    Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(seal["signature"]), statement)
    return f"signed with {seal['public_key']}" + ("" if public_key else ", an unchecked key")


def records(path):
    """All records, parents before children, of a SQLite file or an export file."""
    with path.open("rb") as file:
        if file.read(16) == b"SQLite format 3\0":
            db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
            if ("table", "events") not in db.execute("SELECT type, name FROM sqlite_master"):
                raise ValueError("events is not a table: a view could hide records")
            yield from db.execute(f"SELECT {COLUMNS} FROM events ORDER BY position")
            return
        file.seek(0)
        for line in file:
            head, found, data = line.partition(b',"data":')
            if found and line.startswith(b'{"run_id":'):
                row = json.loads(head + b"}")
                own = [row[name] for name in ("run_id", "version", "event_id", "type")]
                moment = (datetime.fromisoformat(row["recorded_at"]) - EPOCH) // MICROSECOND
                yield *own, moment, data[: data.rindex(b"}")], bytes.fromhex(row["digest"])


def differences(seal, rows):
    """Records that do not match their digests, and runs that do not match the seal."""
    digests, last, parents = {}, {}, {}
    for run, version, event_id, tag, moment, data, digest in rows:
        before = (run, last.get(run, 0))
        started = json.loads(data) if run not in last and tag == "run.started" else {}
        if started.get("parent"):  # a fork starts from its parent's record, or its parent's ...
            before = (started["parent"], started["at"])
            while before not in digests and before[0] in parents:
                before = (parents[before[0]], before[1])
            parents |= {run: started["parent"]} if before in digests else {}
        previous = digests.get(before, bytes(32) if before[1] == 0 else b"")
        content = fields(previous, run, version, event_id, tag, moment, data)
        if sha256(content).digest() != digest or version != before[1] + 1:
            yield f"run {run}, version {version}: the record does not fit the one before"
        digests[run, version], last[run] = digest, version
    for run, version, digest in seal["heads"]:
        if run not in last:
            yield f"run {run}: removed; the seal has it up to version {version}"
        elif last[run] < version:
            yield f"run {run}: cut at version {last[run]}; the seal has {version}"
        elif digests.get((run, version), b"").hex() != digest:
            yield f"run {run}, version {version}: rewritten; the seal has digest {digest}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("seal", type=Path, help="of `turnledger seal`, or in an export")
    parser.add_argument("ledger", type=Path, help="a SQLite file, or `turnledger export --all`")
    parser.add_argument("--public-key", type=Path, help="PEM; the seal must be signed with it")
    given = parser.parse_args()
    try:
        whole = given.seal.read_bytes().partition(b'\n{"seal":')  # an export may carry one
        seal = json.loads(whole[2].partition(b"\n")[0][:-1] or whole[0])
        print(f"The seal of {seal['sealed_at']} is {checked(seal, given.public_key)}.")
        problems = list(differences(seal, records(given.ledger)))
    except Exception as error:  # InvalidSignature among them
        problems = [f"{type(error).__name__}: {error}"]
    raise SystemExit("\n".join(problems) or print("All that was sealed is there, unchanged."))
