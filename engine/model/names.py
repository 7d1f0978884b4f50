"""Tensor names: the hub's, which are ours; GGUF's and LLaDA's, translated to them and back.

Knows names and the shapes that a config implies, not files.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.model.architectures import Names
from engine.model.config import ModelConfig

_GGUF_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GGUF_TOP = {
    "token_embd": "model.embed_tokens",
    "output": "lm_head",
    "output_norm": "model.norm",
}
_LLADA_LAYER = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
_LLADA_TOP = {"wte": "model.embed_tokens", "ff_out": "lm_head", "ln_f": "model.norm"}
_LLADA_ROOT = "model.transformer."


def from_gguf(name: str) -> str:
    """GGUF name -> hub name; a name that is not known stays."""
    return _translated(name, "blk.", "", _GGUF_LAYER, _GGUF_TOP)


def from_hub(name: str, names: Names) -> str:
    """The name in a folder -> hub name; a name that is not known stays."""
    if names == "llama" or not name.startswith(_LLADA_ROOT):
        return name
    return _translated(name, f"{_LLADA_ROOT}blocks.", _LLADA_ROOT, _LLADA_LAYER, _LLADA_TOP)


def in_folder(name: str, names: Names) -> str:
    """Hub name -> the name that a folder uses, for messages; a name that is not ours stays."""
    if names == "llama":
        return name
    layers = {ours: theirs for theirs, ours in _LLADA_LAYER.items()}
    top = {ours: theirs for theirs, ours in _LLADA_TOP.items()}
    stem, _, kind = name.rpartition(".")
    if stem in top:
        return f"{_LLADA_ROOT}{top[stem]}.{kind}"
    number, _, rest = stem.removeprefix("model.layers.").partition(".")
    if stem.startswith("model.layers.") and rest in layers:
        return f"{_LLADA_ROOT}blocks.{number}.{layers[rest]}.{kind}"
    return name


def _translated(
    name: str, layers: str, root: str, in_layer: Mapping[str, str], at_top: Mapping[str, str]
) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith(layers):
        number, _, rest = stem.removeprefix(layers).partition(".")
        if rest in in_layer:
            return f"model.layers.{number}.{in_layer[rest]}.{kind}"
    elif (top := stem.removeprefix(root)) in at_top:
        return f"{at_top[top]}.{kind}"
    return name


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Hub name -> shape of every tensor the config implies (`lm_head.weight` may be tied)."""
    h, i, d = config.hidden, config.intermediate, config.head_dim
    q, kv = config.heads * d, config.kv_heads * d
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab, h),
        "model.norm.weight": (h,),
        "lm_head.weight": (config.vocab, h),
    }
    for n in range(config.layers):
        layer = f"model.layers.{n}."
        shapes[layer + "input_layernorm.weight"] = (h,)
        shapes[layer + "post_attention_layernorm.weight"] = (h,)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            shapes[f"{layer}self_attn.{name}_proj.weight"] = (rows, h)
            if config.qkv_bias:
                shapes[f"{layer}self_attn.{name}_proj.bias"] = (rows,)
        if config.qk_norm:
            shapes[layer + "self_attn.q_norm.weight"] = (d,)
            shapes[layer + "self_attn.k_norm.weight"] = (d,)
        shapes[layer + "self_attn.o_proj.weight"] = (h, q)
        shapes[layer + "mlp.gate_proj.weight"] = (i, h)
        shapes[layer + "mlp.up_proj.weight"] = (i, h)
        shapes[layer + "mlp.down_proj.weight"] = (h, i)
    return shapes
