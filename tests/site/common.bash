# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What the two files that deal with packages share: which there are.

top=${MUSTER_SRCDIR:-$(cd "$BATS_TEST_DIRNAME/../.." && pwd)}
build=${MUSTER_BUILDDIR:-$top/build-test}

need_apt() {
    [ "$(id -u)" -eq 0 ] || skip "needs root"
    command -v apt-get > /dev/null || skip "no apt-get"
    ! dpkg -s muster > /dev/null 2>&1 || skip "a package muster is installed here"
}

no_packages() { rm -rf "$build"/first "$build"/*muster*.deb "$build"/*muster*.rpm; }
