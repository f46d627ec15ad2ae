//! A conversation that has ten times as much of something costs at most fifteen times as much, whatever is asked of it.

use anneal_tests::{Guest, Rpc, Web, call_to_the_end, every_rpc, pb, sound_request, user};
use futures::future::join_all;
use pb::{conversation_event::Event, message_service_client::MessageServiceClient};
use prost::Message as _;

use crate::{
    besieged::{Besieged, UNLIMITED},
    cost::{Costs, Meter},
    grown::{Dimension, Grower},
};

/// RPCs after which a conversation is not what it was: they come last, in this order.
const CHANGING: [&str; 6] =
    ["UpdateConversation", "Compact", "ImportCheckpoint", "AppendMessages", "InsertSeparator", "DeleteConversation"];

/// Asks that read a conversation in other ways than the sound requests do, by RPC.
fn other_asks(id: &str) -> Vec<(&'static str, String, Vec<u8>)> {
    let formats = [pb::Format::OpenaiChat, pb::Format::AnthropicMessages, pb::Format::GeminiContents];
    let pressures = [pb::Pressure::TruncateToolResults, pb::Pressure::Compact];
    let context = |change: fn(&mut pb::BuildContextRequest)| {
        let mut ask = pb::BuildContextRequest { conversation_id: id.to_owned(), dry_run: true, ..Default::default() };
        change(&mut ask);
        ask
    };
    let mut asks = Vec::new();
    for format in formats {
        let ask = pb::BuildContextRequest { format: format.into(), ..context(|_| ()) };
        asks.push(("BuildContext", format!("as {}", format.as_str_name()), ask.encode_to_vec()));
    }
    for pressure in pressures {
        let ask = pb::BuildContextRequest { pressure: pressure.into(), ..context(|_| ()) };
        asks.push(("BuildContext", format!("under {}", pressure.as_str_name()), ask.encode_to_vec()));
    }
    for budget in [100, 5_000] {
        let ask = pb::BuildContextRequest {
            budget_tokens: Some(budget),
            current_input: vec![user("and now?")],
            format: pb::Format::AnthropicMessages.into(),
            ..context(|_| ())
        };
        asks.push(("BuildContext", format!("in {budget} tokens"), ask.encode_to_vec()));
    }
    let newest = pb::ListMessagesRequest { conversation_id: id.to_owned(), page_size: 500, ..Default::default() };
    let newest = pb::ListMessagesRequest { newest_first: true, ..newest };
    asks.push(("ListMessages", "the newest 500".into(), newest.encode_to_vec()));
    let range = Some(pb::ByteRange { offset: 1_000, length: 1_000 });
    let part = pb::GetMessageRequest { conversation_id: id.to_owned(), message_id: 1, range };
    asks.push(("GetMessage", "1,000 bytes of it".into(), part.encode_to_vec()));
    asks
}

/// Asks of one server's conversations.
struct Asker<'s> {
    server: &'s Besieged,
    guest: Guest,
    web: Web,
    rpcs: Vec<Rpc>,
}

