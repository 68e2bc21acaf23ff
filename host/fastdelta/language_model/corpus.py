# SPDX-License-Identifier: Apache-2.0
"""The text the language model is trained and judged on: the King James Bible, split by book.

The text is in the public domain. It comes from Debian's ``bible-kjv-text``, which stores it
compressed; the reader that prints it is the command ``bible`` of the package ``bible-kjv``
(which pulls in the text). Install both with ``apt-get install bible-kjv``.

Every verse becomes one line without its reference; an empty line separates chapters. Whole books
are held out, so that no held-out verse, nor its neighbours, is seen in training. None of them has
a parallel account in another book (as Kings has in Chronicles, or Mark in Matthew), which would
make the held-out text easier than it looks. The validation books are for choosing sizes and
learning rates; the held-out books are only read for the recorded figures.
"""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

HELD_OUT_BOOKS = ("Ruth", "Jonah", "Acts", "Jas")
"""Books only ever used for the recorded figures, by their abbreviation in the package."""

VALIDATION_BOOKS = ("Est", "Gal")
"""Books used for choosing hyperparameters; never trained on."""

_READER = "bible"
_DATA_DIRECTORIES = "/usr/lib"
_EVERYTHING = "Ge1:1-Rev22:21"
_VERSE = re.compile(r"(?P<book>[1-3]?[A-Za-z]+)(?P<chapter>\d+):(?P<verse>\d+) (?P<text>.+)")
_VERSES = 31_102


class CorpusError(RuntimeError):
    """The text cannot be read; the message says what to install or to check."""


@dataclass(frozen=True)
class Verse:
    """One verse with its place in the text."""

    book: str
    chapter: int
    text: str


@dataclass(frozen=True)
class Corpus:
    """The three parts of the text, each as bytes (ASCII), whole books in canonical order."""

    train: bytes
    validation: bytes
    held_out: bytes

    def sha256(self) -> dict[str, str]:
        """Return the SHA-256 of each part, to compare with the record of a training run."""
        return {
            part: hashlib.sha256(getattr(self, part)).hexdigest()
            for part in ("train", "validation", "held_out")
        }


def load_corpus() -> Corpus:
    """Read the text from the installed package and split it by book.

    Raises
    ------
    CorpusError
        If the reader or its data is missing, or prints something else than the whole text.
    """
    return split_by_book(parse_verses(_read_package()))


def excerpt(text: bytes, max_bytes: int) -> bytes:
    """Return the longest prefix of whole lines of `text` that has at most `max_bytes` bytes."""
    end = text.rfind(b"\n", 0, max_bytes) + 1
    if end == 0:
        raise ValueError(f"no whole line in the first {max_bytes} bytes; allow more bytes")
    return text[:end]


def parse_verses(lines: Iterable[str]) -> list[Verse]:
    """Parse the reader's plain output, one verse a line with its reference in front."""
    verses = []
    for line in lines:
        match = _VERSE.fullmatch(line.strip())
        if match is None:
            raise CorpusError(
                f"not a verse: {line[:60]!r}; expected lines such as 'Ge1:1 In the beginning ...'"
            )
        verses.append(Verse(match["book"], int(match["chapter"]), match["text"]))
    return verses


def split_by_book(verses: Iterable[Verse]) -> Corpus:
    """Write out the verses and assign every book to training, validation or held-out text."""
    parts: dict[str, list[str]] = {"train": [], "validation": [], "held_out": []}
    for (book, _), chapter in groupby(verses, key=lambda verse: (verse.book, verse.chapter)):
        if book in HELD_OUT_BOOKS:
            part = "held_out"
        elif book in VALIDATION_BOOKS:
            part = "validation"
        else:
            part = "train"
        parts[part].append("".join(f"{verse.text}\n" for verse in chapter))
    return Corpus(**{part: "\n".join(chapters).encode("ascii") for part, chapters in parts.items()})


def _read_package() -> list[str]:
    install = "install it with: apt-get install bible-kjv (which pulls in bible-kjv-text)"
    reader = shutil.which(_READER)
    if reader is None:
        raise CorpusError(f"the command {_READER!r} of Debian's bible-kjv is missing; {install}")
    result = subprocess.run(
        [reader, "-p", _DATA_DIRECTORIES, "-f", _EVERYTHING],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = result.stdout.splitlines()
    if result.returncode != 0 or len(lines) != _VERSES:
        raise CorpusError(
            f"{_READER!r} ended with status {result.returncode} and {len(lines)} lines instead of "
            f"{_VERSES} verses ({result.stderr.strip()[:200]!r}); {install}"
        )
    return lines
