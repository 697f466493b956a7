#!/usr/bin/env bash
# An RPM of a staged tree: packaging/rpm.sh NAME VERSION ARCH STAGED OUT (called by tools/package).
set -euo pipefail
cd "$(dirname "$0")"
name=$1 version=$2 arch=$3 staged=$4 out=$5
command -v rpmbuild >/dev/null || { echo "packaging/rpm: rpmbuild is missing; \`tools/setup package\` installs it" >&2; exit 3; }
case $arch in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; esac
top=$(mktemp -d); trap 'rm -rf "$top"' EXIT
other=evenkeel-lab; [ "$name" = evenkeel ] || other=evenkeel
# Fedora and RHEL have zsh's completions in another folder.
cp -a "$staged" "$top/tree"
mkdir -p "$top/tree/usr/share/zsh/site-functions"
mv "$top/tree/usr/share/zsh/vendor-completions/_evenkeel" "$top/tree/usr/share/zsh/site-functions/"; rmdir "$top/tree/usr/share/zsh/vendor-completions"
find "$top/tree" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
{ (cd "$top/tree" && find . -type f -o -type l | sort | sed 's|^\.||; s|^\(/etc/.*\)$|%config(noreplace) \1|; s|^\(/usr/share/man/.*\)$|%doc \1|')
  echo "%dir /etc/evenkeel"; echo "%dir /etc/evenkeel/keep.d"; } > "$top/files"
sed "s|@NAME@|$name|; s|@OTHER@|$other|; s|@VERSION@|${version//-/\~}|; s|@TREE@|$top/tree|; s|@FILES@|$top/files|" rpm.spec > "$top/spec"
rpmbuild -bb --quiet --target "$machine-linux" --define "_topdir $top/rpm" --define "_rpmdir $top/out" --define "_buildhost evenkeel" \
  --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" --define "_build_id_links none" "$top/spec" >&2
mv "$top"/out/*/*.rpm "$out/"
