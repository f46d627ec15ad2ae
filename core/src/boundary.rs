//! Where a conversation's context starts. Messages before a separator are not sent. A checkpoint's
//! summary is sent in place of the messages that the checkpoint covers.

use crate::message::MessageId;

/// The last separator or the newest valid checkpoint, whichever is later. The context starts after
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// The first message starts the context.
    #[default]
    Start,
    /// A separator stands after this message.
    Separator(MessageId),
    /// A checkpoint covers everything up to this message.
    Checkpoint(MessageId),
}

impl Boundary {
    /// Chooses between the last separator's position and the last message of the newest valid
    /// checkpoint.
    ///
    /// A valid checkpoint covers the messages from the last separator on, so its last message is
    /// newer than that separator.
    pub fn newest(separator: Option<MessageId>, checkpoint: Option<MessageId>) -> Self {
        match (separator, checkpoint) {
            (_, Some(last)) => Self::Checkpoint(last),
            (Some(after), None) => Self::Separator(after),
            (None, None) => Self::Start,
        }
    }

    /// The message after which the context starts; [`MessageId::NONE`] for [`Boundary::Start`].
    pub const fn after(self) -> MessageId {
        match self {
            Self::Start => MessageId::NONE,
            Self::Separator(id) | Self::Checkpoint(id) => id,
        }
    }
}
