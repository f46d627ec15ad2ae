//! `anneal export`: where its file goes, who may read it, and that nothing half written is left.

use std::{
    fs::Permissions,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use anneal_tests::{Files, House, Talk, eventually, pb, prose, user};

use crate::BINARY;

async fn export(files: &Files<'_>, talk: &Talk<'_>, output: &str) {
    files.exported(&[&talk.id, "--format", "claw0", "--output", output, "--force"]).await;
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("is there").permissions().mode() & 0o777
}

#[tokio::test]
async fn a_new_file_is_private_and_one_that_is_written_over_stays_as_open_as_it_was() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let talk = house.conversation().await;
    talk.turn("Hello?", "Hello.").await;
    for format in ["claw0", "zeroclaw"] {
        files.exported(&[&talk.id, "--format", format, "--output", format]).await;
        assert_eq!(mode(&files.folder.path().join(format)), 0o600, "{format}");
    }
    let old = files.folder.file("old.jsonl", "old");
    for before in [0o600, 0o640] {
        std::fs::set_permissions(&old, Permissions::from_mode(before)).expect("sets");
        export(&files, &talk, "old.jsonl").await;
        assert_eq!(mode(&old), before);
    }
    assert_eq!(std::fs::read_to_string(&old).expect("is there").lines().count(), 3);
}

#[tokio::test]
async fn a_link_stays_a_link_and_a_pipe_stays_a_pipe() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let talk = house.conversation().await;
    talk.turn("Hello?", "Hello.").await;
    let real = files.folder.file("real.jsonl", "old");
    let link = files.folder.path().join("link.jsonl");
    symlink(&real, &link).expect("links");
    export(&files, &talk, "link.jsonl").await;
    assert!(std::fs::symlink_metadata(&link).expect("is there").is_symlink());
    assert_eq!(std::fs::read_to_string(&real).expect("is there").lines().count(), 3);

    let pipe = files.folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
    assert!(made.success());
    let reader = tokio::task::spawn_blocking({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).expect("reads")
    });
    export(&files, &talk, "pipe").await;
    assert!(std::fs::symlink_metadata(&pipe).expect("is there").file_type().is_fifo());
    assert_eq!(reader.await.expect("no panic").lines().count(), 3, "what was written went through it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_is_stopped_leaves_nothing_behind() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let talk = house.conversation().await;
    for _ in 0..10 {
        talk.append_all((0..100).map(|n| user(&prose(n, 400))).collect()).await;
    }
    let ids = vec![talk.id.as_str(); 800];
    let rest = [&ids[..], &["--format", "openai", "--output", "all.jsonl"]].concat();
    let export = files.anneal.start(&files.arguments("export", &rest));
    let names = || {
        let entries = std::fs::read_dir(files.folder.path()).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>()
    };
    let begun = || {
        let folder = names().pop().map(|name| files.folder.path().join(name).join("whole"));
        folder.and_then(|whole| std::fs::metadata(whole).ok()).is_some_and(|whole| whole.len() > 0)
    };
    eventually("the file is begun", async || begun()).await;
    export.terminate().await;
    assert_eq!(export.ended().await, Some(1));
    assert!(names().is_empty(), "{:?}", names());
}

#[tokio::test]
async fn every_checkpoint_is_written_in_its_place_however_many_there_are() {
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let policy = pb::Policy { keep_recent_turns: Some(1), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    for n in 0..18 {
        talk.turn(&prose(n * 40, 30), &prose(n * 40 + 20, 30)).await;
        if n > 0 {
            house.run_jobs_until_idle().await;
            talk.compact(&format!("by hand {n}"), "").await;
        }
    }
    let mut wanted: Vec<String> = talk.checkpoints().await.into_iter().map(|made| made.summary).collect();
    wanted.reverse();
    let exported = files.exported(&[&talk.id, "--format", "pi"]).await;
    let lines = exported.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let lines = lines.filter(|line| line["type"] == "compaction");
    let written: Vec<String> = lines.map(|line| line["summary"].as_str().expect("a text").to_owned()).collect();
    assert!(wanted.len() > 16, "{} checkpoints are more than two pages", wanted.len());
    assert_eq!(written, wanted);
}
