"""The trained checkpoints below a directory, and their predictions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from analyses.parts.heldout import Predictor
from analyses.running.command import BadInput, one_line
from analyses.running.subject import Subject, refusal

if TYPE_CHECKING:
    import torch


ZOOS = ("zoo", "runs")  # options of a study that name a directory of checkpoints


def checkpoints_at(path: str) -> list[str]:
    """What an argument stands for: a folder for the finished checkpoints below it, anything else for itself."""
    from interp.hooked.checkpoint import CONFIG_FILE, read_info, unfinished_at
    from models.running.zoo import find_checkpoints

    folder = Path(path)
    if not folder.is_dir() or (folder / CONFIG_FILE).exists():
        return [path]
    found = find_checkpoints(folder)
    finished = []
    for one in found:
        try:
            ended = not unfinished_at(read_info(one))
        except ValueError:  # is reported where it is opened, and does not stop the others
            ended = True
        if ended:
            finished.append(str(one))
    if found and not finished:
        raise BadInput(f"{path}: none of the {len(found)} checkpoints below it is finished")
    return finished or [path]


def find_subjects(zoo: Path | None, *, unfinished: bool = False) -> list[Subject]:
    """The checkpoints below a directory that say which prior they were trained on; none if it is absent.

    unfinished   whether those of unfinished and diverged runs are among them
    """
    return [one for one in _trained(zoo) if unfinished or not one.unfinished_at]


def left_out(folders: Iterable[Path | None]) -> dict[str, str]:
    """The checkpoints below these directories that only `unfinished` would read, each with how far its run came."""
    return {str(one.path): refusal(one) for folder in folders for one in _trained(folder) if one.unfinished_at}


def _trained(zoo: Path | None) -> list[Subject]:
    from models.running.zoo import find_checkpoints

    if zoo is None or not zoo.is_dir():
        return []
    try:
        found = [Subject.open(path, name=str(path.relative_to(zoo))) for path in find_checkpoints(zoo)]
    except (ValueError, OSError) as error:
        raise BadInput(one_line(error)) from error
    return [one for one in found if one.training.get("prior")]


def predictor_of(subject: Subject) -> Predictor:
    """A checkpoint's prediction, through its family's fast forward."""

    def law(tokens: torch.Tensor) -> torch.Tensor:
        from models.training.trainers import fast_predict

        return fast_predict(subject.model, tokens)

    key = {"name": "checkpoint", "digest": subject.digest}
    return Predictor(name=subject.name, group="trained", key=key, law=law, subject=subject.summary())
