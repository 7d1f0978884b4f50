from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from engine import store
from engine.model import denoiser_file
from engine.model.denoiser import Context, Denoiser
from engine.model.denoiser_file import DenoiserConfig, Parameters
from engine.model.transformer import Transformer
from engine.request import WeightsError
from tests.engine.tiny_base import make_folder
from tests.engine.tiny_denoiser import (
    ROWS,
    float_denoiser,
    random_parameters,
    shape_of,
    shortlist_of,
)

LENGTHS = (3, 11, 20)


@dataclass
class Parts:
    base: Transformer
    config: DenoiserConfig
    parameters: Parameters
    shortlist: Tensor
    denoiser: Denoiser


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    folder = make_folder(Path(tmp_path_factory.mktemp("base")) / "tiny")
    config = shape_of(folder)
    base, tokenizer = store.open_float(folder, config.depths)
    shortlist = shortlist_of(base, tokenizer.special_ids["<|endoftext|>"])
    parameters = random_parameters(folder, config)
    return Parts(
        base=base,
        config=config,
        parameters=parameters,
        shortlist=shortlist,
        denoiser=float_denoiser(base, config, parameters, shortlist),
    )


def _context(parts: Parts, lengths: tuple[int, ...] = LENGTHS, *, after: int = 0) -> Context:
    """Sites of one encoded sequence that end at these lengths; a suffix stream of `after`."""
    generator = torch.Generator().manual_seed(9)
    stream = parts.base.new_stream()
    longest = max(LENGTHS)
    parts.base.encode(torch.randint(0, 600, (longest,), generator=generator).tolist(), stream)
    suffix = parts.base.new_stream()
    if after:
        parts.base.encode(torch.randint(0, 600, (after,), generator=generator).tolist(), suffix)
    top = slice(-parts.config.layers, None)
    return Context(
        keys=stream.keys[top, :, :longest],
        values=stream.values[top, :, :longest],
        lengths=torch.tensor(lengths),
        features=stream.features[torch.tensor(lengths) - 1, :2],
        after_keys=suffix.keys[top, :, :after] if after else None,
        after_values=suffix.values[top, :, :after] if after else None,
    )


