from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.anchor import PREFIX_TOKENS, SNIPPET_TOKENS, SUFFIX_TOKENS, Anchors, Plan
from engine.hole import Hole
from engine.prompt import PromptStyle, style_of
from engine.request import InfillRequest, Snippet
from engine.tokenizer import Tokenizer
from tests.engine.tiny_base import tokenizer_json

LINE = "    total = compute(first, second) + offset\n"
MAX_TYPED = 330  # characters; each is at least a byte, so tokens are fewer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = Path(tmp_path_factory.mktemp("tokenizer")) / "tokenizer.json"
    path.write_text(tokenizer_json(), encoding="utf-8")
    return Tokenizer.from_hub(path)


@pytest.fixture
def anchors(tokenizer: Tokenizer) -> Anchors:
    return Anchors(tokenizer, style_of(tokenizer))


def _plan(anchors: Anchors, prefix: str, suffix: str = "") -> Plan:
    return anchors.plan(Hole.of(InfillRequest(prefix=prefix, suffix=suffix)))


def _parts(tokenizer: Tokenizer, plan: Plan) -> tuple[str, str, str]:
    """Prefix, suffix and typed text of a plan, as the base sees them."""
    before, between, middle = style_of(tokenizer).marker_ids
    assert plan.ids[0] == before
    second, third = plan.ids.index(between), plan.ids.index(middle)
    ids = plan.ids[1:second], plan.ids[second + 1 : third], plan.ids[third + 1 :]
    prefix, suffix, typed = (tokenizer.spell(part).decode() for part in ids)
    return prefix, suffix, typed


