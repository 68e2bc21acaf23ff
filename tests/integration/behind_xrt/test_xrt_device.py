# SPDX-License-Identifier: Apache-2.0
"""PYNQ 3.0.1's own XrtDevice on simulated cards, with the vector-add kernel.

What XRT refuses, and with which error number, is that of the driver of XRT 2.13 to 2.16.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import gc
import hashlib
import importlib.metadata
import inspect
import mmap
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pynq
import pytest
from pynq._3rdparty import ert, xrt
from pynq.pl_server import xrt_device
from pynq.pl_server.xrt_device import XrtDevice, XrtUUID, libc
from vector_add_board import (
    DONE_EARLY,
    ERRORS,
    NEVER_DONE,
    VECTOR_ADD,
    resident_bytes,
    vector_add_interface,
)
from vector_add_overlay import BEATS, UNIT, WORDS, Open, OverlayTests, VectorAddOverlay

from fastdelta.accelerator import Accelerator
from fastdelta.devices import list_devices
from fastdelta.doctor import diagnose
from fastdelta.errors import BoardNotFoundError
from fastdelta.platforms import PLATFORMS
from fastdelta.registers.decode import CTRL_AP_CONTINUE
from fastdelta.shapes import SMALL_DECODE
from fastdelta.sim import (
    EventKind,
    Fault,
    FaultKind,
    SimDevice,
    UnitFault,
    UnitFaultKind,
    board_of,
    close_device,
    live_buffers,
    open_device,
)
from fastdelta.sim.overlay import OpenedDevice
from fastdelta.xclbin import Mode, build_xclbin

U55C, U280 = PLATFORMS["u55c"], PLATFORMS["u280"]
FAILED = 0x8000_0000  # buffer numbers from here on are errors
PACKET = 1 << 31


@pytest.fixture
def opened() -> Iterator[Open]:
    """Take simulated cards and build the vector-add overlay; they are given back afterwards."""
    devices: list[Any] = []

    def open_vector_add(board: str = "u55c", **options: Any) -> OpenedDevice:
        parameters = {"BUS_WIDTH": 512, "CHAIN": 1}
        result = open_device(board, VECTOR_ADD, parameters=parameters, **options)
        devices.append(result.device)
        return result

    yield open_vector_add
    gc.collect()
    for device in devices:
        if device.handle is None:
            device._get_handle()
        reset(device)
        close_device(device)


def reset(device: Any) -> None:
    """Reset a card as the host does; see fastdelta.boards."""
    device.free_bitstream()
    while device.active_bos:
        device.active_bos.pop()[1]._bo = None
    device._bo_cache.clear()
    xrt.xclResetDevice(device.handle, xrt.xclResetKind.XCL_USER_RESET)


class VectorAdd(VectorAddOverlay):
    def state(self, *arguments: Any) -> str | None:
        """Run to the end; return what PYNQ keeps of a failure, None without one."""
        handle = self.unit.start(*arguments)
        handle.wait()
        error = handle._future.exception()
        return None if error is None else str(error)

    def cycles(self) -> int:
        assert self.state(*self.arguments()) is None
        command = board_of(self.device).last_command(UNIT)
        assert command is not None
        return command.cycles

    def check(self) -> int:
        """Run correctly from cleared memory; return the cycles."""
        return self.run_checked(self.cycles)


def load(device: Any, path: Path) -> int:
    """Load a container and return XRT's result."""
    return int(xrt.xclLoadXclBin(device.handle, path.read_bytes()))


def uuid_of(overlay: Any) -> XrtUUID:
    uuid = bytes.fromhex(overlay.ip_dict[UNIT]["xclbin_uuid"])
    return XrtUUID((ctypes.c_char * 16).from_buffer_copy(uuid))


