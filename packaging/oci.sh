#!/usr/bin/env bash
# An OCI image layout (folder) of a staged tree and the libraries of Debian 11: packaging/oci.sh NAME VERSION ARCH STAGED OUT (called by tools/package).
set -euo pipefail
name=$1 version=$2 arch=$3 staged=$4 out=$5
cd "$(dirname "$0")/.."
command -v jq >/dev/null || { echo "packaging/oci: jq is missing; \`tools/setup package\` installs it" >&2; exit 3; }
gnu=$([ "$arch" = amd64 ] && echo x86_64 || echo aarch64)-linux-gnu
sysroot=$(tools/sysroot "$arch") image=$out/$name-$version-$arch.oci
tree=$(mktemp -d); trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/usr/lib/$gnu" "$tree/etc" "$tree"/{dev,proc,run,sys,tmp}
cp -a "$staged/usr" "$staged/etc" "$tree/"
rm -rf "$tree/usr/lib/systemd" "$tree/usr/lib/sysusers.d" "$tree/usr/share/man" "$tree/usr/share/bash-completion" "$tree/usr/share/zsh" "$tree/usr/share/fish"
# The libraries of the program, and the libraries of these.
for library in ld-linux-x86-64.so.2 ld-linux-aarch64.so.1 libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libgcc_s.so.1 libelf.so.1 libz.so.1; do
  for folder in "lib/$gnu" "usr/lib/$gnu"; do
    [ ! -e "$sysroot/$folder/$library" ] || cp -L "$sysroot/$folder/$library" "$tree/usr/lib/$gnu/$library"
  done
done
# The licences of these libraries.
for package in libc6 libgcc-s1 libelf1 zlib1g; do
  install -D -m 644 "$sysroot/usr/share/doc/$package/copyright" "$tree/usr/share/doc/$package/copyright"
done
ln -s usr/lib "$tree/lib"
if [ "$arch" = amd64 ]; then ln -s usr/lib64 "$tree/lib64"; mkdir -p "$tree/usr/lib64"; ln -s ../lib/$gnu/ld-linux-x86-64.so.2 "$tree/usr/lib64/"; else ln -s $gnu/ld-linux-aarch64.so.1 "$tree/usr/lib/"; fi
printf 'root:x:0:0:root:/:/usr/bin/evenkeel\nnobody:x:65534:65534:nobody:/:/usr/bin/evenkeel\n' > "$tree/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' > "$tree/etc/group"
rm -rf "$image"; mkdir -p "$image/blobs/sha256"
# blob FILE: moves FILE to the name of its checksum, and prints the checksum.
blob() { local sum; sum=$(sha256sum "$1" | cut -d' ' -f1); mv "$1" "$image/blobs/sha256/$sum"; echo "$sum"; }
tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$tree" -cf "$tree.tar" .
diff_id=$(sha256sum "$tree.tar" | cut -d' ' -f1)
gzip -9n "$tree.tar"; size=$(stat -c %s "$tree.tar.gz"); layer=$(blob "$tree.tar.gz")
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
jq -n --arg arch "$arch" --arg created "$created" --arg diff "sha256:$diff_id" --arg version "$version" '{
  created: $created, architecture: $arch, os: "linux",
  config: { Entrypoint: ["/usr/bin/evenkeel"], Cmd: ["selftest"], Labels: { "org.opencontainers.image.version": $version, "org.opencontainers.image.licenses": "Apache-2.0 OR MIT" } },
  rootfs: { type: "layers", diff_ids: [$diff] } }' > "$tree.config"
config_size=$(stat -c %s "$tree.config"); config=$(blob "$tree.config")
jq -n --arg config "sha256:$config" --argjson config_size "$config_size" --arg layer "sha256:$layer" --argjson size "$size" '{
  schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
  config: { mediaType: "application/vnd.oci.image.config.v1+json", digest: $config, size: $config_size },
  layers: [{ mediaType: "application/vnd.oci.image.layer.v1.tar+gzip", digest: $layer, size: $size }] }' > "$tree.manifest"
manifest_size=$(stat -c %s "$tree.manifest"); manifest=$(blob "$tree.manifest")
jq -n --arg arch "$arch" --arg version "$version" --arg digest "sha256:$manifest" --argjson size "$manifest_size" '{
  schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json",
  manifests: [{ mediaType: "application/vnd.oci.image.manifest.v1+json", digest: $digest, size: $size, platform: { architecture: $arch, os: "linux" },
    annotations: { "org.opencontainers.image.ref.name": $version } }] }' > "$image/index.json"
echo '{"imageLayoutVersion":"1.0.0"}' > "$image/oci-layout"
