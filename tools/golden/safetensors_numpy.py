# SPDX-License-Identifier: Apache-2.0
"""Reads and lists safetensors files with NumPy alone. bfloat16 comes back as float32, exactly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

_DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def read_file(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_bytes])
    base = 8 + header_bytes
    tensors: dict[str, np.ndarray] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[base + begin : base + end], dtype=_DTYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = array.reshape(entry["shape"])
    return tensors


def read_checkpoint(directory: Path) -> dict[str, np.ndarray]:
    """All tensors of a checkpoint, single or sharded."""
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        return read_file(directory / "model.safetensors")
    files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        tensors.update(read_file(directory / file))
    return tensors
