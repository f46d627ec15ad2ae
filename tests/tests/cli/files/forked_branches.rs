//! `anneal import --all-branches`: a side branch is a fork of the conversation that it leaves, and
//! stays the same conversation when the file grows.

use anneal_testkit::{
    ImportFolder, TestApp, TestConversation, pb, pi_compaction, pi_message, pi_session, prose,
};
use serde_json::Value;

use crate::files::BINARY;

/// The session's file.
const FILE: &str = "pi.jsonl";

/// A message entry whose parent is the entry with this number, counted from 1.
fn after(parent: usize, role: &str, text: &str) -> Value {
    let mut entry = pi_message(role, text);
    entry["parentId"] = format!("{parent:08x}").into();
    entry
}

/// A question (1), two answers to it (2 and 3), and one more answer to a later question on the
/// second branch (4 to 6).
fn entries() -> Vec<Value> {
    vec![
        pi_message("user", "Where?"),
        pi_message("assistant", "Left."),
        after(1, "assistant", "Right."),
        pi_message("user", "How far?"),
        pi_message("assistant", "A mile."),
        after(4, "assistant", "Two miles."),
    ]
}

fn write(imports: &ImportFolder<'_>, entries: &[Value]) {
    imports.folder.file(FILE, &pi_session("s1", entries));
}

/// The texts of a conversation's messages.
async fn texts(conversation: &TestConversation<'_>) -> Vec<String> {
    let messages = conversation.texts_by_role().await;
    messages.into_iter().map(|(_, text)| text).collect()
}

/// Which of the conversations each is a fork of, and at which message.
async fn origins(branches: &[TestConversation<'_>]) -> Vec<Option<(usize, i64)>> {
    let mut origins = Vec::new();
    for branch in branches {
        let row = branch.conversation().await;
        let source = branches
            .iter()
            .position(|other| other.id == row.forked_from_conversation_id);
        origins.push(source.map(|source| (source, row.forked_message_id)));
    }
    origins
}

fn ids(branches: &[TestConversation<'_>]) -> Vec<String> {
    branches.iter().map(|branch| branch.id.clone()).collect()
}

#[tokio::test]
async fn side_branches_are_forks_of_the_conversation_that_they_leave() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let mut entries = entries();
    write(&imports, &entries);
    let branches = imports.import_ok(&[FILE, "--all-branches"]).await;
    let expected = [
        &["Where?", "Left."][..],
        &["Where?", "Right.", "How far?", "A mile."],
        &["Where?", "Right.", "How far?", "Two miles."],
    ];
    assert_eq!(branches.len(), expected.len());
    for (branch, expected) in branches.iter().zip(expected) {
        assert_eq!(texts(branch).await, expected);
        branch.verify().await;
    }
    let forks = [None, Some((0, 1)), Some((1, 3))];
    assert_eq!(origins(&branches).await, forks);
    assert_eq!(
        imports.app.forks_of(&branches[0].id).await,
        [branches[1].id.as_str()]
    );

    // The branches grow, and another one leads off.
    entries.extend([
        after(2, "user", "And then?"),
        after(6, "user", "Thanks."),
        after(3, "user", "Never mind."),
    ]);
    write(&imports, &entries);
    for _ in 0..2 {
        let grown = imports.import_ok(&[FILE, "--all-branches"]).await;
        assert_eq!(ids(&grown[..3]), ids(&branches));
        assert_eq!(
            origins(&grown).await,
            [forks[0], forks[1], forks[2], Some((1, 2))]
        );
        assert_eq!(texts(&grown[0]).await, ["Where?", "Left.", "And then?"]);
        assert_eq!(texts(&grown[2]).await.len(), 5);
        assert_eq!(texts(&grown[3]).await, ["Where?", "Right.", "Never mind."]);
        assert_eq!(imports.count_conversations().await, 4);
    }
}

#[tokio::test]
async fn a_branch_is_the_same_conversation_whether_it_is_imported_alone_or_with_the_others() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    write(&imports, &entries());
    // The last entry's branch was imported alone, and is no fork.
    let alone = imports.import_ok(&[FILE]).await;
    let branches = imports.import_ok(&[FILE, "--all-branches"]).await;
    assert_eq!(branches[2].id, alone[0].id);
    assert_eq!(origins(&branches).await, [None, Some((0, 1)), None]);
    assert_eq!(imports.count_conversations().await, 3);

    // Now a fork becomes the branch of the last entry.
    let mut entries = entries();
    entries.push(after(5, "user", "Thanks."));
    write(&imports, &entries);
    let alone = imports.import_ok(&[FILE]).await;
    assert_eq!(alone[0].id, branches[1].id);
    assert_eq!(
        texts(&alone[0]).await,
        ["Where?", "Right.", "How far?", "A mile.", "Thanks."]
    );
    assert_eq!(imports.count_conversations().await, 3);
}

