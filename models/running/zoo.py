"""The shipped checkpoints and their table (`python -m models zoo`).

Every row is measured: the checkpoint's KL to the true next law on common held-out sequences, beside that of the best
construction at that length on the same sequences, so that their difference is far less noisy than either. Measurements
are kept in `zoo.json` beside the checkpoints, under the digest of the weights, and repeated only where the weights have
changed. Only `--write` saves new measurements.

A folder with a `zoo.json` of its own, such as `conditions`, is a zoo of its own: the one above does not list it.

A run of the `long` protocol is also compared with the same run with a fifth of the steps: a lower KL shows that the
shorter one had not converged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from interp.outside import MAX_FOLDERS, one_line, read_json
from interp.staging import new_file
from models.families.registry import start_name
from models.running.progress import progress_bar
from models.running.terminal import say, show

STUDIES = Path(__file__).parents[1] / "studies"
CACHE_FILE, TABLE_FILE = "zoo.json", "README.md"
CONFIG_FILE, PREVIOUS = "config.json", ".previous"  # as `interp.hooked.checkpoint` names them
HELD_OUT_SEQUENCES, HELD_OUT_SEED = 20_000, 2_000_003
GAINED = 0.005  # relative fall of the KL that counts as a gain by five times the steps
COLUMNS = (
    "checkpoint", "family", "prior", "bos", "length", "seed", "protocol", "target", "steps", "init", "kl", "stderr",
    "best_construction", "ratio", "ratio_stderr", "change", "change_stderr", "copies", "seconds", "readout", "freeze",
    "kappa", "symmetrise", "bos_vector", "start",
)  # fmt: skip


def work_directory(checkpoint: Path) -> Path:
    """Where the run of a checkpoint keeps its log, snapshots and state.

    It is hidden, so that `DIR/*` in a shell names checkpoints alone.
    """
    return checkpoint.parent / f".{checkpoint.name}.run"


def find_checkpoints(root: Path) -> list[Path]:
    """Every checkpoint below `root`, shortest sequences first.

    Work directories, with their snapshots, are left out, and so are checkpoints of another zoo below this one.
    """
    found = [folder for folder, files in _folders(root, into_zoos=False) if CONFIG_FILE in files]
    return sorted(found, key=_reading_order)


def unfinished_runs(checkpoints: list[Path]) -> dict[Path, str]:
    """Those of the checkpoints whose run is unfinished or has diverged, each with how far it came."""
    from interp.hooked.checkpoint import read_info, unfinished_at

    found = {}
    for path in checkpoints:
        with contextlib.suppress(ValueError):
            found[path] = unfinished_at(read_info(path))
    return {path: words for path, words in found.items() if words}


def find_zoos(root: Path) -> list[Path]:
    """The zoos below `root`, itself not counted: folders with measurements of their own."""
    return sorted(folder for folder, files in _folders(root, into_zoos=True) if CACHE_FILE in files and folder != root)


def _folders(root: Path, *, into_zoos: bool) -> Iterator[tuple[Path, list[str]]]:
    """The folders below `root` with the names of their files; hidden folders are passed over.

    A hidden folder is the work directory of a run, or a temporary one of a save: that is not a checkpoint even if it is
    complete. Where a save was killed between its two renames, `load` finds the checkpoint under its own name, and so
    does this.
    """
    seen = 0
    for place, folders, files in os.walk(root):
        seen += 1
        if seen > MAX_FOLDERS:
            raise ValueError(f"{root}: more than {MAX_FOLDERS} folders below it; name one nearer to the checkpoints")
        for name in folders:
            if name.startswith(".") and name.endswith(PREVIOUS):
                target = Path(place) / name[1 : -len(PREVIOUS)]
                if not target.exists() and (Path(place) / name / CONFIG_FILE).is_file():
                    yield target, [CONFIG_FILE]
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if not into_zoos and CACHE_FILE in files and Path(place) != root:
            folders[:] = []
            continue
        yield Path(place), files


def zoo_command(root: Path, *, write: bool, as_json: bool, overwrite: bool = False) -> int:
    """Print the table of the checkpoints, or write it to README.md beside them, and the measurements to zoo.json."""
    if not root.is_dir():
        raise ValueError(f"{root}: no such directory")
    if write and not overwrite:
        _check_targets(root)
    rows = zoo_rows(root, write=write)
    if not rows:
        raise ValueError(f"{root}: no finished checkpoints there; `python -m models sweep zoo` trains them")
    if write:
        page = STUDIES / f"{root.resolve().name}.md"
        text = (page if page.is_file() else Path(__file__).parent / "zoo_readme.md").read_text()
        text = text.replace("{table}", _markdown(rows)).replace("{longer}", _longer_markdown(rows))
        _replace(root / TABLE_FILE, text)
        say(f"{root / TABLE_FILE}: {len(rows)} checkpoints")
    if as_json:
        print(json.dumps({"rows": rows, "sequences": HELD_OUT_SEQUENCES, "seed": HELD_OUT_SEED}))
    elif not write:
        show(_terminal(rows))
    return 0


def zoo_rows(root: Path, *, write: bool = False) -> list[dict[str, Any]]:
    """One row per finished checkpoint below `root`, from the cache where its weights have not changed.

    The cache is brought up to date only with `write`.
    """
    from models.training.run import is_finished

    file = root / CACHE_FILE
    known = _known(file)
    rows = {}
    found = find_checkpoints(root)
    for path, words in unfinished_runs(found).items():
        say(f"warning: {path} is left out: {words}")
    finished = [path for path in found if is_finished(path) and _is_described(path)]
    for path in progress_bar(iterable=finished, desc="measuring"):
        name = str(path.relative_to(root))
        read = [path, *([sister] if (sister := _shorter(path)) else [])]
        weights = b"".join((one / "model.safetensors").read_bytes() for one in read)
        digest = hashlib.sha256(weights).hexdigest()[:16]
        row = known.get(name)
        rows[name] = row if row and row["digest"] == digest else {"digest": digest, **measure(path, name)}
    if write and rows and rows != known:
        _replace(file, json.dumps(rows, indent=1) + "\n")
    return [{column: row.get(column) for column in COLUMNS} for row in rows.values()]


def _known(file: Path) -> dict[str, Any]:
    """The kept measurements; none where the file is missing or was not written by this command."""
    try:
        found = read_json(file)
    except ValueError:
        return {}
    rows = found.items() if isinstance(found, dict) else []
    return {name: row for name, row in rows if isinstance(row, dict) and {"digest", *COLUMNS[:11]} <= set(row)}


def _check_targets(root: Path) -> None:
    """Refuse to replace a page or measurements that this command did not write."""
    page, kept = root / TABLE_FILE, root / CACHE_FILE
    if page.exists() and "python -m models zoo" not in page.read_text(errors="replace"):
        raise ValueError(f"{page}: not a page of this command; --overwrite replaces it")
    if kept.exists() and not _known(kept):
        raise ValueError(f"{kept}: holds no measurements of this command; --overwrite replaces it")


def _is_described(path: Path) -> bool:
    """Whether the training record says what was trained; another program's record may be `finished`, too."""
    from models.training.run import recorded_spec

    try:
        recorded_spec(path)
    except (ValueError, TypeError, KeyError) as error:
        say(f"warning: {one_line(f'{path} is left out: {error}')}")
        return False
    return True


