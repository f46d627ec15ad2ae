//! `anneal withdraw`, `anneal rewind` and `anneal restore`.

use anneal_testkit::{
    AnnealBinary, CommandOutput, Folder, TestApp, TestConversation, assistant, call, result, user,
};
use serde_json::{Value, json};

use crate::commands::{BINARY, command_line::stdout_of};

/// Runs a command for this conversation.
async fn run(
    conversation: &TestConversation<'_>,
    command: &str,
    arguments: &[&str],
) -> CommandOutput {
    let folder = Folder::new();
    let address = format!("http://{}", conversation.app.addresses.grpc);
    let all = [
        &[command, "--address", &address, &conversation.id],
        arguments,
    ]
    .concat();
    AnnealBinary::new(BINARY, &folder, "").run(&all).await
}

/// Runs a command, which must succeed. Returns the first line of its output.
async fn first_line(
    conversation: &TestConversation<'_>,
    command: &str,
    arguments: &[&str],
) -> String {
    let out = stdout_of(run(conversation, command, arguments).await);
    out.lines().next().expect("a line").to_owned()
}

async fn listed_ids(conversation: &TestConversation<'_>) -> Vec<i64> {
    let messages = conversation.messages().await;
    messages.iter().map(|message| message.message_id).collect()
}

#[tokio::test]
async fn messages_are_withdrawn_and_restored_by_ids_and_ranges() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(4).await;
    assert_eq!(
        first_line(&conversation, "withdraw", &["2", "5-6,8"]).await,
        "withdrawn: messages 2, 5-6, 8"
    );
    assert_eq!(listed_ids(&conversation).await, [1, 3, 4, 7]);
    assert_eq!(
        first_line(&conversation, "withdraw", &["5-6"]).await,
        "nothing to change: the messages are withdrawn already"
    );
    assert_eq!(
        first_line(&conversation, "restore", &["1-5"]).await,
        "restored: messages 2, 5"
    );
    assert_eq!(listed_ids(&conversation).await, [1, 2, 3, 4, 5, 7]);
    assert_eq!(
        first_line(&conversation, "rewind", &["4"]).await,
        "withdrawn: messages 5, 7"
    );
    assert_eq!(
        first_line(&conversation, "rewind", &["4"]).await,
        "nothing to change: no message after this one stands"
    );
    let out = stdout_of(run(&conversation, "rewind", &["0"]).await);
    assert_eq!(
        out,
        "withdrawn: messages 1-4\ncontexts start at the first message; the conversation has 0 tokens, and 8 messages \
         are withdrawn now\n"
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_change_is_printed_as_json_with_the_checkpoints_that_no_longer_hold() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(30).await;
    app.run_jobs_until_idle().await;
    let [checkpoint] = conversation
        .checkpoints()
        .await
        .try_into()
        .expect("one checkpoint");
    let out = stdout_of(run(&conversation, "withdraw", &["2", "--json"]).await);
    let printed: Value = serde_json::from_str(&out).expect("a line of JSON");
    let now = conversation.conversation().await;
    let total = now.token_total.expect("a total");
    assert_eq!(
        printed,
        json!({
            "conversation_id": conversation.id,
            "change_id": 2,
            "changed": [{"first_message_id": 2, "last_message_id": 2}],
            "void_checkpoints": [{"first_message_id": 1, "last_message_id": checkpoint.last_message_id}],
            "boundary_message_id": 0,
            "boundary_kind": null,
            "tokens": total.tokens,
            "estimated_messages": total.estimated_messages,
            "withdrawn_messages": 1,
            "etag": now.etag,
        })
    );
    app.run_jobs_until_idle().await;
    let [checkpoint] = conversation
        .checkpoints()
        .await
        .try_into()
        .expect("the checkpoint is made again");
    let out = stdout_of(run(&conversation, "restore", &["2"]).await);
    assert!(
        out.contains(&format!(
            "checkpoints of these messages no longer hold: 1-{}\n",
            checkpoint.last_message_id
        )),
        "{out}"
    );
}

#[tokio::test]
async fn tool_calls_and_results_go_together_unless_they_are_kept_apart() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            user("Look."),
            call("c", "{}"),
            result("c", "x"),
            assistant("Found."),
        ])
        .await;
    assert_eq!(
        first_line(&conversation, "withdraw", &["3", "--keep-tool-pairs-apart"]).await,
        "withdrawn: message 3"
    );
    assert_eq!(
        first_line(&conversation, "restore", &["3"]).await,
        "restored: message 3"
    );
    assert_eq!(
        first_line(&conversation, "withdraw", &["3"]).await,
        "withdrawn: messages 2-3"
    );
}

#[tokio::test]
async fn bad_arguments_and_refusals_change_nothing() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation.turns(1).await;
    for command in ["withdraw", "restore"] {
        for messages in [&[][..], &["0"], &["5-4"], &["x"], &["1", "2-"]] {
            let refused = run(&conversation, command, messages).await;
            assert_eq!(refused.code, Some(2), "{command} {messages:?}: {refused:?}");
        }
        let gaps = run(&conversation, command, &["1-500", "502"]).await;
        assert!(
            gaps.code == Some(1) && gaps.err.contains("these are 501 messages"),
            "{command}: {gaps:?}"
        );
        let unknown = run(&conversation, command, &["1", "3"]).await;
        assert!(
            unknown.code == Some(1) && unknown.err.contains("MESSAGE_NOT_FOUND"),
            "{command}: {unknown:?}"
        );
    }
    let negative = run(&conversation, "rewind", &["--", "-1"]).await;
    assert_eq!(negative.code, Some(2), "{negative:?}");
    let unknown = run(&conversation, "rewind", &["3"]).await;
    assert!(
        unknown.code == Some(1) && unknown.err.contains("MESSAGE_NOT_FOUND"),
        "{unknown:?}"
    );
    assert_eq!(listed_ids(&conversation).await, [1, 2]);
}
