# SPDX-License-Identifier: Apache-2.0
"""The corpus: parsing the reader's output, splitting by book, and saying what to install."""

from pathlib import Path

import pytest

from fastdelta.language_model.corpus import (
    HELD_OUT_BOOKS,
    VALIDATION_BOOKS,
    CorpusError,
    Verse,
    excerpt,
    load_corpus,
    parse_verses,
    split_by_book,
)


def test_verses_are_parsed_with_their_place() -> None:
    lines = ["Ge1:1 In the beginning.", "1Sm12:3 Behold, here I am: 7 of them.\n"]
    assert parse_verses(lines) == [
        Verse("Ge", 1, "In the beginning."),
        Verse("1Sm", 12, "Behold, here I am: 7 of them."),
    ]


@pytest.mark.parametrize("line", ["", "Genesis 1", "Ge1:1", "Ge1 In the beginning"])
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(CorpusError, match="not a verse"):
        parse_verses(["Ge1:1 In the beginning.", line])


def test_whole_books_go_to_one_part_only() -> None:
    books = ["Ge", *VALIDATION_BOOKS, "Rev", *HELD_OUT_BOOKS]
    corpus = split_by_book(
        Verse(book, chapter, f"{book} {chapter} {verse}")
        for book in books
        for chapter in (1, 2)
        for verse in "ab"
    )
    assert (
        corpus.train
        == b"Ge 1 a\nGe 1 b\n\nGe 2 a\nGe 2 b\n\nRev 1 a\nRev 1 b\n\nRev 2 a\nRev 2 b\n"
    )
    parts = {"validation": VALIDATION_BOOKS, "held_out": HELD_OUT_BOOKS}
    for part, own in parts.items():
        text = getattr(corpus, part)
        assert {line.split()[0].decode() for line in text.split(b"\n") if line} == set(own)
    assert set(corpus.sha256()) == {"train", "validation", "held_out"}
    assert len(set(corpus.sha256().values())) == 3


def test_excerpt_is_the_longest_prefix_of_whole_lines() -> None:
    text = b"one\ntwo\nthree\n"
    assert excerpt(text, 8) == b"one\ntwo\n"
    assert excerpt(text, 13) == b"one\ntwo\n"
    assert excerpt(text, 100) == text
    with pytest.raises(ValueError, match="no whole line in the first 3 bytes"):
        excerpt(text, 3)


def test_missing_reader_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CorpusError, match="apt-get install bible-kjv"):
        load_corpus()


def test_reader_without_its_text_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reader = tmp_path / "bible"
    reader.write_text("#!/bin/sh\necho 'Cannot open bible.data' >&2\nexit 1\n")
    reader.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CorpusError, match=r"status 1 and 0 lines .* apt-get install bible-kjv"):
        load_corpus()
