"""Language models that a stranger could have sent, and what happens when they are loaded.

`python -m tests.hostile_language DIRECTORY` makes each of them in the directory, loads it and gives it to two commands,
all in one process with little memory and no network; it prints a JSON object: what became of each.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import resource
import shutil
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CANARY = "canary"  # what their code would write, beside the models
MEMORY = 6 << 30  # of addresses; torch and transformers have mapped half of it before anything is loaded

Maker = Callable[[Path], object]


# ---- GGUF files


def changed(old: bytes, new: bytes, *, at: int = 0) -> Maker:
    """A file with other bytes, `at` after the place where `old` is."""

    def make(file: Path) -> None:
        data = file.read_bytes()
        assert data.count(old) == 1, (old, data.count(old))
        place = data.index(old) + at
        file.write_bytes(data[:place] + new + data[place + len(new) :])

    return make


def metadata(key: str, kind: str, value: Any) -> Maker:
    """Another value under a key."""
    name = key.encode()
    return changed(struct.pack("<Q", len(name)) + name, struct.pack(f"<{kind}", value), at=8 + len(name) + 4)


def tensor(name: str, *, dims: tuple[int, ...] = (), kind: int | None = None, offset: int | None = None) -> Maker:
    """Another entry for a matrix in the table of tensors."""

    def make(file: Path) -> None:
        start = struct.pack("<Q", len(name)) + name.encode()
        after = len(start)
        for value, form, at in ((dims, "QQ", 4), (kind, "I", 20), (offset, "Q", 24)):
            if value not in (None, ()):
                changed(
                    start, struct.pack(f"<{form}", *(value if isinstance(value, tuple) else (value,))), at=after + at
                )(file)

    return make


def header(**counts: int) -> Maker:
    """Other counts at the beginning."""

    def make(file: Path) -> None:
        with file.open("r+b") as stream:
            for name, (form, at) in {"version": ("I", 4), "tensors": ("Q", 8), "entries": ("Q", 16)}.items():
                if name in counts:
                    stream.seek(at)
                    stream.write(struct.pack(f"<{form}", counts[name]))

    return make


def rewritten(**options: Any) -> Maker:
    """The file anew, with other metadata or tensors."""

    def make(file: Path) -> None:
        from tests import tiny_language

        tiny_language.write_gguf(tiny_language.llama(), file, **options)

    return make


def bytes_of(change: Callable[[bytes], bytes]) -> Maker:
    """The file's bytes changed."""
    return lambda file: file.write_bytes(change(file.read_bytes()))


