//! GET /conversations/{id}/what-if: the context and the bill under other settings, without effect.
//! POST stores these settings as the conversation's policy.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use anneal_web::{
    layout::Place,
    what_if::{Due, Effect, Refusal, WhatIf, WhatIfPage, label},
};
use axum::{extract::State, http::StatusCode, response::Response};
use prost_types::FieldMask;

use super::{
    ShowContext,
    controls::{self, ControlError, ControlFields, Tried},
    reads, settings,
    strip_view::{self, StripPaths},
    view, words,
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
    let server = &state.services.state;
    let in_force = server.settings.get();
    let models = in_force.models.models.names().map(str::to_owned).collect();
    let title = match conversation.title.as_str() {
        "" => "What if".to_owned(),
        title => format!("What if: {title}"),
    };
    let own = conversation.policy.clone().unwrap_or_default();
    let in_force = settings::in_force(&server.store.session(), &own);
    let stored = settings::set_by(&own).into_iter();
    let page = WhatIfPage {
        page: context.page(&title, Place::Xray),
        row: conversation_view::row(&conversation),
        controls: fields.view(&in_force, &errors),
        models,
        stored: stored.map(|(name, _)| name).collect(),
        result,
        etag: conversation.etag,
    };
    page::html(StatusCode::OK, page.render())
}

/// The context under these settings. If they are refused, it is the context of now, with the
/// reasons. Also returns the controls at fault.
async fn preview(
    http_caller: &HttpCaller,
    conversation: &pb::Conversation,
    fields: &ControlFields,
) -> Result<(WhatIf, Vec<ControlError>), Problem> {
    let session = http_caller.services.state.store.session();
    let errors = match fields.parse(conversation, &session) {
        Ok(tried) => match try_settings(http_caller, conversation, fields, &tried).await {
            Ok(result) => return Ok((result, Vec::new())),
            Err(problem) => vec![refusal(&problem).ok_or(problem)?],
        },
        Err(errors) => errors,
    };
    let (nothing, no_fields) = (Tried::nothing(conversation), ControlFields::default());
    let mut result = try_settings(http_caller, conversation, &no_fields, &nothing).await?;
    let refusals = errors.iter().map(|(name, text)| Refusal {
        name: name.clone(),
        label: label(name),
        text: text.clone(),
    });
    result.refusals = refusals.collect();
    Ok((result, errors))
}

/// The control that a refusal names, and why. None: no control is at fault.
fn refusal(problem: &Problem) -> Option<ControlError> {
    let control = if problem.reason() == "BUDGET_TOO_SMALL" {
        "budget".to_owned()
    } else if problem.status() < 500 {
        control_of(problem.field()?)
    } else {
        return None;
    };
    Some((control, problem.detail().to_owned()))
}

/// The control that sets a field of the request.
fn control_of(field: &str) -> String {
    let name = field.rsplit('.').next().unwrap_or_default();
    match name {
        "budget_tokens" => "budget".to_owned(),
        name if name.starts_with("keep_recent") => "keep_recent".to_owned(),
        name if name.starts_with("token_threshold") => "token_threshold".to_owned(),
        name => name.to_owned(),
    }
}

/// A context and its figures.
struct Figures {
    built: pb::BuildContextResponse,
    usage: pb::GetContextUsageResponse,
}

impl Figures {
    async fn read(http_caller: &HttpCaller, id: &str, tried: &Tried) -> Result<Self, Problem> {
        let policy = Some(tried.overrides.clone());
        Ok(Self {
            built: reads::build_context(http_caller, tried.ask(id)).await?,
            usage: reads::get_context_usage(http_caller, id, policy).await?,
        })
    }

    /// Messages that the context has in this way.
    fn count(&self, representation: pb::Representation) -> u64 {
        let entries = self.built.manifest.iter();
        let found = entries.filter(|it| it.representation() == representation);
        found
            .map(|it| (it.last_message_id - it.first_message_id + 1).unsigned_abs())
            .sum()
    }
}

/// The context that these settings give, beside the present one.
async fn try_settings(
    http_caller: &HttpCaller,
    conversation: &pb::Conversation,
    fields: &ControlFields,
    tried: &Tried,
) -> Result<WhatIf, Problem> {
    let id = &conversation.conversation_id;
    let then = Figures::read(http_caller, id, tried).await?;
    let effects = if tried.is_nothing() {
        Vec::new()
    } else {
        let now = Figures::read(http_caller, id, &Tried::nothing(conversation)).await?;
        effects(&now, &then)
    };
    let Figures { built, usage } = then;
    let unread = reads::unread_tokens(http_caller, conversation, &built).await?;
    let paths = StripPaths::of(id, fields);
    let own = conversation.policy.clone().unwrap_or_default();
    let session = http_caller.services.state.store.session();
    Ok(WhatIf {
        window: view::window(&usage, tried.budget, Some(built.total_tokens)),
        strip: strip_view::strip(&built.manifest, &paths, &unread, false),
        usage: view::usage_table(&usage),
        due: built.due.as_ref().map(due),
        cache_break: view::next_era(&built),
        refusals: Vec::new(),
        differs: settings::differences(&session, &own, &tried.then),
        effects,
    })
}

/// The figures that people compare.
fn effects(now: &Figures, then: &Figures) -> Vec<Effect> {
    let compare = |name, label, figure: &dyn Fn(&Figures) -> u64| Effect {
        name,
        label,
        now: figure(now),
        then: figure(then),
    };
    let summaries = pb::Representation::Summary;
    let mut effects = vec![
        compare("total", "Tokens of the context", &|it| {
            it.built.total_tokens
        }),
        compare("summaries", "Messages sent as their summaries", &|it| {
            it.count(summaries)
        }),
        compare("clipped", "Messages clipped", &|it| {
            it.count(pb::Representation::Clipped)
        }),
        compare("dropped", "Messages left out", &|it| {
            it.count(pb::Representation::Dropped)
        }),
    ];
    let bills = [&now.usage, &then.usage].map(|usage| usage.economics.unwrap_or_default());
    let bills = [
        ("none", "Billed, whole history", bills.map(|it| it.none)),
        (
            "strict",
            "Billed, strict cooling",
            bills.map(|it| it.strict),
        ),
        (
            "stepped",
            "Billed, stepped cooling",
            bills.map(|it| it.stepped),
        ),
    ];
    effects.extend(bills.map(|(name, label, bills)| {
        let [now, then] = bills.map(|bill| bill.unwrap_or_default().billed_units.round() as u64);
        Effect {
            name,
            label,
            now,
            then,
        }
    }));
    effects
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
    let session = http_caller.services.state.store.session();
    let tried = fields.parse(&conversation, &session);
    let tried = tried.map_err(controls::refuse)?;
    let ask = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: id.clone(),
            policy: Some(tried.then),
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
    Ok(page::see_other(&paths::xray(&id), Some(NoticeCode::Saved)))
}
