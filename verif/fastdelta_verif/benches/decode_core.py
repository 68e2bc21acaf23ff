# SPDX-License-Identifier: Apache-2.0
"""Tests of ``decode_core``; the scoreboard compares every command with the bit-exact model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable
from typing import Any

import numpy as np
import pyuvm
from pyuvm import uvm_test

from fastdelta.reference.decode_model import DecodeTokens, GivenGates, InternalGates, StateImage
from fastdelta_verif.agents.decode_command import Opcode
from fastdelta_verif.agents.handshake import CLOSED, THROTTLES
from fastdelta_verif.covergroups import place_in
from fastdelta_verif.environments.decode_core import (
    Checked,
    DecodeCoreEnvironment,
    Work,
    clear,
    decode,
    dump,
    load,
)
from fastdelta_verif.environments.decode_coverage import DecodeCoreCoverage
from fastdelta_verif.settings import Settings
from fastdelta_verif.stimulus import BETA_ONE, TOTAL_DECAY, DecodeStimulus

TIME_LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}


class DecodeCoreTest(uvm_test):
    """Base: starts the environment, runs ``body``, and lets the core settle."""

    def build_phase(self) -> None:
        """Create the environment and its coverage."""
        self.env = DecodeCoreEnvironment("env", self)
        self.coverage = DecodeCoreCoverage(
            "coverage", self, lambda: self.env.o.monitor.stalled_cycles
        )

    def connect_phase(self) -> None:
        """Sample the coverage with each checked command."""
        self.env.scoreboard.port.connect(self.coverage.analysis_export)
        for name, agent in self.streams().items():
            self.coverage.watch(name, agent.monitor.rhythm)

    def streams(self) -> dict[str, Any]:
        """Return the agents of the streams by name."""
        return {"qk": self.env.qk, "v": self.env.v, "o": self.env.o}

    def reached(self, point: str, value: Hashable) -> None:
        """Count a bin that only a test about it reaches."""
        self.coverage.directed.hit(point, value)

    async def run_phase(self) -> None:
        """Run the test's body."""
        self.raise_objection()
        self.options = Settings.current().options
        self.stimulus, self.rng = self.env.stimulus, self.env.rng
        self.contexts = self.env.shape.contexts
        await self.env.start()
        await self.body()
        await self.env.domain.cycles(50)
        self.drop_objection()

    async def body(self) -> None:
        """Drive the core; subclasses define it."""
        raise NotImplementedError


def random_tokens(stimulus: DecodeStimulus, rng: random.Random, count: int) -> DecodeTokens:
    """Return typical or extreme tokens with random bypasses."""
    make = rng.choice([stimulus.typical, stimulus.typical, stimulus.extreme])
    return make(count, normalised=rng.random() < 0.3, given_gates=rng.random() < 0.5)


def random_work(
    stimulus: DecodeStimulus,
    rng: random.Random,
    context: int,
    *,
    lost: bool = False,
    bad: bool = False,
) -> Work:
    """Return any command; clear or load for a lost context; bad loads are asked for."""
    opcode = rng.choices(
        [Opcode.DECODE, Opcode.CLEAR, Opcode.LOAD, Opcode.DUMP],
        weights=[0, 1, 1, 0] if lost else [6, 1, 1, 1],
    )[0]
    if opcode == Opcode.DECODE:
        count = rng.choice([0, 1, 1, 2, 3, rng.randint(4, 12)])
        return decode(random_tokens(stimulus, rng, count), context, gap=rng.choice([0, 0, 20]))
    if opcode == Opcode.LOAD:
        if bad and rng.random() < 0.2:
            return load(stimulus.bad_image(), context)
        return load(stimulus.image(over_range=rng.random() < 0.3), context)
    return clear(context) if opcode == Opcode.CLEAR else dump(context)


def outputs(results: list[Checked]) -> np.ndarray:
    """Return the outputs of decodes, joined along the tokens."""
    return np.concatenate([result.output for result in results if result.output is not None])


