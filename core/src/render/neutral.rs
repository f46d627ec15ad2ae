//! The neutral format: roles and parts as they are stored.

use serde::Serialize;

use crate::{
    context::Context,
    message::{MessageId, Part, Role},
};

#[derive(Serialize)]
pub(super) struct Request<'c> {
    messages: Vec<Message<'c>>,
}

#[derive(Serialize)]
struct Message<'c> {
    role: Role,
    parts: &'c [Part],
    #[serde(rename = "message_ids", skip_serializing_if = "<[_]>::is_empty")]
    ids: &'c [MessageId],
}

pub(super) fn request(context: &Context) -> Request<'_> {
    let messages = context.messages.iter();
    Request {
        messages: messages
            .map(|message| Message {
                role: message.role,
                parts: &message.parts,
                ids: &message.message_ids,
            })
            .collect(),
    }
}
