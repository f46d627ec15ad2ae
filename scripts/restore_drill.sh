#!/usr/bin/env bash
# Practices disaster recovery: destroys a PostgreSQL under load, restores it from a base backup and
# the archived WAL, once to the end and once to a point in time, and checks the restored data. The
# drill does not touch your data: it uses its own processes, in a temporary folder. Its PostgreSQL
# listens on Unix sockets only.
#
#   scripts/restore_drill.sh [ANNEAL]        ANNEAL: the binary, default target/debug/anneal
#
# Exit code 0: every acknowledged and archived message was restored, every promise holds, and the
# service accepts new work.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd -P)
anneal=${1:-${CARGO_TARGET_DIR:-$here/target}/debug/anneal}
bin=$("$here/scripts/postgres.sh" --bin)
# postgres may be a symbolic link into a folder that also holds psql and pg_basebackup.
[ -x "$bin/psql" ] && [ -x "$bin/pg_basebackup" ] || bin=$(dirname "$(readlink -f "$bin/postgres")")
began=$SECONDS
# The drill must not use your settings.
for name in $(compgen -e ANNEAL_); do [ "$name" = ANNEAL_PG_BIN ] || unset "$name"; done
pids=()

kill_processes() { for pid in ${pids[@]+"${pids[@]}"}; do kill -9 "$pid" 2>/dev/null || true; done; pids=(); }
say() { printf '%3d s  %s\n' $((SECONDS - began)) "$*"; }
fail() { say "FAILED: $*"; exit 1; }
for program in psql pg_basebackup; do [ -x "$bin/$program" ] || fail "there is no $program in $bin"; done
[ -x "$anneal" ] || fail "there is no $anneal; build it with: cargo build --locked --package anneal-cli"

# PostgreSQL refuses to run as root.
if [ "$(id -u)" -eq 0 ]; then
    owner=$(id -un postgres 2>/dev/null || echo nobody)
    as_owner() { runuser -u "$owner" -- "$@"; }
else
    owner=$(id -un)
    as_owner() { "$@"; }
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/anneal-drill.XXXXXX")
pg=$dir/pg
mkdir "$pg" && chmod 755 "$dir" && chown "$owner" "$pg" && chmod 700 "$pg"
cd "$pg" || exit 1
clean_up() {
    kill_processes
    # The primary, and the two restored clusters: `end` (to the end of the archive) and `moment` (to
    # a point in time).
    for cluster in primary end moment; do
        [ -f "$pg/$cluster/postmaster.pid" ] && as_owner "$bin/pg_ctl" stop --silent -m immediate -D "$pg/$cluster" || true
    done
    cd / && rm -rf "$dir"
}
trap clean_up EXIT