def same_state(one: StateImage, other: StateImage) -> bool:
    """Say whether two dumps are equal to the bit."""
    return bool(
        np.array_equal(one.mantissa, other.mantissa) and np.array_equal(one.scale, other.scale)
    )


@pyuvm.test(**TIME_LIMIT)
class random_mix(DecodeCoreTest):
    """Random commands on random contexts with random stalls everywhere; ``commands`` of them."""

    async def body(self) -> None:
        """Run batches, each with its own stalls."""
        left = self.options.get("commands", 40)
        while left > 0:
            self.env.throttle(*(self.rng.choice(THROTTLES) for _ in range(3)))
            batch = min(left, self.rng.randint(1, 5))
            works = [
                random_work(self.stimulus, self.rng, self.rng.randrange(self.contexts))
                for _ in range(batch)
            ]
            await self.env.run(*works)
            left -= batch


@pyuvm.test(**TIME_LIMIT)
class many_tokens(DecodeCoreTest):
    """One command of many tokens, decays from weak to total, then the state."""

    async def body(self) -> None:
        """Run long decodes."""
        count = self.options.get("tokens", 60)
        for decay in ("weak", "medium", "strong", "tiny", None):
            tokens = self.stimulus.typical(count, given_gates=self.rng.random() < 0.5, decay=decay)
            await self.env.run(decode(tokens), dump())


@pyuvm.test(**TIME_LIMIT)
class single_tokens(DecodeCoreTest):
    """Many commands of one token, back to back and with gaps."""

    async def body(self) -> None:
        """Run short decodes."""
        tokens = self.stimulus.typical(40)
        await self.env.run(
            *(
                decode(tokens.slice(i, i + 1), gap=self.rng.choice([0, 0, 1, 2, 50]))
                for i in range(tokens.count)
            ),
            dump(),
        )


@pyuvm.test(**TIME_LIMIT)
class full_shape(DecodeCoreTest):
    """A few tokens at full size, as many single ones, and the whole state."""

    async def body(self) -> None:
        """Load, decode, dump."""
        await self.env.run(
            decode(self.stimulus.typical(3)),
            decode(self.stimulus.extreme(2, given_gates=True)),
            dump(),
        )


@pyuvm.test(**TIME_LIMIT)
class zero_tokens(DecodeCoreTest):
    """A decode of no tokens is done, and changes nothing."""

    async def body(self) -> None:
        """Compare the state before and after."""
        await self.env.run(decode(self.stimulus.typical(5)))
        before, _, after = await self.env.run(dump(), decode(self.stimulus.typical(0)), dump())
        assert same_state(before.image, after.image)
        self.reached("nothing_decoded", "state is dumped")
        # Also with an update pending, which no dump has applied yet.
        tokens = self.stimulus.typical(6)
        await self.env.run(clear())
        whole = await self.env.run(decode(tokens))
        await self.env.run(clear())
        none = decode(self.stimulus.typical(0))
        parts = await self.env.run(decode(tokens.slice(0, 3)), none, decode(tokens.slice(3, 6)))
        assert np.array_equal(outputs(whole), outputs(parts))
        self.reached("nothing_decoded", "update is pending")


@pyuvm.test(**TIME_LIMIT)
class split_equals_whole(DecodeCoreTest):
    """One sequence split at any token equals the whole, in outputs and state."""

    async def body(self) -> None:
        """Split at every token, once in two and once in single tokens."""
        count = 8
        tokens = self.stimulus.typical(count)
        *whole, state = await self.env.run(clear(), decode(tokens), dump())
        cuts = [[cut] for cut in range(1, count)] + [list(range(1, count))]
        for cut in cuts:
            edges = [0, *cut, count]
            pieces = [decode(tokens.slice(a, b)) for a, b in itertools.pairwise(edges)]
            *parts, last = await self.env.run(clear(), *pieces, dump())
            assert np.array_equal(outputs(whole), outputs(parts)), f"split at {cut}"
            assert same_state(state.image, last.image), f"split at {cut}"
            self.reached("split", "in two" if len(cut) == 1 else "in single tokens")


