//! Shared by the routes of all pages: the caller, the frame of a page, and the kinds of answers.

use std::{
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use anneal_core::caller::{Bound, Caller, Verb};
use anneal_web::{
    RenderError,
    layout::{Can, Notice, NoticeKind, Page, Place},
};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header, request::Parts},
    response::{Html, IntoResponse as _, Response},
    routing::MethodRouter,
};

use super::{csrf, error::WebError};
use crate::{
    auth::SessionSecret,
    failure::{AuthError, Failure},
    http::{
        caller::{Authorized, EndpointRpcs, HttpCaller},
        state::HttpState,
    },
};

/// The path of the form to sign in.
pub(super) const SIGN_IN_PATH: &str = "/sign-in";
/// The header of requests that htmx sends.
pub(super) const HX_REQUEST: HeaderName = HeaderName::from_static("hx-request");

/// A route of the page: its path, and the handler of each method.
pub(super) type WebRoute = (&'static str, fn() -> MethodRouter<HttpState>);

/// Extractor: a caller of a page who may call all RPCs of the route, and the frame of its answer.
/// Every route takes it first.
pub(super) struct WebCaller<C>(
    pub(super) HttpCaller,
    pub(super) PageContext,
    pub(super) PhantomData<C>,
);

impl<C: EndpointRpcs> FromRequestParts<HttpState> for WebCaller<C> {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, state: &HttpState) -> Result<Self, WebError> {
        // A client certificate does not sign in: the browser would send it for every person.
        if !state.auth.accepts_anyone() && !parts.headers.contains_key(header::AUTHORIZATION) {
            return Err(Failure::from(AuthError::NoCredential).into());
        }
        let Authorized(http_caller, endpoint) =
            Authorized::<C>::from_request_parts(parts, state).await?;
        if is_visit(&parts.method, &parts.headers) {
            state.auth.extend_session(&parts.headers).await;
        }
        let context = PageContext::of(parts);
        let context = context
            .with_caller(&http_caller, state, &parts.headers)
            .await;
        if let Some(slot) = parts.extensions.get::<PageSlot>() {
            let _ = slot.0.set(context.clone());
        }
        Ok(Self(http_caller, context, endpoint))
    }
}

/// Whether a person opens a page. Scripts fetch fragments, and an open window could do so for ever.
fn is_visit(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::GET && !headers.contains_key(HX_REQUEST) && accepts_html(headers)
}

/// Whether the sender shows HTML.
pub(super) fn accepts_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).map(|value| value.to_str());
    matches!(accept, Some(Ok(accept)) if accept.contains("text/html"))
}

/// Where `WebCaller` leaves the frame of the page, for a refusal that comes after it.
#[derive(Clone, Default)]
pub(super) struct PageSlot(pub(super) Arc<OnceLock<PageContext>>);

/// The frame of a page: who is signed in, and what the forms need.
#[derive(Clone, Default)]
pub(super) struct PageContext {
    /// The secret of the cookie. None: the request has none.
    secret: Option<SessionSecret>,
    /// The name of the caller; empty: nobody is signed in.
    who: String,
    /// The user, agent or conversation that the caller is bound to; empty: none.
    bound: String,
    /// The tenant's name; empty: it is the only one.
    tenant: String,
    can: CanDo,
    notice: Option<NoticeCode>,
    is_htmx: bool,
}

/// The verbs of the caller that pages ask for.
#[derive(Clone, Copy, Default)]
struct CanDo {
    append: bool,
    admin: bool,
    operator: bool,
}

impl PageContext {
    /// The frame of a page of nobody: sign-in, errors.
    pub(super) fn of(parts: &Parts) -> Self {
        Self::new(
            parts.extensions.get::<SessionSecret>().cloned(),
            &parts.headers,
            &parts.uri,
        )
    }

    /// The frame of a page of nobody, for the holder of this cookie.
    pub(super) fn new(secret: Option<SessionSecret>, headers: &HeaderMap, uri: &Uri) -> Self {
        Self {
            secret,
            notice: NoticeCode::in_query(uri.query().unwrap_or_default()),
            is_htmx: headers.contains_key(HX_REQUEST),
            ..Self::default()
        }
    }

    async fn with_caller(
        self,
        caller: &HttpCaller,
        state: &HttpState,
        headers: &HeaderMap,
    ) -> Self {
        let names = state.auth.session_names(headers).await.unwrap_or_default();
        Self {
            who: names.holder,
            tenant: names.tenant,
            bound: bound_to(&caller.caller),
            can: CanDo {
                append: caller.caller.may(Verb::Append),
                admin: caller.caller.may(Verb::Admin),
                operator: caller.caller.may(Verb::Operator),
            },
            ..self
        }
    }