GGUF: dict[str, tuple[Maker, str]] = {
    "no tensor is announced": (header(tensors=0), "its tensors end at the byte"),
    "one tensor fewer": (header(tensors=20), "cannot be converted"),
    "2^63 tensors": (header(tensors=1 << 63), "cannot be converted"),
    "2^60 entries": (header(entries=1 << 60), "cannot be converted"),
    "version 99": (header(version=99), "of GGUF version 99"),
    "a renamed tensor": (
        changed(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight"),
        "lacks 1 of its weights, the first is model.layers.1.self_attn.q_proj",
    ),
    "a renamed norm": (changed(b"blk.1.ffn_norm.weight", b"blk.1.ffn_xxxx.weight"), "lacks 1 of its weights"),
    "one layer of two": (
        metadata("llama.block_count", "I", 1),
        "holds blk.1.attn_q.weight and 8 more, for which its config has no place",
    ),
    "three layers of two": (metadata("llama.block_count", "I", 3), "lacks 9 of its weights"),
    "10^5 layers": (metadata("llama.block_count", "I", 10**5), "block_count = 100000"),
    "10^9 layers": (metadata("llama.block_count", "I", 10**9), "block_count = 1000000000"),
    "2^31 - 1 neurons": (metadata("llama.feed_forward_length", "I", 2**31 - 1), "feed_forward_length = 2147483647"),
    "47 neurons of 48": (metadata("llama.feed_forward_length", "I", 47), r"mlp.* of shape .*, its config needs \[47"),
    "31 dimensions of 32": (metadata("llama.embedding_length", "I", 31), "not a multiple of the number of attention"),
    "10^7 dimensions": (metadata("llama.embedding_length", "I", 10**7), "asks for more than the files hold"),
    "no heads": (metadata("llama.attention.head_count", "I", 0), "cannot be converted"),
    "heads of another size": (metadata("llama.rope.dimension_count", "I", 16), "its config needs"),
    "a context of 2^32 - 1": (metadata("llama.context_length", "I", 2**32 - 1), "context_length = 4294967295"),
    "a BOS token of 10^9": (
        metadata("tokenizer.ggml.bos_token_id", "I", 10**9),
        "bos_token_id|list index out of range",
    ),
    "swapped dimensions": (
        tensor("blk.0.ffn_down.weight", dims=(32, 48)),
        "size mismatch for model.layers.0.mlp.down_proj.weight",
    ),
    "dimensions of 2^62": (tensor("blk.0.ffn_down.weight", dims=(1 << 62, 1 << 62)), "cannot be converted"),
    "an unknown type": (tensor("blk.0.ffn_down.weight", kind=99), "is of an unknown type, 99"),
    "another type": (tensor("blk.0.ffn_down.weight", kind=1), "is at the offset|its tensors end"),
    "blocks that do not fit": (tensor("blk.0.ffn_down.weight", kind=12), "does not consist of blocks of 256"),
    "an offset behind the end": (tensor("blk.0.ffn_down.weight", offset=1 << 40), "is at the offset 1099511627776"),
    "two tensors in one place": (tensor("blk.0.ffn_down.weight", offset=0), "is at the offset 0, expected"),
    "four thousand million dimensions": (
        changed(b"blk.0.ffn_down.weight", b"\xff\xff\xff\xff", at=len("blk.0.ffn_down.weight")),
        "has 4294967295 dimensions",
    ),
    "10^18 tokens": (changed(b"tokenizer.ggml.tokens", struct.pack("<Q", 10**18), at=29), "cannot be converted"),
    "a key of 2^62 bytes": (changed(b"llama.block_count", struct.pack("<Q", 1 << 62), at=-8), "a text has"),
    "a key twice": (changed(b"ggml.bos_token_id", b"ggml.eos_token_id"), "eos_token_id' comes twice"),
    "no number of heads": (
        changed(b"llama.attention.head_count\x04", b"llama.attention.heads_of_i"),
        "lack head_count",
    ),
    "a tensor twice": (changed(b"blk.1.attn_q.weight", b"blk.0.attn_q.weight"), "a tensor comes twice"),
    "another architecture": (rewritten(architecture="clip"), "cannot be converted: .*clip"),
    "no architecture": (changed(b"general.architecture", b"general.architectura"), "name no architecture"),
    "an architecture of no letters": (rewritten(architecture=""), "name no architecture"),
    "rotary factors": (
        rewritten(more={"rope_freqs.weight": (4,)}),
        "holds rope_freqs.weight, for which its config has no place",
    ),
    "rotary scaling": (rewritten(texts={"llama.rope.scaling.type": "yarn"}), r"rotary scaling \(yarn\) would be lost"),
    "a tensor too many": (
        rewritten(more={"blk.1.attn_q.bias": (32,)}),
        "holds .*blk.1.attn_q.bias|holds model.layers.1.self_attn.q_proj.bias",
    ),
    "an odd alignment": (rewritten(numbers={"general.alignment": 3}), "is no power of two"),
    "cut in its header": (bytes_of(lambda data: data[:1000]), "it ends after 1000 bytes"),
    "cut in its tensors": (bytes_of(lambda data: data[:-1000]), "ends at the byte"),
    "more at its end": (bytes_of(lambda data: data + bytes(1000)), "its tensors end at the byte"),
    "no more than a name": (bytes_of(lambda data: data[:4]), "it ends after 4 bytes"),
    "weights that are no numbers": (bytes_of(lambda data: data[:-64] + b"\xff" * 64), "holds NaN or infinity"),
}


# ---- directories in Hugging Face form


def config(**values: Any) -> Maker:
    """Other values in config.json."""
    return lambda folder: edit_json(folder / "config.json", values)


def words(**values: Any) -> Maker:
    """Other values in tokenizer_config.json."""
    return lambda folder: edit_json(folder / "tokenizer_config.json", values)


def edit_json(file: Path, values: dict[str, Any]) -> None:
    """Change keys of a JSON object."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def text(name: str, content: str) -> Maker:
    """A file with this text."""
    return lambda folder: (folder / name).write_text(content)


def both(*makers: Maker) -> Maker:
    """One after the other."""
    return lambda folder: [make(folder) for make in makers]


def with_code(*makers: Maker, module: str) -> Maker:
    """Python beside the model, which writes the canary when it is imported."""

    def make(folder: Path) -> None:
        (folder / module).parent.mkdir(exist_ok=True)
        (folder / f"{module}.py").write_text(f"open({str(folder.parent / CANARY)!r}, 'w').close()\nclass Own: pass\n")
        for one in makers:
            one(folder)

    return make


class Bomb:
    """What writes the canary when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.place), "w"))