def _shared(first: list[int], second: list[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def test_the_anchor_is_the_start_of_the_line(tokenizer: Tokenizer, anchors: Anchors) -> None:
    plan = _plan(anchors, "import os\nx = os.pa", "\nprint(x)\n")
    assert _parts(tokenizer, plan)[:2] == ("import os\n", "\nprint(x)\n")
    assert _parts(tokenizer, plan)[2] + plan.spell.decode() == "x = os.pa"
    assert plan.spell


def test_typing_encodes_only_what_was_typed(tokenizer: Tokenizer, anchors: Anchors) -> None:
    suffix, whole = "\n    return total\n", "    total = compute(first, second)\n    other = 12"
    last = _plan(anchors, LINE * 3, suffix)
    prompt = len(last.ids)
    for end in range(1, len(whole) + 1):
        plan = _plan(anchors, LINE * 3 + whole[:end], suffix)
        assert plan.ids[:prompt] == last.ids[:prompt], whole[:end]
        typed = _parts(tokenizer, plan)[2]
        assert typed + plan.spell.decode() == whole[:end]
        assert len(plan.ids) - _shared(plan.ids, last.ids) <= 8  # a healed word at most
        last = plan


def test_deleting_what_was_typed_keeps_the_anchor(tokenizer: Tokenizer, anchors: Anchors) -> None:
    first = _plan(anchors, LINE + "x = foo(bar", "\ny\n")
    again = _plan(anchors, LINE + "x = fo", "\ny\n")
    assert _parts(tokenizer, again)[0] == _parts(tokenizer, first)[0]


def test_a_changed_suffix_moves_the_anchor(tokenizer: Tokenizer, anchors: Anchors) -> None:
    _plan(anchors, LINE, "\nold\n")
    plan = _plan(anchors, LINE + "a\nb = ", "\nnew\n")
    assert _parts(tokenizer, plan)[:2] == (LINE + "a\n", "\nnew\n")


def test_a_suffix_changed_beyond_the_window_moves_nothing(
    tokenizer: Tokenizer, anchors: Anchors
) -> None:
    far = "\n" + LINE * 200
    first = _plan(anchors, LINE + "x", far + "a")
    assert _plan(anchors, LINE + "x", far + "b").ids == first.ids


def test_a_changed_prefix_moves_the_anchor(tokenizer: Tokenizer, anchors: Anchors) -> None:
    _plan(anchors, "a = 1\nb = ", "\nc\n")
    plan = _plan(anchors, "a = 2\nb = ", "\nc\n")
    assert _parts(tokenizer, plan)[0] == "a = 2\n"


def test_much_typed_moves_the_anchor(tokenizer: Tokenizer, anchors: Anchors) -> None:
    _plan(anchors, LINE, "\nc\n")
    plan = _plan(anchors, LINE * 12 + "x = ", "\nc\n")
    assert _parts(tokenizer, plan)[0].endswith(LINE * 2)
    assert _parts(tokenizer, plan)[2] + plan.spell.decode() == "x = "


@pytest.mark.parametrize("line", ["x = [" + "12, " * 800, "é" * 700, " " * 900, "a" * 3000])
def test_a_long_line_is_anchored_near_the_cursor(
    tokenizer: Tokenizer, anchors: Anchors, line: str
) -> None:
    text = LINE + line
    plan = _plan(anchors, text, "\nc\n")
    prefix, _, typed = _parts(tokenizer, plan)
    seen = prefix + typed + plan.spell.decode()
    assert text.endswith(seen)
    assert len(typed + plan.spell.decode()) <= MAX_TYPED
    assert len(prefix) > 200
    more = _plan(anchors, text + "z9", "\nc\n")
    assert _parts(tokenizer, more)[0] == prefix


def test_the_window_of_a_long_file_stays_while_it_fits(
    tokenizer: Tokenizer, anchors: Anchors
) -> None:
    text = "".join(f"value_{n} = compute({n})\n" for n in range(400))
    cached, starts = 0, set()
    before: list[int] = []
    for n in range(30):
        text += f"other_{n} = {n}\n"
        plan = _plan(anchors, text + "x = ", f"\nsuffix {n}\n")  # a new suffix each time
        prefix = _parts(tokenizer, plan)[0]
        assert text.endswith(prefix)
        starts.add(len(text) - len(prefix))
        cached += _shared(before, plan.ids) > PREFIX_TOKENS // 3
        before = plan.ids
    assert len(starts) <= 3
    assert cached >= 27


def test_a_cursor_further_up_sees_what_stands_before_it(
    tokenizer: Tokenizer, anchors: Anchors
) -> None:
    lines = [f"value_{n} = compute({n})\n" for n in range(400)]
    below = _plan(anchors, "".join(lines), "\nend\n")
    first = _parts(tokenizer, below)[0].partition("\n")[0] + "\n"
    at = lines.index(first) + 3  # three lines into the window of the cursor below
    plan = _plan(anchors, "".join(lines[:at]), "".join(lines[at:]))
    assert len(_parts(tokenizer, plan)[0]) > 20 * len(first)


@pytest.mark.parametrize(
    "text",
    [
        LINE * 600,
        "x" * 20_000 + "\n" + "y = 1\n",
        "中文字符。" * 3000 + "\n",
        ("é" * 3000 + "\n") * 3,
        "\n" * 9000,
        "a = 1\n" + "b" * 9000 + "\nc = 2\n",
    ],
)
def test_the_budget_is_respected_and_used(
    tokenizer: Tokenizer, anchors: Anchors, text: str
) -> None:
    plan = _plan(anchors, text, text)
    prefix, suffix, typed = _parts(tokenizer, plan)
    marks = 3
    assert len(plan.ids) <= PREFIX_TOKENS + SUFFIX_TOKENS + 8 + len(typed.encode()) + marks
    assert text.endswith(prefix + typed + plan.spell.decode())
    assert text.startswith(suffix)
    assert len(tokenizer.encode(prefix)) >= PREFIX_TOKENS // 3
    assert len(tokenizer.encode(suffix)) >= SUFFIX_TOKENS // 3


def test_a_short_file_is_seen_whole(tokenizer: Tokenizer, anchors: Anchors) -> None:
    plan = _plan(anchors, "a = 1\nb = 2\n", "\nc = 3\n")
    assert _parts(tokenizer, plan) == ("a = 1\nb = 2\n", "\nc = 3\n", "")
    assert plan.after_ids == []


def test_a_split_word_leaves_the_suffix(tokenizer: Tokenizer, anchors: Anchors) -> None:
    plan = _plan(anchors, "a\npri", "nt(x)\n")
    assert _parts(tokenizer, plan)[1] == "(x)\n"


def test_a_base_without_such_training_gets_two_streams(tokenizer: Tokenizer) -> None:
    plain = PromptStyle(marker_ids=(), end_ids=(7,), start_ids=(7,))
    anchors = Anchors(tokenizer, plain)
    plan = _plan(anchors, "a = 1\nb = ", "\nc = 3\n")
    assert plan.ids[0] == 7
    assert tokenizer.spell(plan.ids[1:]) + plan.spell == b"a = 1\nb = "
    assert tokenizer.spell(plan.after_ids) == b"\nc = 3\n"
    # its prefix does not depend on the suffix: another one moves nothing
    assert _plan(anchors, "a = 1\nb = ", "\nd\n").ids == plan.ids


def test_a_base_always_sees_a_token(tokenizer: Tokenizer) -> None:
    anchors = Anchors(tokenizer, PromptStyle(marker_ids=(), end_ids=()))
    assert _plan(anchors, "").ids


def test_clear_forgets(tokenizer: Tokenizer, anchors: Anchors) -> None:
    _plan(anchors, LINE, "\nc\n")
    anchors.clear()
    plan = _plan(anchors, LINE + LINE + "x", "\nc\n")
    assert _parts(tokenizer, plan)[0] == LINE + LINE


def _class_file(methods: int) -> str:
    body = "".join(f"    def method_{n}(self):\n        return {n}\n\n" for n in range(methods))
    return f"import os\nfrom sys import path\n\n\nclass Box(object):\n{body}"


def test_a_cut_prefix_keeps_imports_and_the_header_around_it(
    tokenizer: Tokenizer, anchors: Anchors
) -> None:
    request = InfillRequest(prefix=_class_file(200) + "    def last(self):\n", language="python")
    plan = anchors.plan(Hole.of(request))
    prefix, _, _ = _parts(tokenizer, plan)
    assert prefix.startswith("import os\nfrom sys import path\nclass Box(object):\n# ...\n")
    assert "method_0" not in prefix
    assert "method_199" in prefix
    assert len(plan.ids) <= PREFIX_TOKENS + SUFFIX_TOKENS + 3


def test_the_lead_stays_while_the_window_does(tokenizer: Tokenizer, anchors: Anchors) -> None:
    text = _class_file(200)
    first = anchors.plan(Hole.of(InfillRequest(prefix=text, language="python")))
    more = text + "    def last(self):\n        return 1\n"
    second = anchors.plan(Hole.of(InfillRequest(prefix=more, language="python")))
    before = first.ids.index(style_of(tokenizer).marker_ids[1])
    assert _shared(first.ids, second.ids) >= before - 8


def test_without_a_grammar_a_cut_prefix_has_no_lead(tokenizer: Tokenizer, anchors: Anchors) -> None:
    prefix, _, _ = _parts(tokenizer, _plan(anchors, _class_file(200)))
    assert "import os" not in prefix


SNIPPETS = (Snippet(path="pkg/far.py", text="FAR = 1\n"), Snippet(path="pkg/near.py", text="N = 2"))


def _with_snippets(anchors: Anchors, prefix: str, snippets: tuple[Snippet, ...]) -> Plan:
    return anchors.plan(
        Hole.of(
            InfillRequest(
                prefix=prefix, language="python", path="/home/me/pkg/here.py", snippets=snippets
            )
        )
    )


@pytest.fixture
def plain(tokenizer: Tokenizer) -> Anchors:
    """For a base that knows no repositories."""
    return Anchors(tokenizer, replace(style_of(tokenizer), file_ids=()))


def test_snippets_are_comments_before_the_prefix(tokenizer: Tokenizer, plain: Anchors) -> None:
    prefix, _, typed = _parts(tokenizer, _with_snippets(plain, "a = 1\nb = 2 ", SNIPPETS))
    assert prefix == "# pkg/far.py\n# FAR = 1\n# pkg/near.py\n# N = 2\na = 1\n"
    assert typed.startswith("b = 2")


def test_a_base_that_knows_repositories_gets_one(tokenizer: Tokenizer, anchors: Anchors) -> None:
    style = style_of(tokenizer)
    ids = _with_snippets(anchors, "a = 1\nb", SNIPPETS).ids
    repository, file = style.file_ids
    prompt = ids.index(style.marker_ids[0])
    assert ids[0] == repository
    parts: list[list[int]] = [[]]
    for token in ids[1:prompt]:
        parts.append([]) if token == file else parts[-1].append(token)
    assert [tokenizer.spell(part).decode() for part in parts] == [
        "pkg\n", "pkg/far.py\nFAR = 1\n", "pkg/near.py\nN = 2\n", "here.py\n",
    ]  # fmt: skip


def test_snippets_change_with_the_anchor_only(anchors: Anchors) -> None:
    first = _with_snippets(anchors, "a = 1\nb", SNIPPETS)
    typed = _with_snippets(anchors, "a = 1\nb = 2", SNIPPETS[:1])
    assert _shared(first.ids, typed.ids) >= len(first.ids) - 2
    rests = InfillRequest(prefix="a = 1\nb = 2", snippets=SNIPPETS[:1], idle=True)
    assert _shared(first.ids, anchors.plan(Hole.of(rests)).ids) < len(first.ids) // 2
    moved = _with_snippets(anchors, "a = 3\n", SNIPPETS[:1])
    assert _shared(first.ids, moved.ids) < len(first.ids) // 2


def test_the_best_snippets_are_kept_when_they_do_not_fit(
    tokenizer: Tokenizer, plain: Anchors
) -> None:
    large = Snippet(path="large.py", text="x = 1\n" * SNIPPET_TOKENS)
    prefix, _, _ = _parts(tokenizer, _with_snippets(plain, "a = 1\n", (large, SNIPPETS[1])))
    assert prefix == "# pkg/near.py\n# N = 2\na = 1\n"
