"""A verdict in words: the sentence, the starts it rests on, and the number that decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analyses.claims.quantities import QUANTITIES
from analyses.claims.records import YES, Finding, Group, Word

START_WORDS = {
    "hard": "from hard copies",
    "soft": "from random or soft starts",
    "free": "with kappa free",
    "kappa_fixed": "with kappa fixed",
    "kappa_tied": "with kappa tied",
    "unknown": "from a start that is not recorded",
}
PROTOCOL_WORDS = {
    "paper": "by the paper's protocol",
    "annealed": "annealed",
    "paper_changed": "by the paper's protocol with fewer steps or another rate",
    "long": "annealed with five times the steps",
}
AFTER_DATA = "*"
LEGEND = f"{AFTER_DATA} The threshold, or the rule that most of the runs decide, was set after results were seen."
STUDIED = ("disentangled", "")  # the family of the study of conditions
MOST_LENGTHS = 3  # that are said one by one
RULES = ("free", "kappa_fixed", "kappa_tied")  # the starts of a construction: how kappa is set
ALTERNATIVES = {
    "reading": "kappa is",
    "rule": "kappa is",
}  # what splits rows into alternatives other than the start, in words


class Outcome(NamedTuple):
    """What a part of a claim comes to: met, where, unmet, unknown or measured; with its condition or its reason."""

    kind: str
    words: str = ""


RANK = ("unmet", "where", "unknown", "met", "measured")  # of the needs of one part, the first of these counts


def start_words(start: str) -> str:
    return START_WORDS.get(start, f"from {start}")


def basis(finding: Finding) -> list[Group]:
    """The groups that a verdict rests on: of each family the start nearest to the paper's; all other alternatives."""
    if finding.need.by != "start":
        return list(finding.groups)
    return [next(iter(mine)) for mine in _by_family(finding.groups).values()]


def outcome_of(finding: Finding, group: Group) -> Outcome:
    """What one group says of its part, with the condition under which it is met."""
    if group.state in ("met", "measured") and not group.why:
        return Outcome(group.state)
    if group.state in ("met", "measured", "unsure", "missing"):
        return Outcome("unknown", group.why or "within one standard error of the threshold")
    if group.where:
        return Outcome("where", group.where)
    others = [one for one in finding.groups if one.family == group.family and one.state == "met"]
    if others and finding.need.by == "start":
        return Outcome("where", " or ".join(start_words(one.start) for one in others))
    if others:
        return Outcome(
            "where",
            f"{ALTERNATIVES[finding.need.by]} " + " or ".join(one.start.removeprefix("kappa_") for one in others),
        )
    told = finding.condition and group.family in STUDIED
    return Outcome("where", finding.condition) if told else Outcome("unmet")


def sentence(outcomes: Mapping[str, Outcome]) -> tuple[Word, str]:
    """The word, and the verdict in a sentence: what does not hold, what does, under which condition, what is unknown.

    >>> sentence({"for the copies": Outcome("met"), "for the blocks": Outcome("where", "T >= 64")})
    ('holds where', 'holds for the copies; for the blocks where T >= 64')
    """
    groups: dict[Outcome, list[str]] = {}
    for label, outcome in outcomes.items():
        groups.setdefault(outcome, []).append(label)
    kinds = {outcome.kind for outcome in groups}
    if kinds == {"measured"}:
        return "not judged", "measured"
    word: Word = (
        "does not hold" if "unmet" in kinds else "holds where" if "where" in kinds else
        "cannot tell" if "unknown" in kinds else "holds"
    )  # fmt: skip
    said = []
    for outcome, labels in groups.items():
        names = named(labels)
        if outcome.kind == "unmet":
            said.append((0, f"does not hold {names}".rstrip()))
        elif outcome.kind == "met":
            said.append((1, f"holds {names}".rstrip()))
        elif outcome.kind == "where":
            said.append((2, f"holds {names} where {outcome.words}".replace("  ", " ").replace("where from", "from")
                         .replace("where with", "with")))  # fmt: skip
        elif outcome.kind == "unknown":
            said.append((3, f"cannot tell {names}: {outcome.words}".replace(" : ", ": ")))
    says = "; ".join(words for _, words in sorted(said))
    first, *rest = says.split("; holds ")
    return word, first + "".join(f"; {one}" if first.startswith("holds") else f"; holds {one}" for one in rest)


def named(parts: Iterable[str]) -> str:
    """Parts in a row: `in a, b and c`; a preposition that all share is said once."""
    names = [name for name in parts if name]
    if not names:
        return ""
    first = names[0].partition(" ")[0]
    shared = len(names) > 1 and all(name.startswith(f"{first} ") for name in names)
    words = [names[0], *(name.removeprefix(f"{first} ") if shared else name for name in names[1:])]
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])


