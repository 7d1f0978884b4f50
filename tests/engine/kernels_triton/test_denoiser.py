"""A whole denoising step equals the denoiser's own network and policy, launched or replayed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.canvas import MASKED
from engine.engine import Engine
from engine.fused_denoiser import FusedDenoiser
from engine.kernels import dispatch, reference_step
from engine.kernels.reference_step import Rule
from engine.kernels.triton import graphs
from engine.model.denoiser import Context, Denoiser
from engine.model.transformer import Transformer
from engine.placement import place
from engine.policy import POLICIES, Slots
from tests.engine.tiny_denoiser import tiny_engine

RULES = [Rule(name="one_per_step", strength=0.0), Rule(name="confidence", strength=0.02)]

Parts = tuple[Transformer, FusedDenoiser, Denoiser]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    with torch.device("cpu"):
        return tiny_engine(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def parts(engine: Engine) -> Parts:
    """The base and its denoiser on Triton, and the same denoiser on the reference."""
    base, fused = place(engine.runner.base, engine.runner.denoiser, dispatch.choose("triton"))
    _, plain = place(engine.runner.base, engine.runner.denoiser, dispatch.choose("reference"))
    assert isinstance(fused, FusedDenoiser) and plain is not None
    return base, fused, plain


def context_of(parts: Parts, *, suffix: bool) -> Context:
    """Random features and keys; the base's own are in test_engine.py."""
    c, layers = parts[0].config, len(parts[1].layers)
    keys, values = torch.randn(2, layers, c.kv_heads, 70, c.head_dim).unbind()
    return Context(
        keys=keys,
        values=values,
        lengths=torch.tensor([70]),
        features=torch.randn(1, 2, c.hidden),
        after_keys=torch.randn(layers, c.kv_heads, 7, c.head_dim) if suffix else None,
        after_values=torch.randn(layers, c.kv_heads, 7, c.head_dim) if suffix else None,
    )


def meant(parts: Parts, tokens: torch.Tensor, context: Context, steps: int, rule: Rule) -> list:
    """Tokens, their probabilities and the steps taken, by the network itself, step by step."""
    base, _, plain = parts
    tokens, sure, taken = tokens.clone(), torch.ones(len(tokens)), 0
    while bool((tokens == MASKED).any()):
        open_ = tokens == MASKED
        hidden = plain.hidden(base.embedding(tokens.clamp_min(0))[None], open_[None], context)
        share, index = plain.logits(hidden).softmax(dim=-1).max(dim=-1)
        slots = Slots.of_confidence(share, open_)
        taken += 1
        last = taken == steps
        chosen = open_ if last else POLICIES[rule.name].select(slots, rule.strength)
        tokens = torch.where(chosen, plain.shortlist[index], tokens)
        sure = torch.where(chosen, share, sure)
    return [tokens, sure, taken]


@pytest.mark.parametrize(("rule", "suffix"), [(RULES[0], False), (RULES[1], True)])
def test_a_canvas_is_filled_as_by_the_network_itself(
    parts: Parts, rule: Rule, suffix: bool
) -> None:
    context, fused = context_of(parts, suffix=suffix), parts[1]
    tokens = torch.tensor([7, MASKED, 9, MASKED, MASKED])
    filled = fused.fill(tokens, context, 3, rule)
    want, sure, taken = meant(parts, tokens, context, 3, rule)
    assert filled.tokens.tolist() == want.tolist()
    assert filled.taken == taken
    torch.testing.assert_close(filled.sure, sure.cpu(), atol=1e-4, rtol=1e-4)
    assert (filled.fallback is None) == torch.cuda.is_available(), filled.fallback


class Recorder:
    """Stands in for CUDA's capture: what was recorded is run again at every replay."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def __call__(self, body: Callable[[], None]) -> Callable[[], None]:
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            body()

        return replay


def test_a_padded_bucket_gives_the_same_canvas(parts: Parts) -> None:
    fused, rule, recorder = parts[1], RULES[0], Recorder()
    runner = graphs.StepGraphs(fused._network(), recorder)
    tokens = torch.tensor([7, MASKED, MASKED])
    for suffix in (False, True):
        context = context_of(parts, suffix=suffix)
        alone = fused.fill(tokens, context, 2, rule)
        padded = runner.run(fused.board(tokens, context, 2), 2, rule)
        assert padded.fallback is None and padded.taken == alone.taken == 2
        assert torch.equal(padded.tokens, alone.tokens)
        torch.testing.assert_close(padded.sure, alone.sure, atol=1e-5, rtol=1e-5)
    assert (recorder.captured, recorder.replayed, runner.count) == (2, 4, 2)


def test_one_confidence_kernel_agrees_with_the_head(parts: Parts) -> None:
    _, fused, plain = parts
    hidden = torch.randn(4, plain.config.hidden)
    network = fused._network()
    guess = reference_step.confidence(
        hidden,
        network.head,
        torch.ones(4, dtype=torch.bool),
        norm=network.norm,
        names=network.names,
    )
    best = plain.logits(hidden).argmax(dim=-1)
    assert torch.equal(guess.token.cpu(), plain.shortlist[best])


def test_the_weights_of_a_shipped_denoiser_stay_as_they_are(engine: Engine, tmp_path: Path) -> None:
    """Placing changes no weight: 7-bit codes are 8-bit codes."""
    _, plain = place(engine.runner.base, engine.runner.denoiser, dispatch.choose("reference"))
    x = torch.randn(2, plain.config.hidden, device="cpu")
    packed = engine.runner.denoiser.layers[0].qkv
    torch.testing.assert_close(
        plain.layers[0].qkv(x),
        torch.nn.functional.linear(x, packed.weight.unpack(), packed.bias),
        atol=1e-5,
        rtol=1e-5,
    )
