"""The last query's attention, independent task: constructions and trained models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import _attention as panels
from figures import _circuit as circuit
from figures.rows import Row, nearest
from figures.verdict import Check, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:mech_indep"
ANALYSES = ("construction_attention", "attention")
CLAIM = (
    "On the independent task hard matching attends to exact matches only (counting), finite beta spreads over partial "
    "matches (interpolation), and hard matching with BOS attends to exact matches and BOS (add-alpha). The trained "
    "transformers reproduce the construction's attention, both without and with BOS."
)
LENGTH = 64
PARTS = {  # of the claim, by what is shown
    **dict.fromkeys(("hard", "adaptive", "bos"), "for the constructions"),
    "nobos_trained": "for training without BOS",
    "bos_trained": "for training with BOS",
}
NAMES = {  # in words
    "hard": "construction, hard",
    "adaptive": "construction, adaptive beta",
    "bos": "construction with BOS",
    "nobos_trained": "trained without BOS",
    "bos_trained": "trained with BOS",
}
TRAINED = {"nobos": {"bos": False}, "bos": {"bos": True}}


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The three constructions, and the trained disentangled model without and with BOS."""
    found = [
        nearest(results["attention"], LENGTH, family="disentangled", prior="independent", **words)
        for words in TRAINED.values()
    ]
    return {
        "construction_attention": [circuit.kept(row) for row in results["construction_attention"]],
        "attention": [circuit.kept(row) for row in found if row is not None],
    }


def rows_of(results: dict[str, list[Row]]) -> dict[str, Row]:
    """hard, adaptive, bos; nobos_trained, bos_trained: what is there of them."""
    rows = {row["construction"]: row for row in results["construction_attention"]}
    for row in results["attention"]:
        rows["bos_trained" if row["subject"]["bos"] else "nobos_trained"] = row
    return rows


def draw(results: dict[str, list[Row]]) -> Figure:
    rows = rows_of(results)
    order = ("hard", "adaptive", "nobos_trained", "bos", "bos_trained")
    return panels.draw_bars(
        [(title_of(name, rows.get(name)), rows.get(name), missing_words(name)) for name in order], height=6.0
    )


def title_of(name: str, row: Row | None) -> str:
    """What the panel is of."""
    length = "" if row is None else f", T = {circuit.length_of(row)}"
    titles = {
        "hard": "no BOS, construction, hard (counting)",
        "adaptive": "no BOS, construction, adaptive (interpolation)",
        "bos": r"BOS, construction, hard, $\kappa=k\beta+\ln(\alpha|V|)$ (add-$\alpha$)",
        "nobos_trained": "no BOS, trained",
        "bos_trained": "BOS, trained",
    }
    if row is not None and name in ("hard", "adaptive", "bos"):
        return rf"{titles[name]}, $\beta={row['beta'][0]:.3g}${length}"
    return titles[name] + length


def missing_words(name: str) -> str:
    """The note in place of a panel."""
    words = {
        "nobos_trained": "disentangled model, independent prior without BOS",
        "bos_trained": "disentangled model, independent prior with BOS",
    }
    return words.get(name, f"construction_attention, {name}")


def caption(results: dict[str, list[Row]]) -> str:
    rows = rows_of(results)
    if not rows:
        return "The last query's attention on the independent task: no results to show."
    words = [
        "Match attention of the last query on one sequence of the independent prior, each key coloured by its overlap "
        "with the query's context; the legends give the share of each kind. All panels share one vertical scale."
    ]
    if len({tuple(row["tokens"]) for row in rows.values()}) == 1:
        first = next(iter(rows.values()))
        words.append(
            f"All panels show the same sequence (k = {circuit.order_of(first)}, |V| = {circuit.vocab_of(first)}, "
            f"T = {circuit.length_of(first)}), whose last context has occurred {first['kinds'].count('full')} times "
            f"before."
        )
    for name, label in (("nobos_trained", "without BOS"), ("bos_trained", "with BOS")):
        if name in rows:
            words.append(f"Trained {label}: disentangled, {circuit.setting(rows[name])}.")
    if "hard" in rows:
        words.append(f"The prior has alpha = {rows['hard']['alpha']:g}.")
    return " ".join(words)


