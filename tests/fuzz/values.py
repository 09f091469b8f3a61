"""Odd values: numbers, texts and paths as users, other programs and accidents make them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

NUMBER_TEXTS = (
    "0",
    "1",
    "2",
    "3",
    "5",
    "16",
    "64",
    "-1",
    "-0",
    "007",
    "+3",
    "1.5",
    "0.1",
    ".5",
    "5.",
    "1e3",
    "1e308",
    "1e309",
    "-1e308",
    "1e-320",
    "nan",
    "inf",
    "-inf",
    "Infinity",
    "NaN",
    "0x10",
    "1_000",
    "\uff11\uff12",
    "٣",
    "²",
    "1e",
    "e1",
    "--1",
    "1,2",
    "1,,2",
    "2.7,1.2",
    "-5,5",
    "1e308,1e308",
    "9" * 19,
    "9" * 400,
    "9" * 5000,
    "true",
    "None",
    "",
    " ",
    " 3 ",
    "3\n",
    "1/2",
    "2**3",
    "1j",
)
WORDS = (
    "all",
    "free",
    "hard",
    "zero",
    "copies",
    "readout",
    "law",
    "token",
    "last",
    "scores",
    "hierarchical:5",
    "hierarchical:5,5:1",
    "hierarchical:",
    "hierarchical:nan",
    "independent:1",
    "independent:0",
    "independent:1e308",
    "independent:1:2:3",
    "hierarchical:5,5,5,5,5,5,5",
    "random(0.3)",
    "random(nan)",
    "random(1e400)",
    "copy(5)",
    "copy(-1)",
    "tied(1)",
    "tied(0)",
    "fixed(x)",
    "hard,readout=random(0.3)",
    "x=y",
    "=",
    "smoke",
    "zoo",
    "local",
    "here",
    "ray",
    "png",
    "pdf,svg",
    "bmp",
    "-",
    "--",
    "é",
    "<b>",
    "=1+1",
    "a;b",
    "$(x)",
    "%s",
    "{0}",
    "\x1b[2J",
)
PATHS = (
    "precious.txt",
    "folder",
    "folder/notes.md",
    "folder/new",
    "absent",
    "absent/deep/er",
    "ckpt",
    "ckpt/config.json",
    "broken",
    "foreign",
    "results",
    "results/theory.json",
    "study.toml",
    "spec.json",
    "junk.json",
    "junk.toml",
    "junk.csv",
    ".",
    "..",
    "../..",
    "",
    " ",
    "a" * 180,
    "a" * 300,
    "a/" * 3000,
    "x\0y",
    "\0",
    "new\nline",
    "=formula",
    "<i>markup</i>",
    "name with space",
    "ünïcode",
    "\udcff",
    "~",
    "-dash",
    "/nowhere/at/all",
    "/proc/nothing/x",
    "precious.txt/below",
    "link",
    "runs",
    "mine.py:build",
    "mine.py:absent",
    "absent.py:build",
    "\x1b[31mred",
    "$x^{$",
)


def texts() -> st.SearchStrategy[str]:
    """What may stand behind an option."""
    return st.one_of(
        st.sampled_from(NUMBER_TEXTS),
        st.sampled_from(WORDS),
        st.sampled_from(PATHS),
        st.text(max_size=12),
        st.integers(-3, 70).map(str),
    )


def json_values(depth: int = 2) -> st.SearchStrategy[Any]:
    """Values of JSON of any shape, also those that JSON has no word for."""
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, 1, 2, 3, 64, -1, 10**30, 2**63, 0.5, 5.0, 1e308, math.nan, math.inf]),
        st.sampled_from(WORDS),
        st.text(max_size=8),
    )
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["kind", "order", "eta", "rows", "x"]), inner, max_size=3),
        ),
        max_leaves=2**depth,
    )


def numbers() -> st.SearchStrategy[Any]:
    """What may stand where a library function takes a number."""
    return st.one_of(
        st.integers(-2, 9),
        st.sampled_from([0.0, 0.5, 1.0, 1.5, -1.0, 1e-9, 1e9, 1e100, 1e308, 5e-324, math.nan, math.inf, -math.inf]),
        st.sampled_from([True, False, None, "2", "", b"1", [], [1], {}, 2j, 10**400, 2**31, 2**63, -(2**63), np.nan]),
        st.builds(lambda kind, value: kind(value), st.sampled_from(KINDS), st.integers(0, 5)),
    )


KINDS = (
    np.int8,
    np.uint8,
    np.int16,
    np.uint64,
    np.float16,
    np.float32,
    np.array,
    torch.tensor,
    lambda value: torch.tensor(float(value), requires_grad=True),
    lambda value: torch.tensor([value]),
    lambda value: np.array([[value]]),
)


NUMBERS = numbers()


def one_in(number: int) -> st.SearchStrategy[bool]:
    """True in about one case of so many; the ends of a range would come up more often than that."""
    return st.integers(0, number - 1).map(lambda die: die == number // 2)


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A good value, with one exception in fifteen."""
    return one_in(15).flatmap(lambda odd: NUMBERS if odd else good)
