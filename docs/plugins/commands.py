"""The pages of the command lines: what they print of themselves, as the checkout says it today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = {  # door: what it is for, and the commands whose help the page shows
    "models": ("Train, build and list models.", ("train", "sweep", "construct", "zoo")),
    "analyses": ("Ask questions to checkpoints, and run studies.", ("beta_kappa", "compare", "all")),
    "figures": ("Draw figures, and make the two pages.", ("mech_main", "explorer", "reproduce", "claims")),
}


def on_files(files: Any, config: Any) -> Any:
    """Write a page for each door."""
    from mkdocs.structure.files import File

    for door, (summary, commands) in PAGES.items():
        parts = [f"# python -m {door}\n\n{summary} Without arguments it lists what there is:\n\n{printed(door)}"]
        parts += [f"## {command}\n\n{printed(door, command, '--help')}" for command in commands]
        files.append(File.generated(config, f"commands/{door}.md", content="\n\n".join(parts) + "\n"))
    return files


def printed(*words: str) -> str:
    """What a command prints, as it stands."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "96"},
        capture_output=True,
        text=True,
        check=True,
    )
    return f"```text\n{done.stdout.rstrip()}\n```"