def verdict(results: dict[str, list[Row]]) -> Verdict:
    rows = rows_of(results)
    checks: dict[str, bool | Check] = {}
    measured, why = [], []
    for name, row in rows.items():
        measured.append(f"{NAMES[name]}: {circuit.masses_in_words(row)}")
    if "hard" in rows:
        full = rows["hard"]["mass"]["full"]
        checks[f"{NAMES['hard']}: all on full matches"] = Check(
            passed=full >= circuit.HARD, found=f"{full:.4f}", part=PARTS["hard"]
        )
    for name in ("adaptive", "nobos_trained"):
        if name in rows:
            checks[f"{NAMES[name]}: at least {circuit.SPREAD} on full and on partial matches"] = Check(
                passed=circuit.spreads(rows[name]), found=circuit.masses_in_words(rows[name]), part=PARTS[name]
            )
            checks[f"{NAMES[name]}: full over partial over no match, key by key"] = Check(
                passed=circuit.is_ordered(rows[name]), found=circuit.ratios_in_words(rows[name]), part=PARTS[name]
            )
    alpha = rows["bos"]["alpha"] if "bos" in rows else 1.0
    for name, error in (("bos", 1 - circuit.HARD), ("bos_trained", circuit.SHARE_ERROR)):
        if name in rows:
            share, expected = rows[name]["mass"]["bos"], circuit.expected_bos_share(rows[name], alpha)
            checks[f"{NAMES[name]}: BOS has alpha|V|/(n + alpha|V|)"] = Check(
                passed=abs(share - expected) <= error, found=f"{share:.4f}, {expected:.4f}", part=PARTS[name]
            )
            others = 1 - share - rows[name]["mass"]["full"]
            checks[f"{NAMES[name]}: the rest is on full matches"] = Check(
                passed=others <= error, found=f"{others:.4f} is elsewhere", part=PARTS[name]
            )
            measured.append(f"{NAMES[name]}: BOS {share:.4f}, alpha|V|/(n + alpha|V|) = {expected:.4f}")
    for name, twin in (("nobos_trained", "adaptive"), ("bos_trained", "bos")):
        if name in rows and twin in rows:
            distance = circuit.attention_distance(rows[name], rows[twin])
            if distance is None:
                why.append(f"{NAMES[name]}: it was shown another sequence than the construction, so it is not compared")
                continue
            checks[f"{NAMES[name]}: the construction's attention, within {circuit.ALIKE} in total variation"] = Check(
                passed=distance <= circuit.ALIKE,
                found=f"{distance:.3f}",
                part=PARTS[name],
            )
            measured.append(f"{NAMES[name]}: total variation from the construction's attention {distance:.3f}")
    if "nobos_trained" in rows:
        gap = rows["nobos_trained"]["readout_moves"]
        measured.append(f"{NAMES['nobos_trained']}: the readout moves {gap:.2f} of the attention's vote")
        if gap >= circuit.SPREAD:
            why.append(
                f"the model trained without BOS matches more sharply and smooths in its readout, which moves {gap:.2f} "
                "of the attention's vote; in the construction the readout changes nothing"
            )
    wanted = ("hard", "adaptive", "nobos_trained", "bos", "bos_trained")
    missing = [missing_words(name) for name in wanted if name not in rows] if rows else ()
    return circuit.verdict_of(checks, measured=measured, missing=missing, why=why, **headline(rows))


def headline(rows: dict[str, Row]) -> dict[str, str]:
    """How far the trained models' attention is from the constructions': a sentence and the number."""
    apart = {}
    for words, name, twin in (("without BOS", "nobos_trained", "adaptive"), ("with BOS", "bos_trained", "bos")):
        distance = circuit.attention_distance(rows[name], rows[twin]) if {name, twin} <= set(rows) else None
        if distance is not None:
            apart[words] = f"{distance:.3f} {words}"
    if not apart:
        return {}
    far = " and ".join(apart.values())
    return {
        "headline": f"On one sequence the trained model's attention differs from the construction's by {far} (total "
        "variation).",
        "number": f"trained against constructed attention, total variation: {far} (one sequence)",
    }
