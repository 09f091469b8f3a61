"""Train plain HookedTransformers with a next-token loss: models from outside this suite, and their formation.

    python -m models.families.next_token models/foreign/four_heads.toml --out runs/four_heads
    python -m models.families.next_token models/formation/two_layers.toml --out runs/two_layers

The study file has the arguments of HookedTransformerConfig, of the run, and of `find_circuit`. The loss is the
cross-entropy of token t + 1 at every position t of a sequence, so that the last position, which has no next token, is
never trained. With `bos` a BOS token stands before each sequence, and its first token is predicted, too. Weights come
from AdamW with a linear warm-up, then a cosine or a constant rate, gradients cut to norm 1.

The result is a checkpoint that `ip.load` reads: the model with its order, vocabulary and, as far as `find_circuit`
finds them, the heads of its circuit. A run with `snapshots` is a folder of checkpoints, one for each of these steps,
whose heads are not looked for: `python -m analyses track` does so.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
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
    """One run: the transformer, the sequences, and the arguments of `find_circuit`, besides the order.

    snapshots   the steps at which a checkpoint is kept; none for the last one alone
    """

    prior: dict[str, Any]
    bos: bool = False
    snapshots: tuple[int, ...] = ()
    circuit: dict[str, Any] = field(default_factory=dict)


def train(run: NextTokenRun) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The transformer with a record of the run, at every snapshot; it trains on, so it is to be read at once."""
    import torch

    from interp.chains.descriptions import prior_from_dict

    torch.set_num_threads(1)
    prior = prior_from_dict(run.prior)
    model = run.start(positions=run.length + run.bos, vocab=prior.vocab + run.bos, out=prior.vocab)
    optimiser = torch.optim.AdamW(model.parameters(), lr=run.learning_rate, weight_decay=run.weight_decay)
    start, kept = time.process_time(), set(run.snapshots) | {run.steps}
    about = {name: value for name, value in asdict(run).items() if name not in ("transformer", "circuit", "snapshots")}
    for step in range(run.steps + 1):
        if step in kept:
            spent = {"cpu_seconds": round(time.process_time() - start, 1)}
            yield model, {"loss": "next_token", **about, "step": step, **_tested(model, prior, run), **spent}
        if step == run.steps:
            break
        tokens = prior.sample(
            batch=run.batch, length=run.length, seed=SEEDS * run.seed + step, method="explicit"
        ).tokens
        loss = next_token_loss(model, tokens, bos=run.bos)
        run.descend(optimiser, model, loss, step=step)
        if step % REPORT == 0:
            say(f"step {step}: loss {loss.item():.4f}")


def next_token_loss(model: Any, tokens: Any, *, bos: bool) -> Any:
    """Mean cross-entropy of every token that has one before it; with BOS, whose id is |V|, of all tokens.

    Attention-only models with LayerNorm and rotary positions are computed without hooks, in half the time.
    """
    from torch.nn.functional import cross_entropy, pad

    inputs = pad(tokens, (1, 0), value=model.cfg.d_vocab - 1)[:, :-1] if bos else tokens[:, :-1]
    targets = tokens if bos else tokens[:, 1:]
    config = model.cfg
    plain = config.attn_only and config.normalization_type == "LN" and not config.use_local_attn
    if plain and config.positional_embedding_type == "rotary" and config.rotary_dim == config.d_head:
        logits = _logits(model, inputs)
    else:
        logits = model(inputs, prepend_bos=False)
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def _logits(model: Any, inputs: Any) -> Any:
    """[batch, position, vocab]."""
    from torch.nn.functional import layer_norm

    def normal(layer: Any, stream: Any) -> Any:
        return layer_norm(stream, stream.shape[-1:], layer.w, layer.b, layer.eps)

    stream = model.embed.W_E[inputs]
    for block in model.blocks:
        stream = stream + _attended(block.attn, normal(block.ln1, stream))
    return normal(model.ln_final, stream) @ model.unembed.W_U + model.unembed.b_U


def _attended(attention: Any, stream: Any) -> Any:
    """What a layer's heads add to the stream."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    cos, sin = attention.rotary_cos[: stream.shape[1]], attention.rotary_sin[: stream.shape[1]]

    def projected(weight: Any, bias: Any) -> Any:
        flat = stream @ weight.transpose(0, 1).flatten(1) + bias.flatten()
        return flat.unflatten(-1, bias.shape).transpose(1, 2)

    def turned(vectors: Any) -> Any:
        left, right = vectors.chunk(2, dim=-1)
        return vectors * cos + torch.cat([-right, left], dim=-1) * sin

    query, key = (turned(projected(*two)) for two in ((attention.W_Q, attention.b_Q), (attention.W_K, attention.b_K)))
    value = projected(attention.W_V, attention.b_V)
    mixed = scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0 / attention.attn_scale)
    return mixed.transpose(1, 2).flatten(2) @ attention.W_O.flatten(0, 1) + attention.b_O


def _tested(model: Any, prior: Any, run: NextTokenRun) -> dict[str, float]:
    """Held-out loss over all positions that predict, beside that of the Bayes predictor where it has a closed form."""
    import torch

    from interp.estimators.soft_matching import add_alpha

    chains = prior.sample(batch=TESTED, length=run.length, seed=SEEDS * (run.seed + 1) - 1, method="explicit")
    tokens, found = chains.tokens, {}
    with torch.no_grad():
        found["held_out_loss"] = float(next_token_loss(model, tokens, bos=run.bos))
    if prior.kind == "independent":
        laws = add_alpha(tokens, order=prior.order, vocab=prior.vocab, alpha=prior.alpha, every_position=True)
        given = laws[:, :-1].gather(2, tokens[:, 1:, None])[:, prior.order - 1 :]
        found["bayes_loss"] = float(-given.log().mean())
    return found


def train_and_save(run: NextTokenRun, out: Path) -> None:
    """Train, and save the snapshots, or the last model with the circuit that is found in it."""
    import interp as ip

    prior, seed = ip.prior_from_dict(run.prior), SEEDS * run.seed + 2
    task = {"order": prior.order, "vocab": prior.vocab, "bos": prior.vocab if run.bos else None, **run.circuit}
    for model, record in train(run):
        if run.snapshots:
            place = out / f"step_{record['step']:08d}"
            ip.save(ip.Circuit(model, **task), place, length=run.length, training=record, half=True)
        else:
            tokens = prior.sample(batch=100, length=run.length, seed=seed, method="explicit").tokens
            circuit = ip.find_circuit(model.eval(), tokens, **task, query="trained")
            ip.save(circuit, out, training=record)
            show(circuit)
        names = ("step", "held_out_loss", "bayes_loss", "cpu_seconds")
        show(json.dumps({name: record[name] for name in names if name in record}))


main = command("models.families.next_token", __doc__ or "", NextTokenRun, train_and_save)

if __name__ == "__main__":
    sys.exit(main())
