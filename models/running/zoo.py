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
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from interp.outside import MAX_FOLDERS, one_line, read_json
from interp.staging import replace_file
from models.families.registry import start_name
from models.running.command_line import listing
from models.running.progress import progress_bar
from models.running.terminal import say, show, show_table

PAGES = Path(__file__).parent
STUDIES = PAGES.parent / "studies"
CACHE_FILE, TABLE_FILE = "zoo.json", "README.md"
CONFIG_FILE, PREVIOUS = "config.json", ".previous"  # as `interp.hooked.checkpoint` names them
HELD_OUT_SEQUENCES, HELD_OUT_SEED = 20_000, 2_000_003
GAINED = 0.005  # relative fall of the KL that counts as a gain by five times the steps
COLUMNS = (
    "checkpoint", "family", "prior", "bos", "length", "seed", "protocol", "target", "steps", "init", "kl", "stderr",
    "best_construction", "ratio", "ratio_stderr", "change", "change_stderr", "copies", "seconds", "readout", "freeze",
    "kappa", "symmetrise", "bos_vector", "start",
)  # fmt: skip
TERMS = (
    ("KL", f"KL(truth || prediction) in nats on {HELD_OUT_SEQUENCES} held-out sequences"),
    ("best", "KL of soft matching at the optimum of that length, same sequences"),
    ("ratio", "KL / best"),
    ("copy heads", "the lag that each head copies; mixed or none where it copies none"),
)
Row = dict[str, Any]


# ---- where the checkpoints are


def work_directory(checkpoint: Path) -> Path:
    """Where the run of a checkpoint keeps its log, snapshots and state.

    It is hidden, so that `DIR/*` in a shell names checkpoints alone.
    """
    return checkpoint.parent / f".{checkpoint.name}.run"


def find_checkpoints(root: Path) -> list[Path]:
    """Every checkpoint below `root`, shortest sequences first; those of another zoo below this one are left out.

    Where a save was killed between its two renames, `load` finds the checkpoint under its own name, and so does this.
    """
    found = []
    for place, folders, files in _folders(root):
        if CACHE_FILE in files and place != root:
            folders.clear()
            continue
        if CONFIG_FILE in files:
            found.append(place)
        for name in folders:
            target = place / name[1:].removesuffix(PREVIOUS)
            if _is_hidden(name) and name.endswith(PREVIOUS) and (place / name / CONFIG_FILE).is_file():
                found += [] if target.exists() else [target]
    return sorted(found, key=_reading_order)


def find_zoos(root: Path) -> list[Path]:
    """The zoos below `root`, itself not counted: folders with measurements of their own."""
    return sorted(place for place, _, files in _folders(root) if CACHE_FILE in files and place != root)


