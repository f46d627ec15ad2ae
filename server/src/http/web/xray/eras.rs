//! GET /conversations/{id}/xray/eras: the eras of the provider's cache.

use anneal_web::costs::Eras;
use axum::response::Response;
use serde::Deserialize;

use super::{ShowHistory, reads, view};
use crate::http::{
    extractors::{PathParams, QueryParams},
    web::{conversations::paths, error::WebError, page::WebCaller},
};

/// Eras that a page shows at once.
const PAGE_ERAS: i32 = 20;

/// Which page is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ErasQuery {
    /// Its token; empty: the first.
    page: String,
}

/// Shows a page of eras, newest first.
pub(super) async fn eras(
    WebCaller(http_caller, context, _): WebCaller<ShowHistory>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ErasQuery>,
) -> Result<Response, WebError> {
    let listed = reads::list_cache_eras(&http_caller, &id, PAGE_ERAS, query.page).await?;
    let next_url = match listed.next_page_token.as_str() {
        "" => String::new(),
        token => format!(
            "{}/eras{}",
            paths::xray(&id),
            paths::query(&[("page", token)])
        ),
    };
    let eras = Eras {
        eras: listed.eras.iter().map(view::era).collect(),
        next_url,
    };
    let heading = "Eras of the provider's cache";
    super::fragment(&context, &id, heading, eras.render())
}
