"""What replacing the match heads of a model returns: `ReplacedHeads`; `interp.instruments.replacement` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp.circuit.circuit import Head, head_name
from interp.results import NamedRows, half_width, jsonable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class ReplacedHead:
    """The change of the loss by one replacement and by its control.

    edit               its name, see `interp.instruments.replacement`
    loss               mean loss after the replacement
    change, stderr     mean of L_edited - L_model, and its standard error over sequences
    recovered, recovered_stderr   (L_ablated - L_edited) / (L_ablated - L_model)
    control_change, control_stderr, control_recovered   the same for the control; None for `even` and `only`
    """

    edit: str
    loss: float
    change: float
    stderr: float
    recovered: float
    recovered_stderr: float
    control_change: float | None
    control_stderr: float | None
    control_recovered: float | None


@dataclass(frozen=True, kw_only=True)
class ReplacedHeads(NamedRows[ReplacedHead]):
    """The replacements, found by name (`tests["law"]`).

    edits          a `ReplacedHead` for each edit
    loss, loss_stderr   the model's own loss on the tokens that follow the queries
    heads          the match heads, replaced together
    drawn          the heads that were ablated as a control, a tuple for each draw
    worst_control  the largest change of the loss among these draws
    queries, n     queries of a sequence, and the number of sequences
    success        False where ablating the heads raises the loss by less than two standard errors: then no share of the
                   rise is defined, and every `recovered` is NaN
    """

    ROWS, NAME, NOUN = "edits", "edit", "edit"

    edits: tuple[ReplacedHead, ...]
    loss: float
    loss_stderr: float
    heads: tuple[Head, ...]
    drawn: tuple[tuple[Head, ...], ...]
    worst_control: float
    queries: int
    n: int

    @property
    def best_alone(self) -> ReplacedHead | None:
        """The edit with one head left that recovers most; None where none was made."""
        alone = [row for row in self.edits if " " in row.edit]
        return max(alone, key=lambda row: row.recovered, default=None)

    def record(self) -> dict[str, Any]:
        """The fields, after what each edit did, by name: the change of loss, what it and its control recover."""
        rows = self.edits
        by_name = {
            "change": {row.edit: row.change for row in rows},
            "recovered": {row.edit: jsonable(row.recovered) for row in rows},
            "control": {row.edit: jsonable(row.control_recovered) for row in rows},
            "lost": self["ablated"].change,
            "alone": None if self.best_alone is None else jsonable(self.best_alone.recovered),
        }
        return {**by_name, **super().record()}

    def __str__(self) -> str:
        names = ", ".join(map(head_name, self.heads))
        lines = [
            f"heads {names} replaced at {self.queries} queries of {self.n} sequences",
            f"  loss {self.loss:.3f} ± {self.loss_stderr:.3f} nats; other heads ablated: at most "
            f"{self.worst_control:+.3f}",
        ]
        for row in self.edits:
            if " " not in row.edit:
                control = "" if row.control_change is None else f" (control {row.control_change:+.3f})"
                moved = f"{row.change:+.3f} ± {row.stderr:.3f}{control}"
                share = f"recovers {row.recovered:.2f}" if self.success else "recovers: cannot tell"
                lines.append(f"  {row.edit:<8} {moved}, {share}")
        if self.success and (best := self.best_alone) is not None:
            lines[1] += f"; one match head alone recovers at most {best.recovered:.2f}"
        return "\n".join([*lines, *self.remarks()])

    def plot(self, ax: Axes | None = None) -> Axes:
        """The change of loss of each replacement, beside its control; 95% intervals."""
        from interp.plotting import (
            CONTROL_COLOUR,
            INTERVAL_NAME,
            MAIN_COLOUR,
            grouped_bars,
            heading,
            legend_beside,
            panel,
        )

        rows = self.table().astype({"control_change": float, "control_stderr": float})
        ax = panel(ax, width=max(6.4, 0.75 * len(rows)))
        grouped_bars(
            ax,
            [name.replace(" ", "\n") for name in self],
            {"edit": rows["change"].to_numpy(), "control": rows["control_change"].to_numpy()},
            reach={
                "edit": half_width(rows["stderr"], n=self.n),
                "control": half_width(rows["control_stderr"], n=self.n),
            },
            colours={"edit": MAIN_COLOUR, "control": CONTROL_COLOUR},
        )
        ax.set_ylabel(f"rise of the loss (nats)\n{INTERVAL_NAME}")
        legend_beside(ax)
        return heading(ax, f"heads {', '.join(map(head_name, self.heads))} replaced", doubt=self.doubt)
