//! Runs the functions that every append and every context executes, on constant inputs, so that
//! callgrind can count their instructions (see `cargo xtask instructions`). Prints one line per
//! measurement, with its name and description, in the order in which callgrind writes the counts.

mod conversation;
mod measure;
mod texts;

use anneal_core::{
    caller::ConversationId,
    context::{self, Ask, Context, Material},
    message::{Message, Part},
    policy::Cooling,
    render::{self, Format},
    tokens::{Encoding, Tokens},
};
use anneal_proto::{convert::message, v1 as pb};
use anneal_store::Append;
use measure::measure;
use prost::Message as _;
use uuid::Uuid;

fn main() {
    measure_contexts();
    measure_renders();
    measure_counts();
    measure_estimates();
    measure_appends();
    measure_stored_rows();
}

fn measure_contexts() {
    let strict = |messages| {
        move || {
            (
                conversation::material(messages, Cooling::Strict),
                Ask::default(),
            )
        }
    };
    let half_budget = || {
        let material = conversation::material(2_000, Cooling::Strict);
        let whole = built((material.clone(), Ask::default())).total.get();
        (
            material,
            Ask {
                budget: Some(Tokens::new(whole / 2)),
                ..Ask::default()
            },
        )
    };
    measure(
        "context_50",
        "a tail of 50 messages, strict cooling",
        strict(50),
        built,
    );
    measure(
        "context_2000",
        "a tail of 2,000 messages, strict cooling",
        strict(2_000),
        built,
    );
    measure(
        "context_2000_stepped",
        "a tail of 2,000 messages, a step of stepped cooling",
        stepped,
        built,
    );
    measure(
        "context_2000_budget",
        "a tail of 2,000 messages, cut to half of its tokens",
        half_budget,
        built,
    );
}

fn stepped() -> (Material, Ask) {
    (
        conversation::material(2_000, Cooling::Stepped),
        Ask::default(),
    )
}

fn built((material, ask): (Material, Ask)) -> Context {
    context::build(material, ask).expect("the newest message is far smaller than every budget")
}

fn measure_renders() {
    for (name, format) in [
        ("render_neutral", Format::Neutral),
        ("render_openai_chat", Format::OpenAiChat),
        ("render_anthropic_messages", Format::AnthropicMessages),
        ("render_gemini_contents", Format::GeminiContents),
    ] {
        let context = || {
            built((
                conversation::material(200, Cooling::Strict),
                Ask {
                    format,
                    ..Ask::default()
                },
            ))
        };
        let rendered = |context: Context| (render::render(&context, format), context);
        measure(
            name,
            "a context of 200 messages as this format's request",
            context,
            rendered,
        );
    }
}

fn measure_counts() {
    for (name, description, text) in [
        (
            "count_english",
            "32 kB of English, o200k_base",
            texts::english(texts::SIZE),
        ),
        (
            "count_code",
            "32 kB of Rust, o200k_base",
            texts::code(texts::SIZE),
        ),
        (
            "count_chinese",
            "32 kB of Chinese, o200k_base",
            texts::chinese(texts::SIZE),
        ),
        (
            "count_hostile",
            "8 kB of the slowest text known, o200k_base",
            texts::hostile(texts::SIZE / 4),
        ),
    ] {
        measure(
            name,
            description,
            || text.as_str(),
            |text| Encoding::O200kBase.counter().count(text),
        );
    }
}

fn measure_estimates() {
    for (name, description, text) in [
        (
            "estimate_english",
            "32 kB of English, o200k_base",
            texts::english(texts::SIZE),
        ),
        (
            "estimate_chinese",
            "32 kB of Chinese, o200k_base",
            texts::chinese(texts::SIZE),
        ),
    ] {
        measure(
            name,
            description,
            || text.as_str(),
            |text| Encoding::O200kBase.estimate(text),
        );
    }
}

fn measure_appends() {
    let short = || vec![conversation::user_message(texts::english(400))];
    let long = || {
        (1..=100)
            .map(conversation::message)
            .collect::<Vec<Message>>()
    };
    measure(
        "parse_append_1",
        "a request of one message of 400 bytes, from its bytes",
        || request(&short()),
        |bytes| parsed(&bytes),
    );
    measure(
        "parse_append_100",
        "a request of 100 messages with tools, from its bytes",
        || request(&long()),
        |bytes| parsed(&bytes),
    );
    measure(
        "prepare_append_1",
        "columns and digests of one message of 400 bytes",
        short,
        prepared,
    );
    measure(
        "prepare_append_100",
        "columns and digests of 100 messages with tools",
        long,
        prepared,
    );
}

/// The bytes of an AppendMessages request.
fn request(messages: &[Message]) -> Vec<u8> {
    let messages = messages.iter().cloned().map(pb::NewMessage::from);
    pb::AppendMessagesRequest {
        messages: messages.collect(),
        request_id: "request".into(),
        ..Default::default()
    }
    .encode_to_vec()
}

fn parsed(bytes: &[u8]) -> Vec<Message> {
    let request = pb::AppendMessagesRequest::decode(bytes).expect("it was encoded above");
    let messages = request
        .messages
        .into_iter()
        .map(|new| message::parse("message", new));
    messages
        .collect::<Result<_, _>>()
        .expect("an append takes these messages")
}

fn prepared(messages: Vec<Message>) -> (Append, Vec<Message>) {
    let append = Append::new(
        ConversationId(Uuid::nil()),
        Some("request".into()),
        None,
        &messages,
        Some(Encoding::O200kBase),
    );
    (append, messages)
}

fn measure_stored_rows() {
    let rows = || -> Vec<String> {
        let contents = (1..=100).map(|id| serde_json::to_string(&conversation::message(id).parts));
        contents
            .collect::<Result<_, _>>()
            .expect("strings in structs always serialize")
    };
    let read = |rows: Vec<String>| -> Vec<Vec<Part>> {
        let parts = rows.iter().map(|content| serde_json::from_str(content));
        parts
            .collect::<Result<_, _>>()
            .expect("it was written above")
    };
    measure(
        "read_rows_100",
        "the stored content of 100 messages with tools, parsed",
        rows,
        read,
    );
}