class TestPynq(OverlayTests):
    def test_the_device_is_unmodified(self, opened: Open) -> None:
        device = opened().device
        assert type(device) is XrtDevice
        assert importlib.metadata.version("pynq") == "3.0.1"
        for module in (xrt_device, xrt, ert):
            source = Path(inspect.getfile(module))
            (record,) = [
                file
                for file in importlib.metadata.files("pynq") or []
                if file.locate().resolve() == source.resolve()
            ]
            digest = hashlib.sha256(source.read_bytes()).digest()
            assert record.hash is not None
            assert record.hash.value == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def test_cards(self) -> None:
        cards = [device for device in pynq.Device.devices if isinstance(device, XrtDevice)]
        assert [card.name for card in cards] == [U55C.shell] * 2 + [U280.shell] * 2
        assert all(card.capabilities["ERT"] for card in cards)
        assert len({card.device_info.mPciSlot for card in cards}) == 4
        assert cards[0].device_info.mFpga == b"simulated u55c"
        assert cards[0].device_info.mDDRBankCount == 32
        assert cards[2].device_info.mDDRSize == sum(bank.size for bank in U280.banks)
        assert cards[0].sensors["12v_pex"].power.value == 0

    def test_they_do_not_pass_for_real_ones(self) -> None:
        entries = list_devices().devices
        assert [entry.board for entry in entries] == [0, 1, 2, 3, "sim-u55c", "sim-u280"]
        assert all(entry.simulated for entry in entries)
        diagnosis = diagnose()
        assert not diagnosis.usable("card")
        (finding,) = [finding for finding in diagnosis.findings if finding.check == "XRT"]
        assert "simulated cards behind XRT" in finding.remedy

    def test_call(self, opened: Open) -> None:
        card = VectorAdd(opened(clock_mhz=250))
        card.sync()
        card.unit.call(*card.arguments())
        np.testing.assert_array_equal(card.result(), card.expected)
        assert list(card.device.device_info.mOCLFrequency)[:2] == [250, 500]
        assert card.check() == card.check()

    def test_two_units_at_once(self, opened: Open) -> None:
        card = VectorAdd(opened(compute_units=2))
        card.sync()
        other = card.overlay.vector_add_2
        a, b, total = (
            pynq.allocate(WORDS, "i4", target=card.device.get_memory_by_name(other.args[name].mem))
            for name in ("a", "b", "sum")
        )
        a[:], b[:] = 3, np.arange(WORDS)
        a.flush()
        b.flush()
        handles = []
        for _ in range(3):
            handles.append(card.unit.start(*card.arguments()))
            handles.append(other.start(a, b, total, BEATS, 0))
        for handle in handles:
            handle.wait()
        np.testing.assert_array_equal(card.result(), card.expected)
        total.invalidate()
        np.testing.assert_array_equal(total, 3 + np.arange(WORDS))

    def test_cards_beside_each_other(self, opened: Open) -> None:
        cards = [VectorAdd(opened(board)) for board in ("u55c", "u280", "u55c")]
        assert cards[1].sum.device_address == U280.banks[33].base
        for card in cards:
            card.check()
        with pytest.raises(BoardNotFoundError, match="no simulated u55c is free behind XRT"):
            opened("u55c")

    def test_the_other_front_end_in_the_same_process(self, opened: Open) -> None:
        first = VectorAdd(opened()).check()
        parameters = {"BUS_WIDTH": 512, "CHAIN": 1}
        device, xclbin = open_device("u55c", VECTOR_ADD, parameters=parameters, front_end="pynq")
        assert isinstance(device, SimDevice)
        card = VectorAdd(OpenedDevice(device, xclbin))
        card.sync()
        handle = card.unit.start(*card.arguments())
        handle.wait()
        assert handle.command.cycles == first
        close_device(device)

    def test_calls_leave_nothing(self, opened: Open) -> None:
        card = VectorAdd(opened())
        for _ in range(500):
            card.unit.call(*card.arguments(beats=1))
        before = resident_bytes()
        for _ in range(2000):
            card.unit.call(*card.arguments(beats=1))
        assert resident_bytes() - before < 2 << 20

    def test_an_accelerator_as_on_a_real_card(self) -> None:
        device, xclbin = open_device("u55c", "decode", SMALL_DECODE)
        close_device(device)
        constants = {"a_log": np.zeros(4), "dt_bias": np.zeros(4)}
        with Accelerator.open(
            "decode", board="u55c", overlay=xclbin, shape=SMALL_DECODE, **constants
        ) as engine:
            assert type(engine.board.device) is XrtDevice
            assert engine.provenance.simulated
            assert engine.provenance.clock_mhz is None
            assert engine.provenance.board == U55C.shell
            q, k = np.ones((2, 5, 2, 16), np.float32)
            v = np.ones((5, 4, 16), np.float32)
            a, b = np.zeros((2, 5, 4), np.float32)
            assert np.isfinite(engine.decode(q, k, v, a, b).output).all()


