//! Refusals on the page. A refusal is a problem, as everywhere; the middleware shows it as a page,
//! or as a notice on the page that a script has changed.

use std::{sync::Arc, time::Instant};

use anneal_web::{
    error::{ErrorFragment, ErrorPage},
    layout::Place,
};
use axum::{
    body::Body,
    extract::Request,
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{Html, IntoResponse as _, Response},
};

use super::{
    headers,
    page::{self, HX_REQUEST, PageContext, PageSlot, SIGN_IN_PATH},
};
use crate::{http::problem::Problem, reason::Reason};

const HX_REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");
const HX_RETARGET: HeaderName = HeaderName::from_static("hx-retarget");
const HX_RESWAP: HeaderName = HeaderName::from_static("hx-reswap");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// A request of the page, as far as the form of a refusal depends on it.
struct Asked {
    is_htmx: bool,
    accepts_html: bool,
    /// The page after the sign-in: this one, or the one that has the form.
    again: String,
    /// The page that has the form or the link of the request; empty: none.
    back: String,
    context: PageContext,
    slot: PageSlot,
}

/// Middleware around the whole router: shows a problem on the path of a page as HTML, and adds the
/// page's headers. It is outside of everything, because any layer may refuse.
pub(in crate::http) async fn shape(mut request: Request, next: Next) -> Response {
    if !super::is_page_path(request.uri().path()) {
        return next.run(request).await;
    }
    let began = Instant::now();
    let slot = PageSlot::default();
    request.extensions_mut().insert(slot.clone());
    let asked = Asked {
        is_htmx: request.headers().contains_key(HX_REQUEST),
        accepts_html: page::accepts_html(request.headers()),
        again: page_after_sign_in(&request),
        back: page_before(request.method(), request.uri().path()),
        context: PageContext::new(None, request.headers(), request.uri()),
        slot,
    };
    let slot = Arc::clone(&asked.slot.0);
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = asked.show(&problem, response);
    }
    headers::protect(&mut response);
    // How long a refusal takes could tell others whether what they may not see exists.
    if slot.get().is_some_and(PageContext::is_of_operator) {
        let milliseconds = began.elapsed().as_secs_f64() * 1_000.0;
        if let Ok(timing) = HeaderValue::try_from(format!("total;dur={milliseconds:.1}")) {
            response.headers_mut().insert(SERVER_TIMING, timing);
        }
    }
    response
}

impl Asked {
    /// The answer to a refused request.
    fn show(self, problem: &Problem, response: Response) -> Response {
        let is_unknown = problem.status() == StatusCode::UNAUTHORIZED.as_u16();
        let answer = if is_unknown && self.is_htmx {
            let address = sign_in_address(&self.back);
            (response.status(), [(HX_REDIRECT, address)]).into_response()
        } else if is_unknown && self.accepts_html {
            page::see_other(&sign_in_address(&self.again), None)
        } else if self.is_htmx {
            fragment(problem)
        } else if self.accepts_html {
            self.page(problem)
        } else {
            return response;
        };
        with_answer(response, answer)
    }

    fn page(&self, problem: &Problem) -> Response {
        let context = self.slot.0.get().unwrap_or(&self.context);
        let page = ErrorPage {
            page: context.page(problem.title(), Place::Conversations),
            status: problem.status(),
            reason: problem.reason().to_owned(),
            detail: problem.detail().to_owned(),
            back: if problem.is(Reason::ConversationNotFound) {
                String::new()
            } else {
                self.back.clone()
            },
            trace_id: anneal_trace::current_trace_id().unwrap_or_default(),
        };
        (status(problem), Html(page.render().unwrap_or_default())).into_response()
    }
}

/// The notice that a script puts on its page.
fn fragment(problem: &Problem) -> Response {
    let shown = ErrorFragment {
        reason: problem.reason().to_owned(),
        detail: problem.detail().to_owned(),
    };
    let shown = shown.render();
    let to_notices = [(HX_RETARGET, "#notices"), (HX_RESWAP, "innerHTML")];
    (status(problem), to_notices, Html(shown.unwrap_or_default())).into_response()
}

fn status(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The address of the sign-in page, which leads to this page.
fn sign_in_address(next: &str) -> String {
    match next {
        "" | "/" => SIGN_IN_PATH.to_owned(),
        path => {
            let next = serde_urlencoded::to_string([("next", path)]).unwrap_or_default();
            format!("{SIGN_IN_PATH}?{next}")
        }
    }
}

/// The page that a person wants after the sign-in: the one that is asked for or, of a form, the one
/// that has shown it.
fn page_after_sign_in(request: &Request) -> String {
    match request.uri().path_and_query() {
        Some(path) if request.method() == Method::GET => path.to_string(),
        _ => page_before(request.method(), request.uri().path()),
    }
}

/// The page from which a person has sent this request; empty: unknown. What is below a conversation
/// comes from its page, and a new one from the list.
fn page_before(method: &Method, path: &str) -> String {
    let mut segments = path.trim_start_matches('/').split('/');
    match (segments.next(), segments.next(), segments.next()) {
        (Some("conversations"), Some(id), Some(_)) => format!("/conversations/{id}"),
        (Some("conversations"), None, None) if method == Method::POST => {
            "/conversations".to_owned()
        }
        _ => String::new(),
    }
}

/// The answer with the other headers of the response, such as those of a wait or a new cookie.
fn with_answer(response: Response, answer: Response) -> Response {
    let (refused, _) = response.into_parts();
    let (mut parts, body) = answer.into_parts();
    for name in [header::RETRY_AFTER, header::SET_COOKIE, header::ALLOW] {
        for value in refused.headers.get_all(&name) {
            parts.headers.append(name.clone(), value.clone());
        }
    }
    Response::from_parts(parts, Body::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_form_leads_back_to_the_page_that_has_it() {
        for (method, path, expected) in [
            (Method::POST, "/conversations/1/turn", "/conversations/1"),
            (
                Method::POST,
                "/conversations/%2F/messages/2/edit",
                "/conversations/%2F",
            ),
            (Method::GET, "/conversations/1/xray", "/conversations/1"),
            (Method::POST, "/conversations", "/conversations"),
            (Method::GET, "/conversations", ""),
            (Method::GET, "/conversations/1", ""),
            (Method::POST, "/sign-out", ""),
        ] {
            assert_eq!(page_before(&method, path), expected, "{method} {path}");
        }
        assert_eq!(sign_in_address(""), "/sign-in");
        let next = sign_in_address("/conversations/1");
        assert_eq!(next, "/sign-in?next=%2Fconversations%2F1");
    }
}
