//! A deterministic conversation: English and Chinese questions, reasoning, tool calls, code.

use std::collections::BTreeMap;

use anneal_core::{
    cache::RequestIdentity,
    context::{
        Body, CheckpointSummary, Material, PrefixVersion, ReadySummary, SummaryOrigin, TailMessage,
    },
    digest,
    message::{Media, Message, MessageId, Part, Role, outline, plain_text_bytes},
    policy::{Cooling, Policy, PolicyOverrides, Profile, SessionSettings},
    tokens::{Encoding, Tokens},
};

use crate::texts;

const SYSTEM_PROMPT: &str =
    "You help with a ledger. Answer briefly, and say what you are not sure of.";
/// Id of the last message that the checkpoint covers.
const LAST_CHECKPOINTED: i64 = 40;
/// Messages of one turn: question, call, result, answer.
const MESSAGES_PER_TURN: i64 = 4;
/// Every fifth turn has a large result.
const TURNS_PER_LARGE_RESULT: i64 = 5;
/// A message with more tokens is large in this conversation.
const LARGE_THRESHOLD: Tokens = Tokens::new(1_000);
const SUMMARY_TOKENS: Tokens = Tokens::new(60);

/// The rows that the store would read for a context: the last `messages` messages of a
/// conversation, after its checkpoint. All messages are counted, and all large tool results have
/// summaries. With strict cooling, the cool ones among these results come as their summaries; with
/// stepped cooling, they come with their content until the next step.
pub(crate) fn material(messages: i64, cooling: Cooling) -> Material {
    let policy = policy(cooling);
    let last = LAST_CHECKPOINTED + messages;
    let newest_turn = turn(last);
    let tail = (LAST_CHECKPOINTED + 1..=last).map(|id| {
        let cool = newest_turn - turn(id) > policy.hot_zone_radius as i32;
        tail_message(id, cooling == Cooling::Strict && cool)
    });
    let tail: Vec<TailMessage> = tail.collect();
    Material {
        last_message_id: MessageId(last),
        last_role: tail.last().map(|message| message.role),
        turn: newest_turn,
        encoding: Encoding::O200kBase,
        policy,
        system_prompt: SYSTEM_PROMPT.into(),
        system_prompt_tokens: Tokens::new(20),
        separator: None,
        checkpoint: Some(CheckpointSummary {
            last: MessageId(LAST_CHECKPOINTED),
            text: texts::english(1_200),
            tokens: Tokens::new(250),
            saved: Tokens::new(6_000),
            origin: SummaryOrigin::Stored,
        }),
        tail,
        prefix: Some(prefix_version()),
        omitted: Vec::new(),
        withdrawn: Vec::new(),
        idle_seconds: Some(10),
        tokens_ratio: None,
        learnt_window: None,
        change_id: 0,
    }
}

fn policy(cooling: Cooling) -> Policy {
    let overrides = PolicyOverrides {
        profile: Some(Profile::Agents),
        ..PolicyOverrides::default()
    };
    let policy = SessionSettings::default().policy(&overrides, None);
    Policy {
        cooling,
        large_message_threshold: LARGE_THRESHOLD,
        hot_zone_radius: 5,
        ..policy
    }
}

/// A recorded version of the beginning of the contexts. No message is replaced by its summary in
/// it, and its hash is arbitrary, so the built context differs from it.
fn prefix_version() -> PrefixVersion {
    PrefixVersion {
        epoch: 1,
        hash: [7; 32],
        boundary: MessageId(LAST_CHECKPOINTED),
        system_prompt: digest::of_content(SYSTEM_PROMPT),
        swapped: Vec::new(),
        cut: false,
        change_epoch: 0,
        pending: None,
        identity: RequestIdentity::default(),
    }
}

fn turn(id: i64) -> i32 {
    ((id - 1) / MESSAGES_PER_TURN + 1) as i32
}

/// The row of a message, with its content or with its summary instead.
fn tail_message(id: i64, as_summary: bool) -> TailMessage {
    let Message { role, parts, .. } = message(id);
    // A rough count: about four bytes of English text are one token.
    let tokens = Tokens::new(plain_text_bytes(&parts) as u64 / 4);
    let summary = (tokens > LARGE_THRESHOLD).then(|| ReadySummary {
        text: texts::english(240),
        tokens: SUMMARY_TOKENS,
    });
    let (body, ready_summary) = match summary {
        Some(ReadySummary { text, tokens }) if as_summary => {
            let original_bytes = plain_text_bytes(&parts) as u64;
            (
                Body::Summary {
                    text,
                    tokens,
                    original_bytes,
                    outline: outline(&parts),
                },
                None,
            )
        }
        summary => (Body::Original(parts), summary),
    };
    TailMessage {
        id: MessageId(id),
        role,
        turn: turn(id),
        tokens,
        estimated: false,
        body,
        ready_summary,
    }
}

/// A user's message with this text.
pub(crate) fn user_message(text: String) -> Message {
    Message {
        role: Role::User,
        parts: vec![Part::Text { text }],
        metadata: BTreeMap::new(),
    }
}

/// The message with this id.
pub(crate) fn message(id: i64) -> Message {
    let call = || format!("call_{}", (id - 1) / MESSAGES_PER_TURN);
    let (role, parts) = match (id - 1) % MESSAGES_PER_TURN {
        0 => (Role::User, vec![question(id)]),
        1 => (Role::Assistant, vec![reasoning(), tool_call(call())]),
        2 => (Role::Tool, vec![tool_result(id, call())]),
        _ => (
            Role::Assistant,
            vec![Part::Text {
                text: format!("{id}: {}", texts::english(600)),
            }],
        ),
    };
    Message {
        role,
        parts,
        metadata: [("client".into(), "web".into())].into(),
    }
}

/// The question of a turn; every third one is in Chinese.
fn question(id: i64) -> Part {
    let text = if turn(id) % 3 == 0 {
        texts::chinese(300)
    } else {
        texts::english(300)
    };
    Part::Text {
        text: format!("{id}: {text}"),
    }
}

fn reasoning() -> Part {
    let (signature, provider) = ("c2lnbmF0dXJl".repeat(8), "anthropic".into());
    Part::Reasoning {
        text: texts::english(200),
        signature,
        provider,
        redacted: false,
    }
}

fn tool_call(id: String) -> Part {
    let input =
        r#"{"path":"src/ledger.rs","range":[1,120],"options":{"numbers":true,"blame":null}}"#
            .into();
    Part::ToolUse {
        id,
        name: "read_file".into(),
        input,
    }
}

/// The result of a turn's call. In every seventh turn it has a picture.
fn tool_result(message_id: i64, call_id: String) -> Part {
    let bytes = if i64::from(turn(message_id)) % TURNS_PER_LARGE_RESULT == 0 {
        9_000
    } else {
        900
    };
    let uri = "https://example.org/ledger.png".into();
    let picture = Media {
        uri,
        media_type: "image/png".into(),
        bytes: 9_000,
        tokens: 300,
    };
    let media = if turn(message_id) % 7 == 0 {
        vec![picture]
    } else {
        Vec::new()
    };
    Part::ToolResult {
        id: call_id,
        text: texts::code(bytes),
        is_error: false,
        media,
    }
}
