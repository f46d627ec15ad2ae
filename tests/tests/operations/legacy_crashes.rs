//! `anneal migrate` is killed while it moves older tables. It has then moved everything or nothing.
//! It also moves nothing if rows do not arrive in the new tables.
#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_testkit::{
    AnnealBinary, Folder, OldRow, OldTables, eventually, expected_migration,
    read_migrated_conversations,
};

use crate::BINARY;

/// Triggers that stop the migration at the point that the table `stop` names. There the migration
/// waits for advisory lock 7, which the test holds.
const STOPS: &str = "
    create table stop (point text);
    create function stop_at(reached_point text) returns void language plpgsql set lock_timeout = 0 as $$
    begin
        if exists (select from public.stop where point = reached_point) then
            perform pg_advisory_xact_lock_shared(7);
        end if;
    end $$;
    create function stop_row() returns trigger language plpgsql as $$
    begin perform public.stop_at(tg_argv[0]); return new; end $$;
    create function stop_before() returns event_trigger language plpgsql as $$
    begin perform public.stop_at('before ' || tg_tag); end $$;
    create function stop_after() returns event_trigger language plpgsql as $$
    declare created_table text;
    begin
        for created_table in
            select object_identity from pg_event_trigger_ddl_commands() where command_tag = 'CREATE TABLE'
        loop
            perform public.stop_at('after ' || created_table);
            if created_table = 'public.ai_message' then
                create trigger stop before insert on public.ai_message for each row
                when (new.content::text like '%stop here%') execute function public.stop_row('middle row');
            end if;
            if created_table = 'public.ai_conversation' then
                create constraint trigger stop after insert on public.ai_conversation deferrable initially deferred
                for each row when (new.user_id = '1') execute function public.stop_row('commit');
            end if;
        end loop;
    end $$;
    create event trigger stop_before on ddl_command_start when tag in ('ALTER TABLE', 'DROP TABLE')
        execute function stop_before();
    create event trigger stop_after on ddl_command_end when tag in ('CREATE TABLE') execute function stop_after()";

/// Counts the sessions that wait for advisory lock 7.
const WAITS: &str =
    "select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and not granted
    and database = (select oid from pg_database where datname = current_database())";
/// Counts the sessions of migrations.
const MIGRATORS: &str = "select count(*) from pg_stat_activity where application_name = 'anneal' and datname = current_database()";
/// Terminates the sessions of migrations.
const TERMINATE_MIGRATORS: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity
    where application_name = 'anneal' and datname = current_database()";

/// Creates the older tables with 500 rows of five conversations, and the triggers of [`STOPS`]. The
/// row in the middle says "stop here", for the point `middle row`.
async fn create_tables() -> (OldTables, Vec<OldRow>) {
    let row = |place: i64| {
        let content = if place == 250 {
            "stop here".into()
        } else {
            format!("said {place}")
        };
        let role = if place % 2 == 0 { "USER" } else { "ASSISTANT" };
        let message = OldRow {
            conversation: 1 + place % 5,
            ..OldRow::message(role, &content, 1_600_000_000 + place)
        };
        if place % 40 == 0 {
            OldRow {
                kind: "SUMMARY",
                ..message
            }
        } else {
            message
        }
    };
    let rows: Vec<OldRow> = (1..=500).map(row).collect();
    let mut old = OldTables::with(5, &rows).await;
    old.run(STOPS).await;
    (old, rows)
}

/// Removes the stop and returns the state of the older tables.
async fn remove_stop(old: &mut OldTables) -> String {
    old.run("delete from stop").await;
    old.state().await
}

#[tokio::test]
async fn row_D6_a_migration_killed_at_any_point_changes_nothing_and_the_next_run_moves_everything()
{
    let (mut old, rows) = create_tables().await;
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, &old.url);
    let before = old.state().await;
    let points = [
        "before ALTER TABLE",
        "after public.ai_message",
        "after public.ai_job_dead",
        "after public.ai_model_lease",
        "middle row",
        "before DROP TABLE",
        "commit",
    ];
    for point in points {
        old.run(&format!(
            "select pg_advisory_lock(7); insert into stop values ('{point}')"
        ))
        .await;
        let process = anneal.start(&["migrate"]);
        eventually(point, async || old.number(WAITS).await == 1).await;
        process.kill().await;
        // The backend of a process that is killed at its commit may still commit, so it is
        // terminated too.
        if point == "commit" {
            old.number(TERMINATE_MIGRATORS).await;
        }
        old.run("select pg_advisory_unlock(7)").await;
        eventually("its backend has ended", async || {
            old.number(MIGRATORS).await == 0
        })
        .await;
        assert_eq!(remove_stop(&mut old).await, before, "killed at {point}");
        println!("killed at {point}: nothing has changed");
    }
    let ran = anneal.run(&["migrate"]).await;
    assert!(
        ran.code == Some(0) && ran.out.contains("moved the rows of the older tables"),
        "{ran:?}"
    );
    assert_eq!(
        read_migrated_conversations(&old.url).await,
        expected_migration(5, &rows).conversations
    );
}

