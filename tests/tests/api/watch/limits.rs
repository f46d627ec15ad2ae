//! Limits of watches: their number, clients that do not read, memory, deadlines. Other tests are of
//! watches while the server stops and while the database is down.

use std::time::Duration;

use anneal_testkit::{
    AnnealBinary, Folder, OwnPostgres, Process, TcpProxy, TestApp, TestConversation, Watch,
    appended_ids, assert_refused, eventually, metric_value, pb, status_details, user,
};
use futures::future::join_all;
use pb::{
    append_large_message_request::{Frame, Header},
    conversation_event::Event,
};
use tonic::{Code, Request, transport::Channel};
use tonic_types::StatusExt as _;

use crate::watch::BINARY;

/// Starts a server process with these settings on the app's database. Returns it and its gRPC port.
async fn start_server(app: &TestApp, folder: &Folder, settings: &str) -> (Process, u16) {
    folder.file("anneal.toml", &format!("[server]\n{settings}"));
    AnnealBinary::new(BINARY, folder, &app.url).server().await
}

/// A new connection. The number of streams per connection is limited, so at most a hundred watches
/// share one.
fn channel(port: u16) -> Channel {
    Channel::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy()
}

fn request_from_start(conversation: &TestConversation<'_>) -> pb::WatchConversationRequest {
    let after_message_id = Some(0);
    pb::WatchConversationRequest {
        conversation_id: conversation.id.clone(),
        after_message_id,
        ..Default::default()
    }
}

