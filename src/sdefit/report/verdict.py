"""The verdict on a fit, from its record: what is identified, what is not, and all that objects.

This is the one place that reads the words of a stored result. Results of sdefit 0.1 said "told" where we say
"identified".
"""

import re
from collections.abc import Mapping
from typing import Any

from sdefit.report.page import Group, Verdict, as_number, number
from sdefit.store import Record

_TOLD = {"told": "identified", "weakly told": "weakly identified", "not told": "not identified"}
_STATUS = {"not_told": "unidentifiable"}
_GROUPS = {
    "identified": ("Estimated well", "good"),
    "weakly identified": ("Estimated roughly", "caution"),
    "not identified": ("Not identified by these data", "bad"),
}


def status(facts: Mapping[str, Any]) -> dict[str, str]:
    """How a fit went: its name, its message and what to do."""
    known = facts["status"]
    name = str(known["name"])
    message, remedy = str(known.get("message", "")), str(known.get("remedy", ""))
    return {"name": _STATUS.get(name, name), "message": message, "remedy": remedy}


def identifiability(record: Record) -> dict[str, str]:
    """For each quantity whether it is identified, weakly identified or not identified; empty without intervals."""
    known = record.facts.get("intervals") or {}
    words = known.get("identifiability") or known.get("verdicts") or ()
    return {
        str(name): _TOLD.get(str(word), str(word)) for name, word in zip(known.get("names", ()), words, strict=True)
    }


def _today(sentence: str) -> str:
    return re.sub(r"\b(weakly |not )?told\b", lambda found: _TOLD[found[0]], sentence)


def verdict(record: Record, sentence: str = "") -> Verdict:
    """The verdict on one fit; it is good only if nothing objects."""
    said, words = status(record.facts), identifiability(record)
    groups, objections, remarks = _groups(record, words), _objections(record), _remarks(record)
    if said["name"] != "ok":
        return Verdict("bad", said["message"], sentence, said["remedy"], groups, objections, remarks)
    well = next((len(group.items) for group in groups if group.tone == "good"), 0)
    of = sum(len(group.items) for group in groups)
    counts = [f"{well} of {of} quantities {'is' if well == 1 else 'are'} estimated well"] if of else []
    if objections:
        counts.append(f"{len(objections)} {'check objects' if len(objections) == 1 else 'checks object'}")
    headline = " ".join([said["message"], _sentence(counts)]).strip()
    tone = "good" if well == of > 0 and not objections and not remarks else "caution"
    return Verdict(tone, headline, " ".join([*_unknown(record, of), sentence]).strip(), "", groups, objections, remarks)


def _unknown(record: Record, judged: int) -> list[str]:
    """What has not been looked at."""
    said = [] if judged else ["No intervals were computed, so how well each quantity is known is not known."]
    return said + ([] if record.facts.get("diagnosis") else ["The residuals were not checked."])


def _sentence(parts: list[str]) -> str:
    return f"{', and '.join(parts)}." if parts else ""


def _remarks(record: Record) -> list[str]:
    """What is known of identifiability beyond each quantity by itself, which the groups say."""
    said = (record.facts.get("intervals") or {}).get("sentences") or ()
    return [one for one in map(_today, map(str, said)) if not re.match(r"`[^`]*` is (weakly|not) identified", one)]


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
    checks = facts["status"].get("checks") or ()
    said = [f"{one.get('message', '')} {one.get('remedy', '')}".strip() for one in checks if not one.get("ok")]
    said += (facts.get("diagnosis") or {}).get("hints") or ()
    return list(dict.fromkeys(_today(str(one)) for one in said))