#[tokio::test]
async fn a_fork_takes_over_the_summaries_before_it_and_gets_the_later_ones() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let mut later = pi_compaction("The road was discussed, and the weather.", 6);
    later["parentId"] = "00000007".into();
    let entries = [
        pi_message("user", &prose(0, 20)),
        pi_message("assistant", &prose(1, 20)),
        pi_message("user", &prose(4, 20)),
        pi_compaction("The road was discussed.", 3),
        pi_message("assistant", &prose(2, 20)),
        after(4, "assistant", &prose(3, 20)),
        pi_message("user", "And then?"),
        later,
    ];
    write(&imports, &entries);
    let mut before = Vec::new();
    for _ in 0..2 {
        let ran = imports.import(&[FILE, "--all-branches"]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            !format!("{ran:?}").contains("cannot be a checkpoint"),
            "{ran:?}"
        );
        let branches = imports.conversations(&ran);
        assert_eq!(origins(&branches).await, [None, Some((0, 3))]);
        let mut ends = Vec::new();
        for branch in &branches {
            let checkpoints = branch.checkpoints().await.into_iter();
            ends.push(
                checkpoints
                    .map(|one| one.last_message_id)
                    .collect::<Vec<_>>(),
            );
        }
        assert_eq!(ends, [vec![2], vec![3, 2]]);
        assert!(
            branches[1]
                .context()
                .await
                .text()
                .contains("and the weather")
        );
        let policies = [
            branches[0].conversation().await.policy,
            branches[1].conversation().await.policy,
        ];
        assert_eq!(policies[0], policies[1], "triggers are active again");
        if !before.is_empty() {
            assert_eq!(ids(&branches), before);
        }
        before = ids(&branches);
    }
}

#[tokio::test]
async fn a_fork_has_the_title_and_the_labels_of_its_own_branch() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let entries = [
        pi_message("user", "Where?"),
        serde_json::json!({"type": "custom", "data": "of the first branch"}),
        after(1, "assistant", "Right."),
        pi_message("user", "How far?"),
    ];
    write(&imports, &entries);
    let branches = imports.import_ok(&[FILE, "--all-branches"]).await;
    let (main, side) = (
        branches[0].conversation().await,
        branches[1].conversation().await,
    );
    let holds_entry = |row: &pb::Conversation| {
        row.metadata
            .values()
            .any(|value| value.contains("of the first branch"))
    };
    assert!(holds_entry(&main), "{main:?}");
    assert!(!holds_entry(&side), "{side:?}");
    assert_eq!(
        side.metadata.get("pi.cwd"),
        main.metadata.get("pi.cwd"),
        "both have the labels of the session"
    );
    assert_eq!(main.title, "Where?");
    assert_eq!(side.title, "Where?", "the active branch has no other name");
}

#[tokio::test]
async fn forks_are_listed_with_their_source() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    write(&imports, &entries());
    let branches = imports.import_ok(&[FILE, "--all-branches"]).await;
    let list = async |rest: &[&str]| imports.anneal.run(&imports.arguments("list", rest)).await;
    let listed = list(&["--forks-of", &branches[1].id, "--json"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let lines: Vec<Value> = listed
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("is JSON"))
        .collect();
    assert_eq!(lines.len(), 1, "{listed:?}");
    assert_eq!(
        (
            lines[0]["conversation_id"].as_str(),
            lines[0]["forked_from_conversation_id"].as_str(),
            lines[0]["forked_message_id"].as_i64()
        ),
        (
            Some(branches[2].id.as_str()),
            Some(branches[1].id.as_str()),
            Some(3)
        )
    );
    let both = list(&["--forks-of", &branches[1].id, "--agent", "a"]).await;
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[tokio::test]
async fn messages_that_were_withdrawn_do_not_end_a_later_import() {
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let mut entries = entries();
    write(&imports, &entries);
    let branches = imports.import_ok(&[FILE, "--all-branches"]).await;
    branches[0].withdraw(&[1]).await;
    entries.extend([after(2, "user", "And then?"), after(2, "user", "Or else?")]);
    write(&imports, &entries);
    for _ in 0..2 {
        let grown = imports.import_ok(&[FILE, "--all-branches"]).await;
        assert_eq!(origins(&grown).await[3], Some((0, 2)));
        assert_eq!(texts(&grown[0]).await, ["Left.", "And then?"]);
        assert_eq!(
            texts(&grown[3]).await,
            ["Left.", "Or else?"],
            "the new fork has no content of the withdrawn message"
        );
        assert_eq!(texts(&grown[1]).await.len(), 4, "the older fork keeps it");
        assert_eq!(imports.count_conversations().await, 4);
    }
}
