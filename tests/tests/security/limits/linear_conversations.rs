//! Two conversations of which one is ten times as large in one dimension: every call on the large
//! one costs at most fifteen times the processor time of the same call on the small one.

use anneal_testkit::{
    AuthorizedChannel, HttpClient, Rpc, call_to_the_end, every_rpc, pb, user, valid_request,
};
use futures::future::join_all;
use pb::{conversation_event::Event, message_service_client::MessageServiceClient};
use prost::Message as _;

use crate::limits::{
    attacked_server::{AttackedServer, UNLIMITED},
    cpu_cost::{Costs, CpuMeter},
    grown_conversations::{Dimension, Grower},
};

/// RPCs after which other calls on the conversation may cost more, or find it deleted. They come
/// last, in this order.
const CHANGING: [&str; 12] = [
    "UpdateConversation",
    "Compact",
    "ImportCheckpoint",
    "AppendMessages",
    "AppendLargeMessage",
    "InsertSeparator",
    "EditMessage",
    "WithdrawMessages",
    "RestoreMessages",
    "EraseMessages",
    "Rewind",
    "DeleteConversation",
];

/// Requests that read a conversation in other ways than `valid_request` does. Each has the name of
/// its RPC, a description and its bytes.
fn other_requests(id: &str) -> Vec<(&'static str, String, Vec<u8>)> {
    let formats = [
        pb::Format::OpenaiChat,
        pb::Format::AnthropicMessages,
        pb::Format::GeminiContents,
    ];
    let pressures = [pb::Pressure::TruncateToolResults, pb::Pressure::Compact];
    let context = || pb::BuildContextRequest {
        conversation_id: id.to_owned(),
        dry_run: true,
        ..Default::default()
    };
    let mut asks = Vec::new();
    for format in formats {
        let ask = pb::BuildContextRequest {
            format: format.into(),
            ..context()
        };
        asks.push((
            "BuildContext",
            format!("as {}", format.as_str_name()),
            ask.encode_to_vec(),
        ));
    }
    for pressure in pressures {
        let ask = pb::BuildContextRequest {
            pressure: pressure.into(),
            ..context()
        };
        asks.push((
            "BuildContext",
            format!("under {}", pressure.as_str_name()),
            ask.encode_to_vec(),
        ));
    }
    for budget in [100, 5_000] {
        let ask = pb::BuildContextRequest {
            budget_tokens: Some(budget),
            current_input: vec![user("and now?")],
            format: pb::Format::AnthropicMessages.into(),
            ..context()
        };
        asks.push((
            "BuildContext",
            format!("in {budget} tokens"),
            ask.encode_to_vec(),
        ));
    }
    let newest = pb::ListMessagesRequest {
        conversation_id: id.to_owned(),
        page_size: 500,
        newest_first: true,
        ..Default::default()
    };
    asks.push((
        "ListMessages",
        "the newest 500".into(),
        newest.encode_to_vec(),
    ));
    let history = pb::ListMessagesRequest {
        conversation_id: id.to_owned(),
        page_size: 500,
        include_withdrawn: true,
        ..Default::default()
    };
    asks.push((
        "ListMessages",
        "500, with withdrawn ones".into(),
        history.encode_to_vec(),
    ));
    let void = pb::ListCheckpointsRequest {
        conversation_id: id.to_owned(),
        include_void: true,
        ..Default::default()
    };
    asks.push((
        "ListCheckpoints",
        "with void ones".into(),
        void.encode_to_vec(),
    ));
    let range = Some(pb::ByteRange {
        offset: 1_000,
        length: 1_000,
    });
    let part = pb::GetMessageRequest {
        conversation_id: id.to_owned(),
        message_id: 1,
        range,
        ..Default::default()
    };
    asks.push((
        "GetMessage",
        "1,000 bytes of it".into(),
        part.encode_to_vec(),
    ));
    asks
}

/// Calls one server about its conversations.
struct Caller<'s> {
    server: &'s AttackedServer,
    channel: AuthorizedChannel,
    web: HttpClient,
    rpcs: Vec<Rpc>,
}