    /// The frame of the page with this title.
    pub(super) fn page(&self, title: &str, place: Place) -> Page {
        Page {
            title: title.to_owned(),
            csrf: self.secret.as_ref().map(csrf::token).unwrap_or_default(),
            who: self.who.clone(),
            bound: self.bound.clone(),
            tenant: self.tenant.clone(),
            can: Can {
                append: self.can.append,
                admin: self.can.admin,
                operator: self.can.operator,
            },
            place,
            notice: self.notice.map(NoticeCode::notice),
            refresh: None,
        }
    }

    /// Whether the caller may read the figures of the whole installation.
    pub(super) const fn is_of_operator(&self) -> bool {
        self.can.operator
    }

    /// Whether the script sends the request, which wants a fragment instead of a page.
    pub(super) const fn is_htmx(&self) -> bool {
        self.is_htmx
    }
}

/// What the caller is bound to, in words; empty: nothing.
fn bound_to(caller: &Caller) -> String {
    match caller.bound() {
        None => String::new(),
        Some(Bound::User(id)) => format!("user {}", id.as_str()),
        Some(Bound::Agent(id)) => format!("agent {}", id.as_str()),
        Some(Bound::Conversation(id)) => format!("conversation {id}"),
    }
}

/// A sentence at the top of the page that follows a form. Its code stands in the address, and never
/// a text, which others could invent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoticeCode {
    /// The change is stored.
    Saved,
    /// The conversation is deleted.
    Deleted,
    /// The conversation is archived.
    Archived,
    /// The conversation is active again.
    Unarchived,
    /// This conversation is a fork of the one before.
    Forked,
    /// The job will run again.
    Requeued,
    /// The dead job is removed.
    Discarded,
    /// The person is signed out.
    SignedOut,
    /// The question is stored, and the model has failed.
    NotAnswered,
}

impl NoticeCode {
    const ALL: [Self; 9] = [
        Self::Saved,
        Self::Deleted,
        Self::Archived,
        Self::Unarchived,
        Self::Forked,
        Self::Requeued,
        Self::Discarded,
        Self::SignedOut,
        Self::NotAnswered,
    ];

    const fn code(self) -> &'static str {
        match self {
            Self::Saved => "saved",
            Self::Deleted => "deleted",
            Self::Archived => "archived",
            Self::Unarchived => "unarchived",
            Self::Forked => "forked",
            Self::Requeued => "requeued",
            Self::Discarded => "discarded",
            Self::SignedOut => "signed-out",
            Self::NotAnswered => "not-answered",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Saved => "Saved.",
            Self::Deleted => "The conversation is deleted.",
            Self::Archived => "The conversation is archived.",
            Self::Unarchived => "The conversation is active again.",
            Self::Forked => "This is the new conversation.",
            Self::Requeued => "The job will run again.",
            Self::Discarded => "The job is removed.",
            Self::SignedOut => "You are signed out.",
            Self::NotAnswered => {
                "The message is stored, but the model has not answered. “Answer anew” tries again."
            }
        }
    }

    fn in_query(query: &str) -> Option<Self> {
        let code = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("notice="))?;
        Self::ALL.into_iter().find(|notice| notice.code() == code)
    }

    fn notice(self) -> Notice {
        Notice {
            kind: match self {
                Self::NotAnswered => NoticeKind::Refused,
                _ => NoticeKind::Done,
            },
            text: self.text().to_owned(),
            reason: String::new(),
        }
    }
}

/// Whether the answer is HTML.
pub(super) fn is_html(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
}

/// Answers with a page or a fragment.
pub(super) fn html(
    status: StatusCode,
    rendered: Result<String, RenderError>,
) -> Result<Response, WebError> {
    let rendered = rendered.map_err(|error| WebError::of_template(&error))?;
    Ok((status, Html(rendered)).into_response())
}

/// Answers a form: the browser opens `path`, which shows the notice.
pub(super) fn see_other(path: &str, notice: Option<NoticeCode>) -> Response {
    let Some(notice) = notice else {
        return (StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response();
    };
    let (address, fragment) = match path.split_once('#') {
        Some((address, fragment)) => (address, format!("#{fragment}")),
        None => (path, String::new()),
    };
    let separator = if address.contains('?') { '&' } else { '?' };
    let location = format!("{address}{separator}notice={}{fragment}", notice.code());
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_stands_as_a_code_in_the_address_that_follows_a_form() {
        for (path, expected) in [
            ("/conversations", "/conversations?notice=deleted"),
            ("/conversations?a=b", "/conversations?a=b&notice=deleted"),
            (
                "/conversations/1#end",
                "/conversations/1?notice=deleted#end",
            ),
        ] {
            let answer = see_other(path, Some(NoticeCode::Deleted));
            assert_eq!(answer.status(), StatusCode::SEE_OTHER);
            assert_eq!(answer.headers()[header::LOCATION], expected);
        }
        for notice in NoticeCode::ALL {
            let query = format!("a=b&notice={}", notice.code());
            assert_eq!(NoticeCode::in_query(&query), Some(notice));
        }
        assert_eq!(NoticeCode::in_query("notice=<b>"), None);
    }
}
