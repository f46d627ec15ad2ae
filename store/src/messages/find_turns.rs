//! Finds a turn by an abbreviation of its conversation's id, and by its first message or, if it
//! answers a question anew, by its number.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};
use uuid::Uuid;

use crate::{Store, connection::BoundedConnection, error::StoreError};

/// Bytes of an abbreviation that come from the beginning of the id.
const FIRST_BYTES: usize = 6;

/// The first six bytes and the last two of a conversation's id. Ids that are derived from a request
/// id practically always differ in them. The first six bytes of a time-ordered id (version 7) are
/// its millisecond, so two such ids of the same millisecond are abbreviated alike with a
/// probability of 1 in 65,536.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortConversationId(pub [u8; 8]);

impl ShortConversationId {
    /// The lowest and the highest id with this beginning.
    fn range(self) -> [Uuid; 2] {
        [0, u8::MAX].map(|filler| {
            let mut bytes = [filler; 16];
            bytes[..FIRST_BYTES].copy_from_slice(&self.0[..FIRST_BYTES]);
            Uuid::from_bytes(bytes)
        })
    }

    /// The last two bytes in hexadecimal.
    fn ending(self) -> String {
        let [.., high, low] = self.0;
        format!("{high:02x}{low:02x}")
    }
}

impl From<ConversationId> for ShortConversationId {
    fn from(id: ConversationId) -> Self {
        let mut bytes = [0; 8];
        bytes[..FIRST_BYTES].copy_from_slice(&id.0.as_bytes()[..FIRST_BYTES]);
        bytes[FIRST_BYTES..].copy_from_slice(&id.0.as_bytes()[14..]);
        Self(bytes)
    }
}

/// The place of a turn in its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnKey {
    /// The first message of its prompt.
    Message(MessageId),
    /// The number of the change with which it began to answer a question anew.
    Anew(i64),
}

/// A conversation whose id has the abbreviation: the turn is in one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnCandidate {
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The request id of the turn. None: its first message does not exist, is neither a user's nor
    /// a tool's, is withdrawn, or is not the first of its append; the append had no request id; or
    /// no turn has the number.
    pub request_id: Option<String>,
}

impl Store {
    /// Finds the conversations of an agent whose ids have this abbreviation, at most 16. Of each,
    /// returns the request id of the turn with this key.
    pub async fn find_turns(
        &self,
        caller: Caller,
        agent_id: &str,
        short_id: ShortConversationId,
        turn: TurnKey,
    ) -> Result<Vec<TurnCandidate>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = select_candidates(&mut db, caller, agent_id, (short_id, turn)).await;
        db.settle(found).await
    }
}

async fn select_candidates(
    db: &mut BoundedConnection,
    caller: Caller,
    agent_id: &str,
    (short_id, turn): (ShortConversationId, TurnKey),
) -> Result<Vec<TurnCandidate>, StoreError> {
    let [first, last] = short_id.range();
    let (message, number) = match turn {
        TurnKey::Message(message) => (Some(message.0), None),
        TurnKey::Anew(number) => (None, Some(number)),
    };
    let rows = sqlx::query_file!(
        "sql/find_turns.sql",
        caller.tenant().0,
        first,
        last,
        agent_id,
        short_id.ending(),
        message,
        number,
    )
    .fetch_all(db)
    .await?;
    let candidates = rows.into_iter().map(|row| TurnCandidate {
        conversation_id: ConversationId(row.conversation_id),
        request_id: row.request_id,
    });
    Ok(candidates.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abbreviation_selects_ids_with_its_beginning_and_its_end() {
        let id = Uuid::from_u128(0xd22f_7cf6_76b8_4863_8219_d37f_d889_8a29);
        let short_id = ShortConversationId::from(ConversationId(id));
        assert_eq!(
            short_id.range(),
            [
                Uuid::from_u128(0xd22f_7cf6_76b8_0000_0000_0000_0000_0000),
                Uuid::from_u128(0xd22f_7cf6_76b8_ffff_ffff_ffff_ffff_ffff)
            ]
        );
        assert!(id.to_string().ends_with(&short_id.ending()));
    }
}
