//! How long conversations are quiet: noted when their tails are looked at, so that counting need not look each time. Whoever
//! changes a conversation otherwise than by messages and their counts sets `quiet_message_id` to null in the same transaction.

use anneal_core::{caller::ConversationId, tokens::Tokens, trigger::Quiet};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{error::StoreError, rows::column, rules::Rules};

/// What is to be noted of a conversation.
pub(crate) struct Note {
    pub(crate) tenant: Uuid,
    pub(crate) conversation: ConversationId,
    /// None: nothing is known.
    pub(crate) quiet: Option<Quiet>,
    /// The model by whose window it goes; None: by none that may change.
    pub(crate) model: Option<String>,
    /// What that model's provider has named as its window.
    pub(crate) window: Option<i64>,
}

/// Notes how long locked conversations are quiet.
pub(crate) async fn put(db: &mut PgConnection, notes: &[Note], rules: &Rules) -> Result<(), StoreError> {
    if notes.is_empty() {
        return Ok(());
    }
    let tenants: Vec<Uuid> = notes.iter().map(|note| note.tenant).collect();
    let conversations: Vec<Uuid> = notes.iter().map(|note| note.conversation.0).collect();
    let messages: Vec<Option<i64>> = notes.iter().map(|note| note.quiet.map(|quiet| quiet.message.0)).collect();
    let of = |tokens: fn(Quiet) -> Tokens| notes.iter().map(move |note| note.quiet.map(|quiet| column(tokens(quiet))));
    let totals: Vec<Option<i64>> = of(|quiet| quiet.total).collect();
    let large: Vec<Option<i64>> = of(|quiet| quiet.large).collect();
    let models: Vec<Option<String>> = notes.iter().map(|note| note.model.clone()).collect();
    let windows: Vec<Option<i64>> = notes.iter().map(|note| note.window).collect();
    sqlx::query_file!(
        "sql/note_quiet.sql",
        &tenants,
        &conversations,
        &messages as &[Option<i64>],
        &totals as &[Option<i64>],
        &large as &[Option<i64>],
        &models as &[Option<String>],
        &windows as &[Option<i64>],
        rules.fingerprint(),
    )
    .execute(db)
    .await?;
    Ok(())
}
