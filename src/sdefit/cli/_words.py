"""Messages of the library, which name arguments of Python, in the words of a command line."""

import re

# What Python calls it → what a shell calls it. Nothing inside quotes is changed: that is the user's.
_IN_SHELL = {
    "time_unit": "--time-unit",
    "group=": "--group",
    "states=[...]": "--states",
    "name the time column": "name the time column with --time",
    "fit.intervals()": "--intervals 200",
    "fit.states(times) is for others": "give later times",
    "sf.fixed(value)": "NAME = VALUE under [parameters] of the model file",
    "sf.real()": "NAME = {} under [parameters] of the model file",
    "another key": "another --seed",
    "pass G=...": "give --G",
}
_PATTERN = re.compile("|".join(rf"(?<!['\"\w]){re.escape(word)}(?!['\"\w])" for word in _IN_SHELL))


def in_shell(text: str) -> str:
    """A message with flags in place of arguments."""
    text = _PATTERN.sub(lambda found: _IN_SHELL[found.group()], text)
    # What a message is about comes first, and is called as its option is.
    text = re.sub(r"^(param)s must|^(x0|noise|times|G|draws|kind) must", r"--\1\2 must", text)
    return re.sub(r"\bsf\.([A-Za-z]+)\(\)", lambda found: f"--method {found.group(1).lower()}", text)
