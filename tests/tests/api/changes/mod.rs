//! Messages that are withdrawn, restored, edited and erased: what is left, and what follows from
//! it. `contexts/withdrawn.rs` tests what contexts contain then.
//!
//! - `withdraw`: lists, totals, turns, titles, separators, checkpoints and watches without
//!   withdrawn messages; tool calls and their results
//! - `rewind`: everything after a message is withdrawn
//! - `restore`: restored messages are as before
//! - `edit`: edited messages have new content under their ids
//! - `versions`: earlier versions are listed and read
//! - `history`: lists of messages and checkpoints with what no longer stands
//! - `forks`: conversations that begin with copies of another one's messages
//! - `erasures`, `erased_users`: erased messages, conversations, users and tenants, and their
//!   receipts
//! - `repeats`: repeated changes, conditions, and repeats of appends and turns

mod edit;
mod erased_users;
mod erasures;
mod forks;
mod history;
mod repeats;
mod restore;
mod rewind;
mod versions;
mod withdraw;

use anneal_testkit::{TestApp, TestConversation, assistant, call, message, pb, result, user};

/// The first and the last id of each range.
fn ids(ranges: &[pb::IdRange]) -> Vec<(i64, i64)> {
    let mut ids: Vec<_> = ranges
        .iter()
        .map(|range| (range.first_message_id, range.last_message_id))
        .collect();
    ids.sort_unstable();
    ids
}

/// The ids of the listed messages.
async fn listed_ids(conversation: &TestConversation<'_>) -> Vec<i64> {
    let messages = conversation.messages().await;
    messages.iter().map(|message| message.message_id).collect()
}

/// Id and turn of each listed message.
async fn turns_by_id(conversation: &TestConversation<'_>) -> Vec<(i64, i32)> {
    let messages = conversation.messages().await;
    messages
        .iter()
        .map(|message| (message.message_id, message.turn))
        .collect()
}

/// The sum of the tokens of all listed messages.
async fn listed_tokens(conversation: &TestConversation<'_>) -> u64 {
    let messages = conversation.messages().await;
    let counts = messages.iter().filter_map(|message| message.tokens);
    counts.map(|count| count.tokens).sum()
}

/// A conversation of this many turns, each a question and an answer. The messages have the ids
/// 1, 2, 3 …, and texts that differ.
async fn conversation_of_turns(app: &TestApp, turns: usize) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    append_turns(&conversation, 1..=turns).await;
    conversation
}

/// Appends turns with these numbers.
async fn append_turns(
    conversation: &TestConversation<'_>,
    numbers: impl IntoIterator<Item = usize>,
) {
    for number in numbers {
        conversation
            .turn(&question(number), &format!("Answer number {number}."))
            .await;
    }
}

/// The question of the turn with this number.
fn question(number: usize) -> String {
    format!("Question number {number}?")
}

/// Two turns with a tool each: a question (1), a call (2), its result (3) and an answer (4), then
/// the same again (5 to 8).
async fn conversation_with_tools(app: &TestApp) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    for id in ["one", "two"] {
        conversation
            .append_all(vec![
                user("Please look."),
                call(id, "{}"),
                result(id, "Something."),
                assistant("I have looked."),
            ])
            .await;
    }
    conversation
}

/// A question (1), a message with the calls `a` and `b` (2), the result of each (3 and 4), and an
/// answer (5).
async fn conversation_with_two_calls(app: &TestApp) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    let calls = ["a", "b"].map(|id| {
        pb::part::Part::ToolUse(pb::ToolUsePart {
            id: id.into(),
            name: "look".into(),
            input: "{}".into(),
        })
    });
    conversation
        .append_all(vec![
            user("Please look."),
            message(pb::Role::Assistant, calls.to_vec()),
            result("a", "Something."),
            result("b", "Something else."),
            assistant("I have looked."),
        ])
        .await;
    conversation
}

/// A conversation of nine turns with two checkpoints, and the last messages of these, the older one
/// first. Each of its messages contains the word `mark` and its id.
async fn conversation_with_checkpoints(app: &TestApp) -> (TestConversation<'_>, [i64; 2]) {
    let conversation = app
        .conversation_with_policy(pb::Policy {
            max_message_count: Some(10),
            keep_recent_turns: Some(1),
            ..Default::default()
        })
        .await;
    for _ in 0..9 {
        append_marked_turn(&conversation).await;
        app.run_jobs_until_idle().await;
    }
    let checkpoints = conversation.checkpoints().await;
    let [newer, older] = &checkpoints[..] else {
        panic!("there are {} checkpoints", checkpoints.len());
    };
    let last = [older.last_message_id, newer.last_message_id];
    (conversation, last)
}

/// Appends a question and an answer. Each contains the word `mark` and its id.
async fn append_marked_turn(conversation: &TestConversation<'_>) {
    let next = conversation.conversation().await.message_count + 1;
    conversation
        .turn(&marked_text(next), &marked_text(next + 1))
        .await;
}

/// A text with the mark of the message with this id.
fn marked_text(id: i64) -> String {
    format!(
        "{} The mark{id}x is in message {id}.",
        anneal_testkit::sentence(id.unsigned_abs() as usize)
    )
}