@pyuvm.test(**TIME_LIMIT)
class clear_isolates_sequences(DecodeCoreTest):
    """A second sequence after a clear equals it alone after reset."""

    async def body(self) -> None:
        """Run B alone, then A, clear, B."""
        first, second = (
            self.stimulus.typical(10, decay="weak"),
            self.stimulus.typical(6, decay="weak"),
        )
        alone = await self.env.run(decode(second))
        await self.env.run(clear(), decode(first))
        without_clear = await self.env.run(decode(second))
        after_clear = await self.env.run(clear(), decode(second))
        assert np.array_equal(outputs(alone), outputs(after_clear))
        assert not np.array_equal(outputs(alone), outputs(without_clear)), "A left no trace"
        self.reached("second_sequence", "after a clear")
        self.reached("second_sequence", "without one")


@pyuvm.test(**TIME_LIMIT)
class contexts_are_isolated(DecodeCoreTest):
    """Sequences that take turns on their contexts equal each alone; clearing one keeps others."""

    async def body(self) -> None:
        """Interleave one sequence a context, token by token."""
        contexts, count = self.contexts, 5
        sequences = [self.stimulus.typical(count) for _ in range(contexts)]
        turns = [
            decode(tokens.slice(i, i + 1), context)
            for i in range(count)
            for context, tokens in enumerate(sequences)
        ]
        mixed = await self.env.run(*turns)
        for context, tokens in enumerate(sequences):
            own = [r for r in mixed if r.finished.command.context == context]
            other = (context + 1) % contexts
            alone = await self.env.run(clear(other), decode(tokens, other), dump(other))
            assert np.array_equal(outputs(own), outputs(alone))
        kept = await self.env.run(dump(0), clear(contexts - 1), dump(0))
        assert contexts > 1
        assert same_state(kept[0].image, kept[2].image)
        self.reached("turns", "contexts one after the other")


@pyuvm.test(**TIME_LIMIT)
class dump_after_load_is_the_identity(DecodeCoreTest):
    """A loaded state comes back unchanged, and goes on as the state that was dumped."""

    async def body(self) -> None:
        """Load random states; move a state from one context to another."""
        last = self.contexts - 1
        for _ in range(3):
            image = self.stimulus.image()
            _, dumped = await self.env.run(load(image, last), dump(last))
            assert same_state(image, dumped.image)
            self.reached("loaded", "dumped")
        first, second = self.stimulus.typical(6), self.stimulus.typical(6)
        *_, state = await self.env.run(clear(0), decode(first, 0), dump(0))
        stayed = await self.env.run(decode(second, 0))
        moved = await self.env.run(load(state.image, last), decode(second, last))
        assert np.array_equal(outputs(stayed), outputs(moved))
        self.reached("loaded", "gone on with in another context")


@pyuvm.test(**TIME_LIMIT)
class bad_scale_is_refused(DecodeCoreTest):
    """A load with a scale out of range says so; the next good load and a clear work."""

    async def body(self) -> None:
        """Load bad and good states."""
        for _ in range(4):
            bad = await self.env.run(load(self.stimulus.bad_image()))
            assert bad[0].finished.bad_state
            good = await self.env.run(
                load(self.stimulus.image()), decode(self.stimulus.typical(2)), dump()
            )
            assert not good[0].finished.bad_state
            self.reached("bad_scale_then", "loaded")
        await self.env.run(
            load(self.stimulus.bad_image()), clear(), decode(self.stimulus.typical(2)), dump()
        )
        self.reached("bad_scale_then", "cleared")