def measure(path: Path, name: str) -> dict[str, Any]:
    """The row of one checkpoint."""
    import torch

    from interp.chains.descriptions import prior_from_dict
    from interp.circuit.capture import capture
    from interp.divergence import kl_divergence
    from interp.hooked.checkpoint import load, read_info
    from interp.instruments.copy_heads import copy_heads
    from interp.results import jsonable, mean_stderr
    from models.training.run import recorded_spec
    from models.training.trainers import fast_predict

    torch.set_num_threads(1)
    info = read_info(path)
    model = load(path)
    training = info.training or {}
    spec = recorded_spec(path)
    prior = prior_from_dict(training["prior"])
    held_out = _held_out(json.dumps(training["prior"]), model.config.length)
    ours = kl_divergence(held_out.next_law, fast_predict(model, held_out.tokens)).values
    best = _best_construction_values(json.dumps(training["prior"]), model.config.length, model.config.bos)
    # The ratio of two means over the same sequences: its error comes from the paired residuals.
    kl, stderr = mean_stderr(ours)
    reference, _ = mean_stderr(best)
    ratio = kl / reference
    _, ratio_stderr = mean_stderr((ours - ratio * best) / reference)
    change: tuple[float | None, float | None] = (None, None)
    if sister := _shorter(path):
        before = kl_divergence(held_out.next_law, fast_predict(load(sister), held_out.tokens)).values
        change = mean_stderr(ours - before)
    heads = copy_heads(capture(model, held_out.tokens[:64]))
    return jsonable(
        {
            "checkpoint": name,
            "family": model.config.family,
            "prior": training["prior"]["kind"],
            "bos": model.config.bos,
            "length": model.config.length,
            "seed": training["seed"],
            "protocol": training["protocol"],
            "target": training["target"],
            "steps": training["steps"],
            "init": spec.init,
            "readout": spec.readout,
            "freeze": spec.freeze,
            "kappa": spec.kappa,
            "symmetrise": spec.symmetrise,
            "bos_vector": spec.bos_vector,
            "start": start_name(spec.family, init=spec.init, kappa=spec.kappa),
            "kl": kl,
            "stderr": stderr,
            "best_construction": reference,
            "ratio": ratio,
            "ratio_stderr": ratio_stderr,
            "change": change[0],
            "change_stderr": change[1],
            "copies": "; ".join(heads.verdict),
            "seconds": training["seconds"],
            "order": prior.order,
        }
    )


@cache
def _held_out(prior: str, length: int) -> Any:
    from interp.chains.descriptions import prior_from_dict

    return prior_from_dict(json.loads(prior)).sample(batch=HELD_OUT_SEQUENCES, length=length, seed=HELD_OUT_SEED)


