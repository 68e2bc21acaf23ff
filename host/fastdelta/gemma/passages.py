# SPDX-License-Identifier: Apache-2.0
"""Real text in tokens, to read with the model."""

from fastdelta.gemma.tokenizer import GemmaTokenizer
from fastdelta.language_model import held_out_text


def passages(tokenizer: GemmaTokenizer, tokens: int, count: int = 1) -> list[list[int]]:
    """Return passages of the shipped public-domain text (`language_model.held_out_text`).

    They start at lines spread evenly over the text, and overlap when it is too short for them.

    Parameters
    ----------
    tokenizer : GemmaTokenizer
    tokens : int
        Length of each passage, with the ``bos`` token in front; at least 2.
    count : int
        Number of passages; at least 1.

    Raises
    ------
    ValueError
        If the text is too short for the passages, or has too few lines for different ones.
    """
    if tokens < 2 or count < 1:
        raise ValueError(f"tokens is {tokens} and count {count}; allowed are >= 2 and >= 1")
    text = held_out_text().decode("ascii")
    whole = tokenizer.encode(text)
    if tokens > len(whole):
        raise ValueError(
            f"passages of {tokens} tokens are asked for; the text has {len(whole)} tokens"
        )
    # A passage that starts up to here is followed by enough text.
    last = len(tokenizer.decode(whole[: 1 + len(whole) - tokens]))
    starts = {text.rfind("\n", 0, last * index // max(1, count - 1)) + 1 for index in range(count)}
    if len(starts) < count:
        raise ValueError(
            f"the text has only {len(starts)} different places to start {count} passages of "
            f"{tokens} tokens; ask for fewer or shorter ones"
        )
    return [tokenizer.encode(text[start:])[:tokens] for start in sorted(starts)]