fn request_for_new_events(conversation: &TestConversation<'_>) -> pb::WatchConversationRequest {
    pb::WatchConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_not_read_is_dropped_and_resumes_at_its_position() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let (server, port) = start_server(&app, &folder, "watch_stall_seconds = 1").await;
    let conversation = app.conversation().await;
    for _ in 0..40 {
        conversation.append(&"a long word ".repeat(90_000)).await;
    }
    let mut watch = Watch::open_on(channel(port), request_from_start(&conversation))
        .await
        .expect("is accepted");
    eventually("the stalled watch is dropped", async || {
        metric_value(&server, "anneal_watchers_dropped_total").await > 0.5
    })
    .await;
    eventually("the watch has ended", async || {
        metric_value(&server, "anneal_watchers").await < 0.5
    })
    .await;
    assert!(server.peak_memory() < 200, "{} MiB", server.peak_memory());

    let mut received = Vec::new();
    let status = loop {
        match watch.try_next().await {
            Ok(event) => received.push(event),
            Err(status) => break status,
        }
    };
    let details = status_details(&status);
    assert_eq!(
        (details.code, details.reason.as_str()),
        (Code::ResourceExhausted, "WATCHER_TOO_SLOW"),
        "{status}"
    );
    let info = status
        .get_error_details()
        .error_info()
        .cloned()
        .expect("has a reason");
    assert_eq!(
        info.metadata["position"], watch.position,
        "the error names the position of the last event that was read"
    );
    let received = appended_ids(&received);
    assert!(!received.is_empty() && received.len() < 40, "{received:?}");

    let ask = pb::WatchConversationRequest {
        position: watch.position,
        ..request_for_new_events(&conversation)
    };
    // The app's own server has the default stall time.
    let mut resumed = Watch::open(&app, ask).await.expect("is accepted");
    let rest = resumed
        .until(|event| matches!(event, Event::MessageAppended(one) if one.message_id == 40))
        .await;
    assert_eq!(
        [received, appended_ids(&rest)].concat(),
        (1..=40).collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_server_ends_its_watches_at_once_and_they_resume_elsewhere() {
    let (app, folder) = (TestApp::counted_by_workers().await, Folder::new());
    let (server, port) = start_server(&app, &folder, "stop_seconds = 20").await;
    let conversation = app.conversation().await;
    conversation.append("one").await;
    let mut watches =
        join_all((0..50).map(|_| Watch::open_on(channel(port), request_from_start(&conversation))))
            .await;
    for watch in &mut watches {
        let watch = watch.as_mut().expect("is accepted");
        watch
            .until(|event| matches!(event, Event::MessageAppended(_)))
            .await;
    }
    let begun = std::time::Instant::now();
    server.terminate().await;
    let exit = tokio::spawn(async move { (server.wait_for_exit().await, begun.elapsed()) });
    for watch in watches {
        let mut watch = watch.expect("is accepted");
        let details = status_details(&watch.try_next().await.expect_err("ends"));
        assert_eq!(
            (details.code, details.reason.as_str(), details.retry),
            (Code::Unavailable, "SERVER_STOPPING", true)
        );
        conversation.watch_from(&watch.position).await;
    }
    let (code, took) = exit.await.expect("is waited for");
    assert_eq!(code, Some(0));
    assert!(
        took < Duration::from_secs(10),
        "{took:?}: open watches do not delay the stop"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_above_the_limit_are_refused_until_others_end() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let (server, port) = start_server(&app, &folder, "concurrent_watches = 3").await;
    let conversation = app.conversation().await;
    let mut watches = Vec::new();
    for _ in 0..3 {
        let mut watch = Watch::open_on(channel(port), request_for_new_events(&conversation))
            .await
            .expect("is accepted");
        assert!(matches!(watch.next().await, Event::Started(_)));
        watches.push(watch);
    }
    assert!((metric_value(&server, "anneal_watchers").await - 3.0).abs() < 0.5);
    let refused = Watch::open_on(channel(port), request_for_new_events(&conversation))
        .await
        .map(drop);
    assert_refused(refused, Code::ResourceExhausted, "OVERLOADED", "");
    drop(watches);
    eventually("no watch is open", async || {
        metric_value(&server, "anneal_watchers").await < 0.5
    })
    .await;
    let mut watch = Watch::open_on(channel(port), request_for_new_events(&conversation))
        .await
        .expect("a watch is accepted again");
    assert!(matches!(watch.next().await, Event::Started(_)));
}

#[tokio::test]
async fn a_watch_ends_at_its_callers_deadline() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    let mut ask = Request::new(request_for_new_events(&conversation));
    ask.metadata_mut()
        .insert("grpc-timeout", "5S".parse().expect("digits and a unit"));
    let mut watch = Watch::open(&app, ask).await.expect("is accepted");
    assert!(matches!(watch.next().await, Event::Started(_)));
    assert_refused(
        watch.try_next().await,
        Code::DeadlineExceeded,
        "DEADLINE_EXCEEDED",
        "",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_survive_a_database_restart() {
    let postgres = OwnPostgres::start().await;
    let app = TestApp::on_database(&postgres.url).await;
    let conversation = app.conversation().await;
    conversation.append("before").await;
    let mut watches = vec![
        conversation.watch_after(0).await,
        conversation.watch_after(0).await,
    ];
    for watch in &mut watches {
        assert_eq!(appended_ids(&[watch.next().await]), [1]);
    }
    postgres.crash().await;
    eventually("the database is down", async || {
        conversation.append("lost").send().await.is_err()
    })
    .await;
    postgres.restart().await;
    eventually("the database is up", async || {
        conversation
            .append("after")
            .request_id("after")
            .send()
            .await
            .is_ok()
    })
    .await;
    for watch in &mut watches {
        let is_after = |event: &Event| matches!(event, Event::MessageAppended(one) if one.parts == user("after").parts);
        let received = appended_ids(&watch.until(is_after).await);
        assert_eq!(received, (2..2 + received.len() as i64).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_survive_silently_dead_database_connections() {
    let app = TestApp::counted_by_workers().await;
    let (proxy, url) = TcpProxy::to_database(&app.url).await;
    let proxied = TestApp::on_database(&url).await;
    let conversation = app.conversation().await;
    let mut watch = TestConversation {
        app: &proxied,
        id: conversation.id.clone(),
    }
    .watch()
    .await;
    conversation.append("before").await;
    assert_eq!(appended_ids(&[watch.next().await]), [1]);
    let begun = std::time::Instant::now();
    proxy.stall();
    conversation.append("after").await;
    assert_eq!(appended_ids(&[watch.next().await]), [2]);
    println!("received after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_watches_of_a_large_message_stay_within_the_memory_budget() {
    const BYTES: usize = 24 * 1024 * 1024;
    let (app, folder) = (TestApp::start().await, Folder::new());
    let (server, port) = start_server(&app, &folder, "watch_stall_seconds = 1").await;
    let conversation = app.conversation().await;
    let header = Header {
        conversation_id: conversation.id.clone(),
        message: Some(user("")),
        ..Default::default()
    };
    let chunks = (0..BYTES / 1_048_576)
        .map(|_| Frame::Chunk("a long word ".repeat(87_382)[..1_048_576].into()));
    let frames: Vec<_> = std::iter::once(Frame::Header(header))
        .chain(chunks)
        .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) })
        .collect();
    app.messages()
        .append_large_message(futures::stream::iter(frames))
        .await
        .expect("appends");

    let before = server.peak_memory();
    let mut watches =
        join_all((0..40).map(|_| Watch::open_on(channel(port), request_from_start(&conversation))))
            .await;
    let mut still_open = 0.0;
    eventually(
        "the watches that have a part of the budget are dropped",
        async || {
            // Read this metric first: every second, another eight watches are dropped. A read needs
            // 64 MiB of the budget of 256 MiB to be free, and a finished one holds its message of
            // 24 MiB: (256 - 64) / 24 = 8.
            still_open = metric_value(&server, "anneal_watchers").await;
            metric_value(&server, "anneal_watchers_dropped_total").await > 7.5
        },
    )
    .await;
    assert!(
        still_open > 20.0,
        "the other watches wait for a part of the budget"
    );
    println!("{before} MiB before, {} MiB at most", server.peak_memory());
    // The budget of watches is 256 MiB. In addition, up to four messages are being read, each held
    // for a moment in several forms. Without the budget, the watches would hold a gigabyte.
    assert!(server.peak_memory() < 896, "{} MiB", server.peak_memory());

    let ends = watches
        .iter_mut()
        .flatten()
        .map(|watch| Box::pin(watch.read_to_end()));
    let (status, ..) = futures::future::select_all(ends).await;
    assert_eq!(
        status_details(&status).reason,
        "WATCHER_TOO_SLOW",
        "{status}"
    );
    drop(watches);
    eventually("a watch is accepted again", async || {
        let Ok(mut watch) = Watch::open_on(channel(port), request_from_start(&conversation)).await
        else {
            return false;
        };
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
async fn a_thousand_watches_cost_one_statement_per_poll() {
    let (app, folder) = (TestApp::start().await, Folder::new());
    let (server, port) = start_server(&app, &folder, "watch_poll_ms = 100").await;
    let mut conversations = Vec::new();
    for _ in 0..100 {
        conversations.push(app.conversation().await);
    }
    let channels: Vec<Channel> = (0..10).map(|_| channel(port)).collect();
    let mut watches = Vec::new();
    for (number, conversation) in conversations.iter().cycle().take(1_000).enumerate() {
        let channel = channels[number % channels.len()].clone();
        let mut watch = Watch::open_on(channel, request_for_new_events(conversation))
            .await
            .expect("is accepted");
        assert!(matches!(watch.next().await, Event::Started(_)));
        watches.push((conversation, watch));
    }
    assert!((metric_value(&server, "anneal_watchers").await - 1_000.0).abs() < 0.5);

    let begun = std::time::Instant::now();
    let polls = metric_value(&server, "anneal_watch_polls_total").await;
    for conversation in conversations.iter().step_by(10) {
        conversation.append("hello").await;
    }
    for (_, watch) in watches.iter_mut().filter(|(conversation, _)| {
        conversations
            .iter()
            .step_by(10)
            .any(|one| one.id == conversation.id)
    }) {
        assert_eq!(appended_ids(&[watch.next().await]), [1]);
    }
    eventually("the server has polled ten times more", async || {
        metric_value(&server, "anneal_watch_polls_total").await >= polls + 10.0
    })
    .await;
    let (polled, intervals) = (
        metric_value(&server, "anneal_watch_polls_total").await - polls,
        begun.elapsed().as_millis() as f64 / 100.0,
    );
    println!(
        "{polled} statements in {intervals:.1} poll intervals, {} MiB at most",
        server.peak_memory()
    );
    assert!(
        polled <= intervals + 2.0,
        "{polled} polls in {intervals} poll intervals"
    );
}
