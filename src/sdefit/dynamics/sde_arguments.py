"""The arguments of an `SDE`, checked and read."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from sdefit.data.inputs import Hold
from sdefit.dynamics.laws import LAWS, Law, Normal
from sdefit.errors import ModelError


def check_function(word: str, given: Any) -> None:
    """Refuses what cannot be called, or cannot be part of a value."""
    if not callable(given):
        raise ModelError(f"{word} must be a callable (t, x, p), not {type(given).__name__}")
    try:
        hash(given)
    except TypeError:
        # A model is the key of its compiled programs, so every part of it must be a value.
        kind = type(given).__name__
        raise ModelError(f"{word} must be a function or hashable object, but a {kind} that holds arrays came") from None


def check_names(word: str, names: Sequence[str]) -> None:
    """Refuses what is not a list of different names."""
    if isinstance(names, str):
        raise ModelError(f"{word} must be a list of names, not the string {names!r}; write [{names!r}]")
    if not isinstance(names, Sequence):
        raise ModelError(f"{word} must be a list of names, not {type(names).__name__}")
    if not names or any(not isinstance(one, str) or not one.strip() or not one.isprintable() for one in names):
        raise ModelError(f"{word} must be one or more names, each a line of text, not {list(names)!r}")
    if len(set(names)) != len(names):
        raise ModelError(f"{word} must be different names, not {list(names)}")


def check_inputs(inputs: Sequence[str], hold: Hold, taken: Sequence[str]) -> None:
    """Refuses inputs that have the name of something else, and an unknown hold."""
    if isinstance(inputs, str) or inputs:
        check_names("inputs", inputs)
    if shared := [one for one in inputs if one in taken]:
        raise ModelError(f"input {shared[0]!r} must not have the name of a state or parameter; rename one of them")
    if hold not in get_args(Hold):
        raise ModelError(f"hold must be one of {', '.join(get_args(Hold))}, not {hold!r}")


def observed_columns(
    states: Sequence[str], observe: Any, observations: Sequence[str], hidden: Sequence[str]
) -> tuple[str, ...]:
    """The names of the observed columns."""
    if observe is not None:
        check_function("observe", observe)
        if isinstance(observations, str) or not observations:
            raise ModelError("observations must name the columns that observe returns; write observations=['y']")
        check_names("observations", observations)
        if hidden:
            raise ModelError("hidden must be left out beside observe, which says what is observed")
        return tuple(observations)
    if observations:
        raise ModelError("observations must come with observe, which says what each column measures")
    if isinstance(hidden, str):
        raise ModelError(f"hidden must be a list of names, not the string {hidden!r}; write [{hidden!r}]")
    if unknown := [one for one in hidden if one not in states]:
        raise ModelError(f"hidden must name states ({', '.join(states)}), not {unknown[0]!r}")
    if not (seen := tuple(one for one in states if one not in hidden)):
        raise ModelError("hidden must leave at least one state that is observed")
    return seen


def laws_of(observed: tuple[str, ...], noise: Mapping[str, Law | str] | None) -> tuple[Law, ...]:
    """The law of each observed column: the given one, else normal with an estimated standard deviation."""
    given = {} if noise is None else noise
    if not isinstance(given, Mapping):
        raise ModelError(f"noise must map column names to laws such as sf.normal(sd=0.1), not {given!r}")
    for name, law in given.items():
        if name not in observed:
            raise ModelError(f"noise must name observed columns ({', '.join(observed)}), not {name!r}")
        if isinstance(law, str) and law not in LAWS:
            raise ModelError(f"the law of {name!r} must be one of {', '.join(LAWS)}, not {law!r}")
        if not isinstance(law, Law | str):
            raise ModelError(f"the law of {name!r} must be a law such as sf.normal(sd=0.1), not {law!r}")
    laws = tuple(LAWS[one]() if isinstance(one := given.get(name, Normal()), str) else one for name in observed)
    if text := [law.sd for law in laws if isinstance(law.sd, str)]:
        raise ModelError(
            f"sd must be a number or a callable (t, x, p) in sf.SDE, not {text[0]!r}; text is for equations"
        )
    return laws


def initial_of(states: tuple[str, ...], given: Any) -> Any:
    """What is known of where the states begin: a word, (name, mean, standard deviation) each, or None."""
    if given is None or given in ("rest", "stationary"):
        return given
    if not isinstance(given, Mapping):
        raise ModelError(f"initial must be 'rest', 'stationary' or a mapping of states to numbers, not {given!r}")
    if unknown := [one for one in given if one not in states]:
        raise ModelError(f"initial must name states ({', '.join(states)}), not {unknown[0]!r}")
    return tuple((name, *_mean_and_spread(name, given[name])) for name in states if name in given) or None


def _mean_and_spread(name: str, given: Any) -> tuple[float, float]:
    pair = given if isinstance(given, tuple | list) else (given, 0.0)
    try:
        mean, std = (float(one) for one in pair)
    except (TypeError, ValueError):
        raise ModelError(
            f"initial of {name!r} must be a number, or a mean and a standard deviation, not {given!r}"
        ) from None
    if not (np.isfinite(mean) and np.isfinite(std) and std >= 0):
        raise ModelError(f"initial of {name!r} must be finite with a standard deviation of zero or more, not {given!r}")
    return mean, std