@pyuvm.test(**TIME_LIMIT)
class bypasses(DecodeCoreTest):
    """All four settings of the two bypasses, changed from command to command."""

    async def body(self) -> None:
        """Run typical and extreme tokens with each setting."""
        settings = [(n, g) for n in (False, True) for g in (False, True)] * 3
        self.rng.shuffle(settings)
        for norm, gates in settings:
            await self.env.run(
                decode(self.stimulus.typical(3, normalised=norm, given_gates=gates)),
                decode(self.stimulus.extreme(2, normalised=norm, given_gates=gates)),
                dump(),
            )


@pyuvm.test(**TIME_LIMIT)
class norm_overflow_is_counted(DecodeCoreTest):
    """Vectors given as normalised with a squared norm above 1.5 are counted, one each."""

    async def body(self) -> None:
        """Scale single vectors of good tokens up."""
        tokens = self.stimulus.typical(4, normalised=True)
        (good,) = await self.env.run(decode(tokens))
        assert good.finished.norm_overflows == 0
        tokens.q_exponent[1, 0] += 1
        tokens.k_exponent[2] += 2
        (bad,) = await self.env.run(decode(tokens))
        assert bad.finished.norm_overflows == 1 + self.env.shape.qk_heads
        for vectors in ("none", "one of q", "all of k"):
            self.reached("overflowing_vectors", vectors)


@pyuvm.test(**TIME_LIMIT)
class extreme_numbers(DecodeCoreTest):
    """Corners of every format: mantissas, exponents, gates, zero vectors."""

    async def body(self) -> None:
        """Run extreme tokens, from an empty state and from extreme ones."""
        for _ in range(self.options.get("rounds", 8)):
            await self.env.run(
                self.rng.choice([clear(), load(self.stimulus.image(over_range=True))]),
                *(
                    decode(
                        self.stimulus.extreme(
                            4,
                            normalised=self.rng.random() < 0.4,
                            given_gates=self.rng.random() < 0.5,
                        )
                    )
                    for _ in range(2)
                ),
                dump(),
            )


@pyuvm.test(**TIME_LIMIT)
class largest_operands(DecodeCoreTest):
    """All operands at their limits over the whole dimension: the widths of the sums hold."""

    async def body(self) -> None:
        """Combine both signs of q, k, v and the state, normalised and not."""
        shape, limits = self.env.shape, (-32768, 32767)
        size = (shape.value_heads, shape.head_dim, shape.head_dim)
        state_limits = (-(1 << 26), (1 << 26) - 1)
        scales = np.full(shape.value_heads, 1 << 24, dtype=np.int32)
        for normalised in (False, True):
            tokens = self.stimulus.typical(8, normalised=normalised, given_gates=True)
            for token in range(8):
                tokens.q[token] = limits[token & 1]
                tokens.k[token] = limits[token >> 1 & 1]
                tokens.v[token] = limits[token >> 2]
            tokens.q_exponent[:] = tokens.k_exponent[:] = -15
            tokens.v_exponent[:] = -10
            full = with_gates(tokens, 0, BETA_ONE)
            for limit in state_limits:
                image = StateImage(np.full(size, limit, dtype=np.int32), scales)
                for token in (0, 3, 5, 6):  # every pair of signs, the first to meet the state
                    await self.env.run(load(image), decode(full.slice(token, token + 1)))
                await self.env.run(load(image), decode(full), dump())


def with_gates(tokens: DecodeTokens, decay: int, beta: int) -> DecodeTokens:
    """Return tokens whose every gate is given."""
    shape = tokens.v_exponent.shape
    gates = GivenGates(np.full(shape, decay, dtype=np.int64), np.full(shape, beta, dtype=np.int64))
    return DecodeTokens(
        tokens.q,
        tokens.k,
        tokens.q_exponent,
        tokens.k_exponent,
        tokens.v,
        tokens.v_exponent,
        gates,
        tokens.normalised,
    )


