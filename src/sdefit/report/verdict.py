"""The verdict on a fit, from its record: what is identified, what is not, and all that objects."""

import re
from collections.abc import Mapping
from typing import Any

from sdefit.report.page import Group, Verdict, as_number, number
from sdefit.store import Record

_GROUPS = {
    "identified": ("Estimated well", "good"),
    "weakly identified": ("Estimated roughly", "caution"),
    "not identified": ("Not identified by these data", "bad"),
}


def status(facts: Mapping[str, Any]) -> dict[str, str]:
    """How a fit went: its name, its message, what to do, and whether that is ok, a warning or a failure."""
    known = facts["status"]
    return {name: str(known.get(name, "")) for name in ("name", "message", "remedy", "severity")}


def identifiability(record: Record) -> dict[str, str]:
    """For each quantity whether it is identified, weakly identified or not identified; empty without intervals."""
    known = record.facts.get("intervals") or {}
    return dict(zip(known.get("names", ()), known.get("identifiability", ()), strict=True))


def verdict(record: Record, sentence: str = "") -> Verdict:
    """The verdict on one fit; it is good only if nothing objects."""
    said, words = status(record.facts), identifiability(record)
    groups, objections, remarks = _groups(record, words), _objections(record), _remarks(record)
    if said["severity"] == "failure":
        return Verdict("bad", said["message"], sentence, said["remedy"], groups, objections, remarks)
    well = next((len(group.items) for group in groups if group.tone == "good"), 0)
    of = sum(len(group.items) for group in groups)
    counts = [f"{well} of {of} quantities {'is' if well == 1 else 'are'} estimated well"] if of else []
    if objections:
        counts.append(f"{len(objections)} {'check objects' if len(objections) == 1 else 'checks object'}")
    headline = " ".join([said["message"], _sentence(counts)]).strip()
    tone = "good" if well == of > 0 and not objections and not remarks else "caution"
    return Verdict(tone, headline, " ".join([*_unknown(record, of), sentence]).strip(), "", groups, objections, remarks)


def _unknown(record: Record, assessed: int) -> list[str]:
    """What has not been looked at."""
    said = [] if assessed else ["No intervals were computed, so how well each quantity is known is not known."]
    return said + ([] if record.facts.get("diagnosis") else ["The residuals were not checked."])


def _sentence(parts: list[str]) -> str:
    return f"{', and '.join(parts)}." if parts else ""


def _remarks(record: Record) -> list[str]:
    """What is known of identifiability beyond each quantity by itself, which the groups say."""
    said = (record.facts.get("intervals") or {}).get("sentences") or ()
    return [one for one in map(str, said) if not re.match(r"`[^`]*` is (weakly|not) identified", one)]


def _groups(record: Record, words: Mapping[str, str]) -> list[Group]:
    """The quantities of the summary by how well they are identified, each with its estimate and interval."""
    found: dict[str, list[str]] = {word: [] for word in _GROUPS}
    for row in record.facts.get("summary") or ():
        word = words.get(row["quantity"])
        if word in found:
            found[word].append(f"{row['quantity']} = {_with_interval(row)}")
    return [Group(*_GROUPS[word], items) for word, items in found.items() if items]


def _with_interval(row: Mapping[str, Any]) -> str:
    estimate, lower, upper = (number(as_number(row.get(name)), 3) for name in ("estimate", "lower", "upper"))
    return f"{estimate} ({lower} to {upper})"


def _objections(record: Record) -> list[str]:
    """What the checks of the fit and of its residuals object to, each once."""
    facts = record.facts
    said = [f"{one['message']} {one.get('remedy', '')}".strip() for one in facts.get("checks") or ()]
    said += (facts.get("diagnosis") or {}).get("hints") or ()
    return list(dict.fromkeys(map(str, said)))
