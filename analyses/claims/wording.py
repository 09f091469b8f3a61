"""A verdict in words: the sentence, the number that decides, the runs it rests on, and what other starts give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from analyses.claims.quantities import QUANTITIES
from analyses.claims.records import SET_AFTER_DATA, YES, Finding, Group, Need, Word

START_WORDS = {
    "hard": "hard copies",
    "soft": "random or soft starts",
    "copy8": "copy(8)",
    "unknown": "a start that is not recorded",
}
RULES = {"free": "kappa free", "kappa_fixed": "kappa fixed", "kappa_tied": "kappa tied"}  # starts of a construction
PROTOCOL_WORDS = {
    "paper": "paper's protocol",
    "annealed": "annealed",
    "paper_changed": "paper's protocol with fewer steps or another rate",
    "long": "annealed with five times the steps",
}
AFTER_DATA = "*"
LEGEND = f"{AFTER_DATA} The threshold, or the rule that most of the runs decide, was set after results were seen."
MOST_LENGTHS = 3  # that are said one by one
RANK: tuple[Word, ...] = ("does not hold", "holds where", "cannot tell", "holds", "not judged")  # the first counts
ORDER: tuple[Word, ...] = ("does not hold", "holds", "holds where", "cannot tell")  # of clauses

Outcomes = Mapping[tuple[str, str], tuple[Word, str]]  # by part and family: the word, and its condition or reason


def start_words(start: str) -> str:
    return {**START_WORDS, **RULES}.get(start, start)


def alternatives(starts: Sequence[str], *, by: str) -> str:
    """The condition that one of these alternatives is: other starts, or how kappa is set."""
    if by == "start":
        return f"from {' or '.join(map(start_words, starts))}"
    return f"where kappa is {' or '.join(one.removeprefix('kappa_') for one in starts)}"


def no_such_run(need: Need, name: str) -> str:
    """Why there is nothing to judge: of what there is no run."""
    if need.by != "start":
        return f"no run with {start_words(name)}"
    if need.part or not {"prior", "bos"} <= set(need.rows):  # the part says which run
        return f"no such row in {need.table}"
    return f"no run on the {need.rows['prior']} task {'with' if need.rows['bos'] else 'without'} BOS"


def strongest(groups: Iterable[Group]) -> tuple[Word, str]:
    """What groups of one part come to: the word that counts, with the conditions or reasons of all that have it."""
    groups = list(groups)
    word = min((group.word for group in groups), key=RANK.index)
    reasons = dict.fromkeys(group.why for group in groups if group.word == word and group.why)
    return word, " and ".join(reasons) if word in ("holds where", "cannot tell") else ""


def by_part(findings: Sequence[Finding], groups: Sequence[Sequence[Group]]) -> Outcomes:
    """The outcome of each part of the claim, in each family."""
    found: dict[tuple[str, str], list[Group]] = {}
    several = len({finding.need.part for finding in findings}) > 1  # a part is said where there are several
    for finding, mine in zip(findings, groups, strict=True):
        for group in mine:
            found.setdefault((finding.need.part if several else "", group.family), []).append(group)
    return {key: strongest(mine) for key, mine in found.items()}


def sentence(findings: Sequence[Finding]) -> tuple[Word, str]:
    """The word, and a clause for each outcome."""
    outcomes = by_part(findings, [finding.groups for finding in findings])
    word = min((word for word, _ in outcomes.values()), key=RANK.index)
    if word == "not judged":
        return word, "measured"
    return word, clauses(outcomes)


def clauses(outcomes: Outcomes) -> str:
    """
    >>> clauses({("for the copies", ""): ("holds", ""), ("for the blocks", ""): ("holds where", "where T >= 64")})
    'holds for the copies; holds for the blocks where T >= 64'
    >>> clauses({("", "a"): ("holds", ""), ("", "b"): ("holds", ""), ("", "c"): ("cannot tell", "no run")})
    'holds for a and b models; cannot tell for c models: no run'
    """
    known = dict.fromkeys(one for one in outcomes.values() if one[0] in ORDER)
    told = sorted(known, key=lambda one: ORDER.index(one[0]))
    lines = []
    for word, why in told:
        names = labels([key for key, one in outcomes.items() if one == (word, why)], outcomes) if told[1:] else ""
        first = f"{word.removesuffix(' where')} {names}".rstrip()
        lines.append(f"{first}: {why}" if word == "cannot tell" else f"{first} {why}".rstrip())
    return "; ".join(lines)


def labels(keys: Sequence[tuple[str, str]], every: Iterable[tuple[str, str]]) -> str:
    """These parts in a row; with their families where not all families of a part are among them."""
    families: dict[str, list[str]] = {}
    for part, family in keys:
        families.setdefault(part, []).append(family)
    names = []
    for part, mine in families.items():
        whole = len(mine) == sum(other == part for other, _ in every)
        names.append(part if whole else f"{part} ({', '.join(mine)})" if part else f"for {listed(mine)} models")
    return listed([name for name in names if name])


def listed(words: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])


def deciding_number(findings: Sequence[Finding]) -> str:
    """The number that decides: of the first need that does not hold, else of the first; of its groups the worst.

    Of what holds under a condition: the number where the condition is met, then the one elsewhere.
    """
    ranked = [
        (min(RANK.index(group.word), RANK.index("holds")), place, group.margin, finding, group)
        for place, finding in enumerate(findings)
        for group in finding.groups
    ]
    *_, finding, group = min(ranked, key=lambda one: one[:3])
    if not group.value:
        return group.why
    quantity = QUANTITIES[finding.need.quantity]
    after = quantity.bound is not None and (quantity.after_data or finding.need.quantifier in SET_AFTER_DATA)
    mark = AFTER_DATA if after else ""
    value = f"{group.held}, else {group.value}" if group.held else group.value
    required = f" ({quantity.required}{mark})" if quantity.required else mark
    return f"{value}{required}{':' if quantity.form == YES else ''} {quantity.words}"


def trained_groups(findings: Iterable[Finding]) -> list[Group]:
    """The groups of trained runs; of constructions where there are no others."""
    groups = [group for finding in findings if finding.need.by == "start" for group in finding.groups]
    known = [group for group in groups if group.value]
    return [group for group in known if group.start not in RULES] or known


def runs_in_words(groups: Sequence[Group]) -> str:
    """From which start, by which protocol and at which lengths the runs were trained that a verdict rests on."""
    told = []
    for start in dict.fromkeys(group.start for group in groups):
        mine = [group for group in groups if group.start == start]
        protocols = {protocol for group in mine for protocol in group.protocols} if start not in RULES else set()
        known = [words for name, words in PROTOCOL_WORDS.items() if name in protocols]
        how = " else ".join([*known, *sorted(protocols - set(PROTOCOL_WORDS))])
        told.append(", ".join(filter(None, (start_words(start), how, lengths_in_words(mine)))))
    return "; ".join(told)


def others_in_words(findings: Sequence[Finding]) -> str:
    """What was found from other starts than those that the verdict rests on."""
    told = []
    for start in dict.fromkeys(group.start for finding in findings for group in finding.others):
        groups = [[one for one in finding.others if one.start == start] for finding in findings]
        outcomes = by_part(findings, groups)
        failed = [key for key, (word, _) in outcomes.items() if word in ("does not hold", "holds where")]
        known = [key for key, (word, _) in outcomes.items() if word == "holds"]
        if failed or known:
            words = f"not {labels(failed, outcomes)}".rstrip() if failed else "too"
            told.append(f"{start_words(start)}: {words}")
    return "; ".join(told)


def lengths_in_words(groups: Iterable[Group]) -> str:
    """The lengths of the runs; of each family where families differ.

    >>> runs = [Group(family="a", start="hard", word="holds", lengths=found) for found in ((32, 64), (32,))]
    >>> other = Group(family="b", start="hard", word="holds", lengths=(64,))
    >>> lengths_in_words(runs), lengths_in_words([*runs, other])
    ('T = 32, 64', 'a T = 32, 64, b T = 64')
    """
    found: dict[str, set[int]] = {}
    for group in groups:
        if group.lengths:
            found.setdefault(group.family, set()).update(group.lengths)
    told = {family: some_lengths(sorted(lengths)) for family, lengths in found.items()}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return ", ".join(f"{family} {words}" for family, words in told.items())


def some_lengths(lengths: Sequence[int]) -> str:
    if len(lengths) <= MOST_LENGTHS:
        return f"T = {commas(lengths)}"
    return f"{len(lengths)} lengths, T = {lengths[0]} to {lengths[-1]}"


def commas(numbers: Iterable[object]) -> str:
    return ", ".join(map(str, numbers))
