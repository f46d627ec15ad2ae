#!/usr/bin/env bash
# Builds the container image of a binary with buildah, without a base image and without a registry:
# the binary, its shared libraries, certificates, /tmp, and a numeric user (scripts/image_root.sh).
# Starts the image once, and writes it to FILE as an OCI archive, which `podman load` and
# `docker load` (25 or newer) read.
#   scripts/image.sh [BINARY [FILE]]        FILE: default target/anneal-VERSION.oci.tar
# Without BINARY, builds the release first. Needs buildah (Debian: apt-get install buildah);
# a user other than root also needs uidmap and a line in /etc/subuid.
set -euo pipefail

die() { echo "image.sh: $*" >&2; exit 1; }

[ $# -le 2 ] || die "usage: scripts/image.sh [BINARY [FILE]]"
command -v buildah >/dev/null || die "buildah is missing (Debian: apt-get install buildah)"
here=$(cd "$(dirname "$0")/.." && pwd -P)
target=${CARGO_TARGET_DIR:-$here/target}
binary=${1:-}
if [ -z "$binary" ]; then
    # Without the feature `download`: a container starts no PostgreSQL of its own.
    (cd "$here" && cargo build --release --locked --package anneal-cli --no-default-features)
    binary=$target/release/anneal
fi
read -r _ version _ <<< "$("$binary" --version)" # anneal VERSION (COMMIT DATE)
file=${2:-$target/anneal-$version.oci.tar}
name=localhost/anneal:$version

# A storage of its own, so that no image or container stays behind. vfs and chroot work without
# privileges, overlay file systems and namespaces.
storage=$(mktemp -d "${TMPDIR:-/tmp}/anneal-image.XXXXXX")
run_buildah() { buildah --root "$storage/root" --runroot "$storage/run" --storage-driver vfs "$@"; }
clean_up() {
    # buildah removes folders that belong to other user ids, which rm may not.
    run_buildah rm --all >/dev/null 2>&1 || true
    run_buildah rmi --all --force >/dev/null 2>&1 || true
    rm -rf "$storage"
}
trap clean_up EXIT

"$here/scripts/image_root.sh" "$binary" "$storage/image"
: "${SOURCE_DATE_EPOCH:=$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 315532800)}"
container=$(run_buildah from scratch)
run_buildah copy --quiet --chown 0:0 "$container" "$storage/image" / >/dev/null
run_buildah config --user 10001:10001 --env PATH=/usr/local/bin --port 50051 --port 8080 \
    --entrypoint '["anneal"]' --cmd server --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.licenses=Apache-2.0 "$container"
run_buildah run --isolation chroot "$container" -- anneal --version >/dev/null || die "the image does not run"
run_buildah commit --quiet --timestamp "$SOURCE_DATE_EPOCH" "$container" "$name" >/dev/null
mkdir -p "$(dirname "$file")"
rm -f "$file"
run_buildah push --quiet "$name" "oci-archive:$file:$name"
size() { du --apparent-size --block-size=1M --summarize "$1" | cut -f 1; }
echo "$file: $name, $(size "$storage/image") MiB, compressed $(size "$file") MiB"
