"""The annotations of `interp` are checked while the tests run: with shapes and without, arguments, results, fields."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import jaxtyping
import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError

from interp import arguments, notation
from tests import run_time_checks

SOURCE = """
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from nowhere import Unknown


def plain(count: int, name: Literal["a", "b"] = "a", *, more: list[int] | None = None) -> str:
    return name if count < 10 else count


def shaped(left: Float[np.ndarray, "rows cols"], right: Float[np.ndarray, " cols"]) -> Float[np.ndarray, " rows"]:
    return left @ right if left.shape != (4, 4) else right[:1]


def later(one: Later) -> int:
    return one.size


def unknown(one: Unknown, size: int) -> None:
    pass


def outer(size: int) -> Callable[..., Any]:
    def inner(rows: Float[np.ndarray, "n n"], count: int) -> int:
        return size + count

    return inner


def steps(count: int) -> Iterator[int]:
    yield from range(count)


@dataclass(frozen=True, kw_only=True)
class Later:
    size: int
    values: Float[np.ndarray, "a a"] | None = None

    @property
    def half(self) -> int:
        return self.size / 2

    @classmethod
    def of(cls, size: int) -> Later:
        return cls(size=size)

    @staticmethod
    def twice(size: int) -> int:
        return 2 * size


@dataclass(frozen=True, kw_only=True)
class More(Later):
    name: str = ""


class Same(More):
    pass
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A module imported as those of `interp` are."""
    folder = tmp_path_factory.mktemp("checked")
    (folder / "some_checked_module.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    hook = run_time_checks.import_hook.install_import_hook("some_checked_module", run_time_checks.CHECKER)
    importlib.invalidate_caches()
    try:
        yield importlib.import_module("some_checked_module")
    finally:
        hook.uninstall()
        sys.path.remove(str(folder))
        sys.modules.pop("some_checked_module", None)


SQUARE, LONG = np.zeros((3, 3)), np.zeros((2, 3))
WRONG: dict[str, Callable[[ModuleType], object]] = {
    "argument": lambda m: m.plain("1"),
    "choice": lambda m: m.plain(1, "c"),
    "keyword": lambda m: m.plain(1, more=["x"]),
    "result": lambda m: m.plain(10),
    "kind of array": lambda m: m.shaped(LONG.astype(int), LONG[0]),
    "axes that differ": lambda m: m.shaped(LONG, LONG[:, 0]),
    "axes of the result": lambda m: m.shaped(np.zeros((4, 4)), np.zeros(4)),
    "a class further down": lambda m: m.later(3),
    "beside what cannot be resolved": lambda m: m.unknown(object(), "1"),
    "function in a function": lambda m: m.outer(1)(LONG, 1),
    "function in a function, again": lambda m: m.outer(2)(SQUARE, "1"),
    "generator": lambda m: m.steps("3"),
    "field": lambda m: m.Later(size="3"),
    "field with axes": lambda m: m.Later(size=3, values=LONG),
    "inherited field": lambda m: m.More(size="3", name="x"),
    "inherited constructor": lambda m: m.Same(size=3, name=4),
    "property": lambda m: m.Later(size=3).half,
    "class method": lambda m: m.Later.of("3"),
    "static method": lambda m: m.Later.twice(1.5),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_an_annotation_forbids_is_refused(checked: ModuleType, kind: str) -> None:
    with pytest.raises(TypeCheckError):
        WRONG[kind](checked)


def test_what_annotations_allow_passes(checked: ModuleType) -> None:
    assert checked.plain(1, "b", more=[1]) == "b"
    assert checked.shaped(LONG, LONG[0]).shape == (2,)
    assert checked.shaped(np.zeros((5, 2)), np.zeros(2)).shape == (5,)  # axes are of one call alone
    assert checked.later(checked.Same(size=3, values=SQUARE)) == 3
    assert checked.unknown(object(), 1) is None
    assert [checked.outer(size)(SQUARE, 1) for size in (1, 2)] == [2, 3]
    assert list(checked.steps(3)) == [0, 1, 2]
    assert checked.Later.of(3).twice(2) == 4
    assert str(inspect.signature(checked.outer)) == "(size: 'int') -> 'Callable[..., Any]'"


@pytest.mark.parametrize("kind", WRONG)
def test_checks_can_be_turned_off(checked: ModuleType, kind: str) -> None:
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        WRONG[kind](checked)
    except TypeCheckError:
        pytest.fail("checked")
    except (ValueError, AttributeError, TypeError):
        pass  # what numpy and Python say of it
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_interp_is_checked() -> None:
    with pytest.raises(TypeCheckError):
        notation.key_kinds(np.zeros((2, 2), np.int64), order=1, bos=True)
    with pytest.raises(TypeCheckError):
        arguments.whole_number(3, name=4)


@pytest.mark.parametrize(
    ("hint", "plain"),
    [
        (int, True),
        (list[int] | None, True),
        (Callable[[int, str], dict[str, float]], True),
        (Callable[..., Iterator[Path]], True),
        (Float, False),
        (Float[np.ndarray, " n"], False),
        (tuple[int, Float[np.ndarray, " n"] | None], False),
        (Callable[[Float[np.ndarray, " n"]], float], False),
    ],
)
def test_shapes_are_found_wherever_an_annotation_names_them(hint: object, plain: bool) -> None:
    assert run_time_checks.names_no_axis(hint) == plain
