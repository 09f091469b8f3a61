"""Train a plain HookedTransformer on chains with a next-token loss: an example of a model from outside this suite.

    python -m models.families.next_token models/foreign/four_heads.toml --out runs/four_heads

The study file has the arguments of HookedTransformerConfig, of the run, and of `find_circuit`. The loss is the
cross-entropy of token t + 1 at every position t of a sequence, so that the last position, which has no next token, is
never trained. Weights come from AdamW with a linear warm-up and a cosine, gradients cut to norm 1. The result is a
checkpoint that `ip.load` reads: the model with its order, vocabulary and, as far as `find_circuit` finds them, the
heads of its circuit.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.families.plain import PlainRun, command
from models.running.terminal import say, show

REPORT = 100  # steps between lines
SEEDS = 1_000_000  # seeds of data for each seed of a run
TESTED = 256  # held-out sequences


@dataclass(frozen=True, kw_only=True)
class NextTokenRun(PlainRun):
    """One run: the transformer, the chains, and the arguments of `find_circuit`, besides the order."""

    prior: dict[str, Any]
    circuit: dict[str, Any] = field(default_factory=dict)


def train(run: NextTokenRun) -> tuple[Any, dict[str, Any]]:
    """The trained transformer and a record of the run."""
    import torch

    from interp.chains.descriptions import prior_from_dict

    torch.set_num_threads(1)
    prior = prior_from_dict(run.prior)
    model = run.start(positions=run.length, vocab=prior.vocab, out=prior.vocab)
    optimiser = torch.optim.AdamW(model.parameters(), lr=run.learning_rate, weight_decay=run.weight_decay)
    start = time.process_time()
    for step in range(run.steps):
        tokens = prior.sample(
            batch=run.batch, length=run.length, seed=SEEDS * run.seed + step, method="explicit"
        ).tokens
        loss = model(tokens, return_type="loss", prepend_bos=False)
        run.descend(optimiser, model, loss, step=step)
        if step % REPORT == 0:
            say(f"step {step}: loss {loss.item():.4f}")
    record = {
        "loss": "next_token",
        **{name: value for name, value in asdict(run).items() if name not in ("transformer", "circuit")},
        **_tested(model, prior, run),
        "cpu_seconds": round(time.process_time() - start, 1),
    }
    return model.eval(), record


def _tested(model: Any, prior: Any, run: NextTokenRun) -> dict[str, float]:
    """Held-out loss over all positions that predict, beside that of the Bayes predictor where it has a closed form."""
    import torch

    from interp.estimators.soft_matching import add_alpha

    chains = prior.sample(batch=TESTED, length=run.length, seed=SEEDS * (run.seed + 1) - 1, method="explicit")
    tokens, found = chains.tokens, {}
    with torch.no_grad():
        found["held_out_loss"] = float(model(tokens, return_type="loss", prepend_bos=False))
    if prior.kind == "independent":
        laws = add_alpha(tokens, order=prior.order, vocab=prior.vocab, alpha=prior.alpha, every_position=True)
        given = laws[:, :-1].gather(2, tokens[:, 1:, None])[:, prior.order - 1 :]
        found["bayes_loss"] = float(-given.log().mean())
    return found


def train_and_save(run: NextTokenRun, out: Path) -> None:
    """Train, find the circuit, and save."""
    import interp as ip

    model, record = train(run)
    prior, seed = ip.prior_from_dict(run.prior), SEEDS * run.seed + 2
    tokens = prior.sample(batch=100, length=run.length, seed=seed, method="explicit").tokens
    circuit = ip.find_circuit(model, tokens, order=run.prior["order"], **run.circuit, query="trained")
    ip.save(circuit, out, training=record)
    show(circuit)
    show(json.dumps({name: record[name] for name in ("held_out_loss", "bayes_loss", "cpu_seconds") if name in record}))


main = command("models.families.next_token", __doc__ or "", NextTokenRun, train_and_save)

if __name__ == "__main__":
    sys.exit(main())
