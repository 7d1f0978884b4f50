"""Code made unrecognisable without changing its shape: every word becomes a made-up one.

Length, case, script width, line structure, punctuation and the words of programming languages
stay, so that a model meets the same place; names, comments and contents of strings do not. One
`Redaction` replaces a word by the same word everywhere; which one depends on a secret that is
never written down, so it cannot be looked up. Pure text; does not know requests or files.
"""

from __future__ import annotations

import builtins
import hashlib
import keyword
import re
import secrets
from typing import Final

_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
#: Made-up letters of one, two, three and four bytes in UTF-8, so that positions keep their width.
_LETTERS: Final = (
    "abcdefghijklmnopqrstuvwxyz",
    "àâäéèêëîïôöûü",
    "日本語文字列学習",
    "𠀀𠀁𠀂𠀃𠀄𠀅𠀆𠀇",
)
_DIGITS: Final = "123456789"

_KEYWORDS: Final = """
abstract alignas alignof and any as asm assert async auto await base begin bool boolean break byte
case catch chan char class clone cls co_await co_return co_yield concept const consteval constexpr
constinit constructor continue crate debugger decimal declare decltype def default defer del
delegate delete deriving die do done double dyn echo elif else elsif elseif empty end endfor
endforeach endif endswitch endwhile ensure enum esac eval event except exit explicit export extends
extern fallthrough false fi final finally fixed float fn for foreach friend from func function
global go goto guard if impl implements implicit import in include include_once inline inout
instanceof insteadof int interface internal is isset keyof lambda let local lock long loop macro
match mod module move mut mutable namespace native never new next nil noexcept nonlocal not null
nullptr number object of operator or out override package params pass private procedure protected
pub public raise range readonly redo ref register repeat require require_once rescue restrict retry
return sbyte sealed select self short signed sizeof stackalloc static static_assert strictfp string
struct super switch symbol synchronized template then this thread_local throw throws trait transient
true try type typedef typeid typename typeof uint ulong unchecked undef undefined union unknown
unless unsafe unset unsigned until use ushort using val var virtual void volatile when where while
with xor yield
"""
#: Public words: they say what language it is, not whose code. Compared part by part, as words are.
_KEPT: Final = frozenset(
    part.lower()
    for name in (*_KEYWORDS.split(), *keyword.kwlist, *keyword.softkwlist, *dir(builtins))
    for part in _WORD.findall(name)
)


class Redaction:
    """One consistent replacement of words; another instance replaces them by others."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret if secret is not None else secrets.token_bytes(32)

    def text(self, text: str) -> str:
        """The text with its words replaced; as many code points, of the same width in UTF-8."""
        return _WORD.sub(self._replace, text)

    def path(self, path: str | None) -> str | None:
        """A path of which only the kind of file is left."""
        if path is None:
            return None
        name = re.split(r"[/\\]", path)[-1]
        dot = name.rfind(".")
        return "file" + (name[dot:] if dot > 0 else "")

    def _replace(self, found: re.Match[str]) -> str:
        word = found[0]
        if word.isascii() and word.lower() in _KEPT:
            return word
        if word.isdigit():
            return word if len(word) == 1 else self._made_up(word, key=word)
        return self._made_up(word, key=word.lower())

    def _made_up(self, word: str, *, key: str) -> str:
        draw = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), key=self._secret)
        stream = draw.digest()
        while len(stream) < len(word):
            draw.update(b"more")
            stream += draw.digest()
        return "".join(map(_letter, word, stream))


def _letter(character: str, number: int) -> str:
    if character.isdigit():
        return _DIGITS[number % len(_DIGITS)] if character.isascii() else character
    letters = _LETTERS[len(character.encode("utf-8", "surrogatepass")) - 1]
    made_up = letters[number % len(letters)]
    return made_up.upper() if character.isupper() and made_up.upper() != made_up else made_up