class TestSynchronisation:
    def test_a_forgotten_sync_is_reported(
        self, opened: Open, capfd: pytest.CaptureFixture[str]
    ) -> None:
        card = VectorAdd(opened(report_unwritten=True))
        card.a.sync_to_device()
        card.unit.call(*card.arguments())
        assert "read memory that nothing had written, 3 times" in capfd.readouterr().err
        assert {event.kind for event in board_of(card.device).events()} == {EventKind.UNWRITTEN}

    def test_ranges(self, opened: Open) -> None:
        card = VectorAdd(opened())
        handle, bo = card.device.handle, card.a.bo
        size = WORDS * 4 + -WORDS * 4 % 4096
        for direction in (0, 1):
            assert xrt.xclSyncBO(handle, bo, direction, size, 0) == 0
            assert xrt.xclSyncBO(handle, bo, direction, size, 1) >= FAILED
            assert xrt.xclSyncBO(handle, bo, direction, 1, size + 1) >= FAILED
        assert xrt.xclSyncBO(handle, bo, 2, 64, 0) >= FAILED
        assert xrt.xclSyncBO(handle, 999, 0, 64, 0) >= FAILED
        with pytest.raises(RuntimeError, match="Flush Failed"):
            card.device.flush(bo, size, 0, 64)

    def test_copies_on_the_card_and_on_the_host(self, opened: Open) -> None:
        card = VectorAdd(opened())
        card.sync()
        xrt.xclCopyBO(card.device.handle, card.sum.bo, card.a.bo, 256, 512, 64)
        np.testing.assert_array_equal(card.result()[128:192], card.a[16:80])
        data = bytearray(range(100))
        card.device.buffer_write(card.b.bo, 8, data)
        assert np.asarray(card.b).view("u1")[8:108].tobytes() == data
        back = bytearray(100)
        card.device.buffer_read(card.b.bo, 8, back)
        assert back == data
        with pytest.raises(RuntimeError, match="Buffer Write Failed"):
            card.device.buffer_write(card.b.bo, 4096, data)


