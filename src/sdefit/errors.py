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
    """The root of every exception sdefit raises on purpose.

    >>> try:
    ...     sf.fixed("two")
    ... except sf.SdefitError as error:
    ...     print(error)
    a parameter's fixed value must be a number, not 'two'
    """


class InputError(SdefitError, ValueError):
    """Something given to sdefit is not what it must be.

    >>> fit.intervals(level=90)
    Traceback (most recent call last):
    sdefit.errors.InputError: level must lie between 0 and 1, not 90
    """


class DataError(InputError):
    """A series, a table or a CSV file cannot be used.

    >>> sf.Series([0, 1, 1], [0.1, 0.2, 0.3])
    Traceback (most recent call last):
    sdefit.errors.DataError: row index 2, column 'times': the time 1 already stands at row index 1; ...
    """


class ModelError(InputError):
    """A model, its parameters or a method's settings are not what they must be.

    >>> sf.interval(1, 0)
    Traceback (most recent call last):
    sdefit.errors.ModelError: a parameter's lower bound must be below its upper, but 1.0 >= 0.0
    """


class EquationError(ModelError):
    """Text that is not an equation sdefit reads; the message shows the place with a caret.

    >>> sf.equations("dx = rate*(level - x")
    Traceback (most recent call last):
    sdefit.errors.EquationError: line 1 of the equations: this ( is never closed; an equation stays on one line
        dx = rate*(level - x
                  ^
    """


class FileError(InputError):
    """A stored result cannot be read or written.

    >>> sf.load("missing.nc")
    Traceback (most recent call last):
    sdefit.errors.FileError: missing.nc cannot be read: No such file or directory
    """


class SimulationError(SdefitError):
    """A simulated path left the finite numbers.

    >>> sf.simulate(sf.equations("dx = x**2"), {}, x0=1, times=[0, 1, 2], G=0)
    Traceback (most recent call last):
    sdefit.errors.SimulationError: the path left the finite numbers at time 1.00...; give a step below ...
    """


class FitError(SdefitError):
    """A fit that did not succeed, where the caller asked for an exception.

    >>> sf.fit(sf.equations("dx = -a*b*x"), series, "moments", throw=True)
    Traceback (most recent call last):
    sdefit.errors.FitError: unidentifiable: ...
    """
