//! What watches may take: their number, their readers' slowness, their time; and how they end when a server or a database does.

use std::time::Duration;

use anneal_tests::{
    Anneal, Folder, House, Line, OwnPostgres, Process, Talk, Watch, appended, assert_refused, eventually, figure, pb,
    refusal, user,
};
use futures::future::join_all;
use pb::{
    append_large_message_request::{Frame, Header},
    conversation_event::Event,
};
use tonic::{Code, Request, transport::Channel};
use tonic_types::StatusExt as _;

use crate::BINARY;

/// A server process with these settings on the house's database, and its gRPC port.
async fn server(house: &House, folder: &Folder, settings: &str) -> (Process, u16) {
    folder.file("anneal.toml", &format!("[server]\n{settings}"));
    Anneal::new(BINARY, folder, &house.url).server().await
}

/// A connection of its own: each has room for so many streams only.
fn channel(port: u16) -> Channel {
    Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("an address").connect_lazy()
}

fn whole(talk: &Talk<'_>) -> pb::WatchConversationRequest {
    let after_message_id = Some(0);
    pb::WatchConversationRequest { conversation_id: talk.id.clone(), after_message_id, ..Default::default() }
}

fn live(talk: &Talk<'_>) -> pb::WatchConversationRequest {
    pb::WatchConversationRequest { conversation_id: talk.id.clone(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_does_not_read_is_dropped_and_goes_on_from_where_it_was() {
    let (house, folder) = (House::start().await, Folder::new());
    let (server, port) = server(&house, &folder, "watch_stall_seconds = 1").await;
    let talk = house.conversation().await;
    for _ in 0..40 {
        talk.append(&"a long word ".repeat(90_000)).await;
    }
    let mut watch = Watch::open_on(channel(port), whole(&talk)).await.expect("is let in");
    eventually("it is dropped", async || figure(&server, "watchers_dropped_total").await > 0.5).await;
    eventually("it is gone", async || figure(&server, "watchers").await < 0.5).await;
    assert!(server.most_memory() < 200, "{} MiB", server.most_memory());

    let mut told = Vec::new();
    let status = loop {
        match watch.try_next().await {
            Ok(event) => told.push(event),
            Err(status) => break status,
        }
    };
    let said = refusal(&status);
    assert_eq!((said.code, said.reason.as_str()), (Code::ResourceExhausted, "WATCHER_TOO_SLOW"), "{status}");
    let info = status.get_error_details().error_info().cloned().expect("has a reason");
    assert_eq!(info.metadata["position"], watch.position, "where the reader stood");
    let told = appended(&told);
    assert!(!told.is_empty() && told.len() < 40, "{told:?}");

    let ask = pb::WatchConversationRequest { position: watch.position, ..live(&talk) };
    // At another server, whose readers may take their time.
    let mut again = Watch::open(&house, ask).await.expect("is let in");
    let rest = again.until(|event| matches!(event, Event::MessageAppended(one) if one.message_id == 40)).await;
    assert_eq!([told, appended(&rest)].concat(), (1..=40).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_server_ends_its_watches_at_once_and_they_go_on_elsewhere() {
    let (house, folder) = (House::start().await, Folder::new());
    let (server, port) = server(&house, &folder, "stop_seconds = 20").await;
    let talk = house.conversation().await;
    talk.append("one").await;
    let mut watches = join_all((0..50).map(|_| Watch::open_on(channel(port), whole(&talk)))).await;
    for watch in &mut watches {
        let watch = watch.as_mut().expect("is let in");
        watch.until(|event| matches!(event, Event::MessageAppended(_))).await;
    }
    let begun = std::time::Instant::now();
    server.terminate().await;
    let ended = tokio::spawn(async move { (server.ended().await, begun.elapsed()) });
    for watch in watches {
        let mut watch = watch.expect("is let in");
        let said = refusal(&watch.try_next().await.expect_err("ends"));
        assert_eq!((said.code, said.reason.as_str(), said.retry), (Code::Unavailable, "SERVER_STOPPING", true));
        talk.watch_from(&watch.position).await;
    }
    let (code, took) = ended.await.expect("is waited for");
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}: watches delay no stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_watches_than_there_is_room_for_are_refused_and_leaving_makes_room_at_once() {
    let (house, folder) = (House::start().await, Folder::new());
    let (server, port) = server(&house, &folder, "concurrent_watches = 3").await;
    let talk = house.conversation().await;
    let mut watches = Vec::new();
    for _ in 0..3 {
        let mut watch = Watch::open_on(channel(port), live(&talk)).await.expect("is let in");
        assert!(matches!(watch.next().await, Event::Started(_)));
        watches.push(watch);
    }
    assert!((figure(&server, "watchers").await - 3.0).abs() < 0.5);
    let refused = Watch::open_on(channel(port), live(&talk)).await.map(drop);
    assert_refused(refused, Code::ResourceExhausted, "OVERLOADED", "");
    drop(watches);
    eventually("nobody watches", async || figure(&server, "watchers").await < 0.5).await;
    let mut watch = Watch::open_on(channel(port), live(&talk)).await.expect("there is room again");
    assert!(matches!(watch.next().await, Event::Started(_)));
}

#[tokio::test]
async fn a_watch_ends_with_the_time_that_its_caller_gives_it() {
    let house = House::start().await;
    let talk = house.conversation().await;
    let mut ask = Request::new(live(&talk));
    ask.metadata_mut().insert("grpc-timeout", "5S".parse().expect("digits and a unit"));
    let mut watch = Watch::open(&house, ask).await.expect("is let in");
    assert!(matches!(watch.next().await, Event::Started(_)));
    assert_refused(watch.try_next().await, Code::DeadlineExceeded, "DEADLINE_EXCEEDED", "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_outlive_a_restart_of_the_database() {
    let postgres = OwnPostgres::start().await;
    let house = House::at(&postgres.url).await;
    let talk = house.conversation().await;
    talk.append("before").await;
    let mut watches = vec![talk.watch_after(0).await, talk.watch_after(0).await];
    for watch in &mut watches {
        assert_eq!(appended(&[watch.next().await]), [1]);
    }
    postgres.crash().await;
    eventually("the database is away", async || talk.append("lost").send().await.is_err()).await;
    postgres.restart().await;
    eventually("it is back", async || talk.append("after").request_id("after").send().await.is_ok()).await;
    for watch in &mut watches {
        let said_after =
            |event: &Event| matches!(event, Event::MessageAppended(one) if one.parts == user("after").parts);
        let told = appended(&watch.until(said_after).await);
        assert_eq!(told, (2..2 + told.len() as i64).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_outlive_connections_to_the_database_that_went_dead_without_a_word() {
    let house = House::start().await;
    let (line, url) = Line::to(&house.url).await;
    let remote = House::at(&url).await;
    let talk = house.conversation().await;
    let mut watch = Talk { house: &remote, id: talk.id.clone() }.watch().await;
    talk.append("before").await;
    assert_eq!(appended(&[watch.next().await]), [1]);
    let begun = std::time::Instant::now();
    line.go_dead();
    talk.append("after").await;
    assert_eq!(appended(&[watch.next().await]), [2]);
    println!("told after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_do_not_read_a_large_message_hold_no_more_memory_together_than_there_is_for_them() {
    const BYTES: usize = 24 * 1024 * 1024;
    let (house, folder) = (House::start().await, Folder::new());
    let (server, port) = server(&house, &folder, "watch_stall_seconds = 1").await;
    let talk = house.conversation().await;
    let header = Header { conversation_id: talk.id.clone(), message: Some(user("")), ..Default::default() };
    let chunks = (0..BYTES / 1_048_576).map(|_| Frame::Chunk("a long word ".repeat(87_382)[..1_048_576].into()));
    let frames: Vec<_> = std::iter::once(Frame::Header(header))
        .chain(chunks)
        .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) })
        .collect();
    house.messages().append_large_message(futures::stream::iter(frames)).await.expect("appends");

    let before = server.most_memory();
    let mut watches = join_all((0..40).map(|_| Watch::open_on(channel(port), whole(&talk)))).await;
    let mut others = 0.0;
    eventually("as many as there is room for are dropped", async || {
        // Before the others: eight more are dropped every second.
        others = figure(&server, "watchers").await;
        figure(&server, "watchers_dropped_total").await > 7.5
    })
    .await;
    assert!(others > 20.0, "others wait for their turn");
    println!("{before} MiB before, {} MiB at most", server.most_memory());
    // What is held is 256 MiB; beside it four messages are read at once, each in several shapes for a moment. Held by all they
    // would be a gigabyte.
    assert!(server.most_memory() < 896, "{} MiB", server.most_memory());

    let first = watches.iter_mut().flatten().map(|watch| Box::pin(watch.end()));
    let (status, ..) = futures::future::select_all(first).await;
    assert_eq!(refusal(&status).reason, "WATCHER_TOO_SLOW", "{status}");
    drop(watches);
    eventually("there is room again", async || {
        let Ok(mut watch) = Watch::open_on(channel(port), whole(&talk)).await else { return false };
        loop {
            match watch.try_next().await {
                Ok(Event::MessageAppended(_)) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_cost_one_statement_a_look_and_appends_go_on() {
    let (house, folder) = (House::start().await, Folder::new());
    let (server, port) = server(&house, &folder, "watch_poll_ms = 100").await;
    let mut talks = Vec::new();
    for _ in 0..100 {
        talks.push(house.conversation().await);
    }
    let channels: Vec<Channel> = (0..10).map(|_| channel(port)).collect();
    let mut watches = Vec::new();
    for (number, talk) in talks.iter().cycle().take(1_000).enumerate() {
        let channel = channels[number % channels.len()].clone();
        let mut watch = Watch::open_on(channel, live(talk)).await.expect("is let in");
        assert!(matches!(watch.next().await, Event::Started(_)));
        watches.push((talk, watch));
    }
    assert!((figure(&server, "watchers").await - 1_000.0).abs() < 0.5);

    let begun = std::time::Instant::now();
    let polls = figure(&server, "watch_polls_total").await;
    for talk in talks.iter().step_by(10) {
        talk.append("hello").await;
    }
    for (_, watch) in watches.iter_mut().filter(|(talk, _)| talks.iter().step_by(10).any(|one| one.id == talk.id)) {
        assert_eq!(appended(&[watch.next().await]), [1]);
    }
    eventually("ten more looks", async || figure(&server, "watch_polls_total").await >= polls + 10.0).await;
    let (looks, ticks) =
        (figure(&server, "watch_polls_total").await - polls, begun.elapsed().as_millis() as f64 / 100.0);
    println!("{looks} statements in {ticks:.1} tenths of a second, {} MiB at most", server.most_memory());
    assert!(looks <= ticks + 2.0, "{looks} looks in {ticks} tenths of a second, whoever watches");
}
