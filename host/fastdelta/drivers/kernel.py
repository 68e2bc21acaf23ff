# SPDX-License-Identifier: Apache-2.0
"""What the PYNQ 3.0.1 drivers of all kernels share: runs, banks of buffers, registers.

They start runs and see them end, and no more: what the arguments mean is the business of the
accelerators. PYNQ gives every driver instance attributes ``call``, ``start``, ``start_sw`` and
``start_ert``, which would hide methods of these names.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

from pynq import DefaultIP
from pynq.pl_server.xrt_device import ErtWaitHandle

from fastdelta.errors import OverlayError, WrongBankError

_PYNQ_STATES = {
    "Execution failed: 5": "the command ended in error",
    "Execution failed: 6": "the command was aborted",
    "Execution failed: 8": "the command hangs: it timed out",
    "Execution failed: 9": "the command hangs: the card does not respond",
}


class PynqRun:
    """One run that was handed to the card's scheduler.

    Parameters
    ----------
    handle
        Wait handle that the device returned: PYNQ's own, or that of the simulated card.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def wait(self, seconds: float) -> bool:
        """Wait until the run has ended, but no longer than `seconds`; say whether it has."""
        handle = self._handle
        if isinstance(handle, ErtWaitHandle):
            if not handle.done:
                # PYNQ's own wait has no time-out; this is one turn of its loop.
                handle.device._handle_events(int(seconds * 1000))
        elif seconds > 0:
            with suppress(RuntimeError):  # `failure` says what went wrong
                handle.wait(seconds)
        return bool(handle.done)

    @property
    def failure(self) -> str | None:
        """What the scheduler says went wrong with an ended run; None if nothing did.

        PYNQ's ``wait`` returns after a failure as after a success and says nothing.
        """
        waiter = self._handle.wait_async()
        try:
            waiter.send(None)  # the command has ended, so the coroutine runs to its end
        except StopIteration:
            return None
        except RuntimeError as error:
            return _PYNQ_STATES.get(str(error), str(error))
        finally:
            waiter.close()
        return "the run has not ended"


def kernel_type(name: str, version: int) -> str:
    """Return the VLNV by which PYNQ finds a kernel's driver; version word as in its register."""
    return f"fastdelta:kernel:{name}:{version >> 16}.{version & 0xFFFF}"


class KernelDriver(DefaultIP):  # type: ignore[misc]  # PYNQ has no types
    """Base of the drivers; PYNQ binds those that have ``bindto``, by VLNV.

    Attributes
    ----------
    POINTERS : tuple of str
        Arguments that are buffers.
    """

    POINTERS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__(description)
        if not self.device.has_capability("ERT"):
            raise OverlayError(
                f"{self.device.name} has no command scheduler (ERT) for PYNQ: XRT 2.3 or newer is "
                "needed, and version.json in $XILINX_XRT, from which PYNQ learns XRT's version"
            )
        self._address_ranges = tuple(self._address_range(argument) for argument in self.POINTERS)

    def _address_range(self, argument: str) -> range:
        bank = self.memory(argument)
        return range(bank.base_address, bank.base_address + bank.size)

    def bank(self, argument: str) -> str:
        """Name of the memory bank that a buffer argument is connected to, such as ``HBM0``."""
        bank: str | None = self.args[argument].mem
        if bank is None:
            raise OverlayError(
                f"the overlay connects argument {argument} to no memory; build it with its link "
                "configuration (sp=...)"
            )
        return bank

    def memory(self, argument: str) -> Any:
        """PYNQ memory object of the bank that a buffer argument is connected to."""
        return self.device.get_memory_by_name(self.bank(argument))

    def check_banks(self, *buffers: Any) -> None:
        """Check that each buffer is in the bank of its pointer; they come in pointer order.

        Raises
        ------
        WrongBankError
            If a buffer is not in its argument's bank: PYNQ would accept it silently.
        """
        for argument, addresses, buffer in zip(
            self.POINTERS, self._address_ranges, buffers, strict=True
        ):
            if buffer.device_address not in addresses:
                raise WrongBankError(
                    f"buffer for {argument} is at {buffer.device_address:#x}, outside bank "
                    f"{self.bank(argument)}, the only one that the kernel reaches there; "
                    "allocate it in that bank"
                )

    def read_register(self, register: int) -> int:
        """Read one register; never CTRL, whose reading would disturb the scheduler."""
        return int(self.read(int(register)))
