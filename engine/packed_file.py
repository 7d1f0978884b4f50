"""Files of packed matrices and plain tensors: safetensors, opened by `mmap`.

A matrix lies as its codes under its own name and its scales under NAME.scale; its size is in the
header. Knows nothing of models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.kernels.packing import Packed

#: The one entry of a file's header: {"about": any JSON value, "packed": {name: [N, K]}}.
HEADER = "dlsp"


def save(
    path: Path, tensors: Mapping[str, Tensor], matrices: Mapping[str, Packed], about: Any
) -> None:
    """Write one file; `about` is any JSON value, kept in its header. Raises OSError."""
    every = dict(tensors)
    for name, matrix in matrices.items():
        every[name], every[name + ".scale"] = matrix.codes, matrix.scales
    sizes = {name: (matrix.outputs, matrix.inputs) for name, matrix in matrices.items()}
    # one entry: the order of several would differ from one run to the next
    save_file(every, path, metadata={HEADER: json.dumps({"about": about, "packed": sizes})})


class PackedFile:
    """One file, opened. Tensors are views of the file, valid as long as they are held."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, SafetensorError, ValueError or LookupError for a bad file."""
        self._file = safe_open(path, framework="pt")
        header = json.loads((self._file.metadata() or {})[HEADER])
        self._sizes: dict[str, list[int]] = header["packed"]

    def names(self) -> set[str]:
        """Every tensor's name; a matrix has two."""
        return set(self._file.keys())

    def is_packed(self, name: str) -> bool:
        """Whether that is a matrix."""
        return name in self._sizes

    def tensor(self, name: str) -> Tensor:
        """A plain tensor, as written."""
        tensor: Tensor = self._file.get_tensor(name)
        return tensor

    def matrix(self, name: str) -> Packed:
        """A packed matrix; raises ValueError when its parts do not fit together."""
        outputs, inputs = self._sizes[name]
        codes, scales = self.tensor(name), self.tensor(name + ".scale")
        return Packed(codes=codes, scales=scales, outputs=outputs, inputs=inputs)
