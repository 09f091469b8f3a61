"""What a model's config asks for, compared with what its files hold before any of it is allocated.

    checked_settings   config.json, without what is no setting of a model
    empty_model        the model, without memory for its weights
    check_tensors      refuses a tensor that is missing, superfluous or of another size
    loaded             the model with its weights

A config may name code, other files and other models, and its numbers say how much is built. So code and other files are
refused, numbers are bounded by the tensors that the files hold, and of a tokenizer's config only the known keys are
taken.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from interp.language.headers import BUFFER, Shape, read_json_once
from interp.language.weights import CONFIG, LanguageModelError, Place, one_kind_of_error, quiet
from interp.outside import shown

MOST_WHOLE = 1 << 25  # of integers in a config; the longest contexts are 10 million tokens
MOST_BUFFERS = 1 << 27  # numbers in masks and tables of positions, which are computed and lie in no file
LAYERS = re.compile(r"(n|num|num_hidden|(num_)?(en|de)coder)_layers?|block_count|attention_types")
# Keys that lead to code or to other files, and why the model cannot be read without them.
REFUSED = {
    "auto_map": "names code of its own, which is never run; without that entry transformers' own code reads the model",
    "quantization_config": "says that the weights are quantised; give the original, or a GGUF file",
    "configuration_files": "names another config",
    "transformers_weights": "names other weights",
    "fusion_config": "names changes of the code",
    "distributed_config": "is made for several machines",
}
# Of no effect on what the model computes: how it is computed here is decided here.
DROPPED = {"attn_implementation", "experts_implementation", "dtype", "torch_dtype", "name_or_path", "num_labels"}
DROPPED |= {"id2label", "label2id", "problem_type", "architectures", "original_architecture"}
SPECIAL_TOKENS = {f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}
SPECIAL_TOKENS |= {"additional_special_tokens", "extra_special_tokens"}
TOKENIZER_SETTINGS = (
    "add_bos_token", "add_eos_token", "add_prefix_space", "added_tokens_decoder", "chat_template",
    "clean_up_tokenization_spaces", "do_lower_case", "errors", "legacy", "model_input_names", "model_max_length",
    "model_specific_special_tokens", "padding_side", "spaces_between_special_tokens", "split_special_tokens",
    "strip_accents", "tokenize_chinese_chars", "tokenizer_class", "trim_offsets", "truncation_side",
)  # fmt: skip
TOKENIZER_KEYS = {
    "special_tokens_map.json": SPECIAL_TOKENS,
    "tokenizer_config.json": SPECIAL_TOKENS.union(TOKENIZER_SETTINGS),
}
TOKENIZER_CLASS = re.compile(r"(?!Auto)\w*(Tokenizer(Fast)?|Backend)")


def checked_settings(where: str, found: dict[str, Any], held: dict[str, Shape]) -> dict[str, Any]:
    """The settings of a model, checked; `where` is the beginning of an error's line."""
    if not isinstance(found.get("model_type"), str):
        raise LanguageModelError(f"{where} has no model_type; expected a model in Hugging Face form")
    settings = {key: value for key, value in found.items() if key not in DROPPED and not key.startswith("_")}
    _check(where, settings, layers=len(held))
    return settings


