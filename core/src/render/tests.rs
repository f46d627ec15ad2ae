//! One conversation in each provider's format, and a build's changes for a format: to repeated user
//! messages, large results under pressure, and media and results that a provider refuses.

use serde_json::{Value, json};

use super::*;
use crate::{
    context::{
        Ask, Body, Material, Pressure, Reason, RepairKind,
        RepairKind::{IdChanged, InputWrapped, Merged, ReasoningDropped, RoleChanged},
        Representation, TailMessage, build,
    },
    message::{Media, MessageId, Part, Role},
    policy::Policy,
    tokens::{Encoding, Tokens, count_parts},
};

fn text(text: &str) -> Part {
    Part::Text { text: text.into() }
}

fn call(id: &str, name: &str, input: &str) -> Part {
    Part::ToolUse {
        id: id.into(),
        name: name.into(),
        input: input.into(),
    }
}

fn result(id: &str, text: &str) -> Part {
    Part::ToolResult {
        id: id.into(),
        text: text.into(),
        is_error: false,
        media: Vec::new(),
    }
}

/// Reasoning. Without a text it is redacted, unless it is only a signature of Gemini.
fn reasoning(text: &str, signature: &str, provider: &str) -> Part {
    Part::Reasoning {
        text: text.into(),
        signature: signature.into(),
        provider: provider.into(),
        redacted: text.is_empty() && provider != "gemini",
    }
}

fn picture(uri: &str) -> Part {
    Part::Media(Media {
        uri: uri.into(),
        media_type: "image/png".into(),
        bytes: 0,
        tokens: 0,
    })
}

fn material(messages: Vec<(Role, Vec<Part>)>) -> Material {
    let encoding = Encoding::O200kBase;
    let (mut turn, mut before) = (0, None);
    let message = |(index, (role, parts)): (usize, (Role, Vec<Part>))| {
        turn += i32::from(crate::turn::starts(role, before));
        before = Some(role);
        let (id, tokens) = (MessageId(index as i64 + 1), count_parts(encoding, &parts));
        TailMessage {
            id,
            role,
            turn,
            tokens,
            estimated: false,
            body: Body::Original(parts),
            ready_summary: None,
        }
    };
    let tail: Vec<TailMessage> = messages.into_iter().enumerate().map(message).collect();
    Material {
        last_message_id: tail.last().map_or(MessageId::NONE, |message| message.id),
        last_role: tail.last().map(|message| message.role),
        turn: tail.last().map_or(0, |message| message.turn),
        encoding,
        policy: Policy::default(),
        system_prompt: "Answer briefly.".into(),
        system_prompt_tokens: Tokens::new(3),
        separator: None,
        checkpoint: None,
        tail,
        prefix: None,
        omitted: Vec::new(),
        withdrawn: Vec::new(),
        idle_seconds: None,
        tokens_ratio: None,
        learnt_window: None,
        change_id: 0,
    }
}

fn build_and_render(messages: Vec<(Role, Vec<Part>)>, format: Format) -> (Value, Context) {
    let context = build(
        material(messages),
        Ask {
            format,
            ..Ask::default()
        },
    )
    .expect("without a budget no context is refused");
    (
        serde_json::from_str(&render(&context, format).json).expect("a request is JSON"),
        context,
    )
}

fn kinds(context: &Context) -> Vec<RepairKind> {
    context.repairs.iter().map(|repair| repair.kind).collect()
}

/// A conversation with two calls whose results come in the other order, an id with a special
/// character, an input that is no JSON, a picture, reasoning, and an application's instruction.
fn conversation() -> Vec<(Role, Vec<Part>)> {
    vec![
        (
            Role::User,
            vec![text("Look."), picture("https://x.test/a.png")],
        ),
        (
            Role::Assistant,
            vec![
                reasoning("hm", "c2ln", "anthropic"),
                text("I look."),
                reasoning("", "Z2Vt", "gemini"),
                call("a|b", "look", "{\"at\": 1.50}"),
                call("c", "look", "sea"),
            ],
        ),
        (Role::Tool, vec![result("c", "waves")]),
        (Role::Tool, vec![result("a|b", "sand")]),
        (Role::System, vec![text("They are in a hurry.")]),
        (Role::User, vec![text("And?")]),
    ]
}

