"""`python -m sdefit.cli` is the command `sdefit`."""

from sdefit.cli import main

main()
