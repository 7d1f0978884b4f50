"""The architectures we know: what a `model_type` or a GGUF architecture implies beyond its sizes.

One line each. Seed-Coder and Stable-DiffCoder call themselves `llama`, Open-dCoder `qwen2`: what
they do differently is in the catalogue. Checked against the models' public code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from engine.model.traits import CAUSAL, Traits
from engine.request import WeightsError

#: Whose tensor names a hub folder uses: `llama`'s, which everybody has, or LLaDA's own (OLMo's).
Names = Literal["llama", "llada"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """qkv_bias None: `attention_bias` of the config says. interleaved: a GGUF file holds the rows
    of q and k in rotary pairs, not halves."""

    traits: Traits = CAUSAL
    qkv_bias: bool | None = None
    qk_norm: bool = False
    names: Names = "llama"
    interleaved: bool = False


#: Kinds of model that several names share.
DREAM = Traits(attention="bidirectional", shifted=True, begin=True, end=True)
LLADA = Traits(attention="bidirectional", begin=True)
MDLM = Traits(attention="bidirectional")
BLOCKS = Traits(attention="block_causal", order="prefix_first")
SHIFTED_BLOCKS = replace(BLOCKS, shifted=True)

_HUB = {
    "qwen2": Architecture(qkv_bias=True),
    "qwen3": Architecture(qk_norm=True),
    "llama": Architecture(),
    "Dream": Architecture(qkv_bias=True, traits=DREAM),
    "CoDA": Architecture(qk_norm=True, traits=Traits(attention="bidirectional", shifted=True)),
    "llada": Architecture(names="llada", traits=LLADA),
    "a2d-qwen2": Architecture(qkv_bias=True, traits=MDLM),
    "a2d-qwen3": Architecture(qk_norm=True, traits=MDLM),
    "a2d-llama": Architecture(traits=MDLM),
    "sdar": Architecture(qk_norm=True, traits=BLOCKS),
    "Fast_dLLM_Qwen": Architecture(qkv_bias=True, traits=SHIFTED_BLOCKS),
}
_GGUF = {
    "qwen2": Architecture(qkv_bias=True),
    "qwen3": Architecture(qkv_bias=False, qk_norm=True),
    "llama": Architecture(qkv_bias=False, interleaved=True),
    "dream": Architecture(qkv_bias=True, traits=DREAM),
    "llada": Architecture(qkv_bias=False, interleaved=True, traits=LLADA),
}


def of_hub(model_type: str) -> Architecture:
    """What a `config.json` of that `model_type` implies; raises WeightsError for an unknown one."""
    return _of(_HUB, model_type)


def of_gguf(architecture: str) -> Architecture:
    """What a GGUF file of that architecture implies; raises WeightsError for an unknown one."""
    return _of(_GGUF, architecture)


def _of(known: dict[str, Architecture], name: str) -> Architecture:
    if name not in known:
        raise WeightsError(
            f"architecture {name!r} is not supported; use one of {', '.join(sorted(known))}"
        )
    return known[name]