@pyuvm.test(**TIME_LIMIT)
class gate_limits(DecodeCoreTest):
    """Decay zero and one, beta zero and one, and a decay of 6.5e-12 at every token."""

    async def body(self) -> None:
        """Check what each limit means, beside the model."""
        loaded = self.stimulus.image()
        shape = self.env.shape

        # No decay, no write: the state stays.
        kept = await self.env.run(
            load(loaded), decode(with_gates(self.stimulus.typical(5), 0, 0)), dump()
        )
        assert same_state(loaded, kept[-1].image)
        self.reached("decays", "all kept")
        self.reached("betas", "zero")

        # Total decay without a write: the state is zero, and so is every output.
        gone = await self.env.run(
            load(loaded), decode(with_gates(self.stimulus.typical(3), TOTAL_DECAY, 0)), dump()
        )
        assert not gone[1].output.any()
        assert not gone[2].image.mantissa.any()

        # Total decay with beta 1: only the last token is left, as after a clear.
        tokens = with_gates(self.stimulus.typical(4), TOTAL_DECAY, BETA_ONE)
        many = await self.env.run(load(loaded), decode(tokens), dump())
        one = await self.env.run(clear(), decode(tokens.slice(3, 4)), dump())
        assert np.array_equal(many[1].output[3], one[1].output[0])
        self.reached("decays", "all gone")
        self.reached("betas", "one")
        # The scales differ, so the last bits may.
        difference = many[2].image.to_float() - one[2].image.to_float()
        assert np.abs(difference).max() <= 2.0**-19

        # Beta above one counts as one.
        tokens = self.stimulus.typical(2)
        one = await self.env.run(clear(), decode(with_gates(tokens, 0, BETA_ONE)))
        for beta in (BETA_ONE + 1, (1 << 18) - 1):
            over = await self.env.run(clear(), decode(with_gates(tokens, 0, beta)))
            assert np.array_equal(outputs(one), outputs(over))
            self.reached("betas", "above one")

        # A decay of 6.5e-12 at every token, given and computed: finite, about the last update.
        for given in (True, False):
            tiny = self.stimulus.typical(12, given_gates=given, decay="tiny")
            result = await self.env.run(clear(), decode(tiny), dump())
            state = result[2].image.to_float()
            assert state.any()
            assert np.abs(state).max() < shape.head_dim
            self.reached("decays", "6.5e-12")


@pyuvm.test(**TIME_LIMIT)
class gates_far_out(DecodeCoreTest):
    """Gate inputs at the limits of their formats saturate the gates as the functions do."""

    async def body(self) -> None:
        """Combine the corners of a, dt_bias, b and the rate."""
        tokens = self.stimulus.typical(1)
        size = tokens.v_exponent.shape
        corners = [
            (a, dt, mantissa, exponent, b)
            for a in (-(1 << 31), (1 << 31) - 1)
            for dt in (-(1 << 31), 0, (1 << 31) - 1)
            for mantissa, exponent in ((0, 0), ((1 << 24) - 1, 22), (1 << 23, -32), (1 << 23, 0))
            for b in (-(1 << 23), (1 << 23) - 1)
        ]
        works = []
        for corner in corners:
            gates = InternalGates(*(np.full(size, value, dtype=np.int64) for value in corner))
            vectors = (tokens.q, tokens.k, tokens.q_exponent, tokens.k_exponent)
            works.append(decode(DecodeTokens(*vectors, tokens.v, tokens.v_exponent, gates)))
        await self.env.run(load(self.stimulus.image()), *works, dump())
        for a, *_, b in corners:
            ends = f"a {'lowest' if a < 0 else 'highest'}", f"b {'lowest' if b < 0 else 'highest'}"
            self.reached("gate_corners", ends)


