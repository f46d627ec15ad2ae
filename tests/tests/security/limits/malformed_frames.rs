//! gRPC messages that are compressed, have an unknown flag or state a false length.

use std::net::SocketAddr;

use anneal_testkit::TestApp;
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use prost::Message as _;
use tonic::Code;

/// Sends a request with this body. Returns the code of its refusal and the reason, if it has one.
async fn send_refused_request(
    address: SocketAddr,
    coding: Option<&str>,
    body: Vec<u8>,
) -> (i32, String) {
    let client = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge()
        .build()
        .expect("a client");
    let url = format!("http://{address}/anneal.v1.ConversationService/ListConversations");
    let mut asked = client
        .post(url)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body);
    if let Some(coding) = coding {
        asked = asked.header("grpc-encoding", coding);
    }
    let answer = asked.send().await.expect("is answered");
    let header = |name: &str| {
        answer
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let details = STANDARD_NO_PAD
        .decode(header("grpc-status-details-bin").trim_end_matches('='))
        .expect("base64");
    let details = tonic_types::pb::Status::decode(&*details)
        .expect("a status")
        .details;
    let infos = details
        .iter()
        .filter(|detail| detail.type_url.ends_with("ErrorInfo"));
    let reasons = infos.map(|info| {
        tonic_types::pb::ErrorInfo::decode(&*info.value)
            .expect("an ErrorInfo")
            .reason
    });
    (
        header("grpc-status").parse().expect("a code"),
        reasons.collect(),
    )
}

#[tokio::test]
async fn compressed_messages_and_false_lengths_are_refused() {
    let app = TestApp::start().await;
    let address = app.addresses.grpc;
    let framed =
        |flag: u8, size: u32, body: &[u8]| [&[flag][..], &size.to_be_bytes(), body].concat();
    let zeros = vec![0; 100_000];

    let (code, _) = send_refused_request(address, Some("gzip"), framed(1, 100_000, &zeros)).await;
    assert_eq!(
        Code::from(code),
        Code::Unimplemented,
        "compression is not supported"
    );
    let (code, _) = send_refused_request(address, Some("zstd"), framed(0, 0, &[])).await;
    assert_eq!(
        Code::from(code),
        Code::Unimplemented,
        "the coding is refused although no message is compressed"
    );
    let malformed = (Code::InvalidArgument as i32, "MALFORMED_REQUEST".to_owned());
    assert_eq!(
        send_refused_request(address, None, framed(1, 100_000, &zeros)).await,
        malformed,
        "compressed without a coding"
    );
    assert_eq!(
        send_refused_request(address, None, framed(7, 0, &[])).await,
        malformed,
        "an unknown flag"
    );
    let too_large = (Code::InvalidArgument as i32, "LIMIT_EXCEEDED".to_owned());
    assert_eq!(
        send_refused_request(address, None, framed(0, u32::MAX, &[0; 100])).await,
        too_large,
        "four gigabytes are announced"
    );
    assert_eq!(
        send_refused_request(address, None, framed(0, 8_000_000, &[0; 100])).await,
        too_large,
        "above the limit of a request"
    );
    let (code, _) = send_refused_request(address, None, framed(0, 100, &[0; 10])).await;
    assert_ne!(Code::from(code), Code::Ok, "shorter than announced");
}