def _check(where: str, value: Any, *, layers: int, key: str = "") -> None:
    """Refuse code, other files, and numbers that the tensors of the files rule out."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name in REFUSED and one is not None:
                raise LanguageModelError(f"{where} {REFUSED[name]} ({name})")
            if name == "tokenizer_class" and one is not None and TOKENIZER_CLASS.fullmatch(str(one)) is None:
                raise LanguageModelError(f"{where} names {shown(one)}, which is no tokenizer")
            _check(where, one, layers=layers, key=str(name))
    elif isinstance(value, list):
        for one in value:
            _check(where, one, layers=layers, key=key)
    elif isinstance(value, int) and LAYERS.fullmatch(key) and value > layers:
        raise LanguageModelError(f"{where} asks for {key} = {shown(value)}, its files hold {layers} tensors")
    elif isinstance(value, int) and abs(value) > MOST_WHOLE and "theta" not in key:
        raise LanguageModelError(f"{where} asks for {key} = {shown(value)}, at most {MOST_WHOLE} is read")


# ---- the model without its weights


def empty_model(name: str, settings: dict[str, Any], held: dict[str, Shape]) -> Any:
    """The model that the settings ask for, on torch's device without memory."""
    import transformer_lens.model_bridge  # noqa: F401  first: on release 4 the two modules import each other
    from transformer_lens.factories.architecture_adapter_factory import SUPPORTED_ARCHITECTURES
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    kind = settings["model_type"]
    with one_kind_of_error(f"{name}: its config cannot be read"):
        if kind not in CONFIG_MAPPING:
            raise LanguageModelError(f"{name}: transformers has no model of type {shown(kind)}")
        config_class: Any = CONFIG_MAPPING[kind]
        if odd := [key for key in settings if callable(getattr(config_class, key, None))]:
            raise LanguageModelError(f"{name}: {CONFIG} has a key that is no setting, {shown(odd[0])}")
        if getattr(config_class, "sub_configs", None):
            raise LanguageModelError(f"{name}: a {kind} consists of several models; save its language model alone")
        if config_class not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise LanguageModelError(f"{name}: a {kind} is not a decoder of text")
        found: Any = MODEL_FOR_CAUSAL_LM_MAPPING[config_class]
        model_class = found[0] if isinstance(found, (tuple, list)) else found
        if model_class.__name__ not in SUPPORTED_ARCHITECTURES:
            raise LanguageModelError(f"{name}: TransformerLens cannot hook a {model_class.__name__}")
        with quiet(), bounded(name, held), torch.device("meta"):
            config = config_class.from_dict(settings)
            # The adapter is chosen by this name, and some of TransformerLens' adapters import code from the directory.
            config.architectures = [model_class.__name__]
            return model_class(config)


