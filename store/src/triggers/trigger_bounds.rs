//! Stored trigger bounds: how far a conversation may grow before a trigger can be reached. They are
//! computed when a tail is read, so that counting need not read it each time. A transaction that
//! changes a conversation otherwise than by messages and their counts sets `quiet_message_id` to
//! null.

use anneal_core::{caller::ConversationId, tokens::Tokens, trigger::TriggerBounds};
use uuid::Uuid;

use crate::{
    connection::BoundedConnection, error::StoreError, policy_defaults::PolicyDefaults, rows::column,
};

/// Trigger bounds to store for a conversation.
pub(crate) struct ConversationBounds {
    pub(crate) tenant: Uuid,
    pub(crate) conversation: ConversationId,
    /// None: every new message may reach a trigger.
    pub(crate) bounds: Option<TriggerBounds>,
    /// The model on whose window the bounds depend. None: they depend on no window that can change.
    pub(crate) model: Option<String>,
    /// The window that the model's provider has reported.
    pub(crate) window: Option<i64>,
}

/// Stores the trigger bounds of locked conversations.
pub(crate) async fn put_trigger_bounds(
    db: &mut BoundedConnection,
    all: &[ConversationBounds],
    policy_defaults: &PolicyDefaults,
) -> Result<(), StoreError> {
    if all.is_empty() {
        return Ok(());
    }
    let tenants: Vec<Uuid> = all.iter().map(|one| one.tenant).collect();
    let conversations: Vec<Uuid> = all.iter().map(|one| one.conversation.0).collect();
    let messages: Vec<Option<i64>> = all
        .iter()
        .map(|one| one.bounds.map(|bounds| bounds.message.0))
        .collect();
    let of = |tokens: fn(TriggerBounds) -> Tokens| {
        all.iter()
            .map(move |one| one.bounds.map(|bounds| column(tokens(bounds))))
    };
    let totals: Vec<Option<i64>> = of(|bounds| bounds.total).collect();
    let large: Vec<Option<i64>> = of(|bounds| bounds.large).collect();
    let models: Vec<Option<String>> = all.iter().map(|one| one.model.clone()).collect();
    let windows: Vec<Option<i64>> = all.iter().map(|one| one.window).collect();
    sqlx::query_file!(
        "sql/note_quiet.sql",
        &tenants,
        &conversations,
        &messages as &[Option<i64>],
        &totals as &[Option<i64>],
        &large as &[Option<i64>],
        &models as &[Option<String>],
        &windows as &[Option<i64>],
        policy_defaults.fingerprint(),
    )
    .execute(db)
    .await?;
    Ok(())
}
