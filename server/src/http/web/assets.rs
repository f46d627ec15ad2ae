//! GET /assets/{digest}/{name}: the stylesheet and the scripts. Their addresses hold the digest of
//! their content, so browsers keep them.

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};

use super::error::WebError;
use crate::http::problem::Problem;

/// Serves a file, compressed if the browser accepts that.
pub(super) async fn asset(uri: Uri, headers: HeaderMap) -> Result<Response, WebError> {
    let Some(asset) = anneal_web::assets::find(uri.path()) else {
        let detail = "there is no such file; its address changes with its content";
        return Err(Problem::malformed(StatusCode::NOT_FOUND, detail).into());
    };
    let accepts_gzip = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| matches!(coding.trim(), "gzip" | "*"));
    let mut response = if accepts_gzip {
        ([(header::CONTENT_ENCODING, "gzip")], asset.gzip).into_response()
    } else {
        asset.plain.into_response()
    };
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static(asset.content_type);
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=31536000, immutable"),
    );
    headers.insert(
        header::VARY,
        HeaderValue::from_name(header::ACCEPT_ENCODING),
    );
    Ok(response)
}
