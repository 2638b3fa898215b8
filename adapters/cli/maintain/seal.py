"""Command `seal`: a signed list of the heads of all runs, to be kept outside of the ledger."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from turnledger.adapters.cli.shared.command import command, fail, open_ledger, report
from turnledger.adapters.cli.shared.exit_codes import ExitCode
from turnledger.adapters.cli.shared.parameters import file_option, flag
from turnledger.adapters.cli.shared.progress import verifying
from turnledger.ledger.integrity.seal import make_seal, seal_lines
from turnledger.ledger.integrity.signing import new_key, read_signer


@command(
    example="""\
turnledger seal --new-key seal.key > seal.pub
turnledger seal --key seal.key > seal.json
turnledger verify --seal seal.json --public-key seal.pub""",
)
@file_option(
    "--key",
    exists=True,
    help="Sign with this Ed25519 private key (PEM). Default: the seal is not signed.",
)
@file_option(
    "--new-key",
    "fresh",
    exists=False,
    help="Create a private key in FILE, which must not exist, and print its public key.",
)
@flag(
    "--no-verify",
    help="Do not verify the ledger first: faster, but existing damage is sealed too.",
)
def seal(key: Path | None, fresh: Path | None, no_verify: bool) -> None:
    """Write a seal of the whole ledger to stdout.

    A seal lists the head of every run. Kept where writers of the ledger can't change it, it
    lets `verify --seal` find truncated, removed and rewritten runs. About 120 bytes a run.
    With -o json the summary on stderr is JSON.

    The ledger is verified first, since a seal over damage would vouch for it: exits with 5,
    and seals nothing, if the integrity check fails.
    """
    if fresh is not None:
        if key is not None:
            raise click.UsageError("Give either --key or --new-key.")
        sys.stdout.buffer.write(new_key(fresh))
        text = f"Created {fresh}. Keep it where writers of the ledger can't read it."
        report(text, {"private_key": str(fresh)})
        return
    signer = read_signer(key) if key is not None else None
    with open_ledger() as ledger:
        if not no_verify:
            with verifying(ledger) as progress:
                found = ledger.verify_all(progress)
            if not found.ok:
                problems = [str(p) if p.run_id else p.what for p in found.problems]
                fail(
                    "\n  ".join(
                        ("Nothing is sealed, since the integrity check failed:", *problems)
                    ),
                    ExitCode.INTEGRITY_FAILURE,
                    problems=problems,
                )
        made = make_seal(ledger, ledger.clock.micros(), signer)
    sys.stdout.buffer.writelines(seal_lines(made))
    text = f"Sealed {made.runs} runs, {made.events} events, up to position {made.position}."
    if signer is None:
        text += "\nNOT SIGNED: anyone who can change this file can forge it. Sign it with --key."
    names = ("runs", "events", "position", "signed")
    report(text, {name: getattr(made, name) for name in names})
