"""What an answer depends on besides the code: options, the piece of a study, and the weights that are read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from analyses.running import answers
from analyses.running.answers import Question
from analyses.running.zoo import ZOOS, find_subjects


def key_of(question: Question, weights: Weights) -> dict[str, Any]:
    """Everything that the answer depends on besides the code: options, piece, and the weights that are read."""
    path, options = question.checkpoint, question.options
    module = answers.load_module(question.analysis)
    read: dict[str, str] = {}
    if path is not None:
        more = module.reads(Path(path), options) if hasattr(module, "reads") else []
        read = {str(folder): weights.digest(Path(folder)) for folder in [path, *more]}
    else:
        read |= module.weights(options) if hasattr(module, "weights") else {}
        for place in ZOOS:
            if hasattr(options, place):
                found = weights.zoo(getattr(options, place), unfinished=options.unfinished)  # type: ignore[attr-defined]
                read |= {f"{place}/{name}": digest for name, digest in found.items()}
    return {
        "what": f"answer-{question.analysis}",
        "options": options.shaping(),
        "checkpoint": path,
        "piece": None if question.piece is None else dataclasses.asdict(question.piece),
        "weights": read,
    }


class Weights:
    """Digests of checkpoints, each read once."""

    def __init__(self) -> None:
        self._digests: dict[Path, str] = {}
        self._zoos: dict[tuple[Path, bool], dict[str, str]] = {}

    def digest(self, folder: Path) -> str:
        """A digest of all files of a checkpoint; empty if it is not there."""
        place = folder.resolve()
        if place not in self._digests:
            files = sorted(place.iterdir()) if place.is_dir() else []
            contents = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files if file.is_file()]
            self._digests[place] = hashlib.sha256(json.dumps(contents).encode()).hexdigest() if contents else ""
        return self._digests[place]

    def zoo(self, folder: Path, *, unfinished: bool = False) -> dict[str, str]:
        """The checkpoints below a folder that are read, by name."""
        if (folder, unfinished) not in self._zoos:
            found = find_subjects(folder, unfinished=unfinished)
            self._zoos[folder, unfinished] = {one.name: self.digest(one.path) for one in found}
        return self._zoos[folder, unfinished]
