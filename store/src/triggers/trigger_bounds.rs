//! Stored trigger bounds: how much a conversation may grow before a trigger can be reached. They
//! are computed when a tail is read, so that counting need not read the tail each time. New
//! messages and their counts leave the bounds valid. The columns of `ai_conversation` that begin
//! with `quiet_` hold the bounds. A transaction that changes a conversation in another way must
//! clear them: it sets `quiet_message_id` to null.

use anneal_core::{caller::ConversationId, tokens::Tokens, trigger::TriggerBounds};
use uuid::Uuid;

use crate::{
    connection::BoundedConnection, error::StoreError, policy_defaults::PolicyDefaults, rows::column,
};

/// Trigger bounds to store for a conversation.
pub(crate) struct ConversationBounds {
    pub(crate) tenant: Uuid,
    pub(crate) conversation: ConversationId,
    /// None: there are no bounds. A threshold is reached or the next message may reach one, large
    /// messages wait for a summary, or messages before the tail are not counted yet.
    pub(crate) bounds: Option<TriggerBounds>,
    /// The model on whose context window the bounds depend. None: they depend on none.
    pub(crate) model: Option<String>,
    /// The context window that the model's provider has reported, in tokens. None: it has reported
    /// none, or the bounds do not depend on it.
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
    let token_column = |tokens: fn(TriggerBounds) -> Tokens| {
        all.iter()
            .map(move |one| one.bounds.map(|bounds| column(tokens(bounds))))
    };
    let totals: Vec<Option<i64>> = token_column(|bounds| bounds.total).collect();
    let large: Vec<Option<i64>> = token_column(|bounds| bounds.large).collect();
    let models: Vec<Option<String>> = all.iter().map(|one| one.model.clone()).collect();
    let windows: Vec<Option<i64>> = all.iter().map(|one| one.window).collect();
    sqlx::query_file!(
        "sql/put_trigger_bounds.sql",
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
