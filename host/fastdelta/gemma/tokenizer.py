# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of Gemma: byte-pair merging over characters, as SentencePiece does it.

Symbols that the vocabulary defines by hand (runs of spaces, tabs and newlines, HTML tags) are cut
out first, the longest at each place. In what lies between, the neighbours whose union has the best
score are merged, the leftmost of equals first, until no union is in the vocabulary. A character
that is in no piece becomes its UTF-8 bytes.

Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer and
detokenizer for neural text processing", 2018. Gemma's vocabulary adds no space in front of a text
and does not normalise it.
"""

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

SPACE = "\u2581"
"""Stands for a space while a text is split; so a text that has it is read as having a space."""


class TokenType(IntEnum):
    """Kinds of tokens in the metadata of a GGUF file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class GemmaTokenizer:
    """Text to token numbers and back.

    Parameters
    ----------
    pieces : sequence of str
        Vocabulary, by token number; byte tokens are called ``<0x00>`` to ``<0xFF>``.
    scores : sequence of float
        The union with the highest is merged first.
    types : sequence of int
        `TokenType` of each token.
    bos : int
        Token that starts every text.
    """

    def __init__(
        self, pieces: Sequence[str], scores: Sequence[float], types: Sequence[int], bos: int
    ) -> None:
        if not len(pieces) == len(scores) == len(types):
            raise ValueError(
                f"{len(pieces)} pieces, {len(scores)} scores and {len(types)} types are given; "
                "there must be one of each for every token"
            )
        if not 0 <= bos < len(pieces):
            raise ValueError(f"bos is {bos}; it must be one of the {len(pieces)} tokens")
        self.bos = bos
        self._ranked: dict[str, tuple[float, int]] = {}
        self._user_defined: dict[str, int] = {}
        self._bytes: dict[int, int] = {}
        self._decoded: list[bytes] = []
        for token, (piece, score, kind) in enumerate(zip(pieces, scores, types, strict=True)):
            decoded = b""
            if kind == TokenType.NORMAL:
                self._ranked[piece] = (-score, token)
                decoded = piece.replace(SPACE, " ").encode()
            elif kind == TokenType.USER_DEFINED:
                self._user_defined[piece.replace(" ", SPACE)] = token
                decoded = piece.encode()
            elif kind == TokenType.BYTE:
                value = int(piece[1:-1], 16)
                self._bytes[value] = token
                decoded = bytes([value])
            self._decoded.append(decoded)
        if len(self._bytes) != 256:
            raise ValueError(f"the vocabulary has {len(self._bytes)} of the 256 byte tokens")
        longest_first = sorted(self._user_defined, key=len, reverse=True)
        # Without hand-made symbols the pattern must match nowhere.
        self._symbols = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any]) -> "GemmaTokenizer":
        """Build the tokenizer from the metadata of a GGUF file.

        Raises
        ------
        ValueError
            If the metadata describes another kind of tokenizer.
        """
        required = {"model": "llama", "add_space_prefix": False}
        found = {name: metadata.get(f"tokenizer.ggml.{name}") for name in required}
        if found != required:
            raise ValueError(f"the tokenizer in the file is {found}; only {required} is supported")
        return cls(
            metadata["tokenizer.ggml.tokens"],
            metadata["tokenizer.ggml.scores"].tolist(),
            metadata["tokenizer.ggml.token_type"].tolist(),
            metadata["tokenizer.ggml.bos_token_id"],
        )

    def encode(self, text: str, *, bos: bool = True) -> list[int]:
        """Return the tokens of a text, by default with the token in front that starts a text."""
        tokens = [self.bos] if bos else []
        for index, part in enumerate(self._symbols.split(text.replace(" ", SPACE))):
            if index % 2:
                tokens.append(self._user_defined[part])
            else:
                for symbol in self._merge(part):
                    tokens += self._tokens_of(symbol)
        return tokens

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of some tokens; control tokens stand for nothing.

        Bytes that are not UTF-8 become U+FFFD.
        """
        decoded = bytearray()
        for token in tokens:
            if not 0 <= token < len(self._decoded):
                raise ValueError(f"token {token} is not one of 0 to {len(self._decoded) - 1}")
            decoded += self._decoded[token]
        return decoded.decode(errors="replace")

    def _tokens_of(self, symbol: str) -> list[int]:
        if symbol in self._ranked:
            return [self._ranked[symbol][1]]
        return [self._bytes[value] for value in symbol.encode()]

    def _merge(self, text: str) -> list[str]:
        """Merge the characters of a text to pieces.

        Symbols keep the index of their first character; a symbol that was merged into the one
        before it becomes empty.
        """
        symbols = list(text)
        end = len(symbols)
        before = list(range(-1, end - 1))
        after = list(range(1, end + 1))
        # Each entry: negated score, place of the left symbol, union.
        candidates: list[tuple[float, int, str]] = []

        def consider(left: int, right: int) -> None:
            if left >= 0 and right < end:
                union = symbols[left] + symbols[right]
                if union in self._ranked:
                    heapq.heappush(candidates, (self._ranked[union][0], left, union))

        for left in range(end - 1):
            consider(left, left + 1)
        while candidates:
            _, left, union = heapq.heappop(candidates)
            right = after[left]
            if not symbols[left] or right >= end or symbols[left] + symbols[right] != union:
                continue  # one of the two has been merged with another symbol
            symbols[left], symbols[right] = union, ""
            after[left] = after[right]
            if after[left] < end:
                before[after[left]] = left
            consider(before[left], left)
            consider(left, after[left])
        return [symbol for symbol in symbols if symbol]