def pickled(name: str) -> Maker:
    """A pickle that writes the canary."""
    return lambda folder: (folder / name).write_bytes(pickle.dumps(Bomb(folder.parent / CANARY)))


def indexed(place: str) -> Maker:
    """The weights under another name, which an index gives."""

    def make(folder: Path) -> None:
        names = [*stored(folder)]
        (folder / "model.safetensors").rename(folder / "one.safetensors")
        places = {name: "one.safetensors" if row else place for row, name in enumerate(names)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    return make


def stored(folder: Path) -> dict[str, Any]:
    """The tensors of a directory."""
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(folder / "model.safetensors")
    return found


def tensors(change: Callable[[dict[str, Any]], object]) -> Maker:
    """Other tensors in the same file."""

    def make(folder: Path) -> None:
        from safetensors.torch import save_file

        found = stored(folder)
        change(found)
        save_file(found, folder / "model.safetensors", {"format": "pt"})

    return make


def raw(change: Callable[[str], str]) -> Maker:
    """Another header before the same bytes."""

    def make(folder: Path) -> None:
        file = folder / "model.safetensors"
        data = file.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = change(data[8 : 8 + length].decode()).encode()
        file.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])

    return make


def linked(name: str, target: Callable[[Path], Path]) -> Maker:
    """A link in place of a file."""

    def make(folder: Path) -> None:
        place = target(folder)
        if not place.exists():
            shutil.copy(folder / name, place)
        (folder / name).unlink()
        (folder / name).symlink_to(place)

    return make