@pyuvm.test(**TIME_LIMIT)
class saturation_is_counted(DecodeCoreTest):
    """Values beyond the state's range are clamped and counted as the model counts them."""

    async def body(self) -> None:
        """Provoke saturation in the load, the value, the state and the output."""
        (loaded,) = await self.env.run(load(self.stimulus.image(over_range=True)))
        assert loaded.finished.saturations > 0
        for exponent in (-9, -8, -7, 0, 23):
            tokens = with_gates(self.stimulus.typical(6), 0, BETA_ONE)
            tokens.v_exponent[:] = exponent
            result = await self.env.run(clear(), decode(tokens), dump())
        assert result[1].finished.saturations > 0
        quiet = await self.env.run(
            clear(), decode(self.stimulus.typical(3, decay="medium")), dump()
        )
        assert quiet[1].finished.saturations == 0


@pyuvm.test(**TIME_LIMIT)
class value_exponents(DecodeCoreTest):
    """Every exponent of v, from below the format's range to above it."""

    async def body(self) -> None:
        """Give each token another exponent."""
        exponents = [*range(-44, 28), -128, 127]
        tokens = self.stimulus.typical(len(exponents), given_gates=True, decay="strong")
        tokens.v_exponent[:] = np.array(exponents, dtype=np.int8)[:, np.newaxis]
        await self.env.run(decode(tokens), dump())


@pyuvm.test(**TIME_LIMIT)
class value_heads_use_their_key_head(DecodeCoreTest):
    """Value head h uses query/key head floor(h / ratio), and every key head is used."""

    async def body(self) -> None:
        """Leave one query/key head non-zero: exactly its value heads answer."""
        shape = self.env.shape
        tokens = self.stimulus.typical(2, decay="weak")
        for head in range(shape.qk_heads):
            others = np.arange(shape.qk_heads) != head
            q, k = tokens.q.copy(), tokens.k.copy()
            q[:, others], k[:, others] = 0, 0
            only = DecodeTokens(
                q,
                k,
                tokens.q_exponent,
                tokens.k_exponent,
                tokens.v,
                tokens.v_exponent,
                tokens.gates,
            )
            result = await self.env.run(clear(), decode(only))
            answered = np.flatnonzero(result[1].output[1].any(axis=-1))
            first = head * shape.group_ratio
            assert answered.tolist() == list(range(first, first + shape.group_ratio))
            self.reached("lone_key_head", place_in(head, shape.qk_heads))


@pyuvm.test(**TIME_LIMIT)
class back_pressure(DecodeCoreTest):
    """Each side stalls alone and all together; results do not depend on it."""

    async def body(self) -> None:
        """Run the same tokens under every combination of stalls."""
        tokens = self.stimulus.typical(8)
        reference = await self.env.run(clear(), decode(tokens), dump())
        for mode in THROTTLES[1:]:
            for sides in ({"qk": mode}, {"v": mode}, {"o": mode}, dict.fromkeys("qvo", mode)):
                names = {"q": "qk", "v": "v", "o": "o"}
                self.env.throttle(**{names.get(side, side): m for side, m in sides.items()})
                stalled = await self.env.run(clear(), decode(tokens), dump())
                assert np.array_equal(outputs(reference), outputs(stalled))
                assert same_state(reference[-1].image, stalled[-1].image)
                for side, agent in self.streams().items():
                    self.reached("stalls", (side, agent.driver.throttle.mode))


@pyuvm.test(**TIME_LIMIT)
class starved_cycles_are_counted(DecodeCoreTest):
    """Missing input is counted, input in time is not."""

    async def body(self) -> None:
        """Close one stream at a time for a while."""
        held = 1500
        tokens = self.stimulus.typical(12)
        (free,) = await self.env.run(decode(tokens))
        for stream, starves in (("qk", True), ("v", True), ("o", False)):
            self.env.throttle(**{stream: CLOSED})
            self.env.open_streams_after(held)
            (result,) = await self.env.run(decode(tokens))
            more = result.finished.starved_cycles - free.finished.starved_cycles
            if starves:
                assert 0.9 * held <= more <= held + 10, f"{stream}: {more} of {held} cycles"
            else:
                assert more <= 10, f"output held for {held} cycles: {more} counted as starved"
            self.reached("closed_stream", stream)