def _folders(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """The folders below `root`, each with the names of its folders and files; hidden folders are passed over.

    A hidden folder is the work directory of a run, or a temporary one of a save: that is not a checkpoint even if it is
    complete. A caller that clears the list of folders leaves them out.
    """
    for seen, (place, folders, files) in enumerate(os.walk(root)):
        if seen >= MAX_FOLDERS:
            raise ValueError(f"{root}: more than {MAX_FOLDERS} folders below it; name one nearer to the checkpoints")
        yield Path(place), folders, files
        folders[:] = sorted(name for name in folders if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _reading_order(path: Path) -> tuple[str, int, str]:
    digits = path.name.removeprefix("T").split("_")[0]
    return str(path.parent), int(digits) if digits.isdigit() else 0, path.name


def unfinished_runs(checkpoints: list[Path]) -> dict[Path, str]:
    """Those of the checkpoints whose run is unfinished or has diverged, each with how far it came."""
    from interp.hooked.checkpoint import read_info, unfinished_at

    found = {}
    for path in checkpoints:
        with contextlib.suppress(ValueError):
            found[path] = unfinished_at(read_info(path))
    return {path: words for path, words in found.items() if words}


# ---- the table


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
        text = (page if page.is_file() else PAGES / "zoo_readme.md").read_text()
        for name in ("table", "longer"):
            text = text.replace(f"{{{name}}}", markdown(name, rows))
        replace_file(root / TABLE_FILE, text)
        say(f"{root / TABLE_FILE}: {len(rows)} checkpoints")
    if as_json:
        print(json.dumps({"rows": rows, "sequences": HELD_OUT_SEQUENCES, "seed": HELD_OUT_SEED}))
    elif not write:
        show_rows(rows)
    return 0


def _check_targets(root: Path) -> None:
    """Refuse to replace a page or measurements that this command did not write."""
    page, kept = root / TABLE_FILE, root / CACHE_FILE
    if page.exists() and "python -m models zoo" not in page.read_text(errors="replace"):
        raise ValueError(f"{page}: not a page of this command; --overwrite replaces it")
    if kept.exists() and not _known(kept):
        raise ValueError(f"{kept}: holds no measurements of this command; --overwrite replaces it")


def zoo_rows(root: Path, *, write: bool = False) -> list[Row]:
    """One row per finished checkpoint below `root`, from the cache where its weights have not changed.

    The cache is brought up to date only with `write`.
    """
    known = _known(root / CACHE_FILE)
    rows: dict[str, Row] = {}
    for path in progress_bar(iterable=_described(find_checkpoints(root)), desc="measuring"):
        name = str(path.relative_to(root))
        read = [path, *([sister] if (sister := _shorter(path)) else [])]
        weights = b"".join((one / "model.safetensors").read_bytes() for one in read)
        digest = hashlib.sha256(weights).hexdigest()[:16]
        row = known.get(name)
        rows[name] = row if row and row["digest"] == digest else {"digest": digest, **measure(path, name)}
    if write and rows and rows != known:
        replace_file(root / CACHE_FILE, json.dumps(rows, indent=1) + "\n")
    return [{column: row.get(column) for column in COLUMNS} for row in rows.values()]


def _known(file: Path) -> dict[str, Row]:
    """The kept measurements; none where the file is missing or was not written by this command."""
    try:
        found = read_json(file)
    except ValueError:
        return {}
    rows = found.items() if isinstance(found, dict) else []
    return {name: row for name, row in rows if isinstance(row, dict) and {"digest", *COLUMNS[:11]} <= set(row)}


def _described(found: list[Path]) -> list[Path]:
    """The finished ones whose training record says what was trained; another program's record may be `finished`, too.

    What is left out is named.
    """
    from models.training.run import is_finished, recorded_spec

    for path, words in unfinished_runs(found).items():
        say(f"warning: {path} is left out: {words}")
    kept = []
    for path in filter(is_finished, found):
        try:
            recorded_spec(path)
            kept.append(path)
        except (ValueError, TypeError, KeyError) as error:
            say(f"warning: {one_line(f'{path} is left out: {error}')}")
    return kept


def _shorter(path: Path) -> Path | None:
    """The finished run with a fifth of the steps that a `long` one is compared with; None for other protocols."""
    from models.training.run import is_finished

    sister = path.with_name(path.name.removesuffix("_long"))
    return sister if sister != path and is_finished(sister) else None


# ---- what is measured


def measure(path: Path, name: str) -> Row:
    """The row of one checkpoint."""
    import torch

    from interp.circuit.capture import capture
    from interp.divergence import kl_divergence
    from interp.hooked.checkpoint import load, read_info
    from interp.instruments.copy_heads import copy_heads
    from interp.results import jsonable, mean_stderr
    from models.training.run import recorded_spec
    from models.training.trainers import fast_predict

    torch.set_num_threads(1)
    model, spec = load(path), recorded_spec(path)
    prior = json.dumps(spec.prior)
    held_out = _held_out(prior, spec.length)
    ours = kl_divergence(held_out.next_law, fast_predict(model, held_out.tokens)).values
    best = _best_construction_values(prior, spec.length, spec.bos)
    # The ratio of two means over the same sequences: its error comes from the paired residuals.
    kl, stderr = mean_stderr(ours)
    reference, _ = mean_stderr(best)
    ratio = kl / reference
    _, ratio_stderr = mean_stderr((ours - ratio * best) / reference)
    change: tuple[float | None, float | None] = (None, None)
    if sister := _shorter(path):
        before = kl_divergence(held_out.next_law, fast_predict(load(sister), held_out.tokens)).values
        change = mean_stderr(ours - before)
    measured = {
        "checkpoint": name,
        "prior": spec.prior["kind"],
        "order": spec.prior["order"],
        "start": start_name(spec.family, init=spec.init, kappa=spec.kappa),
        "kl": kl,
        "stderr": stderr,
        "best_construction": reference,
        "ratio": ratio,
        "ratio_stderr": ratio_stderr,
        "change": change[0],
        "change_stderr": change[1],
        "copies": "; ".join(copy_heads(capture(model, held_out.tokens[:64])).verdict),
        "seconds": (read_info(path).training or {})["seconds"],
    }
    return jsonable({name: value for name, value in spec.to_dict().items() if name in COLUMNS} | measured)


@cache
def _held_out(prior: str, length: int) -> Any:
    from interp.chains.descriptions import prior_from_dict

    return prior_from_dict(json.loads(prior)).sample(
        batch=HELD_OUT_SEQUENCES, length=length, seed=HELD_OUT_SEED, method="explicit"
    )


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


# ---- how it is shown


def show_rows(rows: Sequence[Row]) -> None:
    """The table for a terminal of 80 columns: runs below their folder, and what the numbers are."""
    for folder, runs in groupby(rows, key=lambda row: str(Path(row["checkpoint"]).parent)):
        show(one_line(folder))
        show_table(
            {"run": "left", "steps": "right", "KL": "left", "best": "right", "ratio": "right", "copy heads": "left"},
            [
                (
                    Path(row["checkpoint"]).name,
                    str(row["steps"]),
                    f"{row['kl']:.4f} ± {row['stderr']:.4f}",
                    f"{row['best_construction']:.4f}",
                    f"{row['ratio']:.3f}",
                    row["copies"].replace("copies lag", "lag"),
                )
                for row in runs
            ],
        )
        print()
    print(listing(TERMS))


def markdown(name: str, rows: Sequence[Row]) -> str:
    """A table of README.md: `table`, or `longer`, each long run beside the shorter one."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pages = Environment(loader=FileSystemLoader(PAGES), undefined=StrictUndefined, trim_blocks=True, autoescape=False)
    pages.filters["code"] = _cell
    return pages.get_template(f"zoo_{name}.md").render(rows=rows, gained=GAINED).strip()


def _cell(name: str) -> str:
    """A checkpoint's name as code in Markdown; characters that would end the cell or the code are escaped."""
    plain = "".join(one if one.isprintable() and one not in "`|<>&" else f"&#{ord(one)};" for one in name)
    return f"`{name}`" if plain == name else plain
