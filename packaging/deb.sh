#!/usr/bin/env bash
# A Debian package of a staged tree: packaging/deb.sh NAME VERSION ARCH STAGED OUT (called by tools/package).
set -euo pipefail
cd "$(dirname "$0")"
name=$1 version=$2 arch=$3 staged=$4 out=$5
maintainer=${EVENKEEL_MAINTAINER:-the evenkeel developers <evenkeel@localhost>}
tree=$(mktemp -d); trap 'rm -rf "$tree"' EXIT
cp -a "$staged/." "$tree/"
doc=$tree/usr/share/doc/$name
gzip -9n "$doc/CHANGELOG.md"
printf '%s (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz for the changes.\n\n -- %s  %s\n' \
  "$name" "$version" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n > "$doc/changelog.gz"
cp debian/copyright "$doc/copyright"
rm "$doc"/LICENSE-*
mkdir -p "$tree/DEBIAN" "$tree/usr/share/lintian/overrides"
sed "s/@NAME@/$name/" debian/overrides > "$tree/usr/share/lintian/overrides/$name"
other=evenkeel-lab summary="shows, spreads, filters and routes packets by eBPF and XDP"
[ "$name" = evenkeel ] || { other=evenkeel summary+=", and measures"; }
{
  cat <<END
Package: $name
Version: $version
Architecture: $arch
Maintainer: $maintainer
Section: net
Priority: optional
Installed-Size: $(find "$tree" -type f ! -path '*/DEBIAN/*' -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
Depends: libc6 (>= 2.31), libgcc-s1, libelf1t64 | libelf1, zlib1g
Recommends: libpcap0.8t64 | libpcap0.8, iproute2, nftables
Suggests: ethtool, openssh-client
Conflicts: $other
Replaces: $other
END
  [ "$name" = evenkeel ] || echo "Provides: evenkeel (= $version)"
  cat <<END
Description: $summary
 It shows where packets and CPU time go, spreads the load over the cores, and
 captures, filters, routes and exchanges packets by eBPF and XDP, with an
 unmodified kernel. Every change can be undone.
END
} > "$tree/DEBIAN/control"
(cd "$tree" && find etc -type f | sort | sed 's|^|/|') > "$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "debian/$script" "$tree/DEBIAN/$script"; done
(cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) > "$tree/DEBIAN/md5sums"
chmod 644 "$tree"/DEBIAN/{control,conffiles,md5sums}
chmod 755 "$tree" "$tree/DEBIAN"
find "$tree" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$tree" "$out/${name}_${version}_$arch.deb" >&2
