//! The process that answers a question anew dies at each step. The repeated request leaves one
//! answer, and the earlier one is its alternative.

use anneal_testkit::{
    AnnealBinary, Folder, Process, ScriptedModel, TestApp, TurnOutcome, gate_or_nightly, pb,
};
use pb::chat_service_client::ChatServiceClient;
use tonic::transport::Channel;

use crate::BINARY;

/// The failpoints that such a turn reaches, in order.
const POINTS: [&str; 11] = [
    "change.locked",
    "change.moved",
    "change.renumbered",
    "change.voided",
    "change.marked",
    "change.fenced",
    "change.enqueued",
    "change.committed",
    "answer.locked",
    "answer.written",
    "answer.committed",
];

/// The failpoint between the question and its answer: the earlier answer is withdrawn, and the new
/// one is not begun.
const BETWEEN: &str = "change.committed";

/// The failpoints at which a process dies, and whether the turn edits the question: at night each
/// failpoint with both. The gate has every third of these, and [`BETWEEN`] with both.
fn runs() -> impl Iterator<Item = (&'static str, bool)> {
    let interval = gate_or_nightly(3, 1);
    POINTS
        .into_iter()
        .flat_map(|point| [(point, false), (point, true)])
        .enumerate()
        .filter(move |(nth, (point, _))| nth % interval == 0 || *point == BETWEEN)
        .map(|(_, run)| run)
}

/// Starts a server that calls the model, with these failpoints.
pub(crate) async fn start_server(
    app: &TestApp,
    (folder, model): (&Folder, &ScriptedModel),
    failpoints: &str,
) -> (Process, Channel) {
    folder.file("anneal.toml", &model.server_settings());
    let (server, port) = AnnealBinary::new(BINARY, folder, &app.url)
        .with_failpoints(failpoints)
        .server()
        .await;
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy();
    (server, channel)
}

/// Lets the leases of dead processes end.
pub(crate) async fn expire_leases(app: &TestApp) {
    sqlx::query("update ai_model_lease set lease_until_ts = now() - interval '1 second'")
        .execute(&mut app.db().await)
        .await
        .expect("expires");
}

#[tokio::test]
async fn a_turn_that_dies_at_any_step_is_repeated_with_one_answer() {
    let (app, model) = (
        TestApp::start().await,
        ScriptedModel::saying("Because.").await,
    );
    let folder = Folder::new();
    let (_healthy, healthy) = start_server(&app, (&folder, &model), "").await;
    for (point, is_edit) in runs() {
        let conversation = app.conversation().await;
        conversation.turn("Why?", "It is so.").await;
        let (question, request) = if is_edit {
            ("Why so?", conversation.edit_and_answer(1, "Why so?"))
        } else {
            ("Why?", conversation.regenerate())
        };
        let ask = request.request_id("r").ask;
        let run = format!("{point}, edit: {is_edit}");
        let folder = Folder::new();
        let failpoints = format!("{point}=1*return(abort)");
        let (dying, channel) = start_server(&app, (&folder, &model), &failpoints).await;
        if let Ok(stream) = ChatServiceClient::new(channel).chat(ask.clone()).await {
            let outcome = TurnOutcome::read(stream.into_inner()).await;
            assert!(outcome.end.is_err(), "{run}: {outcome:?}");
        }
        dying.wait_for_exit().await;
        expire_leases(&app).await;
        let stream = ChatServiceClient::new(healthy.clone()).chat(ask).await;
        let outcome = TurnOutcome::read(stream.expect("begins").into_inner()).await;
        assert_eq!(outcome.text(), "Because.", "{run}: {outcome:?}");
        assert_eq!(
            conversation.texts_by_role().await,
            [
                (pb::Role::User, question.to_owned()),
                (pb::Role::Assistant, "Because.".to_owned())
            ],
            "{run}"
        );
        let alternatives = conversation.alternatives(1).await;
        let listed: Vec<_> = alternatives
            .iter()
            .map(|one| (one.number, one.text.as_str(), one.current))
            .collect();
        assert_eq!(
            listed,
            [(1, "It is so.", false), (2, "Because.", true)],
            "{run}"
        );
        conversation.verify().await;
    }
}
