"""What the figure `kl_vs_position` shows in each panel, and what it asks of the curves there, sentence by sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from figures._curves import by_length, curve, listed, models, of_kind
from figures.known_conditions import largest_box, where_heads_copy
from figures.rows import Row
from figures.verdict import Check
from models.families import drawing_order, find_family

# Parts of the claim.
WITHOUT_BOS, WITH_BOS, HIERARCHICAL = "without BOS", "with BOS", "on the hierarchical task"
CONSTRUCTIONS = "for constructions"

TRACKS = 0.10  # two curves that a reader of the paper's axis would call one
NEAR_BAYES = 0.05  # of Bayes' KL; `near-Bayes` in the paper has no number
EXACT = 1e-6  # prop:add_constant is an identity: what is left at beta = 100 is rounding
ALIKE = 0.05  # largest over smallest KL of the three families, less 1
SIGMAS = 3.0  # a difference that is no chance


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Which curves stand in one panel."""

    title: str
    kind: str
    bos: bool
    predictors: tuple[str, ...]
    constructions: bool = False  # whether trained constructions stand beside trained models

    @property
    def families(self) -> list[str]:
        """Which families to look for."""
        return [name for name in drawing_order() if self.constructions or not find_family(name).analytic]

    def rows(self, rows: list[Row]) -> list[Row]:
        """Those of this panel."""
        mine = of_kind(rows, self.kind)
        kept = [row for name in self.predictors for row in curve(mine, name)]
        return kept + [row for family in self.families for row in models(mine, family=family, bos=self.bos)]


PANELS = (
    Panel(
        title="independent prior, no BOS",
        kind="independent",
        bos=False,
        predictors=("bayes", "maximum likelihood", "hard, no BOS", "beta(t), no BOS"),
    ),
    Panel(
        title="independent prior, BOS",
        kind="independent",
        bos=True,
        predictors=("bayes", "maximum likelihood", "hard, BOS"),
    ),
    Panel(
        title="hierarchical prior, BOS",
        kind="hierarchical",
        bos=True,
        predictors=("bayes", "add-0.1", "add-0.5", "add-1", "add-alpha, tuned"),
        constructions=True,
    ),
)
ADD_ALPHA = ("add-0.1", "add-0.5", "add-1", "add-alpha, tuned")


Judged = tuple[dict[str, Check], list[str]]


def judge(rows: list[Row], copy_rows: Sequence[Row]) -> Judged:
    """Each sentence of the paper's caption, at every length that is there; `copy_rows` are those of `copy_heads`."""
    checks: dict[str, Check] = {}
    measured: list[str] = []
    for found, numbers in (
        judge_hard(rows),
        judge_adaptive(rows),
        judge_trained(rows, copy_rows),
        judge_bos(rows),
        judge_hierarchical(rows),
    ):
        checks |= found
        measured += numbers
    return checks, measured


def judge_hard(rows: list[Row]) -> Judged:
    """beta = 100 against maximum likelihood."""
    mine = PANELS[0].rows(rows)
    other = {row["length"]: row for row in curve(mine, "maximum likelihood")}
    apart = {
        row["length"]: row["kl"] / other[row["length"]]["kl"] - 1
        for row in curve(mine, "hard, no BOS")
        if row["length"] in other
    }
    if not apart:
        return {}, []
    far = [length for length, value in apart.items() if abs(value) > TRACKS]
    worst = max(apart, key=lambda length: abs(apart[length]))
    name = f"construction without BOS: beta = 100 is within {TRACKS:.0%} of maximum likelihood at every T"
    why = f"; not at T = {listed(far)}: contexts are often new there, it backs off, and maximum likelihood is uniform"
    lengths = [{"length": length} for length in apart]
    check = Check(
        passed=not far,
        found=f"{apart[worst]:+.1%} at T = {worst}" + (why if far else ""),
        where=largest_box(lengths, lambda row: row["length"] not in far, {"length": "T >="}) or "",
        part=CONSTRUCTIONS,
    )
    return {name: check}, [f"beta = 100 against maximum likelihood: at most {apart[worst]:+.1%} (T = {worst})"]


def judge_adaptive(rows: list[Row]) -> Judged:
    """beta(t) against Bayes: nearer and nearer, and near in the end."""
    found = curve(PANELS[0].rows(rows), "beta(t), no BOS")
    if len(found) < 2:
        return {}, []
    first, last = found[0], found[-1]
    numbers = (
        f"beta(t) over Bayes: {first['excess_share']:+.1%} at T = {first['length']}, "
        f"{last['excess_share']:+.1%} at T = {last['length']}"
    )
    shrinks = last["excess_share"] < first["excess_share"] - SIGMAS * (
        first["excess_share_stderr"] + last["excess_share_stderr"]
    )
    near = last["excess_share"] <= NEAR_BAYES
    return {
        "construction without BOS: beta(t) comes nearer to Bayes with T": Check(
            passed=shrinks, found=numbers, part=CONSTRUCTIONS
        ),
        f"construction without BOS: beta(t) is within {NEAR_BAYES:.0%} of Bayes at T = {last['length']}": Check(
            passed=near, found=f"{last['excess_share']:+.1%}", part=CONSTRUCTIONS
        ),
    }, [numbers]


