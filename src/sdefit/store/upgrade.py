"""Facts of fits that sdefit 0.1 stored (format 1), in the words of today."""

import re
from typing import Any

_WORDS = {"told": "identified", "weakly told": "weakly identified", "not told": "not identified"}
_FAILURES = {"not_told": "unidentifiable"}


def from_format_1(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts with identifiability, severities and adjusted p-values where format 1 had others or none."""
    if not isinstance(facts, dict) or facts.get("kind") != "fit":
        return facts
    facts = dict(facts)
    if isinstance(status := facts.get("status"), dict):
        name = _FAILURES.get(str(status.get("name")), status.get("name"))
        facts["status"] = {"severity": "ok" if name == "ok" else "failure"} | status | {"name": name}
        facts.setdefault("checks", [] if name == "ok" else [facts["status"]])
    if isinstance(known := facts.get("intervals"), dict) and isinstance(words := known.get("verdicts"), list):
        rest = {name: value for name, value in known.items() if name != "verdicts"}
        facts["intervals"] = rest | {"identifiability": [_WORDS.get(str(word), word) for word in words]}
        for name in ("sentences", "notes"):
            if isinstance(said := known.get(name), list):
                facts["intervals"][name] = [_said(one) if isinstance(one, str) else one for one in said]
    if isinstance(known := facts.get("diagnosis"), dict) and isinstance(rows := known.get("checks"), list):
        # One check at a time was tested at 1 %: its own p-value is the one it was judged by.
        rows = [{"adjusted": row.get("p")} | row if isinstance(row, dict) else row for row in rows]
        facts["diagnosis"] = known | {"checks": rows}
    return facts


def _said(sentence: str) -> str:
    return re.sub(r"\b(weakly |not )?told\b", lambda found: _WORDS[found[0]], sentence)
