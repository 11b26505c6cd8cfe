"""The `sdefit` command: one file per subcommand, each of them parsing plus one library call.

Nothing here imports JAX until a command needs it, so help is instant.
"""

import sys


def main() -> None:
    """Run `sdefit` with the arguments of this process and exit with its status."""
    from sdefit.cli.app import run

    sys.exit(run(sys.argv[1:]))
