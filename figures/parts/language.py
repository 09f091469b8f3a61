"""What the figures of the study `language_model` share: rows by their kind, colours of heads."""

from __future__ import annotations

from typing import Any

from figures.parts.rows import Results as Results
from figures.parts.rows import where

HEAD_COLOURS = ("#003566", "#5b99c2", "#52796f", "#ffb703", "#882255", "#7f7f7f", "#b08968", "#9b2226")

pick = where


def keep(results: Results, **named: Any) -> Results:
    """The study's rows with these values."""
    return {"language_model": where(results["language_model"], **named)}
