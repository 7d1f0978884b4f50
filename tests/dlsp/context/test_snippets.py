"""Which pieces of other places are shown: cut, ranked, deduplicated, to a budget."""

from __future__ import annotations

from dlsp.context.snippets import Candidate, choose, pieces, words

QUERY = "def load_invoice(self):\n    invoice = InvoiceStore.open(self.path)\n"


def candidate(text: str, path: str = "a.py", weight: float = 1.0) -> Candidate:
    return Candidate(path=path, text=text, weight=weight)


INVOICE = candidate("class InvoiceStore:\n    def open(cls, path): ...", "store.py")
OTHER = candidate("def colour_of_the_sky():\n    return 'blue, mostly'", "sky.py")
PATHS = candidate("def self_path(path):\n    return self.path", "paths.py")


def test_what_shares_rare_identifiers_comes_last_and_what_shares_none_is_left_out() -> None:
    chosen = choose([INVOICE, OTHER, PATHS], QUERY, characters=1000)
    assert [snippet.path for snippet in chosen] == ["paths.py", "store.py"]


def test_a_weight_decides_between_equals() -> None:
    twice = [candidate("def open(path): ...\ninvoice", "one.py"),
             candidate("def open(path):  ...\n\ninvoice", "two.py", 2.0)]  # fmt: skip
    assert choose(twice, QUERY, characters=1000)[-1].path == "two.py"


def test_the_budget_takes_the_best_that_fit() -> None:
    room = len(INVOICE.text) + len(INVOICE.path) + 2
    assert [s.path for s in choose([INVOICE, PATHS], QUERY, characters=room)] == ["store.py"]
    assert choose([INVOICE, PATHS], QUERY, characters=0) == ()
    assert choose([], QUERY, characters=1000) == ()
    assert choose([INVOICE], "", characters=1000) == ()


def test_what_is_shown_already_is_left_out() -> None:
    copy = candidate(INVOICE.text + "\n", "copy.py")
    assert len(choose([INVOICE, copy], QUERY, characters=1000)) == 1
    assert choose([INVOICE], QUERY, characters=1000, beside=f"x = 1\n{INVOICE.text}\n") == ()


def test_pieces_keep_every_line_once_and_begin_where_something_begins() -> None:
    block = "def f{0}(a):\n    b = a\n\n    c = b\n    return c\n\n\n"
    text = "".join(block.format(n) for n in range(30))
    found = list(pieces(text))
    lines = [line for piece in found for line in piece.split("\n") if line]
    assert lines == [line for line in text.split("\n") if line]
    assert all(piece.startswith("def f") for piece in found)
    assert all(piece.count("\n") < 40 for piece in found)
    assert list(pieces("")) == list(pieces("\n\n")) == []
    assert len(list(pieces("x = 1\n" * 100))) == 7


def test_words_are_identifiers_and_their_parts() -> None:
    assert dict(words("loadInvoice(max_size, HTTPServer) # a 12 é_à")) == {
        "loadinvoice": 1, "load": 1, "invoice": 1, "max_size": 1, "max": 1, "size": 1,
        "httpserver": 1, "http": 1, "server": 1, "é_à": 1,
    }  # fmt: skip
