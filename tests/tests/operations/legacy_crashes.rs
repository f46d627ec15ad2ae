//! `anneal migrate` dies in the middle of moving older tables: everything or nothing.
#![expect(non_snake_case, reason = "rows are named as the seeds name them")]

use anneal_tests::{Anneal, Folder, OldRow, OldTables, eventually, migrated, recount};

use crate::BINARY;

/// The stops: each waits for a lock that the test holds, at a point that the test has armed.
const STOPS: &str = "
    create table stop (at text);
    create function stop_at(here text) returns void language plpgsql set lock_timeout = 0 as $$
    begin
        if exists (select from public.stop where at = here) then perform pg_advisory_xact_lock_shared(7); end if;
    end $$;
    create function stop_row() returns trigger language plpgsql as $$
    begin perform public.stop_at(tg_argv[0]); return new; end $$;
    create function stop_before() returns event_trigger language plpgsql as $$
    begin perform public.stop_at('before ' || tg_tag); end $$;
    create function stop_after() returns event_trigger language plpgsql as $$
    declare made text;
    begin
        for made in select object_identity from pg_event_trigger_ddl_commands() where command_tag = 'CREATE TABLE' loop
            perform public.stop_at('after ' || made);
            if made = 'public.ai_message' then
                create trigger stop before insert on public.ai_message for each row
                when (new.content::text like '%stop here%') execute function public.stop_row('middle row');
            end if;
            if made = 'public.ai_conversation' then
                create constraint trigger stop after insert on public.ai_conversation deferrable initially deferred
                for each row when (new.user_id = '1') execute function public.stop_row('commit');
            end if;
        end loop;
    end $$;
    create event trigger stop_before on ddl_command_start when tag in ('ALTER TABLE', 'DROP TABLE')
        execute function stop_before();
    create event trigger stop_after on ddl_command_end when tag in ('CREATE TABLE') execute function stop_after()";

const WAITS: &str = "select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and not granted
    and database = (select oid from pg_database where datname = current_database())";
const MIGRATORS: &str =
    "select count(*) from pg_stat_activity where application_name = 'anneal' and datname = current_database()";
const END_THEM: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity
    where application_name = 'anneal' and datname = current_database()";

/// 500 rows of five conversations; one of them marked for a stop in the middle.
async fn tables() -> (OldTables, Vec<OldRow>) {
    let row = |place: i64| {
        let content = if place == 250 { "stop here".into() } else { format!("said {place}") };
        let role = if place % 2 == 0 { "USER" } else { "ASSISTANT" };
        let said = OldRow { conversation: 1 + place % 5, ..OldRow::said(role, &content, 1_600_000_000 + place) };
        if place % 40 == 0 { OldRow { kind: "SUMMARY", ..said } } else { said }
    };
    let rows: Vec<OldRow> = (1..=500).map(row).collect();
    let mut old = OldTables::with(5, &rows).await;
    old.run(STOPS).await;
    (old, rows)
}

/// The stop's own marks are not part of what must stay.
async fn disarmed(old: &mut OldTables) -> String {
    old.run("delete from stop").await;
    old.state().await
}

#[tokio::test]
async fn row_D6_killed_anywhere_the_older_tables_stay_as_they_were_and_the_next_run_moves_them() {
    let (mut old, rows) = tables().await;
    let folder = Folder::new();
    let anneal = Anneal::new(BINARY, &folder, &old.url);
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
        old.run(&format!("select pg_advisory_lock(7); insert into stop values ('{point}')")).await;
        let process = anneal.start(&["migrate"]);
        eventually(point, async || old.number(WAITS).await == 1).await;
        process.kill().await;
        // The server of a process that was killed at its commit may still commit; here it dies with it.
        if point == "commit" {
            old.number(END_THEM).await;
        }
        old.run("select pg_advisory_unlock(7)").await;
        eventually("its server is gone", async || old.number(MIGRATORS).await == 0).await;
        assert_eq!(disarmed(&mut old).await, before, "killed at {point}");
        println!("killed at {point}: everything as it was");
    }
    let ran = anneal.run(&["migrate"]).await;
    assert!(ran.code == Some(0) && ran.out.contains("moved the rows of the older tables"), "{ran:?}");
    assert_eq!(migrated(&old.url).await, recount(5, &rows).kept);
}