def _canvas(parts: Parts, sites: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Embedded row tokens and which are masked: row 0 and some others are visible."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 600, (sites, ROWS), generator=generator)
    masked = torch.rand(sites, ROWS, generator=generator) < 0.7
    masked[:, 0] = False
    return parts.base.embedding(ids.flatten()).view(sites, ROWS, -1), masked


def _hidden(parts: Parts, embedded: Tensor, masked: Tensor, context: Context) -> Tensor:
    return parts.denoiser.hidden(embedded, masked, context).view(*masked.shape, -1)


@pytest.mark.parametrize("after", [0, 7])
def test_a_batch_of_sites_equals_the_sites_one_by_one(parts: Parts, after: int) -> None:
    context = _context(parts, after=after)
    embedded, masked = _canvas(parts, len(LENGTHS))
    together = _hidden(parts, embedded, masked, context)
    for site, length in enumerate(LENGTHS):
        only = slice(site, site + 1)
        own = replace(
            context,
            keys=context.keys[:, :, :length],
            values=context.values[:, :, :length],
            lengths=context.lengths[only],
            features=context.features[only],
        )
        alone = _hidden(parts, embedded[only], masked[only], own)
        torch.testing.assert_close(together[site], alone[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("changed", range(ROWS))
def test_every_row_sees_every_visible_row(parts: Parts, changed: int) -> None:
    context = _context(parts, (20,))
    embedded, _ = _canvas(parts, 1)
    masked = torch.zeros(1, ROWS, dtype=torch.bool)
    before = _hidden(parts, embedded, masked, context)
    other = embedded.clone()
    other[0, changed] = torch.randn(embedded.shape[-1], generator=torch.Generator().manual_seed(1))
    difference = (_hidden(parts, other, masked, context) - before).abs().amax(dim=-1)[0]
    assert bool((difference > 1e-3).all()), difference


def test_what_is_masked_cannot_leak(parts: Parts) -> None:
    context = _context(parts)
    embedded, masked = _canvas(parts, len(LENGTHS))
    assert bool(masked.any())
    before = _hidden(parts, embedded, masked, context)
    for poison in (0.0, 1e4, float("nan")):
        other = embedded.masked_fill(masked[..., None], poison)
        assert torch.equal(_hidden(parts, other, masked, context), before)


def test_masking_a_row_changes_the_others(parts: Parts) -> None:
    context = _context(parts, (20,))
    embedded, masked = _canvas(parts, 1)
    masked[:] = False
    shown = _hidden(parts, embedded, masked, context)
    masked[0, 3] = True
    hidden = _hidden(parts, embedded, masked, context)
    assert bool(((hidden - shown).abs().amax(dim=-1)[0] > 1e-3).all())


def test_rows_see_their_context_and_nothing_behind_it(parts: Parts) -> None:
    context = _context(parts)
    embedded, masked = _canvas(parts, len(LENGTHS))
    before = _hidden(parts, embedded, masked, context)
    keys = context.keys.clone()
    keys[:, :, 10] += 5.0  # the eleventh token: the first site must not see it, the others do
    after = _hidden(parts, embedded, masked, replace(context, keys=keys))
    assert torch.equal(after[0], before[0])
    changed = (after - before).abs().amax(dim=-1)
    assert bool((changed[1:] > 1e-4).all())


def test_rows_see_the_suffix_stream(parts: Parts) -> None:
    embedded, masked = _canvas(parts, len(LENGTHS))
    context = _context(parts, after=7)
    before = _hidden(parts, embedded, masked, context)
    alone = replace(context, after_keys=None, after_values=None)
    assert bool(((_hidden(parts, embedded, masked, alone) - before).abs().amax(-1) > 1e-3).all())
    assert context.after_values is not None
    values = context.after_values.clone()
    values[:, :, -1] += 5.0
    last = _hidden(parts, embedded, masked, replace(context, after_values=values))
    assert bool(((last - before).abs().amax(-1) > 1e-4).all())


def test_the_context_is_left_as_it_was(parts: Parts) -> None:
    context = _context(parts, after=7)
    kept = [t.clone() for t in (context.keys, context.values, context.features)]
    _hidden(parts, *_canvas(parts, len(LENGTHS)), context)
    for old, new in zip(kept, (context.keys, context.values, context.features), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("rows", [1, 2, ROWS])
def test_a_smaller_canvas_works(parts: Parts, rows: int) -> None:
    embedded, masked = _canvas(parts, 1)
    out = parts.denoiser.hidden(embedded[:, :rows], masked[:, :rows], _context(parts, (20,)))
    assert out.shape == (rows, parts.config.hidden)
    assert bool(out.isfinite().all())
    assert parts.denoiser.max_rows == ROWS


def test_the_head_scores_the_shortlist_as_the_base_does(parts: Parts) -> None:
    hidden = torch.randn(3, parts.config.hidden, generator=torch.Generator().manual_seed(2))
    own = replace_norm(parts)
    expected = parts.base.logits(hidden)[:, parts.shortlist]
    torch.testing.assert_close(own.logits(hidden), expected, atol=1e-4, rtol=1e-4)


def replace_norm(parts: Parts) -> Denoiser:
    """The denoiser with the base's own final norm, as it starts out."""
    parameters = {**parts.parameters, "norm": parts.base.head.norm}
    return float_denoiser(parts.base, parts.config, parameters, parts.shortlist)


def test_a_denoiser_starts_as_a_copy_of_the_top_layers(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tiny")
    config = shape_of(folder, inner=128)
    checkpoint = store.open_checkpoint(folder)
    start = denoiser_file.from_base(config, checkpoint.config, store.fused_reader(checkpoint))
    for name in ("qkv", "gate_up"):
        torch.testing.assert_close(
            start[f"layers.0.{name}"], store.fused_reader(checkpoint)(f"layers.2.{name}")
        )
    for name in ("token", "last", "middle", "mask", "slots"):
        assert not bool(start[name].any()), name


def test_pruned_neurons_are_those_that_write_least(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tiny")
    checkpoint = store.open_checkpoint(folder)
    get = store.fused_reader(checkpoint)
    start = denoiser_file.from_base(shape_of(folder, layers=1, inner=5), checkpoint.config, get)
    gate, up = get("layers.3.gate_up").chunk(2)
    down = get("layers.3.down")
    weight = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
    kept = sorted(sorted(range(len(weight)), key=lambda n: -float(weight[n]))[:5])
    assert torch.equal(start["layers.0.gate_up"], torch.cat((gate[kept], up[kept])))
    assert torch.equal(start["layers.0.down"], down[:, kept])


def test_both_kept_features_are_filled_even_at_one_depth(parts: Parts) -> None:
    assert parts.config.depths == (2, 2)
    stream = parts.base.new_stream()
    stream.features.fill_(float("nan"))
    parts.base.encode([1, 2, 3], stream)
    assert torch.equal(stream.features[:3, 0], stream.features[:3, 1])
    assert bool(stream.features[:3].isfinite().all())


def test_int8_on_disk_is_close_to_float(parts: Parts, tmp_path: Path) -> None:
    path = tmp_path / "denoiser.safetensors"
    denoiser_file.save(path, parts.config, parts.parameters, parts.shortlist)
    loaded = denoiser_file.load(path, parts.base)
    assert denoiser_file.load_config(path) == parts.config
    assert torch.equal(loaded.shortlist, parts.shortlist)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    context = _context(parts, after=7)
    embedded, masked = _canvas(parts, len(LENGTHS))
    exact = parts.denoiser.logits(parts.denoiser.hidden(embedded, masked, context)).softmax(-1)
    rough = loaded.logits(loaded.hidden(embedded, masked, context)).softmax(-1)
    distance = (exact - rough).abs().sum(-1) / 2  # total variation
    assert float(distance.mean()) < 0.1
    assert float((exact.argmax(-1) == rough.argmax(-1)).float().mean()) > 0.8


@pytest.mark.parametrize("change", [{"hidden": 32}, {"layers": 5}])
def test_a_denoiser_of_another_base_is_refused(
    parts: Parts, tmp_path: Path, change: dict[str, int]
) -> None:
    path = tmp_path / "denoiser.safetensors"
    denoiser_file.save(path, parts.config, parts.parameters, parts.shortlist)
    folder = make_folder(tmp_path / "other", **change)  # type: ignore[arg-type]
    other, _ = store.open_float(folder, (2, 2))
    with pytest.raises(WeightsError, match="trained for another base"):
        denoiser_file.load(path, other)


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "foreign", "lacking"])
def test_a_damaged_file_is_one_clear_line(parts: Parts, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "denoiser.safetensors"
    kept = {n: p for n, p in parts.parameters.items() if damage != "lacking" or n != "token"}
    denoiser_file.save(path, parts.config, kept, parts.shortlist)
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif damage == "foreign":
        save_file({"x": torch.zeros(2)}, path, metadata={"config": '{"a": 1}'})
    with pytest.raises(WeightsError) as caught:
        denoiser_file.load(path, parts.base)
    assert "denoiser.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_most_models_come_without_a_denoiser() -> None:
    assert denoiser_file.shipped("no-such-model") is None