class TestBuffers:
    def test_full_and_unused_banks(self, opened: Open, capfd: pytest.CaptureFixture[str]) -> None:
        card = VectorAdd(opened("u280"))
        memory = card.overlay.HBM0
        before = memory.num_buffers
        buffers = [memory.allocate(100 << 20, "u1") for _ in range(2)]
        for size in (100 << 20, 257 << 20):
            with pytest.raises(RuntimeError, match=f"Allocate failed: {2**32 - errno.ENOMEM}"):
                memory.allocate(size, "u1")
        assert memory.num_buffers == before + 2
        assert memory.mem_used == 200 * (1 << 20) + 2 * 4096
        buffers.pop().freebuffer()
        buffers.append(memory.allocate(100 << 20, "u1"))
        with pytest.raises(RuntimeError, match=f"Allocate failed: {2**32 - errno.EINVAL}"):
            card.device.get_memory_by_name("HBM[5]").allocate(4, "u1")
        assert "bank HBM[5] of card" in capfd.readouterr().err
        board_of(card.device).limit_bank(33, 4096)
        with pytest.raises(RuntimeError, match="Allocate failed"):
            card.device.get_memory_by_name("DDR[1]").allocate(4, "u1")

    def test_flags(self, opened: Open) -> None:
        device = VectorAdd(opened()).device
        for flags in (32, 1 << 30, 1 << 29):
            assert xrt.xclAllocBO(device.handle, 64, 3, flags) >= FAILED
        assert xrt.xclAllocBO(device.handle, 0, 3, 0) >= FAILED
        cacheable = xrt.xclAllocBO(device.handle, 64, 3, xrt_device.ZOCL_BO_FLAGS_CACHEABLE)
        properties = xrt.xclBOProperties()
        assert xrt.xclGetBOProperties(device.handle, cacheable, properties) == 0
        assert properties.size == 4096
        xrt.xclFreeBO(device.handle, cacheable)
        assert xrt.xclGetBOProperties(device.handle, cacheable, properties) == -errno.ENOENT
        assert not xrt.xclMapBO(device.handle, cacheable, True)

    def test_buffers_are_freed(self, opened: Open) -> None:
        card = VectorAdd(opened())
        assert live_buffers(card.device) == 3
        with card.overlay.HBM0.allocate(10, "i4"):
            assert live_buffers(card.device) == 4
        assert live_buffers(card.device) == 3
        before = resident_bytes()
        for _ in range(20):
            buffer = card.overlay.HBM0.allocate(8 << 20, "u1")
            buffer[:] = 1
            buffer.freebuffer()
        assert resident_bytes() - before < 16 << 20

    def test_numbers_are_used_again(self, opened: Open) -> None:
        # As in the driver: a number kept beyond its buffer can be that of another.
        card = VectorAdd(opened())
        first = card.overlay.HBM0.allocate(4, "u1")
        number = first.bo
        first.freebuffer()
        assert card.overlay.HBM0.allocate(4, "u1").bo == number

    def test_memory_that_the_client_unmapped(self, opened: Open) -> None:
        card = VectorAdd(opened())
        handle = card.device.handle
        bo = xrt.xclAllocBO(handle, 4096, 3, 0)
        one, two = (xrt.xclMapBO(handle, bo, True) for _ in range(2))
        one.contents[0] = b"x"
        assert two.contents[0] == b"x"
        libc.munmap(ctypes.cast(one, ctypes.c_void_p), mmap.PAGESIZE)
        assert xrt.xclSyncBO(handle, bo, 0, 4096, 0) == 0
        two.contents[0] = b"y"
        assert xrt.xclSyncBO(handle, bo, 1, 4096, 0) == 0
        assert two.contents[0] == b"x"
        xrt.xclFreeBO(handle, bo)
        libc.munmap(ctypes.cast(two, ctypes.c_void_p), mmap.PAGESIZE)

    def test_a_new_buffer_is_clear_on_the_host(self, opened: Open) -> None:
        card = VectorAdd(opened())
        buffer = card.overlay.HBM0.allocate(4096, "u1")
        buffer[:] = 9
        address = buffer.device_address
        buffer.freebuffer()
        again = card.overlay.HBM0.allocate(4096, "u1")
        assert again.device_address == address
        assert not np.any(again)

    def test_a_buffer_in_the_wrong_bank(
        self, opened: Open, capfd: pytest.CaptureFixture[str]
    ) -> None:
        card = VectorAdd(opened())
        first = card.check()
        wrong = card.overlay.HBM1.allocate(WORDS, "i4")
        assert card.state(wrong, card.b, card.sum, BEATS, 0) is None
        assert card.unit.read(ERRORS) == 1
        assert "used addresses outside the memory banks" in capfd.readouterr().err
        kinds = {event.kind for event in board_of(card.device).events()}
        assert kinds == {EventKind.OUTSIDE_BANKS}
        assert card.check() == first