@pyuvm.test(**TIME_LIMIT)
class output_is_never_lost(DecodeCoreTest):
    """A sink that takes nothing for thousands of cycles gets every beat in the end."""

    async def body(self) -> None:
        """Hold the output, then release it, in a decode and in a dump."""
        for work in (decode(self.stimulus.typical(6)), dump()):
            self.env.throttle(o=CLOSED)
            self.env.open_streams_after(3000)
            (result,) = await self.env.run(work)
            assert result.finished.done_cycle - result.finished.start_cycle >= 3000


@pyuvm.test(**TIME_LIMIT)
class interrupted_runs(DecodeCoreTest):
    """Reset (or flush, by option) at any cycle of any command; the next run equals a first one."""

    async def body(self) -> None:
        """Interrupt at random cycles, then compare with the run before any interrupt."""
        reset = self.options["reset"]
        contexts = self.contexts
        tokens = self.stimulus.typical(3)
        first = await self.env.run(decode(tokens, 0), dump(0))
        keeper = contexts - 1  # 0 without a second context
        kept = await self.env.run(decode(self.stimulus.typical(3), keeper), dump(keeper))
        for _ in range(self.options.get("rounds", 30)):
            self.env.throttle(*(self.rng.choice(THROTTLES) for _ in range(3)))
            victim = self.rng.choice(
                [
                    decode(random_tokens(self.stimulus, self.rng, 4), 0),
                    decode(random_tokens(self.stimulus, self.rng, 4), 0),
                    load(self.stimulus.image(), 0),
                    dump(0),
                    clear(0),
                ]
            )
            after = self.rng.randint(1, 900)
            running = await self.env.interrupt(victim, after=after, reset=reset)
            self.coverage.interrupted(running, reset=reset)
            self.env.throttle()
            if not reset:
                if keeper:
                    (state,) = await self.env.run(dump(keeper))
                    assert same_state(kept[-1].image, state.image), "flush changed another context"
                await self.env.run(clear(0))
            again = await self.env.run(decode(tokens, 0), dump(0))
            assert np.array_equal(outputs(first), outputs(again))
            assert same_state(first[-1].image, again[-1].image)


@pyuvm.test(**TIME_LIMIT)
class unused_contexts_are_clear(DecodeCoreTest):
    """After reset every context is empty, whatever the memories hold."""

    async def body(self) -> None:
        """Dump every context right after reset."""
        contexts = range(self.contexts)
        for result in await self.env.run(*(dump(context) for context in contexts)):
            assert not result.image.mantissa.any()
            first = result.finished.command.context == 0
            self.reached("clear_after_reset", "first context" if first else "others")
        await self.env.run(*(decode(self.stimulus.typical(2), context) for context in contexts))


@pyuvm.test(**TIME_LIMIT)
class coverage_closure(DecodeCoreTest):
    """Random commands and interrupts until every bin of the functional coverage was hit."""

    async def body(self) -> None:
        """Run until nothing is missing; give up after ``commands``."""
        limit = self.options.get("commands", 1500)
        for _ in range(limit):
            if not self.coverage.missing():
                break
            await self.step()
        missing = self.coverage.missing()
        assert not missing, f"not hit by {limit} commands: {missing}"

    async def step(self) -> None:
        """Run one command, or interrupt one."""
        env, rng = self.env, self.rng
        if rng.random() < 0.3:
            env.throttle(*(rng.choice(THROTTLES) for _ in range(3)))
        context = rng.randrange(self.contexts)
        lost = context in env.scoreboard.lost
        work = random_work(self.stimulus, rng, context, lost=lost, bad=True)
        soon_over = work.command.opcode == Opcode.CLEAR
        if rng.random() < (0.4 if soon_over else 0.1):
            reset = rng.random() < 0.5
            after = rng.randint(1, 6 if soon_over else 200)
            running = await env.interrupt(work, after=after, reset=reset)
            self.coverage.interrupted(running, reset=reset)
        else:
            await env.run(work)
