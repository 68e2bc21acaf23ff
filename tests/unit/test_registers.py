# SPDX-License-Identifier: Apache-2.0
"""What is generated from the kernels' SystemRDL: current, and as the contracts say."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from fastdelta.registers import decode, prefill

REPOSITORY = Path(__file__).resolve().parents[2]
CONTRACT = REPOSITORY / "docs/decode_engine.md"

POINTERS = {"qk": "m_axi_qk", "v": "m_axi_v", "o": "m_axi_o", "result": "m_axi_o"}
ARGUMENTS = {
    "decode": [*["s_axi_control"] * 4, *POINTERS.values(), "s_axi_control"],
    "prefill": [
        *["s_axi_control"] * 11,
        *("m_axi_q", "m_axi_k", "m_axi_v", "m_axi_jobs", "m_axi_o", "m_axi_o"),
        *["s_axi_control"] * 2,
    ],
}


def kernel_section(kernel: str) -> str:
    """Return the section of a contract about its kernel."""
    text = (REPOSITORY / f"docs/{kernel}_engine.md").read_text()
    return text.partition("\n## Kernel\n")[2].partition("\n## ")[0]


def test_generated_files_are_current() -> None:
    result = subprocess.run(
        [sys.executable, str(REPOSITORY / "tools/generate_registers.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_offsets_are_those_of_the_contract() -> None:
    rows = re.findall(r"^\| (0x\w\w(?:, 0x\w\w)*) \| ([\w, ]+?) \|", CONTRACT.read_text(), re.M)
    offsets = {
        name.upper(): int(offset, 16)
        for cell, names in rows
        for offset, name in zip(cell.split(", "), names.split(", "), strict=True)
    }
    assert len(offsets) == 17
    registers = {register.name: register.value for register in decode.Register}
    for name, offset in offsets.items():
        if name.lower() in POINTERS:
            assert (registers[f"{name}_LOW"], registers[f"{name}_HIGH"]) == (offset, offset + 4)
        else:
            assert registers[name] == offset, name


def test_counters_follow_the_result_block() -> None:
    """Words 3 to 18 of the result block are the registers from 0x90, in the same order."""
    counters = [register.value for register in decode.Register if register.value >= 0x90]
    assert counters == [0x90 + 4 * index for index in range(16)]


def test_counters_of_the_prefill_kernel_follow_its_result_block() -> None:
    """Words 3 to 44 of the result block are the registers from 0x140, in the same order."""
    rows = re.findall(r"^\| (\d+(?:, \d+)*) \| (\w+(?:, \w+)*)", kernel_section("prefill"), re.M)
    words: dict[int, str] = {}
    for cell, names in rows:
        numbers = [int(number) for number in cell.split(", ")]
        names = names.split(", ")
        if len(names) < len(numbers):
            names = [f"{names[0]}_low", f"{names[0]}_high"]
        words |= dict(zip(numbers, names, strict=True))
    documented = [words[word].upper() for word in range(3, 45)]
    registers = {register.value: register.name for register in prefill.Register}
    assert documented == [registers[0x140 + 4 * index] for index in range(42)]
    assert max(registers) == 0x140 + 4 * 41


@pytest.mark.parametrize("module", [decode, prefill])
def test_codes_are_those_of_the_contract(module: ModuleType) -> None:
    section = kernel_section(module.__name__.rpartition(".")[2])
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]{2,})\b", section, re.M)
    assert {name: int(code) for code, name in rows} == {s.name: s.value for s in module.Status}
    assert module.VERSION_VALUE == 0x0002_0000


def test_commands_are_those_of_the_contract() -> None:
    assert "0 decode, 1 clear, 2 load, 3 dump" in kernel_section("decode")
    assert [command.name for command in decode.Command] == ["DECODE", "CLEAR", "LOAD", "DUMP"]
    assert [(mode.name, mode.value) for mode in prefill.Mode] == [
        ("INDEX", 0),
        ("LIST", 1),
        ("DENSE", 2),
    ]


@pytest.mark.parametrize("module", [decode, prefill])
def test_kernel_description(module: ModuleType) -> None:
    """kernel.xml gives each argument once, its id dense, at its register, on a port of the top."""
    name = module.__name__.rpartition(".")[2]
    kernel = ElementTree.parse(REPOSITORY / f"overlays/{name}/kernel.xml").find("kernel")
    assert kernel is not None
    assert kernel.get("hwControlProtocol") == "ap_ctrl_chain"
    arguments = kernel.findall("args/arg")
    assert [int(argument.attrib["id"]) for argument in arguments] == list(range(len(arguments)))
    assert [argument.attrib["port"] for argument in arguments] == ARGUMENTS[name]

    ports = {port.attrib["name"] for port in kernel.findall("ports/port")}
    top = (REPOSITORY / f"rtl/{name}/{name}_kernel.v").read_text()
    assert ports == set(re.findall(r"\b([ms]_axi_\w+?)_(?:araddr|awaddr),", top))

    end = 0x10
    for argument in arguments:
        attributes = argument.attrib
        offset, pointer = int(attributes["offset"], 16), attributes["port"] != "s_axi_control"
        upper = attributes["name"].upper()
        assert offset == module.Register[f"{upper}_LOW" if pointer else upper]
        assert offset >= end, f"{upper} overlaps the argument before it"
        size = 8 if pointer else 4
        assert int(attributes["size"], 16) == int(attributes["hostSize"], 16) == size
        assert attributes["addressQualifier"] == str(int(pointer))
        end = offset + size