class TestLoading:
    def test_what_is_loaded_is_not_loaded_again(self, opened: Open) -> None:
        card = VectorAdd(opened())
        card.unit.write(0x34, 77)
        device, xclbin = card.device, Path(card.overlay.bitfile_name)
        assert load(device, xclbin) == 0  # even while a context is open
        assert card.unit.read(0x34) == 77
        overlay = pynq.Overlay(str(xclbin), device=device)
        assert overlay.vector_add_1.read(0x34) == 77
        card.unit = overlay.vector_add_1
        card.check()

    def test_contexts_and_buffers_keep_another_overlay_out(self, opened: Open) -> None:
        one = opened()
        device, xclbin = open_device(
            "u55c", VECTOR_ADD, parameters={"BUS_WIDTH": 512, "CHAIN": 1}, compute_units=2
        )
        close_device(device)
        card = VectorAdd(one)
        assert load(card.device, xclbin) == -errno.EBUSY
        card.device.free_bitstream()
        assert load(card.device, xclbin) == -errno.EPERM
        with pytest.raises(RuntimeError, match="Possibly buffers still allocated"):
            pynq.Overlay(str(xclbin), device=card.device)
        for buffer in (card.a, card.b, card.sum):
            buffer.freebuffer()
        assert VectorAdd(OpenedDevice(card.device, xclbin)).check() > 0

    def test_a_card_that_another_process_uses(self, opened: Open) -> None:
        card = VectorAdd(opened())
        uuid = uuid_of(card.overlay)
        board_of(card.device).set_busy(UNIT, True)
        card.device.free_bitstream()
        assert xrt.xclOpenContext(card.device.handle, uuid, 0, True) == -errno.EBUSY
        with pytest.raises(RuntimeError, match="Could not open CU context"):
            card.device.open_context(dict(card.overlay.ip_dict[UNIT]))
        other = open_device(
            "u55c", VECTOR_ADD, parameters={"BUS_WIDTH": 512, "CHAIN": 1}, clock_mhz=200
        )
        close_device(other.device)
        assert load(card.device, other.xclbin) == -errno.EBUSY
        board_of(card.device).set_busy(UNIT, False)
        assert xrt.xclOpenContext(card.device.handle, uuid, 0, True) == 0
        assert xrt.xclCloseContext(card.device.handle, uuid, 0) == 0

    def test_overlays_that_do_not_fit(
        self, opened: Open, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        device, xclbin = opened("u280")
        other = opened("u55c").xclbin
        with pytest.raises(RuntimeError, match="Shell does not match"):
            pynq.Overlay(str(other), device=device)
        assert "the xclbin is for xilinx_u55c" in capfd.readouterr().err
        real = tmp_path / "real.xclbin"
        interface = vector_add_interface()
        real.write_bytes(build_xclbin(interface, U280, bitstream=b"\0\x09", mode=Mode.FLAT))
        assert load(device, real) == -errno.EINVAL
        assert "a bitstream for a real u280" in capfd.readouterr().err
        for manifest, message in (
            (b'{"fastdelta_simulation": 9, "kernels": {}}', "simulation format 9"),
            (b'{"fastdelta_simulation": 1, "kernels": {}}', "no simulation of vector_add_kernel"),
            (
                b'{"fastdelta_simulation": 1, "kernels": {"vector_add_kernel": "0123"}}',
                "is not in .*; build it again",
            ),
            (b'{"fastdelta_simulation": 1, "speed": 1}', "unknown field speed"),
            (b'{"fastdelta_simulation"', "describes no simulation"),
        ):
            real.write_bytes(build_xclbin(interface, U280, bitstream=manifest))
            assert load(device, real) == -errno.EINVAL
            assert re.search(message, capfd.readouterr().err)
        assert VectorAdd(OpenedDevice(device, xclbin)).check() > 0

    def test_damaged_containers(self, opened: Open, tmp_path: Path) -> None:
        device, xclbin = opened()
        data = xclbin.read_bytes()
        path = tmp_path / "damaged.xclbin"
        changes = {
            "magic": (0, b"xclbin3"),
            "uuid": (304 + 112, bytes(16)),
            "sections": (304 + 144, b"\xff\xff\0\0"),
            "length": (304, b"\xff" * 8),
            "section offset": (304 + 152 + 24, b"\xff" * 8),
            "section size": (304 + 152 + 40 + 32, b"\xff" * 8),
            "metadata": (data.index(b'mode="slave"'), b'mode="slbve"'),
            "argument": (data.index(b'id="0"'), b'id="7"'),
        }
        for name, (at, content) in changes.items():
            path.write_bytes(data[:at] + content + data[at + len(content) :])
            assert load(device, path) == -errno.EINVAL, name
        assert VectorAdd(OpenedDevice(device, xclbin)).check() > 0

    def test_contexts(self, opened: Open) -> None:
        card = VectorAdd(opened(compute_units=2))
        handle = card.device.handle
        uuid = uuid_of(card.overlay)
        card.device.free_bitstream()
        assert xrt.xclIPName2Index(handle, "vector_add_kernel:vector_add_2") == 1
        with pytest.raises(OSError, match="No such file"):
            xrt.xclIPName2Index(handle, "vector_add_kernel:vector_add_3")
        second = xrt.xclOpen(card.device._index, None, 0)
        assert xrt.xclOpenContext(handle, uuid, 0, False) == 0
        assert xrt.xclOpenContext(second, uuid, 0, True) == -errno.EBUSY
        assert xrt.xclOpenContext(second, uuid, 1, True) == 0
        assert xrt.xclOpenContext(handle, uuid, 1, False) == -errno.EBUSY
        assert xrt.xclOpenContext(handle, uuid, 1, True) == 0
        assert xrt.xclOpenContext(handle, uuid, 2, True) == -errno.EINVAL
        other = XrtUUID((ctypes.c_char * 16)(1))
        assert xrt.xclOpenContext(handle, other, 1, True) == -errno.EBUSY
        xrt.xclClose(second)
        assert xrt.xclCloseContext(handle, uuid, 0) == 0
        assert xrt.xclCloseContext(handle, uuid, 0) == -errno.EINVAL
        assert xrt.xclCloseContext(handle, uuid, 1) == 0

    def test_nothing_is_loaded(self, opened: Open) -> None:
        device = opened().device
        assert xrt.xclAllocBO(device.handle, 64, 3, 0) >= FAILED
        assert xrt.xclExecWait(device.handle, 0) == 0
        packet = device.get_exec_bo()
        assert xrt.xclExecBuf(device.handle, packet.bo) == -errno.EINVAL
        with pytest.raises(OSError, match="No such file"):
            xrt.xclIPName2Index(device.handle, "vector_add_kernel:vector_add_1")

    def test_closed_handles(self, opened: Open) -> None:
        card = VectorAdd(opened())
        packet = card.device.get_exec_bo()
        card.overlay.free()
        assert card.device.handle is None
        assert xrt.xclLockDevice(None) == -errno.ENODEV
        del packet  # PYNQ frees it with no handle
        card.a.freebuffer()
        assert live_buffers(card.device) == 0
        assert not xrt.xclOpen(99, None, 0)


class TestCommands:
    def packet(self, card: VectorAdd, **changes: int) -> Any:
        """A packet that starts the kernel; returned with its buffer."""
        bo = card.device.get_exec_bo()
        packet = bo.as_packet(ert.ert_start_kernel_cmd)
        packet.m_uert.header = card.unit._packet.m_uert.header
        packet.cu_mask = changes.pop("cu_mask", 1)
        values = [argument.device_address for argument in (card.a, card.b, card.sum)]
        data = card.unit._call_struct.pack(0, *values, changes.pop("beats", 1), 0)
        ctypes.memmove(packet.data, data, len(data))
        for name, value in changes.items():
            setattr(packet.m_uert.m_start_cmd_struct, name, value)
        return bo

    @pytest.mark.parametrize(
        "changes",
        [
            {"opcode": 3},
            {"type": 2},
            {"extra_cu_masks": 1},
            {"count": 0},
            {"count": 1024},
            {"cu_mask": 0},
            {"cu_mask": 2},
            {"cu_mask": 3},
        ],
        ids=str,
    )
    def test_packets_that_start_nothing(self, opened: Open, changes: dict[str, int]) -> None:
        card = VectorAdd(opened())
        packet = self.packet(card, **changes)
        assert xrt.xclExecBuf(card.device.handle, packet.bo) == -errno.EINVAL
        with pytest.raises(RuntimeError, match="Buffer submit failed"):
            card.device.execute_bo(packet)
        card.check()

    def test_a_buffer_that_is_no_packet(self, opened: Open) -> None:
        card = VectorAdd(opened())
        assert xrt.xclExecBuf(card.device.handle, card.a.bo) == -errno.EINVAL
        assert xrt.xclExecBuf(card.device.handle, 999) == -errno.EINVAL
        with pytest.raises(RuntimeError, match="not supported by XRT anymore"):
            card.unit.start(*card.arguments(), waitfor=[card.unit.start(*card.arguments())])

    def test_a_packet_is_submitted_once(self, opened: Open) -> None:
        card = VectorAdd(opened(hang_cycles=0))
        board = board_of(card.device)
        board.set_busy(UNIT, True)
        packet = self.packet(card)
        assert xrt.xclExecBuf(card.device.handle, packet.bo) == 0
        assert xrt.xclExecBuf(card.device.handle, packet.bo) == -errno.EBUSY
        assert packet.as_packet(ert.ert_cmd_struct).state == ert.ert_cmd_state.ERT_CMD_STATE_NEW
        # Freed by the client, it lives until its command has ended.
        number = packet.bo
        xrt.xclFreeBO(card.device.handle, number)
        other = xrt.xclAllocBO(card.device.handle, 64, 0, PACKET)
        assert other == number
        board.set_busy(UNIT, False)
        assert xrt.xclExecWait(card.device.handle, 5000) == 1
        assert (
            packet.as_packet(ert.ert_cmd_struct).state == ert.ert_cmd_state.ERT_CMD_STATE_COMPLETED
        )
        xrt.xclFreeBO(card.device.handle, other)

    def test_waiting(self, opened: Open) -> None:
        card = VectorAdd(opened(hang_cycles=0))
        handle = card.device.handle
        board = board_of(card.device)
        began = time.monotonic()
        assert xrt.xclExecWait(handle, 100) == 0
        assert 0.09 < time.monotonic() - began < 2
        board.set_busy(UNIT, True)
        packets = [self.packet(card) for _ in range(3)]
        for packet in packets:
            assert xrt.xclExecBuf(handle, packet.bo) == 0
        assert xrt.xclExecWait(handle, 50) == 0
        board.set_busy(UNIT, False)
        # Each end of a command is told once.
        assert [xrt.xclExecWait(handle, 5000) for _ in range(3)] == [1, 1, 1]
        assert xrt.xclExecWait(handle, 0) == 0

    def test_registers(self, opened: Open, capfd: pytest.CaptureFixture[str]) -> None:
        card = VectorAdd(opened())
        card.unit.write(0x34, 77)
        assert card.unit.read(0x34) == 77
        assert card.unit.register_map.beats[:] == 77
        assert card.unit.read(0x200) == 0xFFFF_FFFF
        assert "read of register 0x200 was answered SLVERR" in capfd.readouterr().err
        for address, size in ((0x10, 4), (0x180_0002, 4), (0x180_0000, 2), (0x180_0000, 1 << 20)):
            data = (ctypes.c_char * size)()
            failed = ctypes.c_size_t(-1).value
            assert xrt.xclRead(card.device.handle, 2, address, data, size) == failed
            assert xrt.xclWrite(card.device.handle, 2, address, data, size) == failed
        assert xrt.xclRead(card.device.handle, 1, 0x180_0000, data, 4) > FAILED

    def test_registers_of_an_exclusive_unit(self, opened: Open) -> None:
        card = VectorAdd(opened())
        read, write = xrt.libc.xclRegRead, xrt.libc.xclRegWrite
        value = ctypes.c_uint32()
        handle = card.device.handle
        assert read(handle, 0, 0x34, ctypes.byref(value)) == -errno.EPERM
        card.device.free_bitstream()
        uuid = uuid_of(card.overlay)
        assert xrt.xclOpenContext(handle, uuid, 0, False) == 0
        assert write(handle, 0, 0x34, 55) == 0
        assert read(handle, 0, 0x34, ctypes.byref(value)) == 0
        assert value.value == 55
        assert read(handle, 0, 1 << 16, ctypes.byref(value)) == -errno.EINVAL
        assert xrt.xclCloseContext(handle, uuid, 0) == 0


class TestFailures:
    def test_a_start_by_register_is_acknowledged_before_another(
        self, opened: Open, capfd: pytest.CaptureFixture[str]
    ) -> None:
        card = VectorAdd(opened())
        first = card.check()
        card.unit.start_sw(*card.arguments()).wait()
        assert card.state(*card.arguments()) == "Execution failed: 5"
        assert f"{UNIT} refused the start: " in capfd.readouterr().err
        card.unit.write(0, CTRL_AP_CONTINUE)
        assert card.check() == first

    def test_violations_of_axi(self, opened: Open, capfd: pytest.CaptureFixture[str]) -> None:
        card = VectorAdd(opened())
        assert card.state(*card.arguments(misbehaviour=DONE_EARLY)) == "Execution failed: 5"
        assert "violated AXI or the kernel's contract 1 times" in capfd.readouterr().err
        card.check()

    @pytest.mark.parametrize("fault", list(UnitFaultKind))
    def test_a_kernel_that_hangs_needs_a_reset(self, opened: Open, fault: UnitFaultKind) -> None:
        one = opened(hang_cycles=3000)
        card = VectorAdd(one)
        first = card.check()
        board_of(card.device).inject_unit(UNIT, UnitFault(fault))
        assert card.state(*card.arguments()) == "Execution failed: 8"
        assert card.state(*card.arguments()) == "Execution failed: 5"
        assert load(card.device, one.xclbin) == 0  # is loaded: nothing happens
        card.device.free_bitstream()
        assert load(card.device, one.xclbin) == -errno.EDEADLK
        assert xrt.xclExecBuf(card.device.handle, card.device.get_exec_bo().bo) == -errno.EDEADLK
        for buffer in (card.a, card.b, card.sum):
            buffer.freebuffer()
        assert xrt.libc.xclResetDevice(card.device.handle, 1) == -errno.EINVAL
        reset(card.device)
        assert VectorAdd(one).check() == first

    def test_closing_a_context_aborts_its_commands(self, opened: Open) -> None:
        one = opened(hang_cycles=0)
        card = VectorAdd(one)
        handles = [
            card.unit.start(*card.arguments(misbehaviour=bits)) for bits in (0, NEVER_DONE, 0)
        ]
        card.device.free_bitstream()
        for handle in handles:
            handle.wait()
        errors = [handle._future.exception() for handle in handles]
        assert errors[0] is None
        assert [str(error) for error in errors[1:]] == ["Execution failed: 6"] * 2
        assert load(card.device, one.xclbin) == -errno.EDEADLK

    def test_closing_a_context_waits_for_what_soon_ends(self, opened: Open) -> None:
        card = VectorAdd(opened())
        card.sync()
        handle = card.unit.start(*card.arguments())
        card.device.free_bitstream()
        assert not board_of(card.device).is_hung(UNIT)
        handle.wait()
        assert handle._future.exception() is None
        np.testing.assert_array_equal(card.result(), card.expected)

    def test_a_reset_ends_everything(self, opened: Open) -> None:
        one = opened(hang_cycles=0)
        card = VectorAdd(one)
        handle = card.unit.start(*card.arguments(misbehaviour=NEVER_DONE))
        packet = handle._bo
        xrt.xclResetDevice(card.device.handle, xrt.xclResetKind.XCL_USER_RESET)
        assert packet.as_packet(ert.ert_cmd_struct).state == ert.ert_cmd_state.ERT_CMD_STATE_ABORT
        assert live_buffers(card.device) == 0
        with pytest.raises(RuntimeError, match="Flush Failed"):
            card.a.flush()
        assert load(card.device, one.xclbin) == 0

    def test_faults_of_the_memory(self, opened: Open) -> None:
        card = VectorAdd(opened())
        first = card.check()
        board = board_of(card.device)
        board.inject(UNIT, "m_axi_in", Fault(FaultKind.SLVERR, "read", count=1))
        assert card.state(*card.arguments()) is None
        assert card.unit.read(ERRORS) == 1
        board.clear_faults(UNIT)
        assert card.check() == first


class TestProcesses:
    def test_a_forked_process_has_no_card(self, opened: Open) -> None:
        card = VectorAdd(opened())

        def child(results: multiprocessing.SimpleQueue[int]) -> None:
            results.put(xrt.xclLockDevice(card.device.handle))
            results.put(xrt.xclExecWait(card.device.handle, 0))

        context = multiprocessing.get_context("fork")
        results: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
        process = context.Process(target=child, args=(results,))
        process.start()
        assert [results.get(), results.get()] == [-errno.ENODEV] * 2
        process.join(20)
        assert process.exitcode == 0
        card.check()

    @pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)", "card.overlay.free()"])
    def test_a_process_that_ends_in_mid_command(self, ending: str) -> None:
        program = (
            "import sys; sys.path[:0] = sys.argv[1:]\n"
            "from test_xrt_device import *\n"
            "options = {'parameters': {'BUS_WIDTH': 512, 'CHAIN': 1}, 'hang_cycles': 0}\n"
            "card = VectorAdd(open_device('u55c', VECTOR_ADD, **options))\n"
            "card.check()\n"
            "handle = card.unit.start(*card.arguments(misbehaviour=NEVER_DONE))\n"
            "print('running', flush=True)\n"
        )
        here = Path(__file__).parent
        result = subprocess.run(
            [sys.executable, "-c", program + ending, str(here), str(here.parent)],
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert result.stdout == "running\n"
        assert result.returncode == 0, result.stderr