@cache
def _best_construction_values(prior: str, length: int, bos: bool) -> Any:
    """KL per held-out sequence of soft matching at the population optimum, without a trained readout."""
    from interp.chains.descriptions import prior_from_dict
    from interp.divergence import kl_divergence
    from interp.estimators.optimal import optimal_parameters
    from interp.estimators.soft_matching import add_alpha, soft_matching

    law = prior_from_dict(json.loads(prior))
    held_out = _held_out(prior, length)
    if law.independent and bos:
        # beta -> infinity with kappa - sum(beta) = ln(alpha |V|): the optimum is add-alpha itself (prop:add_constant).
        alpha = float(law.concentrations()[-1]) / law.vocab
        prediction = add_alpha(held_out.tokens, order=law.order, vocab=law.vocab, alpha=alpha)
    else:
        best = optimal_parameters(law, length=length, bos=bos)
        prediction = soft_matching(held_out.tokens, vocab=law.vocab, beta=best.beta, kappa=best.kappa)
    return kl_divergence(held_out.next_law, prediction).values


def _terminal(rows: list[dict[str, Any]]) -> str:
    """The table for a terminal of 80 columns: runs below their folder, and what the numbers are."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(Path(row["checkpoint"]).parent), []).append(row)
    widest = max(len(_short(row)) for row in rows)
    head = f"  {'run':<{widest}}  {'steps':>7}  {'KL':<15}  {'best':>6}  {'ratio':>5}  copy heads"
    lines = []
    for folder, runs in groups.items():
        lines += [one_line(folder), head]
        for row in runs:
            name, copies = _short(row), one_line(row["copies"]).replace("copies lag", "lag")
            numbers = f"{row['steps']:>7}  {row['kl']:.4f} ± {row['stderr']:.4f}  {row['best_construction']:>6.4f}"
            lines.append(f"  {name:<{widest}}  {numbers}  {row['ratio']:>5.3f}  {copies}")
        lines.append("")
    terms = (
        f"KL          KL(truth || prediction) in nats on {HELD_OUT_SEQUENCES} held-out sequences",
        "best        KL of soft matching at the optimum of that length, same sequences",
        "ratio       KL / best",
        "copy heads  the lag that each head copies; mixed or none where it copies none",
    )
    return "\n".join([*lines, *(f"  {term}" for term in terms)])


def _short(row: dict[str, Any]) -> str:
    return one_line(Path(row["checkpoint"]).name)


def _markdown(rows: list[dict[str, Any]]) -> str:
    frozen = any(row["freeze"] for row in rows)
    vectors = len({row["bos_vector"] for row in rows if row["bos_vector"]}) > 1
    head = [
        "checkpoint",
        "protocol",
        "target",
        "steps",
        "init",
        *(["frozen"] if frozen else []),
        *(["BOS vector"] if vectors else []),
        "held-out KL",
        "best construction",
        "ratio",
        "copy heads",
        "s",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        cells = [
            _cell(row["checkpoint"]),
            row["protocol"],
            row["target"],
            f"{row['steps']:,}",
            row["init"],
            *([(row["freeze"] or "").replace(",", ", ")] if frozen else []),
            *([row["bos_vector"] or ""] if vectors else []),
            f"{row['kl']:.4f} ± {row['stderr']:.4f}",
            f"{row['best_construction']:.4f}",
            f"{row['ratio']:.3f} ± {row['ratio_stderr']:.3f}",
            row["copies"],
            f"{row['seconds']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(name: str) -> str:
    """A checkpoint's name as code in Markdown; characters that would end the cell or the code are escaped."""
    plain = "".join(one if one.isprintable() and one not in "`|<>&" else f"&#{ord(one)};" for one in name)
    return f"`{name}`" if plain == name else plain


def _shorter(path: Path) -> Path | None:
    """The finished run with a fifth of the steps that a `long` one is compared with; None for other protocols."""
    from models.training.run import is_finished

    sister = path.with_name(path.name.removesuffix("_long"))
    return sister if sister != path and is_finished(sister) else None


def _longer_markdown(rows: list[dict[str, Any]]) -> str:
    """Each long run beside the shorter one."""
    head = ["run", "KL, 40,000 steps", "KL, 200,000 steps", "change", "in percent", "gains more than 0.5%"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        if row["change"] is None:
            continue
        before = row["kl"] - row["change"]
        cells = [
            _cell(row["checkpoint"].removesuffix("_long")),
            f"{before:.4f}",
            f"{row['kl']:.4f}",
            f"{row['change']:+.5f} ± {row['change_stderr']:.5f}",
            f"{row['change'] / before:+.2%}",
            "**yes**" if row["change"] < -GAINED * before else "no",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _replace(file: Path, text: str) -> None:
    with new_file(file) as staging:
        staging.write_text(text)
        staging.chmod(0o644)  # a temporary file is private
        os.replace(staging, file)


def _reading_order(path: Path) -> tuple[str, int, str]:
    digits = path.name.removeprefix("T").split("_")[0]
    return str(path.parent), int(digits) if digits.isdigit() else 0, path.name
