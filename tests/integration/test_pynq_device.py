# SPDX-License-Identifier: Apache-2.0
"""The simulated card behind PYNQ 3.0.1, end to end with the vector-add kernel."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pynq
import pytest
from vector_add_board import (
    CHUNK_BEATS,
    DONE_EARLY,
    ERRORS,
    NEVER_DONE,
    VECTOR_ADD,
    resident_bytes,
    vector_add_interface,
)
from vector_add_overlay import BEATS, LANES, WORDS, Open, OverlayTests, VectorAddOverlay

from fastdelta.errors import (
    BankFullError,
    BoardError,
    BoardNotFoundError,
    OverlayError,
    WrongBoardError,
)
from fastdelta.platforms import PLATFORMS
from fastdelta.registers.decode import CTRL_AP_CONTINUE
from fastdelta.sim import (
    CommandError,
    CommandTimeoutError,
    EventKind,
    Fault,
    FaultKind,
    OutsideBanksWarning,
    SimDevice,
    SimulationError,
    open_device,
)
from fastdelta.sim.overlay import OpenedDevice
from fastdelta.xclbin import Mode, build_xclbin


@pytest.fixture
def opened() -> Iterator[Open]:
    """Open simulated cards with the vector-add kernel; they are closed after the test."""
    devices: list[SimDevice] = []

    def open_vector_add(board: str = "u55c", **options: Any) -> OpenedDevice:
        parameters = {"BUS_WIDTH": 512, "CHAIN": 1}
        result = open_device(board, VECTOR_ADD, parameters=parameters, **options)
        devices.append(result.device)
        return result

    yield open_vector_add
    for device in devices:
        device.close()


class VectorAdd(VectorAddOverlay):
    def cycles(self) -> int:
        handle = self.unit.start(*self.arguments())
        handle.wait()
        return int(handle.command.cycles)

    def check(self) -> int:
        """Run correctly from cleared memory; return the cycles."""
        return self.run_checked(self.cycles)


class TestOverlay(OverlayTests):
    def test_call(self, opened: Open) -> None:
        card = VectorAdd(opened())
        card.sync()
        card.unit.call(*card.arguments())
        np.testing.assert_array_equal(card.result(), card.expected)

    def test_start_and_wait_with_names(self, opened: Open) -> None:
        card = VectorAdd(opened())
        card.sync()
        names = ("a", "b", "sum", "beats", "misbehaviour")
        handle = card.unit.start(**dict(zip(names, card.arguments(), strict=True)))
        handle.wait()
        assert handle.done
        assert handle.failure is None
        np.testing.assert_array_equal(card.result(), card.expected)

    def test_description(self, opened: Open) -> None:
        card = VectorAdd(opened(compute_units=2, clock_mhz=250))
        assert list(card.overlay.ip_dict) == ["vector_add_1", "vector_add_2"]
        assert [name for name in ("a", "b", "sum") if card.unit.args[name].mem == "HBM[0]"] == [
            "a",
            "b",
        ]
        assert list(card.unit.signature.parameters) == ["a", "b", "sum", "beats", "misbehaviour"]
        assert card.device.clocks["clock0"] == {"frequency": 250}
        assert card.device.name == PLATFORMS["u55c"].shell
        assert card.device.get_memory_by_name("HBM[1]") == card.overlay.HBM1
        assert card.device.get_memory_by_idx(12).base_address == 12 << 29
        assert not hasattr(card.overlay, "HBM2")

    def test_registers(self, opened: Open) -> None:
        card = VectorAdd(opened())
        card.unit.write(0x34, 77)
        assert card.unit.read(0x34) == 77
        assert card.unit.register_map.beats[:] == 77
        assert "AP_IDLE=1" in str(card.unit.register_map)
        with pytest.raises(SimulationError, match="0x200 was answered SLVERR"):
            card.unit.read(0x200)
        with pytest.raises(BoardError, match="not whole registers of a compute unit"):
            card.device.read_registers(0x10, 4)

    def test_two_units_at_once(self, opened: Open) -> None:
        first = VectorAdd(opened(compute_units=2))
        unit = first.overlay.vector_add_2
        a, b, total = (
            pynq.allocate(WORDS, "i4", target=first.device.get_memory_by_name(unit.args[name].mem))
            for name in ("a", "b", "sum")
        )
        a[:], b[:] = 3, np.arange(WORDS)
        a.flush()
        b.flush()
        first.sync()
        handles = []
        for _ in range(3):
            handles.append(first.unit.start(*first.arguments()))
            handles.append(unit.start(a, b, total, BEATS, 0))
        for handle in handles:
            handle.wait()
        np.testing.assert_array_equal(first.result(), first.expected)
        total.invalidate()
        np.testing.assert_array_equal(total, 3 + np.arange(WORDS))
        assert len({handle.command.cycles for handle in handles}) == 1

    def test_await(self, opened: Open) -> None:
        card = VectorAdd(opened())
        card.sync()

        async def run() -> None:
            handles = [card.unit.start(*card.arguments()) for _ in range(4)]
            await asyncio.gather(*(handle.wait_async() for handle in handles))
            assert all(handle.done for handle in handles)

        asyncio.run(run())
        np.testing.assert_array_equal(card.result(), card.expected)

    def test_options_of_the_device(self, opened: Open) -> None:
        base = VectorAdd(opened()).check()
        chunks = -(-BEATS // CHUNK_BEATS)
        assert VectorAdd(opened(read_latency=100)).check() == base + 36 * chunks
        assert VectorAdd(opened(write_latency=20)).check() == base + 4 * chunks
        stalled = [VectorAdd(opened(stalls=0.4, seed=seed)).check() for seed in (1, 1, 2)]
        assert stalled[0] == stalled[1] != stalled[2]
        assert min(stalled) > base

    def test_a_simulated_card_is_found_by_pynq(self) -> None:
        cards = {device.platform.name for device in pynq.Device.devices if
                 isinstance(device, SimDevice)}  # fmt: skip
        assert cards == set(PLATFORMS)

    def test_u280(self, opened: Open) -> None:
        card = VectorAdd(opened("sim-u280"))
        assert card.unit.args["sum"].mem == "DDR[1]"
        assert card.sum.device_address == PLATFORMS["u280"].banks[33].base
        card.check()


class TestLoad:
    def test_threads_share_a_card(self, opened: Open) -> None:
        card = VectorAdd(opened(compute_units=2))
        units = (card.unit, card.overlay.vector_add_2)
        before = card.device.live_buffers

        def work(number: int) -> bool:
            unit = units[number % 2]
            random = np.random.default_rng(number)
            memories = [
                card.device.get_memory_by_name(unit.args[name].mem) for name in ("a", "b", "sum")
            ]
            for _ in range(20):
                words = LANES * int(random.integers(1, 40))
                a, b, total = (memory.allocate(words, "i4") for memory in memories)
                a[:], b[:] = random.integers(-1000, 1000, (2, words))
                a.flush()
                b.flush()
                unit.call(a, b, total, words // LANES, 0)
                total.invalidate()
                if not np.array_equal(total, np.array(a) + np.array(b)):
                    return False
            return True

        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(work, range(6)))
        gc.collect()
        assert card.device.live_buffers == before

    def test_calls_leave_nothing(self, opened: Open) -> None:
        card = VectorAdd(opened())
        for _ in range(500):
            card.unit.call(*card.arguments(beats=1))
        before = resident_bytes()
        for _ in range(3000):
            card.unit.call(*card.arguments(beats=1))
        assert resident_bytes() - before < 2 << 20


class TestSynchronisation:
    def test_a_late_sync_overwrites_the_output(self, opened: Open) -> None:
        card = VectorAdd(opened())
        card.sync()
        card.unit.call(*card.arguments())
        card.sum.sync_to_device()
        assert not card.result().any()


class TestBuffers:
    def test_bank_full(self, opened: Open) -> None:
        card = VectorAdd(opened("u280"))
        memory = card.overlay.HBM0
        before = memory.num_buffers
        size = 100 << 20
        buffers = [memory.allocate(size, "u1") for _ in range(2)]
        with pytest.raises(
            BankFullError, match=r"does not fit into bank HBM\[0\] of the u280.*4 b"
        ):
            memory.allocate(size, "u1")
        assert memory.num_buffers == before + 2
        buffers.pop().freebuffer()
        buffers.append(memory.allocate(size, "u1"))
        assert memory.mem_used == 2 * size + 2 * 4096

    def test_a_bank_that_others_fill(self, opened: Open) -> None:
        card = VectorAdd(opened())
        card.device.board.limit_bank(0, card.overlay.HBM0.mem_used + 4096)
        with pytest.raises(BankFullError, match=r"the largest gap is 4,096 bytes"):
            card.overlay.HBM0.allocate(4097, "u1")
        card.check()
        card.device.board.limit_bank(0, None)
        card.overlay.HBM0.allocate(4097, "u1").freebuffer()

    def test_a_whole_bank(self, opened: Open) -> None:
        card = VectorAdd(opened("u280"))
        memory = card.device.get_memory_by_name("HBM[7]")
        buffer = memory.allocate(256 << 20, "u1")
        assert buffer.device_address == 7 * (256 << 20)
        buffer[-1] = 9
        buffer[-8:].flush()
        assert card.device.board.read_memory(8 * (256 << 20) - 1, 1) == b"\x09"
        with pytest.raises(BankFullError, match="largest gap is 0 bytes"):
            memory.allocate(1, "u1")

    @pytest.mark.parametrize(
        ("board", "bank", "mebibytes"), [("u280", "HBM[0]", 256), ("u55c", "HBM[0]", 512)]
    )
    def test_an_array_larger_than_a_bank(
        self, opened: Open, board: str, bank: str, mebibytes: int
    ) -> None:
        card = VectorAdd(opened(board))
        shape = (mebibytes, 1024, 1024)
        memory = card.device.get_memory_by_name(bank)
        message = (
            rf"shape \({mebibytes}, 1024, 1024\) and type float32, .*larger than bank HBM\[0\]"
        )
        with pytest.raises(BankFullError, match=message):
            pynq.allocate(shape, "f4", target=memory)
        with pytest.raises(BankFullError, match="at least one byte"):
            memory.allocate((0, 4), "f4")

    def test_buffers_are_freed(self, opened: Open) -> None:
        card = VectorAdd(opened())
        memory = card.overlay.HBM0
        used = memory.mem_used
        with memory.allocate(10, "i4") as buffer:
            assert memory.mem_used == used + 4096
            assert buffer.device_address % 4096 == 0
        assert memory.mem_used == used
        buffer[:] = 1  # the host copy is still there
        with pytest.raises(BoardError, match="was freed"):
            buffer.flush()
        del buffer
        held = memory.allocate(10, "i4")
        view = held[2:5]
        del held
        gc.collect()
        assert memory.mem_used == used + 4096, "a view keeps its buffer"
        view.flush()
        del view
        gc.collect()
        assert memory.mem_used == used

    def test_freed_space_is_used_again(self, opened: Open) -> None:
        card = VectorAdd(opened("u280"))
        memory = card.device.get_memory_by_name("HBM[9]")
        random = np.random.default_rng(1)
        live: list[Any] = []
        for _ in range(300):
            if live and random.random() < 0.5:
                live.pop(random.integers(len(live))).freebuffer()
            else:
                live.append(memory.allocate(int(random.integers(1, 1 << 20)), "u1"))
        spans = sorted((b.device_address, b.device_address + b.nbytes) for b in live)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        while live:
            live.pop().freebuffer()
        assert memory.mem_used == memory.num_buffers == 0
        memory.allocate(256 << 20, "u1").freebuffer()

    def test_without_a_target(self, opened: Open) -> None:
        card = VectorAdd(opened())
        with pytest.raises(BoardError, match=r"uses 2 memory banks; say which one"):
            pynq.allocate(4, target=card.device)

    def test_a_buffer_in_the_wrong_bank(self, opened: Open) -> None:
        card = VectorAdd(opened())
        wrong = card.device.get_memory_by_name("HBM[5]").allocate(WORDS, "i4")
        card.sync()
        with pytest.warns(OutsideBanksWarning, match="vector_add_1.m_axi_in: read at 0xa0000000"):
            card.unit.call(wrong, card.b, card.sum, BEATS, 0)
        assert card.unit.read(ERRORS) == 1
        events = card.device.board.events()
        assert {event.kind for event in events} == {EventKind.OUTSIDE_BANKS}
        card.check()


class TestFailures:
    def test_a_start_by_register_is_acknowledged_before_another(self, opened: Open) -> None:
        card = VectorAdd(opened())
        first = card.check()
        card.unit.start_sw(*card.arguments()).wait()
        for _ in range(2):
            with pytest.raises(CommandError, match=r"refused the start: .*ap_continue"):
                card.unit.call(*card.arguments())
        card.unit.write(0, CTRL_AP_CONTINUE)
        assert card.check() == first

    def test_stuck_memory(self, opened: Open) -> None:
        card = VectorAdd(opened(hang_cycles=3000))
        first = card.check()
        card.device.board.inject("vector_add_1", "m_axi_in", Fault(FaultKind.STUCK, "read"))
        handle = card.unit.start(*card.arguments())
        with pytest.raises(CommandError, match=r"vector_add_1 hangs: .*reset_compute_unit"):
            handle.wait()
        assert handle.done
        with pytest.raises(CommandError, match="hangs since an earlier command"):
            card.unit.call(*card.arguments())
        card.device.board.clear_faults("vector_add_1")
        card.device.reset_compute_unit("vector_add_1")
        assert card.check() == first

    def test_loading_again_resets(self, opened: Open) -> None:
        device, xclbin = opened(hang_cycles=3000)
        card = VectorAdd(OpenedDevice(device, xclbin))
        first = card.check()
        with pytest.raises(CommandError, match="hangs"):
            card.unit.call(*card.arguments(misbehaviour=NEVER_DONE))
        overlay = pynq.Overlay(str(xclbin), device=device)
        assert overlay.is_loaded()
        assert not card.overlay.is_loaded()
        card.unit = overlay.vector_add_1
        assert card.check() == first, "buffers of the same overlay stay"

    def test_waiting_has_a_time_out(self, opened: Open) -> None:
        card = VectorAdd(opened(hang_cycles=0, timeout_seconds=0.2))
        handle = card.unit.start(*card.arguments(misbehaviour=NEVER_DONE))
        started = time.monotonic()
        with pytest.raises(CommandTimeoutError, match=r"has not ended within 0\.2 s"):
            handle.wait()
        with pytest.raises(TimeoutError):
            handle.wait(0.1)
        assert time.monotonic() - started < 5
        assert not handle.done
        card.device.reset_compute_unit("vector_add_1")
        with pytest.raises(CommandError, match="was reset while"):
            handle.wait()

    def test_two_threads_may_wait_for_one_command(
        self, opened: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        card = VectorAdd(opened())
        handle = card.unit.start(*card.arguments())
        wait = card.device.board.wait

        def wait_after_the_other(number: int, seconds: float) -> bool:
            while not handle.done:
                pass
            return wait(number, seconds)

        monkeypatch.setattr(card.device.board, "wait", wait_after_the_other)
        handle.wait()

    def test_violations_of_axi_fail_a_call(self, opened: Open) -> None:
        card = VectorAdd(opened())
        with pytest.raises(CommandError, match="done before 1 of its writes were answered"):
            card.unit.call(*card.arguments(misbehaviour=DONE_EARLY))
        card.check()

    def test_failures_are_known_without_waiting(self, opened: Open) -> None:
        card = VectorAdd(opened(hang_cycles=2000))
        handle = card.unit.start(*card.arguments(misbehaviour=NEVER_DONE))
        while not handle.done:
            handle.device._handle_events(1000)
        assert "hangs" in handle.failure
        waiter = handle.wait_async()
        with pytest.raises(CommandError, match="hangs"):
            waiter.send(None)

    def test_events_wake_a_wait_of_any_command(self, opened: Open) -> None:
        card = VectorAdd(opened(compute_units=2, hang_cycles=0))
        slow = card.unit.start(*card.arguments(misbehaviour=NEVER_DONE))
        quick = card.overlay.vector_add_2.start(card.a, card.b, card.sum, 0, 0)
        started = time.monotonic()
        while not quick.done:
            card.device._handle_events(10_000)
        assert time.monotonic() - started < 5
        assert not slow.done

    def test_closing_ends_commands(self, opened: Open) -> None:
        card = VectorAdd(opened(hang_cycles=0))
        handle = card.unit.start(*card.arguments(misbehaviour=NEVER_DONE))
        card.overlay.free()
        with pytest.raises(CommandError, match="was closed"):
            handle.wait()
        with pytest.raises(BoardError, match=r"was freed|card was closed"):
            card.a.flush()
        with pytest.raises(BoardError, match="no overlay is loaded"):
            card.unit.read(0x34)
        card.a.freebuffer()

    def test_a_freed_card_can_be_loaded_again(self, opened: Open) -> None:
        opened_device = opened()
        first = VectorAdd(opened_device)
        cycles = first.check()
        first.overlay.free()
        assert opened_device.device.live_buffers == 0
        assert VectorAdd(opened_device).check() == cycles


class TestLoading:
    def test_wrong_card(self, opened: Open) -> None:
        device = opened("u280").device
        other = opened("u55c").xclbin
        with pytest.raises(WrongBoardError, match=r"is for xilinx_u55c.*simulates a xilinx_u280"):
            pynq.Overlay(str(other), device=device)

    def test_a_bitstream_for_a_real_card(self, opened: Open, tmp_path: Path) -> None:
        path = tmp_path / "real.xclbin"
        data = build_xclbin(
            vector_add_interface(), PLATFORMS["u55c"], bitstream=b"\x00\x09\x0f", mode=Mode.FLAT
        )
        path.write_bytes(data)
        with pytest.raises(OverlayError, match="bitstream for a real u55c"):
            pynq.Overlay(str(path), device=opened().device)

    def test_no_container(self, opened: Open, tmp_path: Path) -> None:
        path = tmp_path / "text.xclbin"
        path.write_text("not a container" * 100)
        with pytest.raises(OverlayError, match=r"text\.xclbin: this is no xclbin"):
            pynq.Overlay(str(path), device=opened().device)

    def test_a_changed_container(self, opened: Open, tmp_path: Path) -> None:
        device, xclbin = opened()
        path = tmp_path / "changed.xclbin"
        path.write_bytes(xclbin.read_bytes().replace(b"vector_add_1", b"vector_abb_1"))
        with pytest.raises(OverlayError, match="was changed after it was written"):
            pynq.Overlay(str(path), device=device)

    @pytest.mark.parametrize(
        ("manifest", "message"),
        [
            ({"fastdelta_simulation": 99, "kernels": {}}, "simulation format 99"),
            (
                {"fastdelta_simulation": 1, "kernels": {"vector_add_kernel": "0" * 32}},
                "is not in the cache of this machine; build it again",
            ),
        ],
    )
    def test_a_simulation_that_is_not_there(
        self, opened: Open, tmp_path: Path, manifest: dict[str, Any], message: str
    ) -> None:
        path = tmp_path / "other.xclbin"
        bitstream = json.dumps(manifest).encode()
        path.write_bytes(
            build_xclbin(vector_add_interface(), PLATFORMS["u55c"], bitstream=bitstream)
        )
        with pytest.raises(OverlayError, match=message):
            pynq.Overlay(str(path), device=opened().device)

    def test_live_buffers_keep_another_overlay_out(self, opened: Open) -> None:
        device, xclbin = opened()
        other = opened(compute_units=2).xclbin
        card = VectorAdd(OpenedDevice(device, xclbin))
        with pytest.raises(BoardError, match="3 buffers of the overlay before are still allocated"):
            pynq.Overlay(str(other), device=device)
        for buffer in (card.a, card.b, card.sum):
            buffer.freebuffer()
        assert VectorAdd(OpenedDevice(device, other)).check() > 0

    def test_a_card_that_another_process_uses(self, opened: Open) -> None:
        device, xclbin = opened()
        card = VectorAdd(OpenedDevice(device, xclbin))
        cycles = card.check()
        device.board.set_busy("vector_add_1", True)
        with pytest.raises(BoardError, match=r"vector_add_1 on .* is in use by another process"):
            device.open_context(dict(card.overlay.ip_dict["vector_add_1"]))
        with pytest.raises(BoardError, match="no overlay can be loaded"):
            pynq.Overlay(str(xclbin), device=device)
        device.board.set_busy("vector_add_1", False)
        assert card.check() == cycles

    def test_a_unit_of_another_overlay(self, opened: Open) -> None:
        device, xclbin = opened()
        overlay = pynq.Overlay(str(xclbin), device=device)
        description = dict(overlay.ip_dict["vector_add_1"])
        for changes, message in (
            ({"xclbin_uuid": "00" * 16}, "belongs to overlay 0000"),
            ({"cu_name": "vector_add_kernel:vector_add_9"}, "no compute unit .*vector_add_9"),
        ):
            with pytest.raises(OverlayError, match=message):
                device.open_context({**description, **changes})

    def test_unknown_card_and_kernel(self) -> None:
        with pytest.raises(BoardNotFoundError, match="no card 'u250'; known are u55c, u280"):
            open_device("u250", VECTOR_ADD)
        with pytest.raises(BoardNotFoundError, match="known are u55c, u280"):
            SimDevice("sim-u250")
        with pytest.raises(ValueError, match=r"no kernel 'encode'; known are .*decode"):
            open_device("u55c", "encode")
        with pytest.raises(ValueError, match="3 compute units"):
            open_device("u55c", VECTOR_ADD, compute_units=3)

    def test_without_pynq(self) -> None:
        program = "import sys; sys.modules['pynq'] = None; from fastdelta.sim import open_device"
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
        assert "MissingToolError" in result.stderr
        assert "pip install 'fastdelta[card]'" in result.stderr

    def test_nothing_is_loaded(self) -> None:
        device = SimDevice("u55c")
        with pytest.raises(BoardError, match="no overlay is loaded"):
            device.board.events()
