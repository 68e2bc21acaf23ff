# SPDX-License-Identifier: Apache-2.0
"""Cards that overlays are built for: names, parts and memory banks.

The sizes are AMD's: 32 HBM pseudo channels a card, of 512 MiB on the U55C and 256 MiB on the
U280, which also has two DDR4 channels. No buffer can be larger than its bank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

MEBIBYTE: Final = 1 << 20

MemoryType = Literal["HBM", "DDR"]

XRT_OF_VITIS: Final[Mapping[str, str]] = {
    "2022.1": "2.13",
    "2022.2": "2.14",
    "2023.1": "2.15",
    "2023.2": "2.16",
    "2024.1": "2.17",
    "2024.2": "2.18",
    "2025.1": "2.19",
    "2025.2": "2.20",
}
"""Releases of Vitis that are known here, oldest first, with the XRT that came out with each."""


def release_number(release: str) -> tuple[int, ...]:
    """Return what orders releases such as ``2023.2`` or ``2.16.204``.

    Raises
    ------
    ValueError
        If it is none.
    """
    try:
        return tuple(int(part) for part in release.split("."))
    except ValueError:
        raise ValueError(f"{release!r} is no release; one is written as 2023.2") from None


@dataclass(frozen=True)
class MemoryBank:
    """One bank of device memory.

    Attributes
    ----------
    tag
        Name as link files write it, such as ``HBM[0]``.
    memory_type
        ``HBM`` or ``DDR``.
    base
        First device address, in bytes.
    size
        Bytes.
    """

    tag: str
    memory_type: MemoryType
    base: int
    size: int


@dataclass(frozen=True)
class Platform:
    """A card with the shell that overlays are linked against.

    Attributes
    ----------
    name
        Short name, such as ``u55c``.
    shell
        Name that XRT reports for the card; its release number differs from the one in `vbnv`.
    vbnv
        Platform that Vitis links for, written into the xclbin.
    part
        FPGA.
    banks
        Memory banks, in the order of XRT's indices.
    oldest_tools, newest_tools
        Releases of Vitis that know the platform, both included; None: the newest that there is.
    slrs
        Dies of the FPGA, ``SLR0`` and up; HBM is beside ``SLR0``.
    """

    name: str
    shell: str
    vbnv: str
    part: str
    banks: tuple[MemoryBank, ...]
    oldest_tools: str = "2022.1"
    newest_tools: str | None = None
    slrs: int = 3

    @property
    def releases(self) -> tuple[str, ...]:
        """Known releases of Vitis that know the platform, oldest first."""
        return tuple(release for release in XRT_OF_VITIS if self.knows(release))

    @property
    def xrt_releases(self) -> tuple[str, ...]:
        """Known releases of XRT that know the platform, oldest first."""
        return tuple(XRT_OF_VITIS[release] for release in self.releases)

    def knows(self, release: str) -> bool:
        """Say whether a release of Vitis, such as ``2023.2``, knows the platform."""
        number = release_number(release)
        newest = self.newest_tools
        return release_number(self.oldest_tools) <= number and (
            newest is None or number <= release_number(newest)
        )

    @property
    def newest_xrt(self) -> str | None:
        """Last XRT that knows the card; None: the newest that there is."""
        return None if self.newest_tools is None else XRT_OF_VITIS[self.newest_tools]

    @property
    def prefix(self) -> str:
        """Beginning that the names of all shells of this card share, such as ``xilinx_u55c_``."""
        return "_".join(self.shell.split("_")[:2]) + "_"

    def bank_index(self, tag: str) -> int:
        """Return XRT's index of a bank.

        Raises
        ------
        ValueError
            If the card has no such bank.
        """
        for index, bank in enumerate(self.banks):
            if bank.tag == tag:
                return index
        raise ValueError(
            f"the {self.name} has no memory bank {tag}; it has {self.banks[0].tag} to "
            f"{self.banks[-1].tag}"
        )


def _hbm(size: int) -> tuple[MemoryBank, ...]:
    return tuple(MemoryBank(f"HBM[{i}]", "HBM", i * size, size) for i in range(32))


_DDR_BASE: Final = 0x40_0000_0000
_DDR_STRIDE: Final = 0x10_0000_0000

PLATFORMS: Final[Mapping[str, Platform]] = {
    platform.name: platform
    for platform in (
        Platform(
            name="u55c",
            shell="xilinx_u55c_gen3x16_xdma_base_3",
            vbnv="xilinx_u55c_gen3x16_xdma_3_202210_1",
            part="xcu55c-fsvh2892-2L-e",
            banks=_hbm(512 * MEBIBYTE),
        ),
        Platform(
            name="u280",
            shell="xilinx_u280_gen3x16_xdma_base_1",
            vbnv="xilinx_u280_gen3x16_xdma_1_202211_1",
            part="xcu280-fsvh2892-2L-e",
            banks=_hbm(256 * MEBIBYTE)
            + tuple(
                MemoryBank(f"DDR[{i}]", "DDR", _DDR_BASE + i * _DDR_STRIDE, 16 * 1024 * MEBIBYTE)
                for i in range(2)
            ),
            newest_tools="2023.2",  # later Vitis and XRT have dropped the card
        ),
    )
}


def find_platform(name: str) -> Platform:
    """Return a card by its short name, or by the name or platform that a tool reports for it.

    Raises
    ------
    ValueError
        If the card is not one of `PLATFORMS`.
    """
    for platform in PLATFORMS.values():
        if name == platform.name or name.startswith(platform.prefix):
            return platform
    raise ValueError(f"there is no card {name!r}; known are {', '.join(PLATFORMS)}")