def pipe(name: str) -> Maker:
    """A named pipe, from which reading never ends."""

    def make(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return make


def without(name: str) -> Maker:
    """No such file."""
    return lambda folder: (folder / name).unlink()


Q = "model.layers.0.self_attn.q_proj.weight"
OWN = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own", "AutoTokenizer": ["own.Own", "own.Own"]}
NOT_RUN = r"names code of its own, which is never run.*\(auto_map\)"

FOLDERS: dict[str, tuple[Maker, str]] = {
    "code in the config": (with_code(config(auto_map=OWN), module="own"), NOT_RUN),
    "code in the config of a new type": (with_code(config(auto_map=OWN, model_type="own"), module="own"), NOT_RUN),
    "code from elsewhere": (config(auto_map={"AutoModelForCausalLM": "somebody/else--own.Own"}), NOT_RUN),
    "code deep in the config": (with_code(config(text={"inner": [{"auto_map": OWN}]}), module="own"), NOT_RUN),
    "code in the tokenizer": (with_code(words(auto_map=OWN), module="own"), NOT_RUN),
    "code in the tokenizer, in an old form": (with_code(words(auto_map=["own.Own", None]), module="own"), NOT_RUN),
    "code in the tokenizer, trusted": (
        with_code(words(auto_map=OWN, trust_remote_code=True, tokenizer_class="Own"), module="own"),
        NOT_RUN,
    ),
    "a tokenizer that is a model": (words(tokenizer_class="AutoModelForCausalLM"), "which is no tokenizer"),
    "a tokenizer that asks the hub": (words(tokenizer_class="RagRetriever"), "which is no tokenizer"),
    "a config that names such a tokenizer": (config(tokenizer_class="RagRetriever"), "which is no tokenizer"),
    "a tokenizer that is a pickle": (
        both(without("tokenizer.json"), pickled("vocab.pkl"), words(tokenizer_class="TransfoXLTokenizer")),
        "has no tokenizer that can be read",
    ),
    "a tokenizer elsewhere": (linked("tokenizer.json", lambda folder: folder.parent / "words.json"), "is a link to"),
    "a tokenizer in a pipe": (pipe("tokenizer.json"), "tokenizer.json is not a file"),
    "a tokenizer that is nested": (text("tokenizer.json", "[" * 10**5), "has no tokenizer that can be read"),
    "a tokenizer of a terabyte of holes": (
        lambda folder: os.truncate(folder / "tokenizer.json", 1 << 40),
        "tokenizer.json has 1048576 MiB, at most 64 are read",
    ),
    "a chat template of a terabyte of holes": (
        both(text("chat_template.jinja", ""), lambda folder: os.truncate(folder / "chat_template.jinja", 1 << 40)),
        "chat_template.jinja has 1048576 MiB, at most 64 are read",
    ),
    "a tokenizer that takes all memory": (
        lambda folder: edit_json(
            folder / "tokenizer.json",
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "Precompiled", "precompiled_charsmap": "/////w=="}],
                }
            },
        ),
        "its table of characters is longer than its bytes",
    ),
    "no tokenizer": (
        both(without("tokenizer.json"), without("tokenizer_config.json")),
        "has no tokenizer that can be read",
    ),
    "a tokenizer of more tokens": (config(vocab_size=100), r"its config needs \[100, 32\]"),
    "a pickle alone": (both(without("model.safetensors"), pickled("pytorch_model.bin")), "holds no model.safetensors"),
    "a pickle by the index": (both(pickled("weights.bin"), indexed("weights.bin")), "which is no .*safetensors beside"),
    "an adapter": (both(text("adapter_config.json", "{}"), pickled("adapter_model.bin")), "holds an adapter"),
    "an index to another directory": (indexed("../other/model.safetensors"), "names '../other/model.safetensors'"),
    "an index to an absolute path": (indexed("/tmp/model.safetensors"), "names '/tmp/model.safetensors'"),
    "an index to what does not exist": (indexed("two.safetensors"), "two.safetensors, which does not exist"),
    "an index to a link": (
        both(indexed("two.safetensors"), linked("one.safetensors", lambda folder: folder.parent / "w.safetensors")),
        "one.safetensors is a link to",
    ),
    "an index that misplaces a tensor": (
        both(
            indexed("two.safetensors"),
            lambda folder: shutil.copy(folder / "one.safetensors", folder / "two.safetensors"),
        ),
        "both hold",
    ),
    "an index without a map": (both(indexed("x"), text("model.safetensors.index.json", "{}")), "it has no weight_map"),
    "an index of fewer tensors": (
        both(indexed("x"), text("model.safetensors.index.json", json.dumps({"weight_map": {Q: "one.safetensors"}}))),
        "disagree on",
    ),
    "weights elsewhere": (linked("model.safetensors", lambda folder: folder.parent / "w.safetensors"), "is a link to"),
    "weights that never end": (linked("model.safetensors", lambda _: Path("/dev/zero")), "is a link to"),
    "weights in a pipe": (pipe("model.safetensors"), "model.safetensors is not a file"),
    "a config in a pipe": (pipe("config.json"), "config.json is not a file"),
    "a config elsewhere": (linked("config.json", lambda folder: folder.parent / "c.json"), "config.json is a link to"),
    "a missing tensor": (tensors(lambda found: found.pop(Q)), f"lacks 1 of its weights, the first is {Q}"),
    "a renamed tensor": (
        tensors(lambda found: found.update({"model.layers.0.self_attn.q.weight": found.pop(Q)})),
        f"lacks 1 of its weights, the first is {Q}",
    ),
    "a tensor of another shape": (
        tensors(lambda found: found.update({Q: found[Q][:16].clone()})),
        r"of shape \[16, 32\], its config needs \[32, 32\]",
    ),
    "a tensor of the same size": (
        tensors(lambda found: found.update({Q: found[Q].reshape(16, 64).clone()})),
        r"of shape \[16, 64\], its config needs \[32, 32\]",
    ),
    "a tensor too many": (
        tensors(lambda found: found.update({"model.layers.0.extra.weight": found[Q].clone()})),
        "holds model.layers.0.extra.weight, for which",
    ),
    "a tensor under two names": (
        tensors(lambda found: found.update({Q.removeprefix("model."): 2 * found[Q]})),
        f"holds {Q} twice",
    ),
    "a tensor of integers": (tensors(lambda found: found.update({Q: found[Q].char()})), "is of type I8"),
    "a tensor of NaN": (tensors(lambda found: found.update({Q: found[Q] / 0})), "holds NaN or infinity"),
    "a tied tensor of other values": (
        config(tie_word_embeddings=True),
        "holds lm_head.weight, which its config ties to a tensor of other values",
    ),
    "an untied tensor that is missing": (tensors(lambda found: found.pop("lm_head.weight")), "lacks 1 of its weights"),
    "a header with a tensor twice": (
        raw(lambda text: text.replace(f'"{Q}"', '"model.norm.weight"')),
        "the key 'model.norm.weight' comes twice",
    ),
    "a header with other offsets": (
        raw(lambda text: text.replace('"data_offsets":[0,', '"data_offsets":[4,')),
        "does not take the bytes",
    ),
    "a header with shapes of 2^62": (
        raw(lambda text: text.replace("[32]", "[4611686018427387904]", 1)),
        "does not take the bytes",
    ),
    "a header with negative shapes": (raw(lambda text: text.replace("[32]", "[-32]", 1)), "does not take the bytes"),
    "a header of an unknown type": (raw(lambda text: text.replace('"F32"', '"F8_E4M3"', 1)), "is of type 'F8_E4M3'"),
    "a header that is nested": (raw(lambda _: "[" * 10**5), "nested too deeply"),
    "a header past the end": (
        lambda folder: (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{}"),
        "a header of 4611686018427387904 bytes",
    ),
    "weights that are cut": (
        lambda folder: os.truncate(folder / "model.safetensors", 20_000),
        "its tensors end at byte .*, the file at",
    ),
    "one layer of two": (
        config(num_hidden_layers=1),
        "holds model.layers.1.* and 8 more, for which its config has no place",
    ),
    "three layers of two": (config(num_hidden_layers=3), "lacks 9 of its weights"),
    "10^5 layers": (config(num_hidden_layers=10**5), "num_hidden_layers = 100000, its files hold"),
    "10^9 layers": (config(num_hidden_layers=10**9), "num_hidden_layers = 1000000000, its files hold"),
    "10^9 layers of GPT-2": (config(model_type="gpt2", n_layer=10**9), "n_layer = 1000000000, its files hold"),
    "10^9 layers by their kinds": (
        config(model_type="gpt_neo", attention_types=[[["global"], 10**9]]),
        "attention_types = 1000000000, its files hold",
    ),
    "a hundred times 10^7 layers": (
        config(model_type="gpt_neo", attention_types=[[["global"], 10**7]] * 100),
        "attention_types = 10000000, its files hold",
    ),
    "10^7 dimensions": (config(hidden_size=10**7), "asks for more than the files hold"),
    "2^31 - 1 neurons": (config(intermediate_size=2**31 - 1), "intermediate_size = 2147483647, at most"),
    "10^12 tokens": (config(vocab_size=10**12), "vocab_size = 1000000000000, at most"),
    "positions of 10^18": (config(max_position_embeddings=10**18), "max_position_embeddings = .*, at most"),
    "no heads": (config(num_attention_heads=0), "its config cannot be read"),
    "fewer heads than none": (config(num_attention_heads=-4), "its config cannot be read|its config needs"),
    "a model of several": (config(model_type="llava"), "consists of several models"),
    "an encoder": (config(model_type="vit"), "is not a decoder of text"),
    "an unknown model": (config(model_type="own"), "transformers has no model of type 'own'"),
    "a model of no type": (config(model_type=[1]), "has no model_type"),
    "quantised weights": (config(quantization_config={"quant_method": "gptq", "bits": 4}), "quantised"),
    "other weights": (config(transformers_weights="../other/model.safetensors"), "names other weights"),
    "another config": (config(configuration_files=["config.4.0.0.json"]), "names another config"),
    "a key that is a method": (config(to_dict="x"), "a key that is no setting, 'to_dict'"),
    "an activation that is none": (config(hidden_act="os.system"), "its config cannot be read"),
    "a number that is none": (config(rms_norm_eps=float("nan")), "logits differ from Hugging Face's by nan"),
    "keys twice": (
        lambda folder: (folder / "config.json").write_text('{"model_type": "llama", "model_type": "gpt2"}'),
        "the key 'model_type' comes twice",
    ),
    "a config that is nested": (text("config.json", '{"a":' * 10**5), "nested too deeply"),
    "a config that is a list": (text("config.json", "[]"), "expected a JSON object, got list"),
}

