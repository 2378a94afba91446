#!/bin/sh
# The hooks alone as a deb and a tarball: for images of training jobs, which have neither oncall nor need its Python.
# `. /opt/oncall/hooks/env.sh` in the launcher loads them.
#   packaging/hooks.sh x86_64|aarch64 VERSION FOLDER INTO     FOLDER: oncall/_native of a wheel or an installation
set -eu
architecture=$1 version=$2 libraries=$3/$1 into=$4
machine=$([ "$architecture" = aarch64 ] && echo arm64 || echo amd64)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
hooks=$root/opt/oncall/hooks
mkdir -p "$hooks" "$root/DEBIAN"
cp -r "$libraries/liboncall_hooks.so" "$libraries/liboncall_verbs.so" "$libraries/ibverbs" "$hooks"
cp "$(dirname "$0")/../LICENSE" "$hooks"
cat >"$hooks/env.sh" <<'ENV'
# Makes a job record itself: docs/guide/hooks.md. The folder of the rings must be writable, and the collector's.
export ONCALL_RUN_DIR="${ONCALL_RUN_DIR:-/run/oncall}"
export NCCL_PROFILER_PLUGIN=/opt/oncall/hooks/liboncall_hooks.so
export LD_PRELOAD=/opt/oncall/hooks/liboncall_hooks.so"${LD_PRELOAD:+:$LD_PRELOAD}"
ENV
find "$root" -type d -exec chmod 755 {} +
find "$hooks" -type f -exec chmod 644 {} +
cat >"$root/DEBIAN/control" <<CONTROL
Package: oncall-hooks
Version: $version
Architecture: $machine
Maintainer: oncall
Depends: libc6 (>= 2.17)
Section: admin
Priority: optional
Description: Records what an LLM training job calls, for oncall
 The libraries that a job loads, and /opt/oncall/hooks/env.sh that loads them. Needs no Python.
CONTROL
dpkg-deb --root-owner-group -Zxz --build "$root" "$into/oncall-hooks_${version}_$machine.deb" >/dev/null
tar -C "$root" --owner=0 --group=0 -cJf "$into/oncall-hooks-$version-linux-$architecture.tar.xz" opt
ls -l "$into"/oncall-hooks* | awk -v machine="$machine" -v architecture="$architecture" \
  'index($0, machine) || index($0, architecture) { print $NF ": " int($5 / 1000) " KB" }'
