#!/usr/bin/env bash
# A tar of a staged tree, to be unpacked at /: packaging/tar.sh NAME VERSION ARCH STAGED OUT (called by tools/package).
set -euo pipefail
name=$1 version=$2 arch=$3 staged=$4 out=$5
tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$staged" -c . |
  xz -6 -T1 > "$out/$name-$version-$arch.tar.xz"
