"""Needs BOS."""

from analyses.running.subject import Subject
from tests.analyses.fakes.checkpoint import probe

Options = probe.Options


def applies(subject: Subject) -> str | None:
    return None if subject.model_config["bos"] else "it has no BOS"


def analyse(subject: Subject, options: Options) -> probe.Probed:
    return probe.analyse(subject, options)
