//! Attacks by callers without valid credentials, and attacks with many cheap calls. `kind.rs` says
//! what each attack does.

use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest,
};

use super::{running_attack::RunningAttack, stored_conversations::AGENT};
use crate::pb;

pub(super) async fn false_credentials(attack: &RunningAttack) {
    let web = attack.http_client();
    let channel = attack.channel_with("");
    attack
        .loop_concurrently(32, async |place| {
            // A real key without its secret, to which some calls append a random secret.
            let key_prefix = attack
                .context
                .authorization
                .split('_')
                .take(2)
                .collect::<Vec<_>>()
                .join("_");
            let authorization = match attack.number(0..4) {
                0 => format!("{key_prefix}_{}{}", attack.word(), attack.word()),
                1 => format!(
                    "Bearer anneal_{}{}_{}",
                    attack.word(),
                    attack.word(),
                    attack.word()
                ),
                2 => format!(
                    "Bearer eyJhbGciOiJSUzI1NiJ9.{}.{}",
                    attack.word(),
                    attack.word()
                ),
                _ => format!("Bearer {}", "x".repeat(attack.number(0..4_000))),
            };
            let path = format!("/api/agents/{AGENT}/sessions");
            if place % 2 == 0 {
                attack
                    .send(
                        web.request("GET", &path)
                            .header("authorization", authorization),
                    )
                    .await;
            } else {
                let mut request = tonic::Request::new(pb::ListConversationsRequest::default());
                if let Ok(value) = authorization.parse() {
                    request.metadata_mut().insert("authorization", value);
                }
                attack.count_call();
                let mut client = pb::conversation_service_client::ConversationServiceClient::new(
                    channel.clone(),
                );
                if let Err(status) = client.list_conversations(request).await {
                    attack.count_refusal(&status);
                }
            }
        })
        .await;
}

pub(super) async fn public_pages(attack: &RunningAttack) {
    let web = attack.http_client();
    let channel = attack.channel_with("");
    let symbol = "anneal.v1.ContextService".to_owned();
    let asks = [
        MessageRequest::ListServices(String::new()),
        MessageRequest::FileContainingSymbol(symbol.clone()),
        MessageRequest::AllExtensionNumbersOfType(symbol),
        MessageRequest::FileByFilename("x".repeat(1 << 20)),
    ];
    attack
        .loop_concurrently(16, async |place| {
            if place % 2 == 0 {
                let path = attack.choose(&[
                    "/openapi.json",
                    "/metrics",
                    "/healthz",
                    "/readyz",
                    "/nothing",
                ]);
                attack.send(web.request("GET", path)).await;
                return;
            }
            attack.count_call();
            let ask = ServerReflectionRequest {
                host: String::new(),
                message_request: Some(attack.choose(&asks)),
            };
            let mut client =
                ServerReflectionClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
            let asked = futures::stream::iter(vec![ask; 32]);
            if let Ok(answers) = client.server_reflection_info(asked).await {
                let mut answers = answers.into_inner();
                while let Ok(Some(_)) = answers.message().await {}
            }
        })
        .await;
}

pub(super) async fn operator_calls(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(16, async |_| match attack.number(0..5) {
            0 => drop(
                attack
                    .call(&channel, "GetQueueStats", &pb::GetQueueStatsRequest {})
                    .await,
            ),
            1 => drop(
                attack
                    .call(&channel, "GetModelStats", &pb::GetModelStatsRequest {})
                    .await,
            ),
            2 => {
                let ask = pb::RequeueJobRequest {
                    kind: pb::JobKind::CountTokens.into(),
                    conversation_id: attack.context.stored.tiny.clone(),
                    request_id: attack.word(),
                };
                attack.call(&channel, "RequeueJob", &ask).await;
            }
            _ => {
                let ask = pb::ListJobsRequest {
                    page_size: 500,
                    ..Default::default()
                };
                attack.call(&channel, "ListJobs", &ask).await;
            }
        })
        .await;
}

pub(super) async fn small_calls(attack: &RunningAttack) {
    let channel = attack.channel();
    attack
        .loop_concurrently(64, async |_| {
            let ask = pb::ListConversationsRequest {
                page_size: attack.choose(&[1, 500]),
                title_prefix: attack.choose(&["", "%", "old"]).into(),
                ..Default::default()
            };
            attack.call(&channel, "ListConversations", &ask).await;
        })
        .await;
}
