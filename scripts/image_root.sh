#!/usr/bin/env bash
# Fills FOLDER with the root file system of the container image: the binary, the shared libraries
# that it needs (none if it is linked statically), the certificates of public authorities, /tmp.
#   scripts/image_root.sh BINARY FOLDER
# Runs where the binary was built, because the libraries of this system are copied.
set -euo pipefail

die() { echo "image_root.sh: $*" >&2; exit 1; }

[ $# -eq 2 ] || die "usage: scripts/image_root.sh BINARY FOLDER"
binary=$1
root=$2
certificates=/etc/ssl/certs/ca-certificates.crt
[ -f "$certificates" ] || die "there is no $certificates (Debian: apt-get install ca-certificates)"

install -D -m 755 "$binary" "$root/usr/local/bin/anneal"
install -D -m 644 "$certificates" "$root$certificates"
install -d -m 1777 "$root/tmp"
# Without this file glibc asks the name servers before /etc/hosts.
mkdir -p "$root/etc"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"

# ldd prints `name => path (address)`, and the path alone for the program that loads the libraries.
# It fails for a static binary.
libraries=$(ldd "$binary" 2>/dev/null | sed -nE 's/^.* => (\/[^ ]+) .*/\1/p; s/^[[:space:]]*(\/[^ ]+) \(.*/\1/p' || true)
for library in $libraries; do
    install -D -m 755 "$library" "$root$library"
done
# Since glibc 2.34 libc itself resolves names. Before, it loads these libraries for that.
case $libraries in
    *libc.so.6*)
        for library in /lib/"$(uname -m)"-linux-gnu/libnss_{files,dns}.so.2 /lib/"$(uname -m)"-linux-gnu/libresolv.so.2; do
            [ ! -f "$library" ] || install -D -m 755 "$library" "$root$library"
        done
        ;;
esac