#[test]
fn openai_gets_each_result_as_a_message_and_no_reasoning() {
    let (body, context) = build_and_render(conversation(), Format::OpenAiChat);
    let expected = json!({"messages": [
        {"role": "system", "content": "Answer briefly."},
        {"role": "user", "content": [
            {"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "a|b", "type": "function", "function": {"name": "look", "arguments": "{\"at\": 1.50}"}},
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{\"input\":\"sea\"}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "waves"},
        {"role": "tool", "tool_call_id": "a|b", "content": "sand"},
        {"role": "system", "content": "They are in a hurry."},
        {"role": "user", "content": "And?"},
    ]});
    assert_eq!(body, expected);
    assert_eq!(
        kinds(&context),
        [RepairKind::ReasoningDropped, RepairKind::InputWrapped]
    );
}

#[test]
fn anthropic_gets_results_first_in_one_user_message_and_its_own_reasoning() {
    let (body, context) = build_and_render(conversation(), Format::AnthropicMessages);
    let id = body["messages"][1]["content"][2]["id"]
        .as_str()
        .expect("an id");
    assert!(id.starts_with("a_b_") && id.len() == 4 + 10, "{id}");
    let expected = json!({"system": [{"type": "text", "text": "Answer briefly."}], "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "Look."},
            {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": id, "name": "look", "input": {"at": 1.50}},
            {"type": "tool_use", "id": "c", "name": "look", "input": {"input": "sea"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "waves"}]},
            {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": "sand"}]},
            {"type": "text", "text": "[Instruction of the application]"},
            {"type": "text", "text": "They are in a hurry."},
            {"type": "text", "text": "And?"}]},
    ]});
    assert_eq!(body, expected);
    assert_eq!(
        kinds(&context),
        [
            ReasoningDropped,
            InputWrapped,
            RoleChanged,
            IdChanged,
            Merged,
            Merged
        ]
    );
    let raw = render(&context, Format::AnthropicMessages).json;
    assert!(
        raw.contains("{\"at\": 1.50}"),
        "input is passed on byte for byte: {raw}"
    );
}

#[test]
fn gemini_gets_results_in_the_order_of_their_calls_and_signatures_with_the_calls() {
    let (body, context) = build_and_render(conversation(), Format::GeminiContents);
    let expected = json!({"systemInstruction": {"parts": [{"text": "Answer briefly."}]}, "contents": [
        {"role": "user", "parts": [
            {"text": "Look."},
            {"fileData": {"mimeType": "image/png", "fileUri": "https://x.test/a.png"}}]},
        {"role": "model", "parts": [
            {"text": "I look."},
            {"functionCall": {"name": "look", "args": {"at": 1.50}}, "thoughtSignature": "Z2Vt"},
            {"functionCall": {"name": "look", "args": {"input": "sea"}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "look", "response": {"result": "sand"}}},
            {"functionResponse": {"name": "look", "response": {"result": "waves"}}}]},
        {"role": "user", "parts": [
            {"text": "[Instruction of the application]"},
            {"text": "They are in a hurry.\n\nAnd?"}]},
    ]});
    assert_eq!(body, expected);
    assert_eq!(
        kinds(&context),
        [ReasoningDropped, InputWrapped, RoleChanged, Merged]
    );
}

#[test]
fn the_neutral_form_keeps_messages_as_they_are_stored() {
    let (body, context) = build_and_render(conversation(), Format::Neutral);
    assert_eq!(
        body["messages"][2]["parts"][2],
        json!({"type": "reasoning", "text": "", "signature": "Z2Vt", "provider": "gemini"})
    );
    assert_eq!(body["messages"][2]["message_ids"], json!([2]));
    assert!(context.repairs.is_empty());
}

#[test]
fn a_conversation_without_user_messages_gets_one_at_its_start_and_end() {
    for format in [Format::AnthropicMessages, Format::GeminiContents] {
        let (_, context) = build_and_render(vec![(Role::Assistant, vec![text("Hello?")])], format);
        let roles: Vec<Role> = context
            .messages
            .iter()
            .map(|message| message.role)
            .collect();
        assert_eq!(
            roles,
            [Role::System, Role::User, Role::Assistant, Role::User]
        );
        assert_eq!(
            kinds(&context),
            [RepairKind::UserAdded, RepairKind::UserAdded]
        );
    }
    for format in [
        Format::OpenAiChat,
        Format::AnthropicMessages,
        Format::GeminiContents,
    ] {
        let (_, context) = build_and_render(Vec::new(), format);
        assert_eq!(context.messages.len(), 2, "system prompt and user message");
    }
}

#[test]
fn calls_with_the_same_id_get_distinct_ids_and_so_do_their_results() {
    let calls = vec![
        call("a", "look", "{\"n\":1}"),
        call("a", "look", "{\"n\":2}"),
    ];
    let messages = vec![
        (Role::User, vec![text("Look.")]),
        (Role::Assistant, calls),
        (Role::Tool, vec![result("a", "one"), result("a", "two")]),
        (Role::Assistant, vec![call("a", "look", "{\"n\":3}")]),
        (Role::Tool, vec![result("a", "three")]),
    ];
    let (body, context) = build_and_render(messages, Format::AnthropicMessages);
    let id = |message: usize, block: usize, key: &str| {
        body["messages"][message]["content"][block][key].clone()
    };
    assert_eq!(id(1, 0, "id"), "a");
    assert_eq!(
        [id(1, 0, "id"), id(1, 1, "id")],
        [id(2, 0, "tool_use_id"), id(2, 1, "tool_use_id")]
    );
    assert_eq!(id(3, 0, "id"), id(4, 0, "tool_use_id"));
    assert!(id(1, 1, "id") != id(3, 0, "id") && id(3, 0, "id") != "a");
    assert_eq!(
        kinds(&context),
        [RepairKind::IdChanged, RepairKind::IdChanged]
    );
}

#[test]
fn a_message_sent_again_after_a_failed_turn_is_sent_once() {
    for format in Format::ALL {
        let messages = vec![
            (Role::User, vec![text("Look.")]),
            (Role::Assistant, vec![text(" ")]),
            (Role::User, vec![text("Look.")]),
            (Role::Assistant, Vec::new()),
            (Role::User, vec![text("Look.")]),
        ];
        let (_, context) = build_and_render(messages, format);
        let ids: Vec<&[MessageId]> = context
            .messages
            .iter()
            .map(|message| message.message_ids.as_slice())
            .collect();
        assert_eq!(ids, [&[][..], &[MessageId(1), MessageId(3), MessageId(5)]]);
        let reported: Vec<_> = context
            .manifest
            .iter()
            .map(|manifest_entry| (manifest_entry.representation, manifest_entry.reason))
            .collect();
        let (repeated, empty) = (
            (Representation::Repaired, Reason::Repeated),
            (Representation::Repaired, Reason::Empty),
        );
        assert_eq!(
            reported,
            [
                repeated,
                empty,
                repeated,
                empty,
                (Representation::Original, Reason::Small)
            ]
        );
        assert_eq!(
            kinds(&context)
                .iter()
                .filter(|kind| **kind == RepairKind::RepeatFolded)
                .count(),
            2
        );
    }
}

#[test]
fn under_pressure_every_oversized_result_is_clipped_even_without_a_budget() {
    let long = "one line of a log\n".repeat(500);
    let messages = vec![
        (Role::User, vec![text(&long)]),
        (
            Role::Assistant,
            vec![call("a", "look", "{}"), call("b", "look", "{}")],
        ),
        (Role::Tool, vec![result("a", &long), result("b", "short")]),
    ];
    for pressure in [Pressure::TruncateToolResults, Pressure::Compact] {
        let ask = Ask {
            pressure,
            ..Ask::default()
        };
        let context =
            build(material(messages.clone()), ask).expect("without a budget no context is refused");
        let manifest_entry = &context.manifest[2];
        assert_eq!(
            (manifest_entry.representation, manifest_entry.reason),
            (Representation::Clipped, Reason::Pressure)
        );
        // The clipped result has at most 400 tokens (`context/budget.rs`), and `short` has one.
        assert!(
            manifest_entry.tokens > Tokens::new(350) && manifest_entry.tokens <= Tokens::new(401),
            "{}",
            manifest_entry.tokens
        );
        assert_eq!(context.manifest[0].representation, Representation::Original);
        let [range] = manifest_entry.clipped.as_slice() else {
            panic!("{:?}", manifest_entry.clipped)
        };
        assert!(range.start > 100 && range.end < long.len());
    }
}

#[test]
fn media_that_a_provider_does_not_accept_are_described() {
    let media = Media {
        uri: "data:image/png;base64,QUJD".into(),
        media_type: "image/png".into(),
        bytes: 0,
        tokens: 0,
    };
    let with_picture = Part::ToolResult {
        id: "a".into(),
        text: "seen".into(),
        is_error: false,
        media: vec![media],
    };
    let messages = vec![
        (Role::User, vec![picture("s3://bucket/a.png")]),
        (
            Role::Assistant,
            vec![picture("https://x.test/b.png"), call("a", "look", "{}")],
        ),
        (Role::Tool, vec![with_picture]),
    ];
    let (body, context) = build_and_render(messages.clone(), Format::OpenAiChat);
    assert_eq!(
        body["messages"][1]["content"],
        "[media image/png at s3://bucket/a.png]"
    );
    assert_eq!(
        body["messages"][2]["content"],
        "[media image/png at https://x.test/b.png]"
    );
    assert_eq!(
        body["messages"][3]["content"],
        "seen\n\n[media image/png at data:]"
    );
    assert_eq!(kinds(&context), [RepairKind::MediaDescribed; 3]);
    let (body, _) = build_and_render(messages, Format::AnthropicMessages);
    let source = json!({"type": "base64", "media_type": "image/png", "data": "QUJD"});
    assert_eq!(
        body["messages"][2]["content"][0]["content"][1],
        json!({"type": "image", "source": source})
    );
}

#[test]
fn a_failed_result_without_a_text_gets_one_for_anthropic() {
    let failed = Part::ToolResult {
        id: "a".into(),
        text: String::new(),
        is_error: true,
        media: Vec::new(),
    };
    let messages = vec![
        (Role::User, vec![text("Look.")]),
        (Role::Assistant, vec![call("a", "look", "{}")]),
        (Role::Tool, vec![failed]),
    ];
    let (body, context) = build_and_render(messages, Format::AnthropicMessages);
    let expected = json!({"type": "tool_result", "tool_use_id": "a", "is_error": true,
        "content": [{"type": "text", "text": "[failed without a text]"}]});
    assert_eq!(body["messages"][2]["content"][0], expected);
    assert_eq!(kinds(&context), [RepairKind::TextAdded]);
}