def judge_trained(rows: list[Row], copy_rows: Sequence[Row]) -> Judged:
    """Trained models under the independent prior, each run for itself."""
    checks: dict[str, Check] = {}
    numbers = []
    for panel in PANELS[:2]:
        found = models(panel.rows(rows))
        if not found:
            continue
        words = "with BOS" if panel.bos else "without BOS"
        far = [row for row in found if not near_bayes(row)]
        shares = [row["excess_share"] for row in found]
        runs = listed(f"{run_name(row)} {row['excess_share']:+.0%}" for row in far)
        checks[f"every trained model {words} is within {NEAR_BAYES:.0%} of Bayes"] = Check(
            passed=not far,
            found=f"{max(shares):+.1%} at most" + (f"; not {len(far)} of {len(found)}: {runs}" if far else ""),
            where=where_heads_copy(found, copy_rows, met=near_bayes, name=run_name)
            or largest_box(found, near_bayes, {"length": "T >="})
            or "",
            part=WITH_BOS if panel.bos else WITHOUT_BOS,
        )
        numbers.append(
            f"trained {words} over Bayes: median {median(shares):+.2%}, {min(shares):+.2%} to {max(shares):+.2%} "
            f"({len(found)} runs)"
        )
    return checks, numbers


def near_bayes(row: Row) -> bool:
    return bool(row["excess_share"] <= NEAR_BAYES)


def run_name(row: Row) -> str:
    return f"T = {row['length']} seed {row['subject']['seed']}"


def judge_bos(rows: list[Row]) -> Judged:
    """The construction with BOS at beta = 100."""
    shares = [abs(row["excess_share"]) for row in curve(PANELS[1].rows(rows), "hard, BOS")]
    if not shares:
        return {}, []
    told = f"beta = 100 with BOS over Bayes: at most {max(shares):.0e}"
    name = "construction with BOS: beta = 100 is Bayes"
    return {name: Check(passed=max(shares) < EXACT, found=told, part=CONSTRUCTIONS)}, [told]


def judge_hierarchical(rows: list[Row]) -> Judged:
    """The three families against each other, and against the best add-alpha."""
    mine = PANELS[2].rows(rows)
    found = models(mine)
    if not found:
        return {}, []
    checks: dict[str, Check] = {}
    numbers = []
    ratios: dict[int, float] = {}
    for length, group in by_length(found).items():
        families = {row["subject"]["family"] for row in group}
        middles = [median(row["kl"] for row in group if row["subject"]["family"] == family) for family in families]
        if len(middles) > 1:
            ratios[length] = max(middles) / min(middles) - 1
    if ratios:
        worst = max(ratios, key=lambda length: ratios[length])
        checks[f"the families' KLs are within {ALIKE:.0%} of each other"] = Check(
            passed=ratios[worst] <= ALIKE,
            found=f"{ratios[worst]:.1%} at T = {worst}",
            where=largest_box(
                [{"length": length} for length in ratios],
                lambda row: ratios[row["length"]] <= ALIKE,
                {"length": "T <="},
            )
            or "",
            part=HIERARCHICAL,
        )
        numbers.append(f"families apart by at most {ratios[worst]:.1%} of KL (T = {worst})")
    margins = margins_of(mine)
    if margins:
        unsure = [row for row in found if not beats_add_alpha(row)]
        runs = listed(f"{row['subject']['family']} {run_name(row)}" for row in unsure)
        checks[f"every model beats every add-alpha by more than {SIGMAS:g} standard errors"] = Check(
            passed=not unsure,
            found=f"KL {min(margins):.0%} to {max(margins):.0%} below" + f"; not surely {runs}" * bool(unsure),
            where=largest_box(found, beats_add_alpha, {"length": "T <="}) or "",
            part=HIERARCHICAL,
        )
        numbers.append(
            f"KL below the best add-alpha, tuned for each T, by {min(margins):.0%} to {max(margins):.0%} "
            f"({len(margins)} runs)"
        )
    shares = [row["excess_share"] for row in found]
    numbers.append(f"over the Bayes predictor {min(shares):+.1%} to {max(shares):+.1%}")
    return checks, numbers


def margins_of(rows: list[Row]) -> list[float]:
    """How far each model's KL lies below that of the best add-alpha, as a share."""
    margins = []
    for length, group in by_length(models(rows)).items():
        rivals = [row["kl"] for row in rows if row["length"] == length and row["predictor"] in ADD_ALPHA]
        margins += [1 - row["kl"] / min(rivals) for row in group if rivals]
    return margins


def beats_add_alpha(row: Row) -> bool:
    """Whether a model is better than the best add-alpha beyond chance."""
    return bool(row["below_add_alpha"] > SIGMAS * row["below_add_alpha_stderr"])
