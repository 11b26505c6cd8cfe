"""The `sdefit` command: one file per subcommand, each of them parsing plus one library call.

Nothing here imports JAX until a command needs it, so help is instant.
"""

import gc
import sys


def main() -> None:
    """Run `sdefit` with the arguments of this process and exit with its status."""
    from sdefit.cli.app import run

    status = run(sys.argv[1:])
    gc.freeze()  # all memory goes back at once: looking through it first for what is no longer used takes half a second
    sys.exit(status)
