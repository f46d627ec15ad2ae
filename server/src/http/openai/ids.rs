//! The ids of conversations, responses and items. An id of a stored item says where the item is, so
//! it stays the same for the conversation's life.

use std::fmt;

use anneal_core::{caller::ConversationId, message::MessageId};
use uuid::Uuid;

const CONVERSATION_PREFIX: &str = "conv_";
const RESPONSE_PREFIX: &str = "resp_";

/// The index of a checkpoint, which stands after all items of the last message that it replaces.
pub(in crate::http) const CHECKPOINT_INDEX: u32 = u32::MAX;

/// The type of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum ItemKind {
    Message,
    FunctionCall,
    FunctionCallOutput,
    Reasoning,
    Compaction,
}

impl ItemKind {
    const ALL: [Self; 5] = [
        Self::Message,
        Self::FunctionCall,
        Self::FunctionCallOutput,
        Self::Reasoning,
        Self::Compaction,
    ];

    /// The beginning of the ids of such items, before the `_`.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Message => "msg",
            Self::FunctionCall => "fc",
            Self::FunctionCallOutput => "fco",
            Self::Reasoning => "rs",
            Self::Compaction => "cmp",
        }
    }
}

/// The id of an item of a stored message: `msg_<conversation>_<message>_<index>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct ItemId {
    pub(in crate::http) kind: ItemKind,
    pub(in crate::http) conversation: ConversationId,
    /// The message; of a checkpoint the last message that it replaces.
    pub(in crate::http) message: MessageId,
    /// The item's place, from 0, among the items that the message had when it was stored.
    pub(in crate::http) index: u32,
}

impl ItemId {
    /// Parses an id, which must be as [`ItemId`] writes it.
    pub(in crate::http) fn parse(text: &str) -> Option<Self> {
        let mut segments = text.split('_');
        let prefix = segments.next()?;
        let kind = ItemKind::ALL
            .into_iter()
            .find(|kind| kind.prefix() == prefix)?;
        let id = Self {
            kind,
            conversation: ConversationId(parse_hex(segments.next()?)?),
            message: MessageId(segments.next()?.parse().ok().filter(|id| *id >= 1)?),
            index: segments.next()?.parse().ok()?,
        };
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}_{}_{}_{}",
            self.kind.prefix(),
            self.conversation.0.as_simple(),
            self.message,
            self.index
        )
    }
}

/// A new id of an item that is not stored.
pub(in crate::http) fn random_item_id(kind: ItemKind) -> String {
    format!("{}_{}", kind.prefix(), Uuid::new_v4().as_simple())
}

/// The id of a conversation.
pub(in crate::http) fn conversation_id(id: ConversationId) -> String {
    format!("{CONVERSATION_PREFIX}{}", id.0.as_simple())
}

/// Parses the id of a conversation. None: it is none.
pub(in crate::http) fn parse_conversation_id(text: &str) -> Option<ConversationId> {
    let hex = text.strip_prefix(CONVERSATION_PREFIX)?;
    parse_hex(hex).map(ConversationId)
}

/// The id of a response.
pub(in crate::http) fn response_id(id: Uuid) -> String {
    format!("{RESPONSE_PREFIX}{}", id.as_simple())
}

/// Parses the id of a response. None: it is none.
pub(in crate::http) fn parse_response_id(text: &str) -> Option<Uuid> {
    parse_hex(text.strip_prefix(RESPONSE_PREFIX)?)
}

/// A UUID of 32 hexadecimal digits in lower case.
fn parse_hex(text: &str) -> Option<Uuid> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == 32 && text.bytes().all(is_hex))
        .then(|| Uuid::try_parse(text).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn ids_are_parsed_as_they_are_written() {
        let uuid = Uuid::try_parse(HEX).expect("is a UUID");
        let conversation = ConversationId(uuid);
        assert_eq!(conversation_id(conversation), format!("conv_{HEX}"));
        assert_eq!(
            parse_conversation_id(&conversation_id(conversation)),
            Some(conversation)
        );
        assert_eq!(parse_response_id(&response_id(uuid)), Some(uuid));
        for (index, kind) in ItemKind::ALL.into_iter().enumerate() {
            let id = ItemId {
                kind,
                conversation,
                message: MessageId(7),
                index: index as u32,
            };
            assert_eq!(ItemId::parse(&id.to_string()), Some(id), "{id}");
        }
        let id = ItemId::parse(&format!("fco_{HEX}_12_3")).expect("is an id");
        assert_eq!(
            (id.kind, id.message.0, id.index),
            (ItemKind::FunctionCallOutput, 12, 3)
        );
    }

    #[test]
    fn other_texts_are_no_ids() {
        for text in [
            String::new(),
            format!("conv_{}", &HEX[1..]),
            format!("conv_{}", HEX.to_uppercase()),
            format!("resp_{HEX}"),
            HEX.to_owned(),
        ] {
            assert_eq!(parse_conversation_id(&text), None, "{text}");
        }
        assert_eq!(parse_response_id(&format!("conv_{HEX}")), None);
        for text in [
            "msg_1".to_owned(),
            random_item_id(ItemKind::Message),
            format!("msg_{HEX}_1"),
            format!("msg_{HEX}_1_0_0"),
            format!("msg_{HEX}_0_0"),
            format!("msg_{HEX}_-1_0"),
            format!("msg_{HEX}_01_0"),
            format!("msg_{HEX}_1_+0"),
            format!("msg_{HEX}_1_4294967296"),
            format!("call_{HEX}_1_0"),
        ] {
            assert_eq!(ItemId::parse(&text), None, "{text}");
        }
    }
}
