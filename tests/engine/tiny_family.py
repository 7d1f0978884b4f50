"""Tiny random diffusion models on disk, as their publishers lay them out, beside their reference.

The reference is the `transformers` class that the architecture is made of, with a mask of our own;
its tensors are written under the publisher's names, in shards, with index, config and tokenizer
files. Nothing here uses the code under test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from tests.engine.tiny_base import gguf_name, tokenizer_json

#: Special tokens of the tiny tokenizers, behind the 656 that spell text.
TOKENS = ("<|endoftext|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>", "<|expand|>")
END, TURN, BEGIN, MASK, EXPAND = range(656, 661)
VOCAB = 672
#: Keys that `transformers` writes of a config and published files share.
_SHARED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "rms_norm_eps",
    "max_position_embeddings",
    "hidden_act",
    "tie_word_embeddings",
)
_LLADA_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
_LLADA_TOP = {"model.embed_tokens": "wte", "model.norm": "ln_f", "lm_head": "ff_out"}
_GGUF_NORMS = {"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One architecture: what it is made of, and what its files add."""

    model_type: str
    of: str  # qwen2, qwen3 or llama
    sizes: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False  # vocab.json and merges.txt, no tokenizer.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A folder in the hub's layout, and the model that it must equal."""

    folder: Path
    reference: Any

    def logits(self, ids: list[int], visible: Tensor) -> Tensor:
        """What the reference computes when row r sees the first visible[r] positions [L, V]."""
        length = len(ids)
        hidden = torch.arange(length)[None] >= visible[:, None]
        mask = torch.zeros(1, 1, length, length).masked_fill(hidden, torch.finfo(torch.float32).min)
        with torch.inference_mode():
            logits: Tensor = self.reference(torch.tensor([ids]), attention_mask=mask).logits[0]
        return logits


def publish(folder: Path, kind: Kind, *, shards: int = 2, seed: int = 0) -> Published:
    """Write a random model of that kind."""
    reference = random_model(kind, seed)
    tensors = {name: t.clone() for name, t in reference.state_dict().items()}
    if reference.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    folder.mkdir(parents=True)
    write_tensors(folder, {published_name(kind, n): t for n, t in tensors.items()}, shards)
    (folder / "config.json").write_text(json.dumps(config_of(kind, reference.config)))
    _write_tokenizer(folder, kind)
    return Published(folder=folder, reference=reference)


def random_model(kind: Kind, seed: int = 0) -> Any:
    """The reference, with weights large enough for logits to depend on everything."""
    classes = {
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    }
    make_config, make_model = classes[kind.of]
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "rope_theta": 50_000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "attn_implementation": "eager",
    } | dict(kind.sizes)
    model = make_model(make_config(**sizes)).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        scale = 0.2 if parameter.dim() == 1 else 1.5 * parameter.shape[1] ** -0.5
        parameter.copy_(noise * scale + (1 if name.endswith("norm.weight") else 0))
    return model


def config_of(kind: Kind, reference: Any) -> dict[str, Any]:
    """config.json in the publisher's words."""
    shared = {key: getattr(reference, key) for key in _SHARED}
    rope = reference.rope_parameters
    if kind.model_type == "llada":
        return {
            "model_type": "llada",
            "architectures": ["LLaDAModelLM"],
            "activation_type": "silu",
            "block_type": "llama",
            "d_model": shared["hidden_size"],
            "embedding_size": shared["vocab_size"],
            "include_bias": False,
            "include_qkv_bias": False,
            "layer_norm_type": "rms",
            "max_sequence_length": shared["max_position_embeddings"],
            "mlp_hidden_size": shared["intermediate_size"],
            "multi_query_attention": None,
            "n_heads": shared["num_attention_heads"],
            "n_kv_heads": shared["num_key_value_heads"],
            "n_layers": shared["num_hidden_layers"],
            "rms_norm_eps": shared["rms_norm_eps"],
            "rope": True,
            "rope_theta": rope["rope_theta"],
            "scale_logits": False,
            "vocab_size": shared["vocab_size"] - 2,
            "weight_tying": shared["tie_word_embeddings"],
            **kind.config,
        }
    scaling = None if rope["rope_type"] == "default" else {**rope}
    head_dim = {"head_dim": reference.head_dim} if kind.of == "qwen3" else {}
    return {
        "model_type": kind.model_type,
        **shared,
        **head_dim,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": scaling,
        **kind.config,
    }


def published_name(kind: Kind, name: str) -> str:
    """The name a tensor of the reference has in the publisher's files."""
    if kind.model_type != "llada":
        return name
    stem, _, part = name.rpartition(".")
    if stem in _LLADA_TOP:
        return f"model.transformer.{_LLADA_TOP[stem]}.{part}"
    number, rest = stem.removeprefix("model.layers.").split(".", 1)
    return f"model.transformer.blocks.{number}.{_LLADA_LAYER[rest]}.{part}"


def write_tensors(folder: Path, tensors: dict[str, Tensor], shards: int) -> None:
    """Safetensors in shards with their index."""
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    placed: dict[str, str] = {}
    for n in range(shards):
        file = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(tensors.items())[n::shards])
        save_file(part, folder / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 0}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _write_tokenizer(folder: Path, kind: Kind) -> None:
    data = json.loads(tokenizer_json())
    template = data["added_tokens"][0]
    added = [template | {"id": END + n, "content": token} for n, token in enumerate(TOKENS)]
    settings = {"eos_token": TOKENS[0], "pad_token": TOKENS[0], "mask_token": "<|mask|>"}
    settings |= dict(kind.tokenizer)
    if kind.slow:
        merges = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
        (folder / "vocab.json").write_text(json.dumps(data["model"]["vocab"]))
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
        settings["added_tokens_decoder"] = {str(t["id"]): t for t in added}
    else:
        (folder / "tokenizer.json").write_text(json.dumps(data | {"added_tokens": added}))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_gguf(path: Path, reference: Any, arch: str, metadata: Mapping[str, Any]) -> Path:
    """The reference as a GGUF file of `arch`, with more `metadata` (bool, int or str)."""
    config, writer = reference.config, gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if arch == "qwen3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    _add_tokenizer(writer)
    for key, value in metadata.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}[type(value)]
        add(key, value)
    for name, tensor in reference.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if arch in ("llama", "llada") and name.endswith(("q_proj.weight", "k_proj.weight")):
            tensor = _paired(tensor, config, name)
        writer.add_tensor(_gguf_name(name), tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    for norm, theirs in _GGUF_NORMS.items():
        if name.endswith(f"self_attn.{norm}.weight"):
            return f"blk.{name.split('.')[2]}.{theirs}.weight"
    return gguf_name(name)


def _paired(weight: Tensor, config: Any, name: str) -> Tensor:
    """Rows with the rotary halves of each head interleaved, as llama.cpp wants them."""
    heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(weight.shape).contiguous()


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    model = json.loads(tokenizer_json())["model"]
    tokens = [*sorted(model["vocab"], key=model["vocab"].get), *TOKENS]
    unused = [f"[PAD{n}]" for n in range(len(tokens), VOCAB)]
    kinds = [gguf.TokenType.NORMAL] * END + [gguf.TokenType.CONTROL] * len(TOKENS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *unused])
    writer.add_token_types([int(k) for k in kinds] + [int(gguf.TokenType.UNUSED)] * len(unused))
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    writer.add_token_merges(merges)
    writer.add_eos_token_id(END)