# These are read: the code beside them is not, nor what would take memory.
HARMLESS: dict[str, Maker] = {
    "code by its class": with_code(config(architectures=["BD3LM"]), module="modeling_bd3lm"),
    "code by its former class": with_code(
        config(original_architecture="RavenForCausalLM"), module="raven_modeling_minimal"
    ),
    "code to generate": with_code(module="custom_generate/generate"),
    "a trusting tokenizer": words(trust_remote_code=True, tokenizer_file="/etc/passwd", name_or_path="somebody/else"),
    "a key that is a class": config(__class__="x"),
    "10^9 labels": config(num_labels=10**9),
    "attention from the hub": config(_attn_implementation="somebody/else", attn_implementation="somebody/else"),
    "a type that is no type": config(dtype="load", torch_dtype="load"),
    "pickles beside the weights": both(pickled("pytorch_model.bin"), pickled("training_args.bin")),
    "an older mask": tensors(
        lambda found: found.update({"model.layers.0.self_attn.rotary_emb.inv_freq": found[Q][0, :4].clone()})
    ),
}


class Network(BaseException):
    """An attempt to reach the network. No `Exception`, so that nobody handles it."""


def refuse(*_: Any, **__: Any) -> Any:
    """In place of a connection."""
    raise Network


def outcome(path: Path) -> dict[str, Any]:
    """What became of loading a model."""
    import interp as ip

    try:
        ip.load_language_model(path)
        kind, message = "loaded", ""
    except BaseException as error:
        kind, message = type(error).__name__, str(error)
    return {"kind": kind, "message": message}


