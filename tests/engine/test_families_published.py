"""Published configurations, shapes only: the tensors we ask for are those of the reference classes.

The configurations are recorded facts, read from public repositories and model cards; no weights.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from engine.catalog import known
from engine.model import config as model_config
from engine.model import names
from engine.model.architectures import of_hub
from engine.model.names import expected_shapes
from tests.engine.tiny_family import Kind, published_name

QWEN_05B = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
}
QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
    "tie_word_embeddings": False,
}
QWEN_15B = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
}
QWEN3_17B = {
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 151_936,
    "attention_bias": False,
}
QWEN3_06B = QWEN3_17B | {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "tie_word_embeddings": True,
}
SEED_CODER = {
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 155_136,
    "tie_word_embeddings": False,
}
LLADA = {
    "activation_type": "silu",
    "alibi": False,
    "attention_layer_norm": False,
    "bias_for_layer_norm": False,
    "block_type": "llama",
    "d_model": 4096,
    "embedding_size": 126_464,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12_288,
    "multi_query_attention": None,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "rms_norm_eps": 1e-5,
    "rope": True,
    "rope_theta": 500_000.0,
    "scale_logits": False,
    "vocab_size": 126_464,
    "weight_tying": False,
}
#: LLaDA's sizes in the words of the class it is made of.
LLADA_AS_LLAMA = {
    "hidden_size": 4096,
    "intermediate_size": 12_288,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 126_464,
    "tie_word_embeddings": False,
}
CLASSES = {
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
}
#: catalogue name -> (model_type, config.json, what it is made of, that one's sizes)
MODELS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "open-dcoder-0.5b": ("qwen2", QWEN_05B, "qwen2", QWEN_05B),
    "qwen2.5-coder-0.5b-mdlm": ("a2d-qwen2", QWEN_05B, "qwen2", QWEN_05B),
    "qwen2.5-coder-0.5b-bd3lm": ("a2d-qwen2", QWEN_05B, "qwen2", QWEN_05B),
    "qwen3-0.6b-mdlm": ("a2d-qwen3", QWEN3_06B, "qwen3", QWEN3_06B),
    "qwen3-0.6b-bd3lm": ("a2d-qwen3", QWEN3_06B, "qwen3", QWEN3_06B),
    "coda-1.7b": ("CoDA", QWEN3_17B, "qwen3", QWEN3_17B | {"tie_word_embeddings": True}),
    "sdar-1.7b": ("sdar", QWEN3_17B | {"block_size": 4}, "qwen3", QWEN3_17B),
    "fast-dllm-v2-1.5b": ("Fast_dLLM_Qwen", QWEN_15B | {"bd_size": 32}, "qwen2", QWEN_15B),
    "fast-dllm-v2-7b": ("Fast_dLLM_Qwen", QWEN_7B | {"bd_size": 32}, "qwen2", QWEN_7B),
    "dreamon-7b": ("Dream", QWEN_7B, "qwen2", QWEN_7B),
    "dream-coder-7b": ("Dream", QWEN_7B, "qwen2", QWEN_7B),
    "dream-7b": ("Dream", QWEN_7B, "qwen2", QWEN_7B),
    "diffucoder-7b": ("Dream", QWEN_7B, "qwen2", QWEN_7B),
    "llada-8b": ("llada", LLADA, "llama", LLADA_AS_LLAMA),
    "llada-1.5-8b": ("llada", LLADA, "llama", LLADA_AS_LLAMA),
    "stable-diffcoder-8b": ("llama", SEED_CODER, "llama", SEED_CODER),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_expected_tensors_are_those_of_the_reference(name: str) -> None:
    model_type, raw, base, sizes = MODELS[name]
    make_config, make_model = CLASSES[base]
    with torch.device("meta"):
        reference = make_model(make_config(**sizes))
    kind, called = Kind(model_type=model_type, of=base), of_hub(model_type).names
    theirs = {published_name(kind, n): tuple(t.shape) for n, t in reference.state_dict().items()}
    config = model_config.from_hub({"model_type": model_type, **raw})
    ours = {names.in_folder(n, called): shape for n, shape in expected_shapes(config).items()}
    assert ours == theirs
    assert {names.from_hub(n, called) for n in theirs} == set(expected_shapes(config))


def test_every_diffusion_model_of_the_catalogue_is_checked() -> None:
    entries = {entry.name: entry for entry in known()}
    assert set(MODELS) <= set(entries)
    for name, (model_type, raw, _, _) in MODELS.items():
        config = model_config.from_hub({"model_type": model_type, **raw})
        assert entries[name].parameters == pytest.approx(config.parameters, rel=0.005), name
        stored = config.parameters - (
            config.vocab * config.hidden if MODELS[name][3].get("tie_word_embeddings") else 0
        )
        assert entries[name].asset.size == pytest.approx(2 * stored, rel=0.01), name
