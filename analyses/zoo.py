"""The trained checkpoints below a directory, and their predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analyses.command import BadInput, one_line
from analyses.heldout import Predictor
from analyses.subject import Subject

if TYPE_CHECKING:
    import torch


def find_subjects(zoo: Path | None) -> list[Subject]:
    """The finished checkpoints below a directory that say which prior they were trained on; none if it is absent."""
    from models.zoo import find_checkpoints

    if zoo is None or not zoo.is_dir():
        return []
    try:
        found = [Subject.open(path, name=str(path.relative_to(zoo))) for path in find_checkpoints(zoo)]
    except (ValueError, OSError) as error:
        raise BadInput(one_line(error)) from error
    return [one for one in found if "prior" in one.training and one.training.get("status", "finished") == "finished"]


def predictor_of(subject: Subject) -> Predictor:
    """A checkpoint's prediction, through its family's fast forward."""

    def law(tokens: torch.Tensor) -> torch.Tensor:
        from interp.hooked.checkpoint import load
        from models.trainers import fast_predict

        return fast_predict(load(subject.path), tokens)

    key = {"name": "checkpoint", "digest": subject.digest}
    return Predictor(name=subject.name, group="trained", key=key, law=law, subject=subject.summary())
