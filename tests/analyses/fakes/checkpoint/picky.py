"""Needs BOS."""

from typing import Any

from analyses.running.subject import Subject
from tests.analyses.fakes.checkpoint import probe

Options = probe.Options


def applies(info: Any) -> str | None:
    return None if info.model["bos"] else "it has no BOS"


def analyse(subject: Subject, options: Options) -> probe.Probed:
    return probe.analyse(subject, options)
