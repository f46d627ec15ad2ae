//! GET /conversations/{id}: a conversation to read, and to go on talking in.

use anneal_core::caller::Verb;
use anneal_proto::v1 as pb;
use anneal_web::{
    conversation::{Composer, ConversationPage},
    layout::{Place, Refresh},
};
use axum::{extract::State, http::StatusCode, response::Response};
use serde::Deserialize;

use super::{OpenConversation, entries, paths, turn, view};
use crate::http::{
    extractors::{PathParams, QueryParams},
    state::HttpState,
    web::{
        error::WebError,
        page::{self, WebCaller},
    },
};

/// Seconds after which a page without a script looks whether the answer is there.
const REFRESH_SECONDS: u32 = 2;

/// Which messages are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OpenQuery {
    /// Messages before this one; 0: the newest.
    before: String,
}

/// Shows a conversation. Of earlier pages the script gets the entries alone.
pub(super) async fn open(
    State(state): State<HttpState>,
    WebCaller(http_caller, context, _): WebCaller<OpenConversation>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<OpenQuery>,
) -> Result<Response, WebError> {
    let before = entries::parse_place(&query.before)?;
    // Before the conversation is read: the answer of a turn that has ended by then is stored.
    let running = match before {
        0 => turn::find_running(&http_caller, &id).await?,
        _ => None,
    };
    let conversation = super::get_conversation(&http_caller, &id).await?;
    let messages = entries::read_before(&http_caller, &id, before).await?;
    let older_url = messages.older_url(&id);
    let last = messages.last_id().max(conversation.message_count);
    let shown = entries::Shown {
        conversation: &conversation,
        messages,
        after: 0,
        before,
        is_answering: running.is_some(),
    };
    let entries = entries::entries(&http_caller, shown).await?;
    if context.is_htmx() && before > 0 {
        let fragment = entries::fragment(&context, conversation, older_url, entries);
        return page::html(StatusCode::OK, fragment.render());
    }
    let title = match conversation.title.as_str() {
        "" => "Conversation",
        title => title,
    };
    let mut page = context.page(title, Place::Conversations);
    let base = paths::conversation(&id);
    page.refresh = running.as_ref().map(|_| Refresh {
        seconds: REFRESH_SECONDS,
        path: base.clone(),
    });
    let can_append = http_caller.caller.may(Verb::Append);
    let page = ConversationPage {
        page,
        row: view::row(&conversation),
        etag: conversation.etag.clone(),
        older_url,
        entries,
        composer: composer(&state, can_append, &conversation),
        request_id: turn::random_request_id(),
        last,
        // An earlier page does not change at its end.
        watch_url: match before {
            0 => format!("{base}/events"),
            _ => String::new(),
        },
        turn: running,
    };
    page::html(StatusCode::OK, page.render())
}

/// The form for the next message, or why there is none.
fn composer(state: &HttpState, can_append: bool, conversation: &pb::Conversation) -> Composer {
    if !can_append {
        return Composer::ReadOnly;
    }
    let settings = state.services.state.settings.get();
    let models: Vec<String> = settings.models.models.names().map(str::to_owned).collect();
    if models.is_empty() {
        return Composer::NoModel;
    }
    let policy = conversation.policy.as_ref();
    let model = policy
        .map(|policy| policy.model.clone())
        .unwrap_or_default();
    Composer::Form {
        has_default: models.contains(&model) || settings.chat.model.first().is_some(),
        model,
        models,
    }
}
