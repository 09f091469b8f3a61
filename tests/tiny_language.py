"""Tiny language models with random weights, written to disk as Hugging Face and llama.cpp write theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:  # seconds of import, which only the process that runs these tests takes
    from transformers import GPT2LMHeadModel, LlamaForCausalLM

WORDS = ("red", "blue", "green", "one", "two", "three", "cat", "dog", "the", "of")


def tokenizer() -> Any:
    """Byte-level, as GPT-2's and Llama's are: every byte is a token, and each of WORDS with a space before it."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<|start|>": 0} | {symbol: 1 + place for place, symbol in enumerate(alphabet)}
    merges: list[tuple[str, str]] = []
    for word in WORDS:
        piece = "Ġ"  # the byte-level alphabet writes a space so
        for letter in word:
            merges.append((piece, letter))
            piece += letter
            vocab.setdefault(piece, len(vocab))
    inner = Tokenizer(BPE(vocab=vocab, merges=list(dict.fromkeys(merges))))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|start|>", eos_token="<|start|>")


def llama(*, layers: int = 2, seed: int = 0, **options: Any) -> LlamaForCausalLM:
    """Rotary positions, four heads of queries on two of keys, a gated MLP."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    settings = {
        "vocab_size": len(tokenizer()),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "initializer_range": 0.3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return LlamaForCausalLM(LlamaConfig(**{**settings, **options})).eval()


def gpt2(*, layers: int = 2, seed: int = 0, **options: Any) -> GPT2LMHeadModel:
    """Learned positions, LayerNorm, one matrix for queries, keys and values."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    settings = {
        "vocab_size": len(tokenizer()),
        "n_embd": 32,
        "n_layer": layers,
        "n_head": 4,
        "n_positions": 96,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return GPT2LMHeadModel(GPT2Config(**{**settings, **options})).eval()


KINDS = {"llama": llama, "gpt2": gpt2}


def write(model: Any, folder: Path) -> Path:
    """A directory in Hugging Face form."""
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def write_gguf(
    model: LlamaForCausalLM,
    file: Path,
    *,
    architecture: str = "llama",
    numbers: dict[str, int] | None = None,
    texts: dict[str, str] | None = None,
    more: dict[str, tuple[int, ...]] | None = None,
) -> Path:
    """A GGUF file of a Llama, in float32: llama.cpp's names and its order of the rotary dimensions.

    `numbers` and `texts` are further metadata, `more` the shapes of further tensors.
    """
    import gguf

    config, state = model.config, model.state_dict()
    writer = gguf.GGUFWriter(file, architecture)
    for key, number in (numbers or {}).items():
        writer.add_uint32(key, number)
    for key, text in (texts or {}).items():
        writer.add_string(key, text)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    words = tokenizer()
    entries = sorted(words.get_vocab().items(), key=lambda entry: entry[1])
    writer.add_vocab_size(len(entries))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([word for word, _ in entries])
    writer.add_token_types([gguf.TokenType.CONTROL if word == "<|start|>" else 1 for word, _ in entries])
    merges = words.backend_tokenizer.to_str()
    import json

    writer.add_token_merges([" ".join(pair) for pair in json.loads(merges)["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in state.items():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        array = tensor.numpy()
        for kind, count in heads.items():
            if kind in name:  # llama.cpp pairs neighbouring dimensions, Hugging Face the two halves
                rows, columns = array.shape
                array = array.reshape(count, 2, rows // count // 2, columns).swapaxes(1, 2).reshape(rows, columns)
        there = names.get_name(name, try_suffixes=(".weight",))
        assert there is not None, name
        writer.add_tensor(there, np.ascontiguousarray(array))
    for name, shape in (more or {}).items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