#[tokio::test]
async fn row_D6_killed_when_the_commit_is_on_its_way_everything_is_moved() {
    let (mut old, rows) = tables().await;
    let folder = Folder::new();
    let anneal = Anneal::new(BINARY, &folder, &old.url);
    old.run("select pg_advisory_lock(7); insert into stop values ('commit')").await;
    let process = anneal.start(&["migrate"]);
    eventually("the commit", async || old.number(WAITS).await == 1).await;
    process.kill().await;
    old.run("select pg_advisory_unlock(7)").await;
    eventually("its server is gone", async || old.number(MIGRATORS).await == 0).await;
    let ran = anneal.run(&["migrate"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "the schema is up to date\n"), "{ran:?}");
    assert_eq!(migrated(&old.url).await, recount(5, &rows).kept);
}

#[tokio::test]
async fn a_table_in_use_is_waited_for_and_a_killed_wait_changes_nothing() {
    let (mut old, rows) = tables().await;
    let folder = Folder::new();
    let anneal = Anneal::new(BINARY, &folder, &old.url);
    let before = old.state().await;
    let waits = "select count(*) from pg_locks where not granted and relation = 'ai_message'::regclass";
    old.run("begin; lock table ai_message in access share mode").await;
    let process = anneal.start(&["migrate"]);
    eventually("it waits", async || old.number(waits).await == 1).await;
    process.kill().await;
    old.run("commit").await;
    eventually("its server is gone", async || old.number(MIGRATORS).await == 0).await;
    assert_eq!(old.state().await, before);
    old.run("begin; lock table ai_message in access share mode").await;
    let process = anneal.start(&["migrate"]);
    for (waiting, what) in [(1, "it waits"), (0, "it gives way"), (1, "it tries again")] {
        eventually(what, async || old.number(waits).await == waiting).await;
    }
    old.run("commit").await;
    process.said("moved the rows of the older tables").await;
    assert_eq!(process.ended().await, Some(0));
    assert_eq!(migrated(&old.url).await, recount(5, &rows).kept);
}

/// Swallows rows of a table of the new schema, as a fault of ours would.
async fn swallow(old: &mut OldTables, table: &str, when: &str) {
    old.run(&format!(
        "create function swallow_row() returns trigger language plpgsql as 'begin return null; end';
         create function swallow() returns event_trigger language plpgsql as $$
         begin
            if exists (select from pg_event_trigger_ddl_commands() where object_identity = 'public.{table}') then
                create trigger swallow before insert on public.{table} for each row when ({when})
                execute function public.swallow_row();
            end if;
         end $$;
         create event trigger swallow on ddl_command_end when tag in ('CREATE TABLE') execute function swallow()"
    ))
    .await;
}

#[tokio::test]
async fn row_D6_what_was_counted_and_does_not_arrive_stops_everything() {
    let rows = [
        OldRow::said("USER", "one", 100),
        OldRow::mark("SEPARATOR", "user", 101),
        OldRow::mark("SEPARATOR", "user", 102),
        OldRow::said("USER", "two", 103),
    ];
    // the third conversation has no message: nothing else would miss it
    let cases = [("ai_separator", "true", "1 separators"), ("ai_conversation", "new.user_id = '3'", "3 conversations")];
    for (table, when, said) in cases {
        let mut old = OldTables::with(3, &rows).await;
        swallow(&mut old, table, when).await;
        let before = old.state().await;
        let ran = Anneal::new(BINARY, &Folder::new(), &old.url).run(&["migrate"]).await;
        assert!(ran.code == Some(1) && ran.err.contains(&format!("{said} were counted")), "{ran:?}");
        assert_eq!(old.state().await, before, "{table}");
    }
}
