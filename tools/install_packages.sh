#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Install the Debian packages that the tests use and that are missing. `make demo` needs none of them.
#
# iverilog                 second simulator of the unit tests
# tcl                      the packaging script of the overlays, on recorded Vivado commands
# liblz4-dev, zlib1g-dev   waveforms in FST format (verilator --trace-fst)
# ccache                   repeated builds of the same model take seconds; optional
set -euo pipefail

required=(iverilog tcl liblz4-dev zlib1g-dev)
optional=(ccache)

if ! command -v dpkg >/dev/null || ! command -v apt-get >/dev/null; then
    command -v iverilog >/dev/null && exit 0
    echo "install_packages.sh: this is not a Debian system: install Icarus Verilog 11 or newer and the" \
        "headers of lz4 and zlib with your own package manager (ccache makes builds faster)" >&2
    exit 1
fi

missing=()
for package in "${required[@]}" "${optional[@]}"; do
    dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
fi
echo "installing: ${missing[*]}"
if command -v "${as_root[0]:-env}" >/dev/null && "${as_root[@]}" apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then
    exit 0
fi

for package in "${missing[@]}"; do
    if [[ " ${required[*]} " == *" $package "* ]]; then
        echo "install_packages.sh: apt-get could not install '$package', which the tests need; run as an" \
            "administrator: apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
done
echo "install_packages.sh: going on without ${missing[*]}" >&2
