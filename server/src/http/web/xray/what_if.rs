//! GET /conversations/{id}/what-if: the context and the bill under other settings, without effect.
//! POST stores these settings as the conversation's policy.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use anneal_web::{
    layout::Place,
    what_if::{Due, WhatIf, WhatIfPage},
};
use axum::{extract::State, http::StatusCode, response::Response};
use prost_types::FieldMask;

use super::{
    ShowContext,
    controls::{self, ControlError, ControlFields},
    reads,
    show::unread_tokens,
    strip_view, view, words,
};
use crate::{
    http::{
        caller::{EndpointRpcs, HttpCaller},
        extractors::{PathParams, QueryParams},
        problem::Problem,
        state::HttpState,
        web::{
            conversations::{paths, view as conversation_view},
            error::WebError,
            form::Form,
            page::{self, NoticeCode, WebCaller},
        },
    },
    verbs::Rpc,
};

/// The RPCs that store a policy.
pub(super) struct SavePolicy;

impl EndpointRpcs for SavePolicy {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("get_conversation"),
        Rpc::named("update_conversation"),
    ];
}

/// Shows a context under other settings.
pub(super) async fn show(
    State(state): State<HttpState>,
    WebCaller(http_caller, context, _): WebCaller<ShowContext>,
    PathParams(id): PathParams<String>,
    QueryParams(fields): QueryParams<ControlFields>,
) -> Result<Response, WebError> {
    let conversation = reads::get_conversation(&http_caller, &id).await?;
    let (result, errors) = preview(&http_caller, &conversation, &fields).await?;
    if context.is_htmx() {
        return page::html(StatusCode::OK, result.render());
    }
    let settings = state.services.state.settings.get();
    let models = settings.models.models.names().map(str::to_owned).collect();
    let title = match conversation.title.as_str() {
        "" => "What if".to_owned(),
        title => format!("What if: {title}"),
    };
    let page = WhatIfPage {
        page: context.page(&title, Place::Xray),
        row: conversation_view::row(&conversation),
        controls: fields.view(models, errors),
        result,
        etag: conversation.etag,
    };
    page::html(StatusCode::OK, page.render())
}

/// The context under these settings. If they are refused, it is the context of now, with the reason.
/// Also returns the controls at fault.
async fn preview(
    http_caller: &HttpCaller,
    conversation: &pb::Conversation,
    fields: &ControlFields,
) -> Result<(WhatIf, Vec<ControlError>), Problem> {
    let tried = fields
        .policy()
        .and_then(|policy| Ok((policy, fields.budget()?)));
    let (policy, budget, mut errors) = match tried {
        Ok((policy, budget)) => (policy, budget, Vec::new()),
        Err(errors) => (pb::Policy::default(), None, errors),
    };
    let tried = Tried {
        policy,
        budget,
        format: fields.format(),
    };
    match tried.result(http_caller, conversation).await {
        Ok(mut result) => {
            result.refusal = errors.first().map(|(_, text)| text.clone());
            Ok((result, errors))
        }
        Err(problem) if problem.status() < 500 && problem.field().is_some() => {
            let refusal = problem.detail().to_owned();
            errors.push((control_of(problem.field()), refusal.clone()));
            refuse(http_caller, conversation, refusal, errors).await
        }
        Err(problem) if problem.reason() == "BUDGET_TOO_SMALL" => {
            let refusal = problem.detail().to_owned();
            errors.push(("budget".to_owned(), refusal.clone()));
            refuse(http_caller, conversation, refusal, errors).await
        }
        Err(problem) => Err(problem),
    }
}

/// The context of now, with the reason why the settings are refused.
async fn refuse(
    http_caller: &HttpCaller,
    conversation: &pb::Conversation,
    refusal: String,
    errors: Vec<ControlError>,
) -> Result<(WhatIf, Vec<ControlError>), Problem> {
    let now = Tried {
        policy: pb::Policy::default(),
        budget: None,
        format: pb::Format::Unspecified,
    };
    let mut result = now.result(http_caller, conversation).await?;
    result.refusal = Some(refusal);
    Ok((result, errors))
}

/// The control that sets a field of the request.
fn control_of(field: Option<&str>) -> String {
    let field = field.unwrap_or_default();
    let name = field.rsplit('.').next().unwrap_or_default();
    match name {
        "budget_tokens" => "budget".to_owned(),
        name if name.starts_with("keep_recent") => "keep_recent".to_owned(),
        name => name.to_owned(),
    }
}

/// Settings that are tried.
struct Tried {
    policy: pb::Policy,
    budget: Option<u64>,
    format: pb::Format,
}

impl Tried {
    /// What these settings do to the context.
    async fn result(
        self,
        http_caller: &HttpCaller,
        conversation: &pb::Conversation,
    ) -> Result<WhatIf, Problem> {
        let id = &conversation.conversation_id;
        let ask = pb::BuildContextRequest {
            conversation_id: id.clone(),
            policy: Some(self.policy.clone()),
            budget_tokens: self.budget,
            format: self.format.into(),
            model: self.policy.model.clone(),
            ..pb::BuildContextRequest::default()
        };
        let built = reads::build_context(http_caller, ask).await?;
        let usage = reads::get_context_usage(http_caller, id, Some(self.policy.clone())).await?;
        let base = format!("{}/xray", paths::conversation(id));
        let before_boundary = unread_tokens(conversation, &built);
        let then = controls::over(conversation.policy.clone(), &self.policy);
        Ok(WhatIf {
            window: view::window(&usage, self.budget),
            strip: strip_view::strip(&built.manifest, &base, before_boundary, String::new()),
            usage: view::usage_table(&usage),
            due: built.due.as_ref().map(due),
            cache_break: view::next_era(&built),
            refusal: None,
            differs: controls::differences(conversation.policy.as_ref(), &then),
        })
    }
}

fn due(preview: &pb::CompactPreview) -> Due {
    Due {
        last: preview.last_message_id,
        trigger: words::trigger(preview.trigger()).to_owned(),
        before: preview.tokens_before,
        kept: preview.kept_tokens,
        summarized_messages: preview.summarized_messages,
        kept_messages: preview.kept_messages,
    }
}

/// Stores the settings as the conversation's policy.
pub(super) async fn save(
    WebCaller(http_caller, ..): WebCaller<SavePolicy>,
    PathParams(id): PathParams<String>,
    Form(fields): Form<ControlFields>,
) -> Result<Response, WebError> {
    let conversation = reads::get_conversation(&http_caller, &id).await?;
    let tried = fields.policy().map_err(|errors| {
        let (name, text) = errors.into_iter().next().unwrap_or_default();
        Problem::invalid(name, text)
    })?;
    let policy = controls::over(conversation.policy.clone(), &tried);
    let ask = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: id.clone(),
            policy: Some(policy),
            ..pb::Conversation::default()
        }),
        update_mask: Some(FieldMask {
            paths: vec!["policy".to_owned()],
        }),
        etag: fields.etag,
        ..pb::UpdateConversationRequest::default()
    };
    let services = &http_caller.services;
    services
        .update_conversation(http_caller.request(ask))
        .await?;
    let path = format!("{}/xray", paths::conversation(&id));
    Ok(page::see_other(&path, Some(NoticeCode::Saved)))
}
