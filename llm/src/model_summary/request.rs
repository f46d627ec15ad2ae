//! Writes a system text and a user text as a request, in the formats that `anneal_core::render`
//! writes for conversations.

use anneal_core::{message::Role, render::Format};
use serde::Serialize;

#[derive(Serialize)]
#[serde(untagged)]
enum Request<'a> {
    Neutral {
        messages: [Neutral<'a>; 2],
    },
    OpenAi {
        messages: [Plain<'a>; 2],
    },
    Anthropic {
        system: [Text<'a>; 1],
        messages: [Blocks<'a>; 1],
    },
    Gemini {
        #[serde(rename = "systemInstruction")]
        system: Parts<'a>,
        contents: [Content<'a>; 1],
    },
}

#[derive(Serialize)]
struct Neutral<'a> {
    role: Role,
    parts: [Text<'a>; 1],
}

#[derive(Serialize)]
struct Plain<'a> {
    role: Role,
    content: &'a str,
}

#[derive(Serialize)]
struct Blocks<'a> {
    role: Role,
    content: [Text<'a>; 1],
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "text")]
struct Text<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct Parts<'a> {
    parts: [Bare<'a>; 1],
}

#[derive(Serialize)]
struct Content<'a> {
    role: Role,
    parts: [Bare<'a>; 1],
}

#[derive(Serialize)]
struct Bare<'a> {
    text: &'a str,
}

/// The request as one JSON object.
pub(super) fn request(format: Format, system: &str, user: &str) -> String {
    let request = match format {
        Format::Neutral => Request::Neutral {
            messages: [(Role::System, system), (Role::User, user)].map(|(role, text)| Neutral {
                role,
                parts: [Text { text }],
            }),
        },
        Format::OpenAiChat => Request::OpenAi {
            messages: [(Role::System, system), (Role::User, user)]
                .map(|(role, content)| Plain { role, content }),
        },
        Format::AnthropicMessages => Request::Anthropic {
            system: [Text { text: system }],
            messages: [Blocks {
                role: Role::User,
                content: [Text { text: user }],
            }],
        },
        Format::GeminiContents => Request::Gemini {
            system: Parts {
                parts: [Bare { text: system }],
            },
            contents: [Content {
                role: Role::User,
                parts: [Bare { text: user }],
            }],
        },
    };
    serde_json::to_string(&request).expect("strings in structs always serialize")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anneal_core::{
        context::{self, Ask, Material},
        message::{Message, MessageId, Part},
        policy::Policy,
        render,
        tokens::{Encoding, Tokens},
    };

    use super::*;

    #[test]
    fn a_request_equals_the_rendered_context_of_the_same_two_texts() {
        for format in Format::ALL {
            let text = "a \"b\"\n\u{2028}字 {}".to_owned();
            let input = Message {
                role: Role::User,
                parts: vec![Part::Text { text: text.clone() }],
                metadata: BTreeMap::new(),
            };
            let material = Material {
                last_message_id: MessageId::NONE,
                last_role: None,
                turn: 0,
                encoding: Encoding::O200kBase,
                policy: Policy::default(),
                system_prompt: "Be brief.".into(),
                system_prompt_tokens: Tokens::new(3),
                separator: None,
                checkpoint: None,
                tail: Vec::new(),
                prefix: None,
                omitted: Vec::new(),
                idle_seconds: None,
                tokens_ratio: None,
                learnt_window: None,
            };
            let ask = Ask {
                current_input: vec![input],
                format,
                ..Ask::default()
            };
            let context = context::build(material, ask).expect("there is no budget");
            assert_eq!(
                request(format, "Be brief.", &text),
                render::render(&context, format),
                "{format:?}"
            );
        }
    }
}
