#!/usr/bin/env bash
# Makes sure that a Debian package is installed: scripts/debian.sh PACKAGE. Prints nothing if it is
# installed. Installs it on Debian and Ubuntu. On other systems says that it is missing, and exits
# with 1 if it is required.
set -eu

die() { echo "debian.sh: $*" >&2; exit 1; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
exists() { for file in "$@"; do if [ -f "$file" ]; then return 0; fi; done; return 1; }

package=${1:-}
case "$package" in
    # Counts instructions for `make nightly` and scripts/profile.sh. macOS has no valgrind; nothing is counted there.
    valgrind)
        is_there() { command -v valgrind >/dev/null || [ "$(uname -s)" = Darwin ]; }
        report_missing() { die "valgrind is missing. Install your system's package"; }
        ;;
    # Two tests run behind PgBouncer.
    pgbouncer)
        is_there() { command -v pgbouncer >/dev/null; }
        report_missing() { echo "debian.sh: there is no pgbouncer; its tests will be skipped" >&2; }
        ;;
    # Tests use its library to set the clock of a process.
    faketime)
        is_there() { exists /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/faketime/libfaketimeMT.so.1 /usr/lib64/faketime/libfaketimeMT.so.1; }
        report_missing() { echo "debian.sh: there is no libfaketime; its tests will be skipped" >&2; }
        ;;
    # Builds the container image (scripts/image.sh).
    buildah)
        is_there() { command -v buildah >/dev/null; }
        report_missing() { die "buildah is missing. Install your system's package"; }
        ;;
    # Tests check the alerting rules and the dashboard with its promtool.
    prometheus)
        is_there() { command -v promtool >/dev/null; }
        report_missing() { echo "debian.sh: there is no promtool; its tests will fail in the gate" >&2; }
        ;;
    # Tests open the page in a browser: Chromium, and the program that drives it.
    chromium|chromium-driver)
        is_there() { command -v "${package/chromium-driver/chromedriver}" >/dev/null; }
        report_missing() { echo "debian.sh: there is no $package; tests in a browser will fail in the gate" >&2; }
        ;;
    # Texts of the page on screenshots: Arabic and Hebrew, Chinese and Japanese, emoji.
    fonts-noto-core)
        is_there() { exists /usr/share/fonts/truetype/noto/NotoSansArabic-Regular.ttf; }
        report_missing() { echo "debian.sh: there is no $package; screenshots will lack letters" >&2; }
        ;;
    fonts-noto-cjk)
        is_there() { exists /usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc; }
        report_missing() { echo "debian.sh: there is no $package; screenshots will lack letters" >&2; }
        ;;
    fonts-noto-color-emoji)
        is_there() { exists /usr/share/fonts/truetype/noto/NotoColorEmoji.ttf; }
        report_missing() { echo "debian.sh: there is no $package; screenshots will lack letters" >&2; }
        ;;
    *) die "usage: scripts/debian.sh valgrind|pgbouncer|faketime|buildah|prometheus|chromium|chromium-driver|fonts-noto-core|fonts-noto-cjk|fonts-noto-color-emoji" ;;
esac

if is_there; then exit 0; fi
if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
    echo "debian.sh: installing $package with apt-get" >&2
    as_root apt-get update -qq >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
    exit 0
fi
report_missing
