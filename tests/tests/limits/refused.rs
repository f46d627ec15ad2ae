//! Messages of gRPC that say more of themselves than there is, or would become more than they are.

use std::net::SocketAddr;

use anneal_tests::House;
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use prost::Message as _;
use tonic::Code;

/// The refusal of a request whose body is these bytes: its code, and the reason that it gives, if any.
async fn refusal(address: SocketAddr, coding: Option<&str>, body: Vec<u8>) -> (i32, String) {
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().expect("a client");
    let url = format!("http://{address}/anneal.v1.ConversationService/ListConversations");
    let mut asked = client.post(url).header("content-type", "application/grpc").header("te", "trailers").body(body);
    if let Some(coding) = coding {
        asked = asked.header("grpc-encoding", coding);
    }
    let answer = asked.send().await.expect("is answered");
    let said = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let details = STANDARD_NO_PAD.decode(said("grpc-status-details-bin").trim_end_matches('=')).expect("base64");
    let details = tonic_types::pb::Status::decode(&*details).expect("a status").details;
    let infos = details.iter().filter(|detail| detail.type_url.ends_with("ErrorInfo"));
    let reasons = infos.map(|info| tonic_types::pb::ErrorInfo::decode(&*info.value).expect("an ErrorInfo").reason);
    (said("grpc-status").parse().expect("a code"), reasons.collect())
}

#[tokio::test]
async fn what_is_compressed_or_lies_about_its_size_is_refused_unread() {
    let house = House::start().await;
    let address = house.addresses.grpc;
    let framed = |flag: u8, size: u32, body: &[u8]| [&[flag][..], &size.to_be_bytes(), body].concat();
    let bomb = vec![0; 100_000];

    let (code, _) = refusal(address, Some("gzip"), framed(1, 100_000, &bomb)).await;
    assert_eq!(Code::from(code), Code::Unimplemented, "no coding is undone");
    let (code, _) = refusal(address, Some("zstd"), framed(0, 0, &[])).await;
    assert_eq!(Code::from(code), Code::Unimplemented, "nor is one that is only named");
    let malformed = (Code::InvalidArgument as i32, "MALFORMED_REQUEST".to_owned());
    assert_eq!(refusal(address, None, framed(1, 100_000, &bomb)).await, malformed, "compressed, and not said how");
    assert_eq!(refusal(address, None, framed(7, 0, &[])).await, malformed, "no such flag");
    let too_large = (Code::InvalidArgument as i32, "LIMIT_EXCEEDED".to_owned());
    assert_eq!(refusal(address, None, framed(0, u32::MAX, &[0; 100])).await, too_large, "four gigabytes are announced");
    assert_eq!(
        refusal(address, None, framed(0, 8_000_000, &[0; 100])).await,
        too_large,
        "more than a request may have"
    );
    let (code, _) = refusal(address, None, framed(0, 100, &[0; 10])).await;
    assert_ne!(Code::from(code), Code::Ok, "less than was announced");
}