start_postgres() { # CLUSTER: starts it, listening on a socket in its own folder
    as_owner mkdir -p "$pg/at-$1"
    as_owner "$bin/pg_ctl" start --silent --wait -D "$pg/$1" -l "$pg/$1.log" \
        -o "-c listen_addresses= -c unix_socket_directories=$pg/at-$1 -c unix_socket_permissions=0700" >/dev/null ||
        { tail -5 "$pg/$1.log"; fail "PostgreSQL does not start"; }
    export PGHOST=$pg/at-$1 PGUSER=anneal PGDATABASE=anneal
    export ANNEAL_DATABASE_URL="postgres://anneal@localhost/anneal?host=$PGHOST"
}
sql() { "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }

start_anneal() { # NAME COMMAND WORDS: sets `started` to the pid, waits for the words in the log
    "$anneal" "$2" --set server.grpc_address=127.0.0.1:0 --set server.http_address=127.0.0.1:0 \
        --set worker.http_address=127.0.0.1:0 --set session.max_message_count=8 > "$dir/$1.log" 2>&1 &
    pids+=($!) && started=$! && disown
    for _ in $(seq 300); do
        grep -q "$3" "$dir/$1.log" && return 0
        kill -0 "$started" 2>/dev/null || break
        sleep 0.1
    done
    tail -5 "$dir/$1.log" && fail "anneal $2 does not start"
}
start_server() {
    start_anneal "$1" server "serving gRPC on"
    export ANNEAL_ADDRESS="http://$(sed -n 's/.*serving gRPC on \([0-9.:]*\).*/\1/p' "$dir/$1.log" | head -1)"
}

# Imports one conversation of ten messages. A successful import is acknowledged: then its name is
# recorded, with a WAL position at or after its commit.
import_conversation() { # NUMBER
    for n in 1 2 3 4 5; do
        printf '{"role":"user","content":"talk %s asks %s"}\n{"role":"assistant","content":"talk %s hears %s"}\n' "$1" "$n" "$1" "$n"
    done > "$dir/talk-$1.jsonl"
    "$anneal" import --format openai --user "talk-$1" "$dir/talk-$1.jsonl" >> "$dir/imports.log" 2>&1 || fail "an import fails"
    echo "talk-$1 $(sql 'select pg_current_wal_flush_lsn()')" >> "$dir/acknowledged"
}
wait_until_archived() { # all WAL so far
    segment=$(sql "select pg_walfile_name(pg_switch_wal())")
    for _ in $(seq 100); do
        [ "$(sql "select last_archived_wal >= '$segment' from pg_stat_archiver")" = t ] && return 0
        sleep 0.1
    done
    fail "$segment is not archived: $(tail -3 "$pg/primary.log")"
}
count_messages_of() { sql "select count(m.*) from ai_conversation as c join ai_message as m using (conversation_id) where c.user_id = '$1'"; }

say "a PostgreSQL that archives its WAL: $("$bin/postgres" --version)"
as_owner "$bin/initdb" --pgdata="$pg/primary" --username=anneal --auth=trust --encoding=UTF8 --locale=C --wal-segsize=1 \
    --data-checksums > "$dir/initdb.log" 2>&1 || { cat "$dir/initdb.log"; fail "initdb"; }
as_owner mkdir "$pg/archive"
as_owner tee -a "$pg/primary/postgresql.conf" >/dev/null <<CONF
archive_mode = on
archive_command = 'test ! -f $pg/archive/%f && cp %p $pg/archive/%f.part && mv $pg/archive/%f.part $pg/archive/%f'
CONF
start_postgres primary
sql "create database anneal" 2>/dev/null || PGDATABASE=postgres sql "create database anneal"
"$anneal" migrate > "$dir/migrate.log" 2>&1 || { cat "$dir/migrate.log"; fail "migrate"; }
start_server server
start_anneal worker worker "working as" && worker=$started
"$anneal" import --format openai --user sample "$here/examples/debugging-session.jsonl" > "$dir/imports.log" 2>&1 || fail "the sample"
sample=$(count_messages_of sample)
say "migrated; a server, a worker; the sample conversation has $sample messages"

(number=0; while [ ! -e "$dir/enough" ]; do number=$((number + 1)); import_conversation "$number"; done; echo "$number" > "$dir/last") &
load=$! && pids+=($!)
as_owner "$bin/pg_basebackup" --pgdata="$pg/base" --checkpoint=fast --wal-method=none --no-manifest --no-password 2>&1 |
    grep -v "NOTICE\|WAL archiving\|all required WAL" || true
[ -f "$pg/base/backup_label" ] || fail "there is no base backup"
by_backup=$(wc -l < "$dir/acknowledged")
say "base backup taken during imports: $by_backup acknowledged by then"
# A few imports end after the base backup, so that only the archived WAL has them.
until [ "$(wc -l < "$dir/acknowledged")" -ge $((by_backup + 3)) ]; do sleep 0.05; done
touch "$dir/enough" && wait "$load"
number=$(cat "$dir/last")

before=$(wc -l < "$dir/acknowledged")
moment=$(sql "select clock_timestamp()")
import_conversation $((number + 1)) && import_conversation $((number + 2))
say "the point in time to restore is $moment: $before acknowledged before it, 2 after it"

# The worker is killed, and its jobs stay leased. The statement also leases all waiting jobs in the
# name of a dead worker, so that there are some for certain.
kill -9 "$worker"
import_conversation $((number + 3))
held=$(sql "with held as (update ai_job set state = 1, attempts = 1, lease = gen_random_uuid(), worker = 'one that died',
    lease_until_ts = now() + interval '15 seconds' where state = 0 returning 1) select count(*) from held")
wait_until_archived
# This import is acknowledged and may be lost: its WAL is not archived yet when the disk is
# destroyed.
import_conversation $((number + 4))
kill_processes
as_owner "$bin/pg_ctl" stop --silent -m immediate -D "$pg/primary" && rm -rf "$pg/primary"
say "the worker was killed, and a dead worker holds $held jobs; then the primary and its disk were destroyed"

restore() { # CLUSTER SETTING: restores base backup and archive into a cluster of this name
    as_owner cp -R "$pg/base" "$pg/$1" && as_owner chmod 700 "$pg/$1"
    as_owner tee -a "$pg/$1/postgresql.conf" >/dev/null <<CONF
archive_mode = off
restore_command = 'cp $pg/archive/%f %p'
recovery_target_action = promote
$2
CONF
    as_owner touch "$pg/$1/recovery.signal"
    start_postgres "$1"
    until [ "$(sql 'select pg_is_in_recovery()')" = f ]; do sleep 0.1; done
}

check() { # CLUSTER: starts anneal on it and verifies the data
    "$anneal" migrate --check > "$dir/check.log" || { cat "$dir/check.log"; fail "the schema is not the binary's"; }
    start_server "server-$1"
    "$anneal" verify --all > "$dir/verify.log" 2>&1 || { cat "$dir/verify.log"; fail "a promise is broken"; }
    say "$1: $(tail -1 "$dir/verify.log")"
    [ "$(count_messages_of sample)" = "$sample" ] || fail "the sample conversation is not complete"
}

restore end ""
check end
reached=$(sql "select pg_last_wal_replay_lsn()")
[ -n "$reached" ] || reached=$(sql "select pg_current_wal_flush_lsn()")
restored=0 lost=0
while read -r talk lsn; do
    found=$(count_messages_of "$talk")
    if [ "$found" = 10 ]; then restored=$((restored + 1))
    elif [ "$(sql "select '$lsn'::pg_lsn <= '$reached'::pg_lsn")" = t ]; then fail "$talk was acknowledged and archived, and has $found messages of 10"
    else lost=$((lost + 1)); fi
done < "$dir/acknowledged"
say "end: $restored acknowledged conversations are restored; $lost were acknowledged after the end of the archive ($reached)"
# Three imports were archived after the point in time.
[ "$restored" -ge $((before + 3)) ] || fail "only $restored of $((before + 3)) archived conversations are restored"
left=$(sql "select count(*) from ai_job where worker = 'one that died'")
[ "$left" -ge 1 ] || fail "no job of the dead worker is left, so the drill does not test leases"
start_anneal worker-end worker "working as"
for _ in $(seq 600); do [ "$(sql 'select count(*) from ai_job')" = 0 ] && break; sleep 0.1; done
[ "$(sql 'select count(*) from ai_job')" = 0 ] || fail "the jobs do not end: $(sql "select kind, state, last_error from ai_job")"
"$anneal" verify --all > "$dir/verify.log" 2>&1 || { cat "$dir/verify.log"; fail "a promise is broken"; }
say "end: $left jobs of the dead worker ran again when their leases had ended, and all jobs are done; $(tail -1 "$dir/verify.log")"
import_conversation again && say "end: accepts new messages"
kill_processes

restore moment "recovery_target_time = '$moment'"
check moment
restored=$(sql "select count(*) from ai_conversation where user_id like 'talk-%'")
[ "$restored" = "$before" ] || fail "$restored conversations are restored, but $before were acknowledged before that point in time"
say "moment: $restored conversations, exactly those acknowledged before that point in time"
say "restored twice, nothing missing"
