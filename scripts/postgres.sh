#!/usr/bin/env bash
# Makes sure that PostgreSQL 15 or newer is installed. Prints nothing if it is. Installs it on
# Debian and Ubuntu; on other systems prints what to do. ANNEAL_PG_BIN=/folder/with/initdb overrides
# the search, as in anneal itself. --bin prints the folder of the programs.
set -eu

oldest=15

is_supported() { # FOLDER: succeeds if it holds initdb and postgres of a supported version
    [ -x "$1/initdb" ] && [ -x "$1/postgres" ] || return 1
    major=$("$1/postgres" --version 2>/dev/null | sed -n 's/^[^0-9]*\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge "$oldest" ]
}

find_postgres() { # sets `folder`
    if [ -n "${ANNEAL_PG_BIN:-}" ]; then
        folder=$ANNEAL_PG_BIN
        is_supported "$folder" && return 0
        echo "postgres.sh: ANNEAL_PG_BIN=$ANNEAL_PG_BIN holds no PostgreSQL $oldest or newer" >&2
        exit 1
    fi
    for folder in "$(dirname "$(command -v initdb || echo /none/initdb)")" "$(pg_config --bindir 2>/dev/null || echo /none)" \
        /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin \
        /usr/pgsql-*/bin /Applications/Postgres.app/Contents/Versions/*/bin; do
        if is_supported "$folder"; then return 0; fi
    done
    return 1
}

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

install_on_debian() {
    echo "postgres.sh: installing PostgreSQL with apt-get" >&2
    as_root apt-get update -qq
    # By default the package starts a server on port 5432, which is not wanted. If postgresql-common
    # is installed already, its configuration is the user's and is not changed.
    if ! dpkg-query -W -f='${Status}' postgresql-common 2>/dev/null | grep -q 'ok installed'; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql-common
        conf=/etc/postgresql-common/createcluster.conf
        as_root sed -i 's/^#*[[:space:]]*create_main_cluster.*/create_main_cluster = false/' "$conf"
        grep -q '^create_main_cluster = false' "$conf" ||
            echo 'create_main_cluster = false' | as_root tee -a "$conf" >/dev/null
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql
}

print_folder() { if [ "${1:-}" = --bin ]; then echo "$folder"; fi; }

if find_postgres; then print_folder "$@"; exit 0; fi
if [ "$(uname -s)" = Darwin ]; then
    echo "postgres.sh: PostgreSQL $oldest or newer is missing. Install it with: brew install postgresql@18" >&2
    exit 1
fi
if command -v apt-get >/dev/null && { [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null; }; then
    install_on_debian >&2
    if find_postgres; then print_folder "$@"; exit 0; fi
    echo "postgres.sh: the distribution's PostgreSQL is older than $oldest; see https://www.postgresql.org/download/" >&2
    exit 1
fi
echo "postgres.sh: PostgreSQL $oldest or newer is missing. Install your system's package, run scripts/postgres18.sh DIR," \
    "or set ANNEAL_PG_BIN to the folder that holds initdb and postgres" >&2
exit 1