impl Caller<'_> {
    /// Sends a request and reads the answer to its end. A refusal is an answer too.
    async fn send(&self, rpc: &str, request: &[u8]) {
        let path = &self
            .rpcs
            .iter()
            .find(|one| one.name == rpc)
            .expect("is an RPC")
            .path;
        let _ = call_to_the_end(self.channel.clone(), path, vec![request.to_vec()]).await;
    }

    /// Watches from the first message until all past events have arrived. `Started` follows them.
    async fn watch(&self, id: &str) {
        let ask = pb::WatchConversationRequest {
            conversation_id: id.to_owned(),
            after_message_id: Some(0),
            ..Default::default()
        };
        let mut client =
            MessageServiceClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        let mut events = client
            .watch_conversation(ask)
            .await
            .expect("is accepted")
            .into_inner();
        while let Some(event) = events.message().await.expect("goes on") {
            if matches!(event.event, Some(Event::Started(_))) {
                return;
            }
        }
    }

    /// Gets a path over HTTP and reads the answer to its end.
    async fn get(&self, path: &str) {
        let asked = self
            .web
            .request("GET", path)
            .header("authorization", &self.server.eve);
        let answered = asked.send().await.expect("is answered");
        assert_eq!(answered.status(), 200, "{path}");
        answered.bytes().await.expect("is complete");
    }

    /// Compares the cost of every call on a small conversation and on a large one.
    async fn compare(
        &self,
        meter: &mut CpuMeter,
        costs: &mut Costs,
        dimension: Dimension,
        [small, large]: &[String; 2],
    ) {
        for ((_, _, small_ask), (rpc, how, large_ask)) in
            other_requests(small).into_iter().zip(other_requests(large))
        {
            let what = format!("{dimension:?}: {rpc} {how}");
            let (small, large) = (
                async |_| self.send(rpc, &small_ask).await,
                async |_| self.send(rpc, &large_ask).await,
            );
            costs.compare(meter, what, small, large).await;
        }
        let what = format!("{dimension:?}: WatchConversation");
        costs
            .compare(
                meter,
                what,
                async |_| self.watch(small).await,
                async |_| self.watch(large).await,
            )
            .await;
        let path = |id: &str| format!("/api/agents/a/sessions/{id}");
        let what = format!("{dimension:?}: GET /api/agents/{{id}}/sessions/{{sid}}");
        let (small_path, large_path) = (path(small), path(large));
        costs
            .compare(
                meter,
                what,
                async |_| self.get(&small_path).await,
                async |_| self.get(&large_path).await,
            )
            .await;
        let others = self
            .rpcs
            .iter()
            .filter(|rpc| rpc.names_conversation && !CHANGING.contains(&&*rpc.name));
        let others = others
            .map(|rpc| rpc.name.as_str())
            .filter(|rpc| *rpc != "WatchConversation");
        for rpc in others.chain(CHANGING) {
            let request =
                |id: &str, number: usize| valid_request(rpc, id, &format!("{rpc} {number}"));
            let what = format!("{dimension:?}: {rpc}");
            let small = async |number| self.send(rpc, &request(small, number)).await;
            let large = async |number| self.send(rpc, &request(large, number)).await;
            costs.compare(meter, what, small, large).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_ten_times_as_much_of_anything_costs_at_most_fifteen_times_as_much() {
    let server = AttackedServer::start(&UNLIMITED).await;
    let channel = server.channel(&server.eve);
    let (grower, mut meter, mut costs) = (
        Grower {
            channel: channel.clone(),
        },
        server.cpu_meter().await,
        Costs::default(),
    );
    let caller = Caller {
        web: HttpClient::at(server.http),
        server: &server,
        channel,
        rpcs: every_rpc(),
    };
    for dimension in Dimension::ALL {
        let (small, large) = (dimension.small(), dimension.small() * 10);
        let grown = [
            grower.grow(dimension, small).await,
            grower.grow(dimension, large).await,
        ];
        caller
            .compare(&mut meter, &mut costs, dimension, &grown)
            .await;
    }
    costs.assert_linear("conversations");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_ten_times_the_watchers_costs_at_most_fifteen_times_as_much() {
    let server = AttackedServer::start(&UNLIMITED).await;
    let (mut meter, mut costs) = (server.cpu_meter().await, Costs::default());
    let [mut few, mut many] = [
        WatchedConversation::start(&server, 40).await,
        WatchedConversation::start(&server, 400).await,
    ];
    let (small, large) = (
        async |_| few.append_and_wait_for_watchers().await,
        async |_| many.append_and_wait_for_watchers().await,
    );
    costs
        .compare(
            &mut meter,
            "AppendMessages, received by all watchers",
            small,
            large,
        )
        .await;
    costs.assert_linear("watchers");
}

/// A conversation with watchers.
struct WatchedConversation {
    id: String,
    channel: AuthorizedChannel,
    streams: Vec<tonic::Streaming<pb::ConversationEvent>>,
}

impl WatchedConversation {
    /// Creates a conversation with this number of watchers, and waits until all have started.
    async fn start(server: &AttackedServer, watchers: usize) -> Self {
        let (id, channel) = (
            server.create_conversation().await,
            server.channel(&server.eve),
        );
        // A connection has at most 128 streams, so each is used for 100 watchers.
        let channels: Vec<AuthorizedChannel> = (0..=watchers / 100)
            .map(|_| server.channel(&server.eve))
            .collect();
        let mut streams = Vec::new();
        for number in 0..watchers {
            let ask = pb::WatchConversationRequest {
                conversation_id: id.clone(),
                ..Default::default()
            };
            let channel = &channels[number / 100];
            let watch = MessageServiceClient::new(channel.clone())
                .watch_conversation(ask)
                .await;
            let mut stream = watch.expect("is accepted").into_inner();
            // Only messages after this event are sent.
            let started = stream.message().await.expect("goes on");
            let started = started.and_then(|event| event.event);
            assert!(matches!(started, Some(Event::Started(_))), "{started:?}");
            streams.push(stream);
        }
        Self {
            id,
            channel,
            streams,
        }
    }

    /// Appends a message and waits until every watcher has received it.
    async fn append_and_wait_for_watchers(&mut self) {
        let (conversation_id, messages) = (self.id.clone(), vec![user("x")]);
        let ask = pb::AppendMessagesRequest {
            conversation_id,
            messages,
            ..Default::default()
        };
        MessageServiceClient::new(self.channel.clone())
            .append_messages(ask)
            .await
            .expect("is stored");
        let received = self.streams.iter_mut().map(async |stream| {
            while let Some(event) = stream.message().await.expect("goes on") {
                if matches!(event.event, Some(Event::MessageAppended(_))) {
                    return;
                }
            }
            panic!("the watch has ended");
        });
        join_all(received).await;
    }
}
