//! The process of a turn dies at each step of its stop. Then what has come of the answer is stored
//! as a stopped answer, or the stop is recorded, or neither, and every repetition says the same.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anneal_testkit::{
    Folder, Say, Script, ScriptedModel, TestApp, TurnOutcome, pb, read_until_text,
};
use pb::{CancelOutcome, chat_service_client::ChatServiceClient};

use crate::anew::{expire_leases, start_server};

/// The rows that are left of a stop whose process has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    Record,
    Answer,
}

/// The failpoints that a stop reaches, and whether it keeps what has come of the answer.
const STOPS: [(&str, bool, Left); 7] = [
    ("stop.requested", true, Left::Nothing),
    ("answer.locked", true, Left::Nothing),
    ("answer.written", true, Left::Nothing),
    ("answer.committed", true, Left::Answer),
    ("stop.locked", false, Left::Nothing),
    ("stop.written", false, Left::Nothing),
    ("stop.committed", false, Left::Record),
];

#[tokio::test]
async fn a_stop_that_dies_at_any_step_has_one_outcome_in_every_repetition() {
    let hangs = Arc::new(AtomicBool::new(false));
    let model = ScriptedModel::start({
        let hangs = Arc::clone(&hangs);
        move |request| {
            let whole = Script::says(request, Say::texts(&["Once", " upon a time."]));
            if hangs.load(Ordering::SeqCst) {
                // The role is the first event, the text is the second.
                whole.hanging_after(2)
            } else {
                whole
            }
        }
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    for (point, keep, left) in STOPS {
        let conversation = app.conversation().await;
        let turn = || conversation.chat("Tell me.").request_id("r");
        let folder = Folder::new();
        let failpoints = format!("{point}=1*return(abort)");
        let (dying, channel) = start_server(&app, (&folder, &model), &failpoints).await;
        let mut chats = ChatServiceClient::new(channel);
        hangs.store(true, Ordering::SeqCst);
        let stream = chats.chat(turn().ask).await.expect("begins");
        let mut stream = stream.into_inner();
        read_until_text(&mut stream, "Once").await;
        hangs.store(false, Ordering::SeqCst);
        let stop = pb::CancelTurnRequest {
            conversation_id: conversation.id.clone(),
            turn_request_id: "r".into(),
            keep_partial: Some(keep),
            wait: None,
        };
        let cancelled = chats.cancel_turn(stop).await;
        assert!(cancelled.is_err(), "{point}: {cancelled:?}");
        let outcome = TurnOutcome::read(stream).await;
        assert!(outcome.end.is_err(), "{point}: {outcome:?}");
        dying.wait_for_exit().await;
        expire_leases(&app).await;
        let messages = conversation.messages().await;
        let stopped: Vec<bool> = messages.iter().map(|message| message.stopped).collect();
        let expected: &[bool] = match left {
            Left::Nothing | Left::Record => &[false],
            Left::Answer => &[false, true],
        };
        assert_eq!(stopped, expected, "{point}: the question, and its answer");
        let calls = model.requests().len();
        let (text, outcome) = match left {
            Left::Nothing => ("Once upon a time.", CancelOutcome::Answered),
            Left::Record => ("", CancelOutcome::Dropped),
            Left::Answer => ("Once", CancelOutcome::Kept),
        };
        for repetition in 1..=2 {
            let repeated = turn().await;
            assert_eq!(
                (repeated.text().as_str(), repeated.done().stopped),
                (text, left != Left::Nothing),
                "{point}, repetition {repetition}"
            );
        }
        let new_calls = model.requests().len() - calls;
        assert_eq!(new_calls, usize::from(left == Left::Nothing), "{point}");
        let cancelled = conversation.cancel_turn("r", None).await;
        assert_eq!(cancelled.outcome(), outcome, "{point}");
        conversation.verify().await;
    }
}