@contextlib.contextmanager
def bounded(name: str, held: dict[str, Shape]) -> Iterator[None]:
    """Stop a model that grows far beyond what the files hold while it is built."""
    from torch.nn.modules import module

    most = 2 * sum(math.prod(shape) for shape in held.values()) + MOST_BUFFERS  # tied tensors come twice
    most_modules, seen = 100 * (len(held) + 10), [0, 0]

    def tensor(_: Any, __: str, value: Any) -> None:
        seen[0] += 0 if value is None else value.numel()
        if seen[0] > most:
            raise LanguageModelError(f"{name}: its config asks for more than the files hold")

    def part(_: Any, __: str, ___: Any) -> None:
        seen[1] += 1
        if seen[1] > most_modules:
            raise LanguageModelError(f"{name}: its config asks for more layers than the files hold")

    handles = [
        module.register_module_parameter_registration_hook(tensor),
        module.register_module_buffer_registration_hook(tensor),
        module.register_module_module_registration_hook(part),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def check_tensors(name: str, model: Any, held: dict[str, Shape], *, exact: bool = False) -> None:
    """Refuse files whose tensors are not those of this empty model.

    Where tensors are missing and as many numbers lie under other names, transformers may know the names from an
    earlier version of the model: what it says after loading decides then, unless all names are known to be `exact`.
    """
    if wrong := _disagreement(model, held, exact=exact):
        raise LanguageModelError(f"{name} {wrong}")


def _disagreement(model: Any, held: dict[str, Shape], *, exact: bool) -> str:
    """What is wrong with the tensors of the files; empty where nothing is."""
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    prefix, found, others = f"{model.base_model_prefix}.", dict[str, Shape](), []
    for name, shape in held.items():
        names = (name, prefix + name, name.removeprefix(prefix))
        target = next((one for one in names if one in wanted), None)
        if target in found:
            return f"holds {target} twice"
        if target is not None:
            found[target] = shape
        elif BUFFER.search(name) is None:
            others.append(name)
    for name, shape in found.items():
        if math.prod(shape) != math.prod(wanted[name]):
            return mismatch(name, shape, wanted[name])
    pairs = [pair for pair in tied(model).items() if found.keys() & set(pair)]
    shared = {name for pair in pairs for name in pair}
    missing = [name for name in wanted if name not in found and name not in shared]
    lost, extra = (
        sum(math.prod(shapes[name]) for name in names) for shapes, names in ((wanted, missing), (held, others))
    )
    if missing and others and lost == extra and not exact:
        return ""
    return lacking(missing) or superfluous(others)


def tied(model: Any) -> dict[str, str]:
    """Tensors that share their memory with another, and that other; transformers leaves out those that differ."""
    return dict(getattr(model, "all_tied_weights_keys", None) or {})


def loaded(name: str, empty: Any, source: str | None, *, dtype: torch.dtype, **options: Any) -> Any:
    """The model of the empty one's config with the weights of `source`, or of the options; refused if any is filled."""
    check_memory(name, empty, dtype)
    model, found = type(empty).from_pretrained(
        source, config=empty.config, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **options
    )
    if wrong := _report(empty, model, found):
        raise LanguageModelError(f"{name} {wrong}")
    return model


def _report(empty: Any, model: Any, found: dict[str, Any]) -> str:
    """What is wrong with a model that was loaded, by what transformers says of it; empty where all fits."""
    untied = sorted(tied(empty).keys() - tied(model).keys())
    wrong = sorted(found["mismatched_keys"], key=str)
    other = [*found.get("error_msgs", ()), *found.get("conversion_errors", {}).values()]
    return (
        lacking(sorted(found["missing_keys"]))
        or (mismatch(*wrong[0]) if wrong else "")
        or superfluous(sorted(found["unexpected_keys"]))
        or (str(other[0]) if other else "")
        or (f"holds {untied[0]}, which its config ties to a tensor of other values" if untied else "")
    )


def lacking(names: list[str]) -> str:
    """The line for tensors that are missing."""
    return f"lacks {len(names)} of its weights, the first is {names[0]}" if names else ""


def superfluous(names: list[str]) -> str:
    """The line for tensors that the model does not have."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"holds {names[0]}{more}, for which its config has no place" if names else ""


def mismatch(name: str, shape: Any, wanted: Any) -> str:
    """The line for a tensor of another shape."""
    return f"holds {name} of shape {list(shape)}, its config needs {list(wanted)}"


def check_memory(name: str, model: Any, dtype: torch.dtype) -> None:
    """Refuse weights that this machine cannot hold; without this check it would begin to swap."""
    need = sum(tensor.numel() for tensor in model.parameters()) * dtype.itemsize
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > room:
        raise LanguageModelError(
            f"{name}: the weights need {need / 2**30:.1f} GiB, this machine has {room / 2**30:.1f} GiB"
        )


# ---- the tokenizer


def stage_tokenizer(place: Place, settings: dict[str, Any], folder: Path) -> None:
    """Fill an empty directory with what a tokenizer is read from, and nothing else."""
    (folder / CONFIG).write_text(json.dumps(settings))
    for name, file in place.files.items():
        if name in TOKENIZER_KEYS:
            with one_kind_of_error(f"{place.name}: {name} cannot be read"):
                found = read_json_once(file)
            _check(f"{place.name}: {name}", {key: found.get(key) for key in ("auto_map", "tokenizer_class")}, layers=0)
            known = {key: value for key, value in found.items() if key in TOKENIZER_KEYS[name]}
            (folder / name).write_text(json.dumps(known))
        elif name != CONFIG and name not in place.shards and not name.endswith(".index.json"):
            with one_kind_of_error(f"{place.name} has no tokenizer that can be read"):
                if name == "tokenizer.json":
                    _check_tables(read_json_once(file).get("normalizer"))
            (folder / name).symlink_to(file)


def _check_tables(normalizer: Any) -> None:
    """Refuse a table of characters that is longer than its bytes: tokenizers would take memory first, and abort."""
    if isinstance(normalizer, dict):
        if "precompiled_charsmap" in normalizer:
            table = base64.b64decode(normalizer["precompiled_charsmap"] or "")
            if int.from_bytes(table[:4], "little") > len(table):
                raise ValueError("its table of characters is longer than its bytes")
        for one in normalizer.values():
            _check_tables(one)
    elif isinstance(normalizer, list):
        for one in normalizer:
            _check_tables(one)
