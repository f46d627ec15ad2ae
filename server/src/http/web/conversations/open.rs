//! GET /conversations/{id}: a conversation to read, and to go on talking in.

use anneal_core::caller::Verb;
use anneal_proto::{convert::parse, v1 as pb};
use anneal_web::{
    conversation::{Composer, ConversationPage, RunningTurn},
    layout::Place,
};
use axum::{extract::State, http::StatusCode, response::Response};
use serde::Deserialize;

use super::{OpenConversation, entries, paths, view};
use crate::{
    failure::Failure,
    http::{
        caller::HttpCaller,
        extractors::{PathParams, QueryParams},
        problem::Problem,
        state::HttpState,
        web::{
            error::WebError,
            page::{self, WebCaller},
        },
    },
};

/// Seconds after which a page without a script looks whether the answer is there.
const REFRESH_SECONDS: u32 = 2;

/// Which messages are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OpenQuery {
    /// Messages before this one; 0: the newest.
    before: i64,
}

/// Shows a conversation. Of earlier pages the script gets the entries alone.
pub(super) async fn open(
    State(state): State<HttpState>,
    WebCaller(http_caller, context, _): WebCaller<OpenConversation>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<OpenQuery>,
) -> Result<Response, WebError> {
    // Before the conversation is read: the answer of a turn that has ended by then is stored.
    let turn = match query.before {
        0 => find_running_turn(&http_caller, &id).await?,
        _ => None,
    };
    let conversation = super::get_conversation(&http_caller, &id).await?;
    let messages = entries::read_before(&http_caller, &id, query.before).await?;
    let older_url = messages.older_url(&id);
    let expected_last = messages.last_id().max(conversation.message_count);
    let shown = entries::Shown {
        conversation: &conversation,
        messages,
        after: 0,
        before: query.before,
        is_answering: turn.is_some(),
    };
    let entries = entries::entries(&http_caller, shown).await?;
    if context.is_htmx() && query.before > 0 {
        let fragment = entries::fragment(&context, conversation, older_url, entries);
        return page::html(StatusCode::OK, fragment.render());
    }
    let title = match conversation.title.as_str() {
        "" => "Conversation",
        title => title,
    };
    let mut page = context.page(title, Place::Conversations);
    page.refresh_seconds = turn.as_ref().map(|_| REFRESH_SECONDS);
    let base = paths::conversation(&id);
    let page = ConversationPage {
        page,
        row: view::row(&conversation),
        etag: conversation.etag.clone(),
        older_url,
        entries,
        composer: composer(&state, &http_caller, &conversation, (&base, expected_last)),
        watch_url: format!("{base}/events"),
        turn,
    };
    page::html(StatusCode::OK, page.render())
}

/// The turn that is under way in a conversation, on whichever server it runs. None: there is none,
/// or its question is not stored yet.
pub(super) async fn find_running_turn(
    http_caller: &HttpCaller,
    id: &str,
) -> Result<Option<RunningTurn>, Problem> {
    let session = parse::conversation_id(id)?;
    let store = &http_caller.services.state.store;
    let found = store
        .find_turn_under_way(http_caller.caller, session)
        .await
        .map_err(Failure::from)?;
    let found = found.filter(|turn| turn.question.is_some());
    Ok(found.map(|turn| RunningTurn {
        events_url: paths::turn_events(id, &turn.request_id),
        stop_url: format!("{}/stop", paths::conversation(id)),
        request_id: turn.request_id,
    }))
}

/// The form for the next message. None: the caller may not write, or the server calls no model.
fn composer(
    state: &HttpState,
    http_caller: &HttpCaller,
    conversation: &pb::Conversation,
    (base, expected_last): (&str, i64),
) -> Option<Composer> {
    let settings = state.services.state.settings.get();
    let models: Vec<String> = settings.models.models.names().map(str::to_owned).collect();
    if models.is_empty() || !http_caller.caller.may(Verb::Append) {
        return None;
    }
    let model = conversation
        .policy
        .as_ref()
        .map(|policy| policy.model.clone());
    Some(Composer {
        action: format!("{base}/turn"),
        request_id: super::turn::random_request_id(),
        expected_last,
        model: model.unwrap_or_default(),
        models,
    })
}
