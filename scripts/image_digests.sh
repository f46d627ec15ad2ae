#!/usr/bin/env bash
# Pins the images of Dockerfile and docker-compose.yml to their current digests: NAME:TAG becomes
# NAME:TAG@sha256:…, and an existing digest is replaced. Queries the registry, so it needs docker
# with buildx and a network that reaches the registry.
#   scripts/image_digests.sh [FOLDER]
set -euo pipefail

cd "${1:-$(dirname "$0")/..}"
# The locally built image (anneal:local) and the empty one (scratch) are in no registry.
images=$(sed -nE 's/^FROM ([^ ]+).*/\1/p; s/^ *image: ([^ ]+).*/\1/p' Dockerfile docker-compose.yml | sed 's/@.*//' | grep -vx -e '.*:local' -e scratch | sort -u)
for image in $images; do
    digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
    if ! [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]]; then
        echo "no digest of $image: $digest" >&2
        exit 1
    fi
    escaped=${image//./\\.}
    sed -E -i "s|^(FROM \|( *)image: )$escaped(@sha256:[0-9a-f]{64})?( \|\$)|\1$image@$digest\4|" Dockerfile docker-compose.yml
    echo "$image@$digest"
done