def labelled(told: Mapping[tuple[str, str], Outcome]) -> dict[str, Outcome]:
    """Outcomes by part; by part and family where families differ."""
    parts: dict[str, dict[str, Outcome]] = {}
    for (part, family), outcome in told.items():
        parts.setdefault(part, {})[family] = outcome
    found = {}
    for part, families in parts.items():
        if len(set(families.values())) == 1:
            found[part] = next(iter(families.values()))
        else:
            found |= {f"{part} ({family})" if part else f"for {family} models": one for family, one in families.items()}
    return found


def beside(findings: Iterable[Finding]) -> list[str]:
    """What was found from other starts than those that the verdict rests on."""
    starts: dict[str, dict[tuple[str, str], list[Outcome]]] = {}
    for finding in findings:
        others = _by_family(finding.groups).items() if finding.need.by == "start" else ()
        for group in (group for _, groups in others for group in groups[1:] if group.state in ("met", "unmet")):
            told = starts.setdefault(group.start, {}).setdefault((finding.need.part, group.family), [])
            told.append(Outcome(group.state))
    words = []
    for start, outcomes in starts.items():
        labels = labelled({key: strongest(mine) for key, mine in outcomes.items()})
        failed = [label for label, outcome in labels.items() if outcome.kind == "unmet"]
        words.append(f"{start_words(start)} {f'not {named(failed)}'.rstrip() if failed else 'too'}")
    return words


def deciding_number(findings: Sequence[Finding]) -> str:
    """The number that decides: of the first need that is not met, else of the first; of its groups the worst."""
    ranked = [
        (min(RANK.index(outcome_of(finding, group).kind), RANK.index("met")), place, group.margin, finding, group)
        for place, finding in enumerate(findings)
        for group in basis(finding)
    ]
    *_, finding, group = min(ranked, key=lambda one: one[:3])
    quantity = QUANTITIES[finding.need.quantity]
    if group.state == "missing":
        return group.why
    mark = AFTER_DATA if finding.need.after_data(quantity) else ""
    required = f" ({quantity.required}{mark})" if quantity.required else mark
    return f"{quantity.words}{':' if quantity.form == YES else ''} {group.worst}{required}"


def basis_in_words(groups: Sequence[Group], free: Sequence[Group]) -> str:
    """From which start, by which protocol and at which lengths the runs were trained that a verdict rests on.

    free    those of the groups whose lengths no need has set: their lengths are said
    """
    starts = dict.fromkeys(start_words(group.start) for group in groups if group.start)
    protocols = {protocol for group in groups if group.start not in RULES for protocol in group.protocols}
    known = [words for name, words in PROTOCOL_WORDS.items() if name in protocols]
    how = ", else ".join([*known, *(f"by {name}" for name in sorted(protocols - set(PROTOCOL_WORDS)))])
    words = "; ".join(filter(None, (", ".join(filter(None, (" and ".join(starts), how))), lengths_in_words(free))))
    return f" ({words})" if words else ""


def lengths_in_words(groups: Iterable[Group]) -> str:
    """The lengths of the runs; of each family where families differ.

    >>> runs = [Group(family="a", start="hard", state="met", lengths=found) for found in ((32, 64), (32,))]
    >>> lengths_in_words(runs), lengths_in_words([*runs, Group(family="b", start="soft", state="met", lengths=(64,))])
    ('T = 32, 64', 'a T = 32, 64, b T = 64')
    """
    found: dict[str, set[int]] = {}
    for group in groups:
        if group.lengths:
            found.setdefault(group.family, set()).update(group.lengths)
    told = {family: some_lengths(sorted(lengths)) for family, lengths in found.items()}
    return next(iter(told.values())) if len(set(told.values())) == 1 else ", ".join(
        f"{family} {words}" for family, words in told.items()
    )  # fmt: skip


def some_lengths(lengths: Sequence[int]) -> str:
    few = len(lengths) <= MOST_LENGTHS
    return (
        f"T = {', '.join(map(str, lengths))}"
        if few
        else f"{len(lengths)} lengths from T = {lengths[0]} to {lengths[-1]}"
    )


def strongest(outcomes: Sequence[Outcome]) -> Outcome:
    kind = min((one.kind for one in outcomes), key=RANK.index)
    return Outcome(kind, " and ".join(dict.fromkeys(one.words for one in outcomes if one.kind == kind and one.words)))


def _by_family(groups: Iterable[Group]) -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.family, []).append(group)
    return found
