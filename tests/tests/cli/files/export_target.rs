//! `anneal export`: permissions of the output file, output to links and pipes, what an interrupted
//! export leaves, and the order of the checkpoints in the file.

use std::{
    fs::Permissions,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use anneal_testkit::{ImportFolder, TestApp, TestConversation, eventually, pb, prose, user};

use crate::files::BINARY;

async fn export(imports: &ImportFolder<'_>, conversation: &TestConversation<'_>, output: &str) {
    imports
        .export(&[
            &conversation.id,
            "--format",
            "claw0",
            "--output",
            output,
            "--force",
        ])
        .await;
}

/// The file's permission bits.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path)
        .expect("exists")
        .permissions()
        .mode()
        & 0o777
}

#[tokio::test]
async fn a_new_file_is_private_and_an_overwritten_one_keeps_its_permissions() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app.conversation().await;
    conversation.turn("Hello?", "Hello.").await;
    for format in ["claw0", "zeroclaw"] {
        imports
            .export(&[&conversation.id, "--format", format, "--output", format])
            .await;
        assert_eq!(mode(&imports.folder.path().join(format)), 0o600, "{format}");
    }
    let old = imports.folder.file("old.jsonl", "old");
    for before in [0o600, 0o640] {
        std::fs::set_permissions(&old, Permissions::from_mode(before)).expect("sets");
        export(&imports, &conversation, "old.jsonl").await;
        assert_eq!(mode(&old), before);
    }
    assert_eq!(
        std::fs::read_to_string(&old)
            .expect("exists")
            .lines()
            .count(),
        3,
        "a line about the conversation and two messages"
    );
}

#[tokio::test]
async fn an_export_to_a_link_or_a_pipe_does_not_replace_it() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app.conversation().await;
    conversation.turn("Hello?", "Hello.").await;
    let real = imports.folder.file("real.jsonl", "old");
    let link = imports.folder.path().join("link.jsonl");
    symlink(&real, &link).expect("links");
    export(&imports, &conversation, "link.jsonl").await;
    assert!(
        std::fs::symlink_metadata(&link)
            .expect("exists")
            .is_symlink()
    );
    assert_eq!(
        std::fs::read_to_string(&real)
            .expect("exists")
            .lines()
            .count(),
        3
    );

    let pipe = imports.folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .expect("mkfifo is there");
    assert!(made.success());
    let reader = tokio::task::spawn_blocking({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).expect("reads")
    });
    export(&imports, &conversation, "pipe").await;
    assert!(
        std::fs::symlink_metadata(&pipe)
            .expect("exists")
            .file_type()
            .is_fifo()
    );
    assert_eq!(
        reader.await.expect("no panic").lines().count(),
        3,
        "the reader of the pipe gets the lines"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_is_stopped_leaves_no_file() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = app.conversation().await;
    for _ in 0..10 {
        conversation
            .append_all((0..100).map(|n| user(&prose(n, 400))).collect())
            .await;
    }
    // The same conversation 800 times: the export must still run when it is stopped.
    let ids = vec![conversation.id.as_str(); 800];
    let arguments = [&ids[..], &["--format", "openai", "--output", "all.jsonl"]].concat();
    let export = imports
        .anneal
        .start(&imports.arguments("export", &arguments));
    let names = || {
        let entries = std::fs::read_dir(imports.folder.path()).expect("a folder");
        entries
            .map(|entry| entry.expect("an entry").file_name())
            .collect::<Vec<_>>()
    };
    // Until the export ends, it writes to the file `whole` in a folder of its own.
    let has_begun = || {
        let folder = names()
            .pop()
            .map(|name| imports.folder.path().join(name).join("whole"));
        folder
            .and_then(|whole| std::fs::metadata(whole).ok())
            .is_some_and(|whole| whole.len() > 0)
    };
    eventually("a part of the file is written", async || has_begun()).await;
    export.terminate().await;
    assert_eq!(export.wait_for_exit().await, Some(1));
    assert!(names().is_empty(), "{:?}", names());
}

#[tokio::test]
async fn all_checkpoints_are_exported_in_order() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let policy = pb::Policy {
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    for n in 0..18 {
        conversation
            .turn(&prose(n * 40, 30), &prose(n * 40 + 20, 30))
            .await;
        if n > 0 {
            app.run_jobs_until_idle().await;
            conversation.compact(&format!("by hand {n}"), "").await;
        }
    }
    let mut expected: Vec<String> = conversation
        .checkpoints()
        .await
        .into_iter()
        .map(|checkpoint| checkpoint.summary)
        .collect();
    expected.reverse();
    let exported = imports.export(&[&conversation.id, "--format", "pi"]).await;
    let lines = exported
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let lines = lines.filter(|line| line["type"] == "compaction");
    let written: Vec<String> = lines
        .map(|line| line["summary"].as_str().expect("a text").to_owned())
        .collect();
    assert!(
        expected.len() > 16,
        "{} checkpoints are not more than two pages, which have eight each",
        expected.len()
    );
    assert_eq!(written, expected);
}
