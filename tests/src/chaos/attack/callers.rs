//! Callers whom nobody knows, and calls that cost little each.

use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use super::{attacker::Strike, stock::AGENT};
use crate::pb;

pub(super) async fn false_credentials(on: &Strike) {
    let web = on.web();
    let guest = on.guest_showing("");
    on.forever(32, async |place| {
        // Known by its beginning, as keys are; with another secret each time.
        let known = on.means.authorization.split('_').take(2).collect::<Vec<_>>().join("_");
        let shown = match on.number(0..4) {
            0 => format!("{known}_{}{}", on.word(), on.word()),
            1 => format!("Bearer anneal_{}{}_{}", on.word(), on.word(), on.word()),
            2 => format!("Bearer eyJhbGciOiJSUzI1NiJ9.{}.{}", on.word(), on.word()),
            _ => format!("Bearer {}", "x".repeat(on.number(0..4_000))),
        };
        let path = format!("/api/agents/{AGENT}/sessions");
        if place % 2 == 0 {
            on.send(web.request("GET", &path).header("authorization", shown)).await;
        } else {
            let mut request = tonic::Request::new(pb::ListConversationsRequest::default());
            if let Ok(value) = shown.parse() {
                request.metadata_mut().insert("authorization", value);
            }
            on.counted();
            let mut client = pb::conversation_service_client::ConversationServiceClient::new(guest.clone());
            if let Err(status) = client.list_conversations(request).await {
                on.refused(&status);
            }
        }
    })
    .await;
}

pub(super) async fn public_pages(on: &Strike) {
    let web = on.web();
    let guest = on.guest_showing("");
    let symbol = "anneal.v1.ContextService".to_owned();
    let asks = [
        MessageRequest::ListServices(String::new()),
        MessageRequest::FileContainingSymbol(symbol.clone()),
        MessageRequest::AllExtensionNumbersOfType(symbol),
        MessageRequest::FileByFilename("x".repeat(1 << 20)),
    ];
    on.forever(16, async |place| {
        if place % 2 == 0 {
            let path = on.choose(&["/openapi.json", "/metrics", "/healthz", "/readyz", "/nothing"]);
            on.send(web.request("GET", path)).await;
            return;
        }
        on.counted();
        let ask = ServerReflectionRequest { host: String::new(), message_request: Some(on.choose(&asks)) };
        let mut client = ServerReflectionClient::new(guest.clone()).max_decoding_message_size(usize::MAX);
        let asked = futures::stream::iter(vec![ask; 32]);
        if let Ok(answers) = client.server_reflection_info(asked).await {
            let mut answers = answers.into_inner();
            while let Ok(Some(_)) = answers.message().await {}
        }
    })
    .await;
}

pub(super) async fn operator_calls(on: &Strike) {
    let guest = on.guest();
    on.forever(16, async |_| match on.number(0..5) {
        0 => drop(on.call(&guest, "GetQueueStats", &pb::GetQueueStatsRequest {}).await),
        1 => drop(on.call(&guest, "GetModelStats", &pb::GetModelStatsRequest {}).await),
        2 => {
            let ask = pb::RequeueJobRequest {
                kind: pb::JobKind::CountTokens.into(),
                conversation_id: on.means.stock.tiny.clone(),
                request_id: on.word(),
            };
            on.call(&guest, "RequeueJob", &ask).await;
        }
        _ => {
            let ask = pb::ListJobsRequest { page_size: 500, ..Default::default() };
            on.call(&guest, "ListJobs", &ask).await;
        }
    })
    .await;
}

pub(super) async fn small_calls(on: &Strike) {
    let guest = on.guest();
    on.forever(64, async |_| {
        let ask = pb::ListConversationsRequest {
            page_size: on.choose(&[1, 500]),
            title_prefix: on.choose(&["", "%", "old"]).into(),
            ..Default::default()
        };
        on.call(&guest, "ListConversations", &ask).await;
    })
    .await;
}
