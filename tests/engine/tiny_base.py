"""A tiny random base model on disk, in both published forms: a hub-layout folder and a GGUF file.

The tokenizer is real (byte-level BPE trained on files of this repository, Qwen's pre-tokenizer and
special tokens); the weights are random but scaled so that logits spread and depend on the context.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as HfTokenizer
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

SPECIALS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
)
#: What GGUF files call the two pre-tokenizers.
QWEN, SMOLLM = "qwen2", "smollm"
_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPELLED_TOKENS = 256 + 400
_ROOT = Path(__file__).resolve().parents[2]
_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_folder(
    path: Path,
    *,
    architecture: str = "qwen2",
    hidden: int = 64,
    layers: int = 4,
    seed: int = 0,
    tied: bool = False,
    shards: int = 1,
    pre_tokenizer: str = QWEN,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write config.json, tokenizer.json and safetensors into `path`; returns `path`.

    The embedding has some more rows than there are tokens, as published models do.
    """
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_json(pre_tokenizer)
    tokens = _SPELLED_TOKENS + len(SPECIALS)
    config = {
        "architectures": [{"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}[architecture]],
        "model_type": architecture,
        "hidden_size": hidden,
        "intermediate_size": intermediate or hidden * 2,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": -(-tokens // 32) * 32,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    (path / "config.json").write_text(json.dumps(config, indent=1))
    (path / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    tensors = {name: t.to(dtype) for name, t in _random_tensors(config, seed).items()}
    _save(path, tensors, shards)
    return path


def make_gguf(path: Path, folder: Path, quantisation: str = "F32") -> Path:
    """Write the model of `folder` as one GGUF file, matrices in `quantisation`; returns `path`."""
    config = json.loads((folder / "config.json").read_text())
    architecture = config["model_type"]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    _add_tokenizer(writer, folder, config["vocab_size"])
    kind = gguf.GGMLQuantizationType[quantisation]
    for name, tensor in load_tensors(folder).items():
        if architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            q = name.endswith("q_proj.weight")
            heads = config["num_attention_heads" if q else "num_key_value_heads"]
            tensor = _permuted(tensor, heads)
        # as published files do: vectors stay in full precision
        how = kind if tensor.ndim > 1 else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(tensor.numpy(), how)
        writer.add_tensor(gguf_name(name), data, raw_dtype=how)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder, float32, by hub name."""
    tensors: dict[str, torch.Tensor] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        tensors.update({name: t.float() for name, t in load_file(shard).items()})
    return tensors


def save_tensors(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Replace the tensors of a folder (one file)."""
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    _save(folder, tensors, 1)


def edit_config(folder: Path, **changes: Any) -> None:
    """Change keys of config.json; None removes a key."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def gguf_name(name: str) -> str:
    """Hub name -> GGUF name."""
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        number, rest = stem.removeprefix("model.layers.").split(".", 1)
        return f"blk.{number}.{_GGUF_NAMES[rest]}.{kind}"
    return f"{_GGUF_NAMES[stem]}.{kind}"


@cache
def tokenizer_json(pre_tokenizer: str = QWEN) -> str:
    """A trained `tokenizer.json`: 256 byte tokens, 400 merges, and the special tokens behind."""
    tokenizer = HfTokenizer(BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer(pre_tokenizer)
    trainer = BpeTrainer(
        vocab_size=_SPELLED_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # every script is in it, so that merges inside and across multi-byte characters exist
    scripts = ["Zeit für Übung 中文字符 中文 日本語 日本 🎉🎉🎈 👩‍💻 привет мир مرحبا नमस्ते"] * 40
    # files that hardly ever change: other merges would make other texts of the same random weights
    names = ("LICENSE", "examples/inventory.py", "examples/cache.go", "examples/router.ts")
    sources = [(_ROOT / name).read_text(encoding="utf-8") for name in names]
    tokenizer.train_from_iterator(sources + scripts, trainer)
    data = json.loads(tokenizer.to_str())
    assert len(data["model"]["vocab"]) == _SPELLED_TOKENS
    data["normalizer"] = {"type": "NFC"}
    data["added_tokens"] = [
        {
            "id": _SPELLED_TOKENS + n,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for n, content in enumerate(SPECIALS)
    ]
    return json.dumps(data, ensure_ascii=False)


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name == SMOLLM)
    first = {
        QWEN: lambda: pre_tokenizers.Split(Regex(_QWEN_SPLIT), "isolated"),
        SMOLLM: lambda: pre_tokenizers.Digits(individual_digits=True),
    }[name]()
    return pre_tokenizers.Sequence([first, byte_level])


def _random_tensors(config: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return normal(rows, columns, scale=columns**-0.5)

    h, inner = config["hidden_size"], config["intermediate_size"]
    kv = h // config["num_attention_heads"] * config["num_key_value_heads"]
    tensors = {"model.embed_tokens.weight": normal(config["vocab_size"], h, scale=0.3)}
    for n in range(config["num_hidden_layers"]):
        layer = f"model.layers.{n}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{layer}{norm}.weight"] = 1 + normal(h, scale=0.1)
        for name, rows in (("q", h), ("k", kv), ("v", kv)):
            # larger than usual, so that attention is far from uniform
            gain = 1.0 if name == "v" else 2.0
            tensors[f"{layer}self_attn.{name}_proj.weight"] = matrix(rows, h) * gain
            if config["model_type"] == "qwen2":
                tensors[f"{layer}self_attn.{name}_proj.bias"] = normal(rows, scale=0.2)
        tensors[layer + "self_attn.o_proj.weight"] = matrix(h, h)
        tensors[layer + "mlp.gate_proj.weight"] = matrix(inner, h)
        tensors[layer + "mlp.up_proj.weight"] = matrix(inner, h)
        tensors[layer + "mlp.down_proj.weight"] = matrix(h, inner)
    tensors["model.norm.weight"] = 1 + normal(h, scale=0.1)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = matrix(config["vocab_size"], h) * 2
    return tensors


def _save(path: Path, tensors: dict[str, torch.Tensor], shards: int) -> None:
    if shards == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(tensors)
    placed: dict[str, str] = {}
    for n in range(shards):
        file = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[n::shards]}
        save_file(part, path / file, metadata={"format": "pt"})
        placed.update(dict.fromkeys(part, file))
    index = {"metadata": {}, "weight_map": placed}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, size: int) -> None:
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [f"[PAD{n}]" for n in range(size)]
    types = [int(gguf.TokenType.UNUSED)] * size
    for token, n in data["model"]["vocab"].items():
        tokens[n], types[n] = token, int(gguf.TokenType.NORMAL)
    for added in data["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], int(gguf.TokenType.CONTROL)
    first = data["pre_tokenizer"]["pretokenizers"][0]["type"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(QWEN if first == "Split" else SMOLLM)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    merges = data["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_eos_token_id(data["added_tokens"][0]["id"])


def _permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows as llama-architecture GGUF files hold them: rotary halves interleaved per head."""
    rows = weight.shape[0]
    halves = weight.reshape(heads, 2, rows // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape).contiguous()
