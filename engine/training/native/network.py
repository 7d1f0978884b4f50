"""The network that is trained: bidirectional, in the shape of Llama with a tied head.

Written as a folder in the hub's layout (`model_type` a2d-llama: in place, unshifted), which the
engine loads like any other.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from engine.kernels.reference import rotate
from engine.model.rope import Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the network."""

    vocab: int
    hidden: int = 384
    layers: int = 6
    heads: int = 6
    kv_heads: int = 6
    inner: int = 1024
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Of one head."""
        return self.hidden // self.heads


class Block(nn.Module):
    """Attention over the whole sequence, then the feed-forward network."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        dim, kv = shape.head_dim, shape.kv_heads * shape.head_dim
        self.attn_norm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.qkv = nn.Linear(shape.hidden, shape.heads * dim + 2 * kv, bias=False)
        self.out = nn.Linear(shape.heads * dim, shape.hidden, bias=False)
        self.ffn_norm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.gate_up = nn.Linear(shape.hidden, 2 * shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], real: Tensor | None) -> Tensor:
        """x [S, L, H]; real [S, L] bool, or None where every token is."""
        shape = self.shape
        sizes = [shape.heads, shape.kv_heads, shape.kv_heads]
        fused = self.qkv(self.attn_norm(x)).unflatten(2, (sum(sizes), shape.head_dim))
        q, k, v = (part.transpose(1, 2) for part in fused.split(sizes, dim=2))
        q, k = rotate(q, *rotation), rotate(k, *rotation)
        scores = (q * shape.head_dim**-0.5) @ k.transpose(2, 3)
        if real is not None:
            scores = scores.masked_fill(~real[:, None, None, :], float("-inf"))
        mixed = scores.softmax(dim=-1).to(v.dtype) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, dim=-1)
        added: Tensor = self.down(F.silu(gate) * up)
        return x + added


class Network(nn.Module):
    """Token ids to hidden states; `logits` scores some of them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, shape.norm_eps)
        self.rope = Rope(shape.head_dim, shape.rope_theta, None)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = (
                    (2 * shape.layers) ** -0.5
                    if name.endswith(("out.weight", "down.weight"))
                    else 1
                )
                nn.init.normal_(parameter, std=0.02 * deep)

    def forward(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """ids [S, L] -> [S, L, H]."""
        x = self.embed(ids)
        kind = ids.device.type
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        cos, sin = self.rope.at(torch.arange(ids.shape[1]))
        rotation = cos.to(half), sin.to(half)
        for block in self.blocks:
            x = block(x, rotation, real)
        normed: Tensor = self.norm(x)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [n, H] -> [n, V]."""
        return F.linear(hidden, self.embed.weight)


def save(network: Network, folder: Path, end: int, mask: int) -> None:
    """`config.json` and `model.safetensors` in bfloat16, as the hub has them."""
    shape = network.shape
    config = {
        "model_type": "a2d-llama",
        "architectures": ["A2DLlamaLMHeadModel"],
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": 4096,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": end,
        "mask_token_id": mask,
        "torch_dtype": "bfloat16",
        "dlsp": asdict(shape),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    part = folder / "model.part"
    save_file({n: t.detach().to(torch.bfloat16) for n, t in _named(network).items()}, part)
    part.replace(folder / "model.safetensors")


def load(folder: Path) -> Network:
    """What `save` wrote, in float32."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    network = Network(Shape(**config["dlsp"]))
    saved = load_file(folder / "model.safetensors")
    with torch.no_grad():
        for name, tensor in _named(network).items():
            tensor.copy_(saved[name])
    return network


def _named(network: Network) -> dict[str, Tensor]:
    """The hub's names, and views of the parameters that they name."""
    shape, named = network.shape, {"model.embed_tokens.weight": network.embed.weight.data}
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for n, block in enumerate(network.blocks):
        at = f"model.layers.{n}."
        assert isinstance(block, Block)
        parts = block.qkv.weight.data.split([q, kv, kv])
        for letter, part in zip("qkv", parts, strict=True):
            named[f"{at}self_attn.{letter}_proj.weight"] = part
        gate, up = block.gate_up.weight.data.chunk(2)
        named |= {
            f"{at}self_attn.o_proj.weight": block.out.weight.data,
            f"{at}mlp.gate_proj.weight": gate,
            f"{at}mlp.up_proj.weight": up,
            f"{at}mlp.down_proj.weight": block.down.weight.data,
            f"{at}input_layernorm.weight": block.attn_norm.weight.data,
            f"{at}post_attention_layernorm.weight": block.ffn_norm.weight.data,
        }
    return named | {"model.norm.weight": network.norm.weight.data}
