//! Tests that all conversations can be read, that their messages keep the rules of an append, and
//! that their names differ.

use anneal_transcripts::{
    TranscriptFolder,
    pb::{Role, part::Part},
};

#[test]
fn all_available_conversations_are_read() {
    let Some(data) = TranscriptFolder::find() else {
        return;
    };
    let families = data.all();
    let read: Vec<_> = families
        .iter()
        .map(|family| {
            (
                family.name,
                family.chats.len(),
                family.chats.iter().map(|chat| chat.messages.len()).sum(),
            )
        })
        .collect::<Vec<(_, _, usize)>>();
    for (name, chats, messages) in &read {
        println!("{name:16} {chats:5} conversations {messages:6} messages");
    }
    // Name, conversations and messages of each family in the folder.
    let wanted = [
        ("pi", 2, 922),
        ("mini-swe-agent", 5, 721),
        ("SWE-agent", 4, 117),
        ("tau-bench", 100, 2_862),
        ("LoCoMo", 4, 2_080),
        ("CrossWOZ", 500, 8_458),
        ("KdConv", 450, 9_321),
        ("XPersona", 746, 11_680),
    ];
    assert_eq!(read, wanted);
}

#[test]
fn a_pi_session_has_as_many_messages_as_pi_would_send() {
    let Some(data) = TranscriptFolder::find() else {
        return;
    };
    let sent = data.json("pi-sessions/large-session.v3.context.json");
    let sent = sent
        .as_array()
        .or_else(|| sent["messages"].as_array())
        .expect("messages");
    let large = &data.pi_sessions()[0];
    assert_eq!(
        (large.name.as_str(), large.messages.len()),
        ("large-session", sent.len())
    );
}

#[test]
fn everything_that_is_read_keeps_the_rules_of_an_append_and_has_its_own_name() {
    let Some(data) = TranscriptFolder::find() else {
        return;
    };
    for family in data.all() {
        let mut names: Vec<_> = family.chats.iter().map(|chat| &chat.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(
            names.len(),
            family.chats.len(),
            "{}: two conversations have the same name",
            family.name
        );
        for chat in &family.chats {
            for (index, message) in chat.messages.iter().enumerate() {
                let location = format!("{}, {}, message {}", family.name, chat.name, index + 1);
                let part_count = message.parts.len();
                assert!(
                    (1..=256).contains(&part_count),
                    "{location}: {part_count} parts, but an append accepts 1 to 256"
                );
                for part in &message.parts {
                    let part = part.part.as_ref().expect("a part");
                    assert_allowed(&location, message.role(), part);
                }
            }
        }
    }
}

/// Asserts that a message of this role may have the part, and that the part's ids and names have 1
/// to 128 bytes. An append also accepts media, but these conversations have none.
fn assert_allowed(location: &str, role: Role, part: &Part) {
    let (is_allowed, names) = match part {
        Part::Text(_) => (role != Role::Tool, vec![]),
        Part::ToolUse(part) => (role == Role::Assistant, vec![&part.id, &part.name]),
        Part::ToolResult(part) => (role == Role::Tool, vec![&part.tool_use_id]),
        Part::Reasoning(_) => (role == Role::Assistant, vec![]),
        Part::Media(_) => (false, vec![]),
    };
    assert!(
        is_allowed,
        "{location}: a message with the role {role:?} may not have {part:?}"
    );
    assert!(
        names.iter().all(|name| (1..=128).contains(&name.len())),
        "{location}: a name is empty or too long: {names:?}"
    );
}
