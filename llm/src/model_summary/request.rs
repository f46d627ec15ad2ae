//! Writes a system text and a user text as a request, in the formats that `anneal_core::render`
//! writes for conversations.

use anneal_core::{message::Role, render::Format};
use serde::Serialize;

#[derive(Serialize)]
#[serde(untagged)]
enum Request<'a> {
    Neutral {
        messages: [NeutralMessage<'a>; 2],
    },
    OpenAi {
        messages: [OpenAiMessage<'a>; 2],
    },
    Anthropic {
        system: [TypedText<'a>; 1],
        messages: [AnthropicMessage<'a>; 1],
    },
    Gemini {
        #[serde(rename = "systemInstruction")]
        system: GeminiSystem<'a>,
        contents: [GeminiMessage<'a>; 1],
    },
}

#[derive(Serialize)]
struct NeutralMessage<'a> {
    role: Role,
    parts: [TypedText<'a>; 1],
}

#[derive(Serialize)]
struct OpenAiMessage<'a> {
    role: Role,
    content: &'a str,
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: Role,
    content: [TypedText<'a>; 1],
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "text")]
struct TypedText<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct GeminiSystem<'a> {
    parts: [UntypedText<'a>; 1],
}

#[derive(Serialize)]
struct GeminiMessage<'a> {
    role: Role,
    parts: [UntypedText<'a>; 1],
}

#[derive(Serialize)]
struct UntypedText<'a> {
    text: &'a str,
}

/// The request as one JSON object.
pub(super) fn request(format: Format, system: &str, user: &str) -> String {
    let request = match format {
        Format::Neutral => Request::Neutral {
            messages: [(Role::System, system), (Role::User, user)].map(|(role, text)| {
                NeutralMessage {
                    role,
                    parts: [TypedText { text }],
                }
            }),
        },
        Format::OpenAiChat => Request::OpenAi {
            messages: [(Role::System, system), (Role::User, user)]
                .map(|(role, content)| OpenAiMessage { role, content }),
        },
        Format::AnthropicMessages => Request::Anthropic {
            system: [TypedText { text: system }],
            messages: [AnthropicMessage {
                role: Role::User,
                content: [TypedText { text: user }],
            }],
        },
        Format::GeminiContents => Request::Gemini {
            system: GeminiSystem {
                parts: [UntypedText { text: system }],
            },
            contents: [GeminiMessage {
                role: Role::User,
                parts: [UntypedText { text: user }],
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
                withdrawn: Vec::new(),
                idle_seconds: None,
                tokens_ratio: None,
                learnt_window: None,
                change_id: 0,
            };
            let ask = Ask {
                current_input: vec![input],
                format,
                ..Ask::default()
            };
            let context = context::build(material, ask).expect("there is no budget");
            assert_eq!(
                request(format, "Be brief.", &text),
                render::render(&context, format).json,
                "{format:?}"
            );
        }
    }
}
