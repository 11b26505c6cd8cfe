"""The exceptions a user of sdefit can meet.

    SdefitError
    ├── InputError (also a ValueError)   something given to us is not what it must be
    │   ├── DataError                    a series, a table or a CSV file
    │   ├── ModelError                   a model, its parameters or its settings
    │   │   └── EquationError            text that is not an equation we read; shows the place
    │   └── FileError                    a stored result that cannot be read or written
    ├── SimulationError                  a simulated path left the finite numbers
    └── FitError                         a fit did not succeed, and `throw=True` was asked for

Every message is one line: what it must be, what came, what to do. `EquationError` adds the line of
text with a caret below the place. The command line prints the message and exits with status 2, or 1 for the
last two.
"""


class SdefitError(Exception):
    """The root of every exception sdefit raises on purpose."""


class InputError(SdefitError, ValueError):
    """Something given to sdefit is not what it must be."""


class DataError(InputError):
    """A series, a table or a CSV file cannot be used."""


class ModelError(InputError):
    """A model, its parameters or a method's settings are not what they must be."""


class EquationError(ModelError):
    """Text that is not an equation sdefit reads; the message shows the place with a caret."""


class FileError(InputError):
    """A stored result cannot be read or written."""


class SimulationError(SdefitError):
    """A simulated path left the finite numbers."""


class FitError(SdefitError):
    """A fit that did not succeed, where the caller asked for an exception."""
