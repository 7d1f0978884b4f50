"""The place of one request: the cursor, and the text on both sides as it would be there.

An item selected in the editor's own list is taken as typed already: what is suggested goes on
behind it, and replaces what the item replaces. Knows documents and positions, nothing of engines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lsprotocol import types as lsp

from dlsp.context.sides import SIDE_LIMIT, Context, gather
from dlsp.policy.gate import Scene
from dlsp.suggestion.memory import NEAR
from dlsp.text.document import Document
from dlsp.text.lines import to_lf


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """`start` to `end` is what gives way for `selected`, nothing at a plain cursor."""

    document: Document
    start: lsp.Position
    end: lsp.Position
    selected: str = ""

    @classmethod
    def at(
        cls,
        document: Document,
        position: lsp.Position,
        selection: lsp.SelectedCompletionInfo | None = None,
    ) -> Cursor:
        """A plain cursor, or one with an item of the editor's list selected."""
        if selection is None:
            return cls(document=document, start=position, end=position)
        where = selection.range
        return cls(document=document, start=where.start, end=where.end, selected=selection.text)

    def near(self) -> tuple[str, str]:
        """What stands close by on both sides, on LF; enough for `Memory`."""
        before, after = self._sides(2 * NEAR)
        return before, after

    def scene(self) -> Scene:
        """What the gate looks at."""
        before, after = self._sides(SIDE_LIMIT)
        return Scene(
            prefix=before,
            suffix=after,
            language=self.document.language,
            whole=len(before) < SIDE_LIMIT,
            last_edit=self.document.edits.kind,
        )

    def context(self) -> Context:
        """What is offered to the engine."""
        found = gather(self.document, self.end)
        return replace(found, prefix=self._with_selected(found.prefix))

    def range(self, covers: int) -> lsp.Range:
        """What accepting replaces: the selected item's range, or from the cursor over `covers` code
        points of its line."""
        if self.selected:
            return lsp.Range(start=self.start, end=self.end)
        return self.document.range_from(self.end, covering=covers)

    def _sides(self, limit: int) -> tuple[str, str]:
        before, after = self.document.cut(self.end, limit=limit)
        return to_lf(self._with_selected(before)), to_lf(after)

    def _with_selected(self, before: str) -> str:
        if not self.selected:
            return before
        given_way = self.document.between(lsp.Range(start=self.start, end=self.end))
        return before[: len(before) - len(given_way)] + self.selected
