"""Settings of methods: whatever is no such setting is refused in one line that names it."""

import dataclasses
import re
import subprocess
import sys

import pytest

from sdefit import methods
from sdefit.errors import ModelError

NAN, INF = float("nan"), float("inf")
# By the type of a setting's default, what it can never be.
NEVER = {
    int: [True, 0.5, "3", [1], None, -1],
    float: [True, "0.1", [0.1], NAN, INF, -1.0],
    str: [["each"], 1, None, "nothing"],
    bool: ["yes", 1, None],
    tuple: [[1.0], 1.0, (True,), (NAN,), ()],
    type(None): [True, "0.1", [0.1], NAN, -1.0],  # a number, or None for what follows from the data
}


def test_a_setting_that_is_none_is_refused_in_one_line() -> None:
    # In a process of its own: here the annotations of methods are checked first, which users do not have.
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == []
    assert int(done.stdout.splitlines()[0]) > 200


def refusals() -> list[tuple[str, str]]:
    """For every wrong value of every setting, what must be said and what is said."""
    found = []
    for method in map(methods.get, methods.names()):
        for field in dataclasses.fields(method()):
            for value in NEVER[type(field.default)]:
                try:
                    said = f"nothing of {value!r}" if method(**{field.name: value}) else ""
                except ModelError as problem:
                    said = str(problem)
                except Exception as problem:
                    said = f"{type(problem).__name__}: {problem}"
                found.append((f"{method.__name__}: {field.name} must be .*, not .*", said))
    return found


@pytest.mark.parametrize("name", methods.names())
def test_what_a_method_says_of_itself_is_accepted(name: str) -> None:
    method = methods.get(name)
    own = {field.name: field.default for field in dataclasses.fields(method())}
    assert method(**own) == method()


if __name__ == "__main__":
    pairs = refusals()
    print(len(pairs))
    print(*(f"{wanted} | {said}" for wanted, said in pairs if not re.fullmatch(wanted, said)), sep="\n", end="")