impl Asker<'_> {
    /// Sends a request and reads the answer to its end; a refusal is an answer.
    async fn send(&self, rpc: &str, request: &[u8]) {
        let path = &self.rpcs.iter().find(|one| one.name == rpc).expect("is an RPC").path;
        let _ = call_to_the_end(self.guest.clone(), path, vec![request.to_vec()]).await;
    }

    /// Watches from the first message until everything that has happened is told.
    async fn watch(&self, id: &str) {
        let ask = pb::WatchConversationRequest {
            conversation_id: id.to_owned(),
            after_message_id: Some(0),
            ..Default::default()
        };
        let mut client = MessageServiceClient::new(self.guest.clone()).max_decoding_message_size(usize::MAX);
        let mut events = client.watch_conversation(ask).await.expect("is let in").into_inner();
        while let Some(event) = events.message().await.expect("goes on") {
            if matches!(event.event, Some(Event::Started(_))) {
                return;
            }
        }
    }

    /// Asks for a path over HTTP and reads the answer to its end.
    async fn get(&self, path: &str) {
        let asked = self.web.request("GET", path).header("authorization", &self.server.eve);
        let answered = asked.send().await.expect("is answered");
        assert_eq!(answered.status(), 200, "{path}");
        answered.bytes().await.expect("is whole");
    }

    /// Compares everything that can be asked of a small conversation and of a large one.
    async fn compare(&self, meter: &mut Meter, costs: &mut Costs, dimension: Dimension, [small, large]: &[String; 2]) {
        for (other, (rpc, how, ask)) in other_asks(small).into_iter().zip(other_asks(large)).map(|(s, l)| (s.2, l)) {
            let what = format!("{dimension:?}: {rpc} {how}");
            let (small, large) = (async |_| self.send(rpc, &other).await, async |_| self.send(rpc, &ask).await);
            costs.compare(meter, what, small, large).await;
        }
        let what = format!("{dimension:?}: WatchConversation");
        costs.compare(meter, what, async |_| self.watch(small).await, async |_| self.watch(large).await).await;
        let path = |id: &str| format!("/api/agents/a/sessions/{id}");
        let what = format!("{dimension:?}: GET /api/agents/{{id}}/sessions/{{sid}}");
        let (small_path, large_path) = (path(small), path(large));
        costs.compare(meter, what, async |_| self.get(&small_path).await, async |_| self.get(&large_path).await).await;
        let reading = self.rpcs.iter().filter(|rpc| rpc.names_conversation && !CHANGING.contains(&&*rpc.name));
        let reading = reading.map(|rpc| rpc.name.as_str()).filter(|rpc| *rpc != "WatchConversation");
        for rpc in reading.chain(CHANGING) {
            let request = |id: &str, number: usize| sound_request(rpc, id, &format!("{rpc} {number}"));
            let what = format!("{dimension:?}: {rpc}");
            let small = async |number| self.send(rpc, &request(small, number)).await;
            let large = async |number| self.send(rpc, &request(large, number)).await;
            costs.compare(meter, what, small, large).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_ten_times_as_much_of_anything_costs_at_most_fifteen_times_as_much() {
    let server = Besieged::start(&UNLIMITED).await;
    let guest = server.guest(&server.eve);
    let (grower, mut meter, mut costs) = (Grower { guest: guest.clone() }, server.meter().await, Costs::default());
    let asker = Asker { web: Web::at(server.http), server: &server, guest, rpcs: every_rpc() };
    for dimension in Dimension::ALL {
        let (small, large) = (dimension.small(), dimension.small() * 10);
        let grown = [grower.grow(dimension, small).await, grower.grow(dimension, large).await];
        asker.compare(&mut meter, &mut costs, dimension, &grown).await;
    }
    costs.assert_linear("conversations");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_ten_times_the_watchers_costs_at_most_fifteen_times_as_much() {
    let server = Besieged::start(&UNLIMITED).await;
    let (mut meter, mut costs) = (server.meter().await, Costs::default());
    let [mut few, mut many] = [Watched::by(&server, 40).await, Watched::by(&server, 400).await];
    let (small, large) = (async |_| few.hear_a_message().await, async |_| many.hear_a_message().await);
    costs.compare(&mut meter, "AppendMessages, heard by all watchers", small, large).await;
    costs.assert_linear("watchers");
}

/// A conversation and its watchers.
struct Watched {
    id: String,
    guest: Guest,
    streams: Vec<tonic::Streaming<pb::ConversationEvent>>,
}

impl Watched {
    /// A new conversation with so many watchers.
    async fn by(server: &Besieged, watchers: usize) -> Self {
        let (id, guest) = (server.conversation().await, server.guest(&server.eve));
        let lines: Vec<Guest> = (0..=watchers / 100).map(|_| server.guest(&server.eve)).collect();
        let mut streams = Vec::new();
        for number in 0..watchers {
            // A connection has at most 128 streams.
            let ask = pb::WatchConversationRequest { conversation_id: id.clone(), ..Default::default() };
            let line = &lines[number / 100];
            let watch = MessageServiceClient::new(line.clone()).watch_conversation(ask).await;
            streams.push(watch.expect("is let in").into_inner());
        }
        Self { id, guest, streams }
    }

    /// Appends a message, and waits until every watcher has heard of it.
    async fn hear_a_message(&mut self) {
        let (conversation_id, messages) = (self.id.clone(), vec![user("x")]);
        let ask = pb::AppendMessagesRequest { conversation_id, messages, ..Default::default() };
        MessageServiceClient::new(self.guest.clone()).append_messages(ask).await.expect("is stored");
        let heard = self.streams.iter_mut().map(async |stream| {
            while let Some(event) = stream.message().await.expect("goes on") {
                if matches!(event.event, Some(Event::MessageAppended(_))) {
                    return;
                }
            }
            panic!("the watch has ended");
        });
        join_all(heard).await;
    }
}
