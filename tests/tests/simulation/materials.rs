//! What the conversations are made of: settings under which little is enough for a checkpoint, and things to say.

use anneal_core::{
    policy::{PolicyOverrides, Profile, TokenThreshold},
    tokens::Tokens,
};
use anneal_tests::{assistant, call, media, message, pb, prose, result, user};
use pb::{Role, part::Part};

/// How many policies there are.
pub(crate) const POLICIES: u8 = 5;

/// Whether the settings with this number keep what tools say.
pub(crate) const fn keeps_tools(policy: u8) -> bool {
    policy != 4
}

/// The settings with this number, of [`POLICIES`].
pub(crate) fn policy(number: u8) -> PolicyOverrides {
    let large = Some(Tokens::new(150));
    let few =
        PolicyOverrides { max_message_count: Some(5), large_message_threshold: large, ..PolicyOverrides::default() };
    match number {
        0 => few,
        1 => PolicyOverrides { max_message_count: Some(8), hot_zone_radius: Some(1), ..few },
        2 => PolicyOverrides {
            token_threshold: Some(TokenThreshold::Tokens(Tokens::new(400))),
            max_message_count: Some(0),
            ..few
        },
        4 => PolicyOverrides { store_tool_messages: Some(false), ..few },
        _ => PolicyOverrides { profile: Some(Profile::Agents), ..PolicyOverrides::default() },
    }
}

/// Kinds of things to say.
pub(crate) const BODIES: u8 = 8;
/// Of these: a call of a tool.
pub(crate) const CALL: u8 = 3;
/// Of these: a small result.
pub(crate) const RESULT: u8 = 4;

/// A text: small, middling, large; another at each place.
fn text(body: u8, place: usize) -> String {
    prose(17 * usize::from(body) + place, [1, 3, 12][usize::from(body) % 3])
}

/// Something to say, another at each place: words of three sizes by the user and the model in turn, pictures among words, and
/// what tools are asked and say. `open` is a call without its result, where there is one.
pub(crate) fn said(body: u8, place: usize, open: Option<&str>) -> pb::NewMessage {
    let words = || Part::Text(pb::TextPart { text: text(body % 2, place) });
    let asks = |name: &str| {
        let input = format!("{{\"n\": {place}, \"why\": \"{name}\"}}");
        Part::ToolUse(pb::ToolUsePart { id: format!("{name}{place}"), name: "look".into(), input })
    };
    let answer = open.map_or_else(|| format!("nobody{place}"), str::to_owned);
    match body {
        0..3 if place.is_multiple_of(2) => user(&text(body, place)),
        0..3 => assistant(&text(body, place)),
        CALL => call(&format!("c{place}"), "{}"),
        RESULT => result(&answer, &text(1, place)),
        5 => result(&answer, &text(2, place)),
        6 => {
            let thought = pb::ReasoningPart { text: "Hm.".into(), provider: "anthropic".into(), ..Default::default() };
            message(Role::Assistant, vec![Part::Reasoning(thought), words(), asks("a"), asks("b")])
        }
        _ => {
            let mut shown = media("s3://bucket/picture");
            let parts = [words(), words()].map(|part| pb::Part { part: Some(part) });
            shown.parts.splice(0..0, parts);
            shown
        }
    }
}
