"""Puts the explorer together: scripts, style, and the rows of the analysis `explorer`, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from analyses.running.files import write_file
from analyses.running.table import Table
from figures.page.templates import render
from figures.parts.rows import analytic, of_one_start
from interp.notation import as_tokens, check_order, check_vocab
from interp.outside import one_line
from models.running.command_line import BadInput
from models.running.terminal import say

FILE = "explorer.html"
ANALYSIS = "explorer"
MARK = '<meta name="generator" content="interp: python -m figures explorer">'
FOLDER = Path(__file__).parent
SCRIPTS = ("dom.js", "estimators.js", "forward.js", "words.js", "picture.js", "export.js", "app.js")
MOST_BYTES = 3_000_000
GROUPS = {
    (prior, bos): f"{prior} prior, {'' if bos else 'no '}BOS"
    for prior in ("hierarchical", "independent")
    for bos in (True, False)
}
FAMILY_ORDER = ("disentangled", "construction", "standard")  # the smallest trained models first
START_BETA, START_KAPPA = 2.0, 3.0  # of the sliders, where no law was fitted
KEPT = (
    "config", "tensors", "prior", "sequences", "bayes_error", "copy_lag", "copy_mass", "beta", "kappa", "fit_success",
)  # fmt: skip


def check_target(file: Path, *, overwrite: bool) -> None:
    """Refuse to replace a page that is not ours."""
    if file.exists() and not overwrite and MARK not in file.read_text(errors="replace"):
        raise BadInput(f"{file} is no explorer of ours; --overwrite replaces it")


def write(out: Path, document: Table, *, back: str | None = None) -> Path:
    """Write the explorer of these rows, with a link back to a page beside it; returns its path."""
    file = out / FILE
    text, left_out = explorer(document.rows, document.provenance, back=back)
    if left_out:
        say(f"warning: the explorer has no room for {', '.join(left_out)}")
    write_file(file, text)
    return file


def explorer(
    rows: Sequence[Mapping[str, Any]], provenance: Mapping[str, Any], *, back: str | None = None
) -> tuple[str, list[str]]:
    """The page, and the names of the models that it has no room for: the largest go first."""
    if not rows:
        raise BadInput("no checkpoint to explore: expected trained models below --checkpoints")
    models = sorted((entry(row) for row in of_one_start([dict(row) for row in rows])), key=_order)
    left_out: list[str] = []
    text = page(models, provenance, back=back)
    while len(text.encode()) > MOST_BYTES and len(models) > 1:
        largest = max(models, key=lambda one: len(json.dumps(one["tensors"])))
        models = [one for one in models if one is not largest]
        left_out.append(largest["name"])
        text = page(models, provenance, back=back)
    return text, left_out


def entry(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the page is told of one model."""
    if missing := [field for field in KEPT if field not in row]:
        raise BadInput(f"{row['checkpoint']}: the results have no {', '.join(missing)}; make them anew")
    subject, config = row["subject"], row["config"]
    check_order(config["order"])  # a browser would take memory for whatever a file of results says
    tokens = as_tokens([one["tokens"] for one in row["sequences"]], vocab=check_vocab(config["vocab"]))
    if tokens.shape[1] != config["length"]:
        raise BadInput(f"{row['checkpoint']}: sequences of {tokens.shape[1]} tokens, expected {config['length']}")
    name = one_line("/".join(PurePath(row["checkpoint"]).parts[-4:]))
    run = f", {subject['protocol']} run" if subject["protocol"] == "long" else ""
    seed = "" if subject["seed"] is None else f", seed {subject['seed']}"
    return {
        "name": name,
        "label": f"{subject['family']}, {GROUPS[subject['prior'], subject['bos']]}, T = {subject['length']}{seed}{run}",
        "group": GROUPS[subject["prior"], subject["bos"]],
        "about": one_line(about(row, name)),
        "subject": subject,
        "trained": not analytic(subject),
        **{field: row[field] for field in KEPT},
    }


def about(row: Mapping[str, Any], name: str) -> str:
    """What the model was trained on, where beta and kappa come from, and how sure the stored answers are."""
    config = row["config"]
    words = (
        f"{name}: k = {config['order']}, |V| = {config['vocab']}, T = {config['length']}, "
        f"{'with' if config['bos'] else 'without'} BOS; {prior_words(row['prior'])}. "
    )
    if words_of_run := row["subject"].get("unfinished"):
        words += f"Its run is not finished: {words_of_run}. "
    if row["fit_success"]:
        numbers = ", ".join(f"beta_{lag} = {value:.3f}" for lag, value in enumerate(row["beta"], start=1))
        kappa = "" if row["kappa"] is None else f", kappa = {row['kappa']:.3f}"
        words += f"The sliders start at the attention law fitted to its match scores: {numbers}{kappa}. "
    else:
        starts = ", ".join(f"beta_{lag} = {START_BETA:g}" for lag in range(1, config["order"] + 1))
        kappa = f", kappa = {START_KAPPA:g}" if config["bos"] else ""
        words += f"No attention law is fitted, so the sliders start at {starts}{kappa}: {row['fit_message']}. "
    if row["bayes_error"]:
        words += (
            "Bayes's answer is stored for the last query of the sequences as drawn, with a Monte Carlo error of "
            f"{row['bayes_error']:.1g}."
        )
    return words


def prior_words(prior: Mapping[str, Any]) -> str:
    """The prior with its parameters."""
    if prior["kind"] == "independent":
        return f"independent prior, alpha = {prior['alpha']:g}"
    return f"hierarchical prior, eta = {', '.join(f'{value:g}' for value in prior['eta'])}, eta_0 = {prior['eta0']:g}"


def page(models: Sequence[Mapping[str, Any]], provenance: Mapping[str, Any], *, back: str | None) -> str:
    """The whole file."""
    groups = [
        {"name": group, "models": [one["name"] for one in models if one["group"] == group]}
        for group in dict.fromkeys(one["group"] for one in models)
    ]
    hidden = ("subject", "group")
    shown = [{key: value for key, value in one.items() if key not in hidden} for one in models]
    commit = provenance.get("commit") or "unknown"
    return render(
        "explorer/template.html",
        mark=MARK,
        style=(FOLDER / "style.css").read_text(),
        script="\n".join((FOLDER / name).read_text() for name in SCRIPTS),
        title="interp: the explorer",
        back=back,
        origin=f"Made by python -m figures explorer; commit {commit}.",
        data={"models": shown, "groups": groups, "start": {"beta": START_BETA, "kappa": START_KAPPA}},
    )


def _order(one: Mapping[str, Any]) -> tuple[Any, ...]:
    subject = one["subject"]
    family = subject["family"]
    place = FAMILY_ORDER.index(family) if family in FAMILY_ORDER else len(FAMILY_ORDER)
    kinds = list(GROUPS.values())
    return kinds.index(one["group"]), place, subject["length"], subject["protocol"] == "long", subject["seed"] or 0
