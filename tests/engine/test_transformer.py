"""The base computes what the published implementations do, and its cache changes nothing."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import store
from engine.cache import TILE, Stream
from engine.model.transformer import Transformer
from tests.engine.tiny_base import edit_config, make_folder

DEPTHS = (1, 3)
IDS = torch.randint(0, 650, (90,), generator=torch.Generator().manual_seed(5)).tolist()
CUTS = st.lists(st.integers(0, len(IDS)), max_size=12).map(lambda c: sorted({0, *c, len(IDS)}))


@cache
def base_of(architecture: str, precision: str, hidden: int = 64) -> Transformer:
    with TemporaryDirectory() as place:
        # a published shape: 14 query heads share 2 key heads, and an inner size of no round number
        heads = {64: 4, 896: 14}[hidden]
        inner, layers = {64: (96, 4), 896: (4864, 1)}[hidden]
        depths = DEPTHS if layers > max(DEPTHS) else (0,)
        folder = make_folder(
            Path(place) / "m",
            architecture=architecture,
            hidden=hidden,
            heads=heads,
            layers=layers,
            intermediate=inner,
        )
        if precision == "float32":
            return store.open_float(folder, depths)[0]
        store.convert(folder, Path(place) / "c")
        return store.open_int8(Path(place) / "c", depths)[0]


def encode(base: Transformer, ids: list[int], cuts: list[int]) -> tuple[torch.Tensor, Stream]:
    stream = poisoned(base.new_stream(capacity=4))
    parts = []
    with torch.inference_mode():
        for start, end in pairwise(cuts):
            parts.append(base.encode(ids[start:end], stream))
    assert stream.ids == ids
    return torch.cat(parts), stream


def poisoned(stream: Stream) -> Stream:
    """Rows not yet written hold what a longer text may have left there."""
    generator = torch.Generator().manual_seed(len(IDS))
    for tensor in (stream.keys, stream.values):
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * 1e4)
    stream.features.fill_(float("nan"))
    return stream


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
def test_logits_equal_those_of_transformers(tmp_path: Path, architecture: str, tied: bool) -> None:
    transformers = pytest.importorskip("transformers")
    folder = make_folder(tmp_path / "m", architecture=architecture, tied=tied, heads=8)
    edit_config(folder, rope_theta=50_000.0, rms_norm_eps=1e-5)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    mine, _ = store.open_float(folder, DEPTHS)
    with torch.inference_mode():
        expected = theirs(torch.tensor([IDS]), output_hidden_states=True)
        stream = mine.new_stream()
        logits = mine.logits(mine.encode(IDS, stream))
    assert expected.logits.std() > 0.3
    assert (logits - expected.logits[0]).abs().max() < 1e-4
    for slot, depth in enumerate(DEPTHS):
        difference = stream.features[: len(IDS), slot] - expected.hidden_states[depth][0]
        assert difference.abs().max() < 1e-4


@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
@settings(max_examples=15, deadline=None)
@given(cuts=CUTS)
def test_cached_equals_uncached(architecture: str, cuts: list[int]) -> None:
    base = base_of(architecture, "float32")
    whole, stream = encode(base, IDS, [0, len(IDS)])
    split, other = encode(base, IDS, cuts)
    assert (base.logits(split) - base.logits(whole)).abs().max() < 1e-4
    used = len(IDS)
    for mine, theirs in (
        (stream.keys[:, :, :used], other.keys[:, :, :used]),
        (stream.values[:, :, :used], other.values[:, :, :used]),
        (stream.features[:used], other.features[:used]),
    ):
        assert (mine - theirs).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("architecture", "hidden", "length"),
    [("qwen2", 64, TILE + 40), ("llama", 64, TILE + 40), ("qwen2", 896, 60)],
)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_int8_rows_have_the_same_bits_however_they_are_split(
    architecture: str, hidden: int, length: int, data: st.DataObject
) -> None:
    base = base_of(architecture, "int8", hidden)
    ids = (IDS * 4)[:length]
    # a long context, then a few rows alone or together
    inner = data.draw(st.lists(st.integers(length - 48, length - 1), min_size=1, max_size=10))
    together, stream = encode(base, ids, [0, length])
    split, other = encode(base, ids, [0, *sorted(set(inner)), length])
    assert torch.equal(split, together)
    with torch.inference_mode():
        logits = base.logits(together[-16:])
        alone = torch.cat([base.logits(row[None]) for row in together[-16:]])
    assert torch.equal(logits, alone)
    assert torch.equal(stream.keys[:, :, :length], other.keys[:, :, :length])
    assert torch.equal(stream.values[:, :, :length], other.values[:, :, :length])
    assert torch.equal(stream.features[:length], other.features[:length])


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_going_on_after_a_cut_forgets_what_was_cut(precision: str) -> None:
    base = base_of("qwen2", precision)
    with torch.inference_mode():
        stream = base.new_stream()
        base.encode(IDS[:30], stream)
        base.encode(IDS[50:60], stream)
        stream.truncate(30)
        again = base.encode(IDS[30:40], stream)
    fresh, _ = encode(base, IDS[:40], [0, 30, 40])
    assert torch.equal(again, fresh[30:])
    assert torch.equal(stream.last_hidden(), fresh[-1:])


def test_a_later_token_changes_no_earlier_row() -> None:
    base = base_of("llama", "float32")
    one, _ = encode(base, IDS[:30], [0, 30])
    other, _ = encode(base, [*IDS[:29], 3], [0, 30])
    assert torch.equal(one[:29], other[:29])
    assert not torch.equal(one[29], other[29])


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_rows_may_be_computed_anew_over_what_stands_around_them(precision: str) -> None:
    """A canvas between a prefix and a suffix whose keys and values are frozen."""
    base = base_of("qwen2", precision)
    length, whole = len(IDS), torch.full((len(IDS),), len(IDS))
    with torch.inference_mode():
        stream = base.new_stream(capacity=4)
        first = base.forward(IDS, stream, start=0, visible=whole)
        keys, features = stream.keys.clone(), stream.features.clone()
        changed = [i + 1 for i in IDS[40:50]]
        part = base.forward(changed, stream, start=40, visible=whole[40:50])
        back = base.forward(torch.tensor(IDS[40:50]), stream, start=40, visible=whole[40:50])
    assert (part - first[40:50]).abs().max() > 0.01
    assert len(stream) == length and stream.ids == IDS
    close = torch.equal if precision == "int8" else torch.allclose
    assert close(back, first[40:50])
    assert close(stream.keys[:, :, :length], keys[:, :, :length])
    assert torch.equal(stream.features[:40], features[:40])
    assert torch.equal(stream.keys[:, :, 50:length], keys[:, :, 50:length])


def test_a_causal_pass_is_the_special_case() -> None:
    base = base_of("llama", "int8")
    causal = torch.arange(1, len(IDS) + 1)
    with torch.inference_mode():
        one = base.forward(IDS, base.new_stream(), start=0, visible=causal)
        other = base.encode(IDS, base.new_stream())
        ends = ((causal + 7) // 8 * 8).clamp_max(len(IDS))
        blocks = base.forward(IDS, base.new_stream(), start=0, visible=ends)
    assert torch.equal(one, other)
    assert not torch.equal(blocks[:8], one[:8])


def test_a_pass_as_long_as_a_file_goes_through_in_parts() -> None:
    base = base_of("qwen2", "int8")
    ids = (IDS * 8)[:700]
    with torch.inference_mode():
        stream = base.new_stream()
        whole = base.forward(ids, stream, start=0, visible=torch.full((700,), 700))
        some = base.forward(ids[505:520], stream, start=505, visible=torch.full((15,), 700))
    assert torch.equal(some, whole[505:520])


@pytest.mark.parametrize(
    ("start", "visible"), [(6, [7, 7]), (4, [7, 7]), (0, [0, 1]), (-1, [1, 1])]
)
def test_rows_that_would_see_what_is_not_there_are_refused(start: int, visible: list[int]) -> None:
    base = base_of("qwen2", "float32")
    stream = base.new_stream()
    with torch.inference_mode():
        base.encode(IDS[:5], stream)
        with pytest.raises(ValueError):
            base.forward([1, 2], stream, start=start, visible=torch.tensor(visible))
        assert base.forward([], stream, start=5, visible=torch.tensor([])).shape == (0, 64)
    assert stream.ids == IDS[:5]