def commands(path: Path) -> dict[str, Any]:
    """What becomes of it on the command line: the exit code, and what is printed."""
    from analyses.running.cli import main as analyses

    found = {}
    for name in ("scan", "language_model"):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code: object = analyses([name, str(path)])
            except BaseException as error:
                code = error.code if isinstance(error, SystemExit) else repr(error)
        found[name] = [code, out.getvalue(), err.getvalue()]
    return found


def main(root: Path) -> None:
    """Make each model, and load it."""
    from tests import tiny_language

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    file = tiny_language.write_gguf(tiny_language.llama(), root / "good.gguf")
    folder = tiny_language.write(tiny_language.llama(), root / "good")
    socket.socket.connect = socket.getaddrinfo = refuse  # type: ignore[assignment, method-assign]
    found = {"good.gguf": outcome(file), "good": outcome(folder)}
    kept = sorted(os.listdir(root / "cache" / "language"))
    for name, (make, _) in GGUF.items():
        path = root / "hostile.gguf"
        shutil.copy(file, path)
        make(path)
        found[f"GGUF: {name}"] = outcome(path) | {"commands": commands(path)}
    makers = {name: make for name, (make, _) in FOLDERS.items()} | HARMLESS
    for name, make in makers.items():
        path = root / "hostile"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(folder, path)
        make(path)
        found[f"folder: {name}"] = outcome(path) | {"commands": {} if name in HARMLESS else commands(path)}
    found["kept"] = {"before": kept, "after": sorted(os.listdir(root / "cache" / "language"))}
    sys.stdout.write(f"\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
