# SPDX-License-Identifier: Apache-2.0
"""Builds of simulations: made once, found again, and failing with a message that helps."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from vector_add_board import VECTOR_ADD, vector_add_interface

from fastdelta.errors import MissingToolError
from fastdelta.interface import KernelInterface, load_interface
from fastdelta.shapes import DecodeShape
from fastdelta.sim import build as sim_build
from fastdelta.sim import paths
from fastdelta.sim.build import (
    BuildError,
    build_board,
    build_kernel,
    cached_library,
    find_kernel,
    kernel_glue,
    rtl_parameters,
)

PARAMETERS = {"BUS_WIDTH": 512, "CHAIN": 1}


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str, str, str], KernelInterface]:
    """Copy the vector-add kernel with one text replaced, and load it."""

    def copy(file: str, old: str, new: str) -> KernelInterface:
        folder = tmp_path / "kernels" / "vector_add"
        shutil.copytree(VECTOR_ADD, folder)
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))
        return load_interface(folder)

    return copy


def note_and_make(marks: Path) -> Callable[[Path, Path], None]:
    """Return a build that leaves a mark each time that it is made."""

    def make(folder: Path, log: Path) -> None:
        with marks.open("a") as file:
            file.write("made\n")
        time.sleep(0.3)
        log.write_text("output")
        (folder / "library.so").write_text("library")

    return make


class TestCache:
    def test_builds_are_found_again(self) -> None:
        first = build_kernel(vector_add_interface(), PARAMETERS)
        before = first.library.stat()
        again = build_kernel(vector_add_interface(), PARAMETERS)
        assert again.seconds is None
        assert again.library == first.library
        assert again.key == first.key
        after = again.library.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert find_kernel(first.key) == first.library
        assert find_kernel("0" * 32) is None
        assert find_kernel("../board") is None
        assert build_board().key == build_board().key

    def test_the_key_follows_sources_and_parameters(
        self,
        copied: Callable[[str, str, str], KernelInterface],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        keys = []

        def record(kind: str, key: str, *_: object) -> None:
            keys.append((kind, key))

        monkeypatch.setattr(sim_build, "cached_library", record)
        interface = vector_add_interface()
        build_kernel(interface, PARAMETERS)
        build_kernel(interface, PARAMETERS)
        assert keys[0] == keys[1]
        build_kernel(interface, {**PARAMETERS, "CHAIN": 0})
        build_kernel(interface, PARAMETERS, trace=True)
        build_kernel(copied("vector_add_kernel.v", "// Test", "//  Test"), PARAMETERS)
        moved = tmp_path / "elsewhere" / "vector_add"
        shutil.copytree(VECTOR_ADD, moved)
        assert len(set(keys)) == 4
        build_kernel(load_interface(moved), PARAMETERS)
        assert keys[-1] == keys[0], "where the sources are does not matter"

    def test_processes_build_once(self, tmp_path: Path) -> None:
        marks = tmp_path / "marks"

        (tmp_path / "cache" / "kind" / "building-key-killed" / "work").mkdir(parents=True)

        def build(results: multiprocessing.SimpleQueue[bool]) -> None:
            result = cached_library(
                "kind", "key", "it", note_and_make(marks), {}, tmp_path / "cache", True
            )
            results.put(result.seconds is not None and result.library.read_text() == "library")

        context = multiprocessing.get_context("fork")
        results: multiprocessing.SimpleQueue[bool] = context.SimpleQueue()
        processes = [context.Process(target=build, args=(results,)) for _ in range(4)]
        for process in processes:
            process.start()
        made = [results.get() for _ in processes]
        for process in processes:
            process.join(20)
            assert process.exitcode == 0
        assert sum(made) == 1
        assert marks.read_text() == "made\n"
        folder = tmp_path / "cache" / "kind"
        assert {path.name for path in folder.iterdir()} == {"key", "key.lock"}
        assert {path.name for path in (folder / "key").iterdir()} == {
            "build.json",
            "build.log",
            "library.so",
        }

    def test_a_failed_build_leaves_its_output_and_can_be_made_again(self, tmp_path: Path) -> None:
        def fail(_: Path, log: Path) -> None:
            log.write_text("what the tool said")
            raise BuildError("the tool failed")

        with pytest.raises(BuildError, match="cannot build it: the tool failed") as error:
            cached_library("kind", "key", "it", fail, {}, tmp_path, True)
        assert (tmp_path / "kind" / "key.log").read_text() == "what the tool said"
        assert str(tmp_path / "kind" / "key.log") in str(error.value)
        marks = tmp_path / "marks"
        result = cached_library("kind", "key", "it", note_and_make(marks), {}, tmp_path, True)
        assert result.seconds is not None

    def test_where_the_cache_is(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("FASTDELTA_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert paths.cache_folder() == tmp_path / "fastdelta"
        monkeypatch.setenv("FASTDELTA_CACHE", str(tmp_path / "here"))
        assert paths.cache_folder() == tmp_path / "here"
        monkeypatch.delenv("FASTDELTA_CACHE")
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert paths.cache_folder() == tmp_path / ".cache" / "fastdelta"

    def test_progress_is_told_once(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        make = note_and_make(tmp_path / "marks")
        for _ in range(2):
            cached_library("kind", "key", "the model", make, {}, tmp_path, False)
        captured = capsys.readouterr()
        assert captured.err.count("Building the model") == 1
        assert captured.out == ""


class TestMistakes:
    def test_an_error_in_the_rtl(
        self, copied: Callable[[str, str, str], KernelInterface], tmp_path: Path
    ) -> None:
        interface = copied("vector_add_kernel.v", "assign interrupt =", "assign interupt =")
        with pytest.raises(BuildError, match=r"(?s)verilator failed.*interupt"):
            build_kernel(interface, PARAMETERS, cache=tmp_path)

    def test_a_parameter_that_the_rtl_does_not_have(self, tmp_path: Path) -> None:
        with pytest.raises(BuildError, match=r"(?s)verilator failed.*NO_SUCH"):
            build_kernel(vector_add_interface(), {"NO_SUCH": 1}, cache=tmp_path)

    def test_a_port_that_the_rtl_does_not_have(
        self, copied: Callable[[str, str, str], KernelInterface], tmp_path: Path
    ) -> None:
        interface = copied("vector_add_kernel.v", "m_axi_out_", "m_axi_sum_")
        with pytest.raises(BuildError, match="the kernel has no AXI4 master m_axi_out"):
            build_kernel(interface, PARAMETERS, cache=tmp_path)

    def test_glue_names_every_port(self) -> None:
        glue = kernel_glue(vector_add_interface())
        assert '#include "Vvector_add_kernel.h"' in glue
        assert "FD_PORT(m_axi_in) FD_PORT(m_axi_out)" in glue

    def test_parameters_of_a_shape(self) -> None:
        assert rtl_parameters(DecodeShape(head_dim=64, h_iter=4)) == {
            "HEAD_DIM": 64,
            "QK_HEADS": 16,
            "GROUP_RATIO": 2,
            "H_ITER": 4,
            "CONTEXTS": 1,
            "BUS_WIDTH": 512,
        }


class TestTools:
    @pytest.fixture
    def bare(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """A checkout without its own Verilator, and a PATH with nothing in it."""
        for folder in ("rtl", "overlays", "bin"):
            (tmp_path / folder).mkdir()
        monkeypatch.setenv("FASTDELTA_CHECKOUT", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        return tmp_path

    @staticmethod
    def program(folder: Path, name: str, output: str) -> Path:
        path = folder / "bin" / name
        path.write_text(f"#!/bin/sh\necho '{output}'\n")
        path.chmod(0o755)
        return path

    def test_no_verilator(self, bare: Path) -> None:
        with pytest.raises(MissingToolError, match=f"run 'make setup' in {bare}"):
            build_kernel(vector_add_interface(), cache=bare)

    def test_an_old_verilator(self, bare: Path) -> None:
        self.program(bare, "verilator", "Verilator 5.006 2023-01-22 rev (Debian 5.006-3)")
        with pytest.raises(MissingToolError, match=r"5\.006.*need Verilator 5\.036 or newer"):
            build_kernel(vector_add_interface(), cache=bare)

    def test_no_compiler(self, bare: Path) -> None:
        self.program(bare, "verilator", "Verilator 5.048 2026-05-16")
        with pytest.raises(MissingToolError, match=r"g\+\+.*apt-get install"):
            build_kernel(vector_add_interface(), cache=bare)
        with pytest.raises(MissingToolError, match=r"g\+\+.*apt-get install"):
            build_board(cache=bare)

    def test_an_old_compiler(self, bare: Path) -> None:
        self.program(bare, "g++", "9.4.0")
        with pytest.raises(MissingToolError, match=r"version 9\.4\.0.*g\+\+ 11 or newer"):
            build_board(cache=bare)

    def test_no_make(self, bare: Path) -> None:
        self.program(bare, "verilator", "Verilator 5.048 2026-05-16")
        self.program(bare, "g++", "12")
        with pytest.raises(MissingToolError, match=r"make.*is not installed"):
            build_kernel(vector_add_interface(), cache=bare)

    def test_no_checkout(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("FASTDELTA_CHECKOUT", str(tmp_path))
        with pytest.raises(MissingToolError, match=r"is no checkout of fastdelta.*pip install -e"):
            paths.overlay_folder("decode")