#[tokio::test]
async fn row_D6_a_migration_killed_during_its_commit_has_moved_everything() {
    let (mut old, rows) = create_tables().await;
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, &old.url);
    old.run("select pg_advisory_lock(7); insert into stop values ('commit')")
        .await;
    let process = anneal.start(&["migrate"]);
    eventually("the commit", async || old.number(WAITS).await == 1).await;
    process.kill().await;
    old.run("select pg_advisory_unlock(7)").await;
    eventually("its backend has ended", async || {
        old.number(MIGRATORS).await == 0
    })
    .await;
    let ran = anneal.run(&["migrate"]).await;
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "the schema is up to date\n"),
        "{ran:?}"
    );
    assert_eq!(
        read_migrated_conversations(&old.url).await,
        expected_migration(5, &rows).conversations
    );
}

#[tokio::test]
async fn a_migration_waits_for_a_table_in_use_and_changes_nothing_if_it_is_killed_meanwhile() {
    let (mut old, rows) = create_tables().await;
    let folder = Folder::new();
    let anneal = AnnealBinary::new(BINARY, &folder, &old.url);
    let before = old.state().await;
    let waits =
        "select count(*) from pg_locks where not granted and relation = 'ai_message'::regclass";
    old.run("begin; lock table ai_message in access share mode")
        .await;
    let process = anneal.start(&["migrate"]);
    eventually("the migration waits", async || old.number(waits).await == 1).await;
    process.kill().await;
    old.run("commit").await;
    eventually("its backend has ended", async || {
        old.number(MIGRATORS).await == 0
    })
    .await;
    assert_eq!(old.state().await, before);
    old.run("begin; lock table ai_message in access share mode")
        .await;
    let process = anneal.start(&["migrate"]);
    for (waiting, what) in [
        (1, "the migration waits for the lock"),
        (0, "it stops waiting, so that others get the lock"),
        (1, "it waits again"),
    ] {
        eventually(what, async || old.number(waits).await == waiting).await;
    }
    old.run("commit").await;
    process
        .wait_for_line("moved the rows of the older tables")
        .await;
    assert_eq!(process.wait_for_exit().await, Some(0));
    assert_eq!(
        read_migrated_conversations(&old.url).await,
        expected_migration(5, &rows).conversations
    );
}

/// Makes a table of the new schema discard the inserted rows for which the SQL condition `when`
/// holds, as a bug in the migration could.
async fn discard_inserted_rows(old: &mut OldTables, table: &str, when: &str) {
    old.run(&format!(
        "create function discard_row() returns trigger language plpgsql as 'begin return null; end';
         create function add_discard_trigger() returns event_trigger language plpgsql as $$
         begin
            if exists (select from pg_event_trigger_ddl_commands() where object_identity = 'public.{table}') then
                create trigger discard before insert on public.{table} for each row when ({when})
                execute function public.discard_row();
            end if;
         end $$;
         create event trigger discard on ddl_command_end when tag in ('CREATE TABLE')
            execute function add_discard_trigger()"
    ))
    .await;
}

#[tokio::test]
async fn row_D6_counted_rows_that_do_not_arrive_stop_the_migration() {
    let rows = [
        OldRow::message("USER", "one", 100),
        OldRow::mark("SEPARATOR", "user", 101),
        OldRow::mark("SEPARATOR", "user", 102),
        OldRow::message("USER", "two", 103),
    ];
    // The two separators have the same place, so they are moved as one. The third conversation has
    // no message, so only the count notices its loss.
    let cases = [
        ("ai_separator", "true", "1 separators"),
        ("ai_conversation", "new.user_id = '3'", "3 conversations"),
    ];
    for (table, when, counted) in cases {
        let mut old = OldTables::with(3, &rows).await;
        discard_inserted_rows(&mut old, table, when).await;
        let before = old.state().await;
        let ran = AnnealBinary::new(BINARY, &Folder::new(), &old.url)
            .run(&["migrate"])
            .await;
        assert!(
            ran.code == Some(1) && ran.err.contains(&format!("{counted} were counted")),
            "{ran:?}"
        );
        assert_eq!(old.state().await, before, "{table}");
    }
}
