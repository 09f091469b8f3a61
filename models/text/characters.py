"""The shipped text as characters: the vocabulary, the part to train on and the part that is held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from interp.language.prompts import shipped_text

if TYPE_CHECKING:
    import torch

HELD_OUT = 0.1  # the last part of the text


@dataclass(frozen=True, kw_only=True)
class Characters:
    """A text in characters. Ids are places in the sorted alphabet; BOS is one more id, the last.

    text       the whole text
    """

    text: str

    @cached_property
    def alphabet(self) -> str:
        """Every character that occurs, sorted."""
        return "".join(sorted(set(self.text)))

    @property
    def vocab(self) -> int:
        """How many characters there are; the id of BOS, too."""
        return len(self.alphabet)

    @property
    def digest(self) -> str:
        """The SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def ids(self) -> torch.Tensor:
        """The text as ids."""
        import torch

        places = {letter: place for place, letter in enumerate(self.alphabet)}
        return torch.tensor([places[letter] for letter in self.text])

    @property
    def split(self) -> int:
        """Where the held-out part begins."""
        return int(len(self.text) * (1.0 - HELD_OUT))

    def drawn(self, *, batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
        """Random windows of the part to train on, [batch, length]."""
        import torch

        starts = torch.randint(self.split - length + 1, (batch,), generator=generator)
        return self.ids[starts[:, None] + torch.arange(length)]

    def held_out(self, *, batch: int, length: int) -> torch.Tensor:
        """Windows spread evenly over the held-out part, [batch, length]; they overlap where it is too short."""
        import torch

        starts = torch.linspace(self.split, len(self.text) - length, batch).long()
        return self.ids[starts[:, None] + torch.arange(length)]

    def repeated(self, *, batch: int, length: int, seed: int) -> torch.Tensor:
        """`length` different random characters of the alphabet, and the same again, [batch, 2 length]."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        once = torch.stack([torch.randperm(self.vocab, generator=generator)[:length] for _ in range(batch)])
        return once.repeat(1, 2)


def alice() -> Characters:
    """Alice's Adventures in Wonderland."""
    return Characters(text=shipped_text())
