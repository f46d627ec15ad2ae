//! The lease of a model call when its admission or settlement fails, or when the caller disconnects
//! meanwhile. If the database's answer is lost, the server cannot know whether the statement was
//! committed.

use anneal_testkit::{
    AnnealBinary, Folder, Process, ScriptedModel, TestApp, TestConversation, TurnOutcome,
    eventually, pb, status_details, user,
};
use pb::chat_service_client::ChatServiceClient;
use tonic::{Response, Status, Streaming, transport::Channel};

use crate::BINARY;

/// A server process with active failpoints, and the model that it calls.
struct ModelCallScenario {
    app: TestApp,
    server: Process,
    channel: Channel,
    model: ScriptedModel,
    _folder: Folder,
}

impl ModelCallScenario {
    /// Starts the server. `configuration` says which failpoints do what, in the syntax of the crate
    /// `fail`: with `call.admitted=1*return(error)`, the failpoint `call.admitted` fails when it is
    /// first reached. `return(delay:500)` makes it wait for 500 ms.
    async fn start(configuration: &str) -> Self {
        let (app, folder) = (TestApp::start().await, Folder::new());
        let model = ScriptedModel::saying("Here.").await;
        folder.file("anneal.toml", &model.server_settings());
        let (server, port) = AnnealBinary::new(BINARY, &folder, &app.url)
            .with_failpoints(configuration)
            .server()
            .await;
        let channel = Channel::from_shared(format!("http://127.0.0.1:{port}"))
            .expect("an address")
            .connect_lazy();
        Self {
            app,
            server,
            channel,
            model,
            _folder: folder,
        }
    }

    /// Starts a turn and returns its events.
    async fn start_turn(
        &self,
        conversation: &TestConversation<'_>,
    ) -> Result<Streaming<pb::ChatResponse>, Status> {
        let ask = pb::ChatRequest {
            conversation_id: conversation.id.clone(),
            request_id: "r".to_owned(),
            messages: vec![user("Anybody?")],
            ..Default::default()
        };
        ChatServiceClient::new(self.channel.clone())
            .chat(ask)
            .await
            .map(Response::into_inner)
    }

    async fn run_turn(&self, conversation: &TestConversation<'_>) -> Result<TurnOutcome, Status> {
        let outcome = TurnOutcome::read(self.start_turn(conversation).await?).await;
        outcome.end.clone().map(|_| outcome)
    }

    /// Waits until every lease was released. A lease that has only expired would stay until the
    /// next admission.
    async fn wait_until_no_lease_is_left(&self) {
        eventually("no call has a lease", async || {
            count_leases(&self.app).await == 0
        })
        .await;
    }
}

/// Counts the leases of model calls.
pub(crate) async fn count_leases(app: &TestApp) -> i64 {
    let query = "select count(*) from ai_model_lease";
    sqlx::query_scalar(query)
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts")
}

/// Counts the model calls that are recorded with their cost.
pub(crate) async fn count_recorded_calls(app: &TestApp) -> i64 {
    let query = "select coalesce(sum(calls), 0)::bigint from ai_model_spend";
    sqlx::query_scalar(query)
        .fetch_one(&mut app.db().await)
        .await
        .expect("adds")
}

#[tokio::test]
async fn a_call_is_released_when_the_answer_to_its_admission_is_lost() {
    let scenario = ModelCallScenario::start("call.admitted=1*return(error)").await;
    let conversation = scenario.app.conversation().await;
    let refused = scenario
        .run_turn(&conversation)
        .await
        .expect_err("the outcome of the admission is unknown");
    let details = status_details(&refused);
    assert_eq!(
        (details.reason.as_str(), details.retry),
        ("DATABASE_UNAVAILABLE", true)
    );
    scenario.wait_until_no_lease_is_left().await;
    assert_eq!(
        (
            count_recorded_calls(&scenario.app).await,
            scenario.model.requests().len()
        ),
        (0, 0)
    );
    assert_eq!(
        scenario
            .run_turn(&conversation)
            .await
            .expect("the conversation is not locked")
            .text(),
        "Here."
    );
    scenario.wait_until_no_lease_is_left().await;
    assert_eq!(
        (
            count_recorded_calls(&scenario.app).await,
            scenario.model.requests().len()
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn a_call_that_is_admitted_while_its_caller_disconnects_is_released() {
    let scenario = ModelCallScenario::start("call.admitted=1*return(delay:600000)").await;
    let conversation = scenario.app.conversation().await;
    let stream = scenario.start_turn(&conversation).await.expect("begins");
    scenario
        .server
        .wait_for_line("failpoint call.admitted: ")
        .await;
    drop(stream);
    scenario.wait_until_no_lease_is_left().await;
    assert_eq!(
        (
            count_recorded_calls(&scenario.app).await,
            scenario.model.requests().len()
        ),
        (0, 0)
    );
}

#[tokio::test]
async fn a_stopping_server_settles_calls_whose_settlement_failed() {
    // The first settlement fails. The second waits for 500 ms, and the server is stopped meanwhile.
    let scenario =
        ModelCallScenario::start("call.settling=1*return(error)->1*return(delay:500)").await;
    let conversation = scenario.app.conversation().await;
    assert_eq!(
        scenario
            .run_turn(&conversation)
            .await
            .expect("the answer is stored")
            .text(),
        "Here."
    );
    scenario.server.terminate().await;
    assert_eq!(scenario.server.wait_for_exit().await, Some(0));
    assert_eq!(
        (
            count_leases(&scenario.app).await,
            count_recorded_calls(&scenario.app).await
        ),
        (0, 1)
    );
}

#[tokio::test]
async fn a_call_whose_settlement_failed_is_settled_later() {
    let scenario = ModelCallScenario::start("call.settling=1*return(error)").await;
    let conversation = scenario.app.conversation().await;
    assert_eq!(
        scenario
            .run_turn(&conversation)
            .await
            .expect("the answer is stored")
            .text(),
        "Here."
    );
    scenario.wait_until_no_lease_is_left().await;
    assert_eq!(
        count_recorded_calls(&scenario.app).await,
        1,
        "the call's cost is recorded"
    );
}

#[tokio::test]
async fn a_call_is_recorded_once_when_the_answer_to_its_settlement_is_lost() {
    // After the error, the failpoint only writes a line to the log: a delay of 1 ms.
    let scenario = ModelCallScenario::start("call.settled=1*return(error)->return(delay:1)").await;
    let conversation = scenario.app.conversation().await;
    assert_eq!(
        scenario
            .run_turn(&conversation)
            .await
            .expect("the answer is stored")
            .text(),
        "Here."
    );
    scenario
        .server
        .wait_for_line("failpoint call.settled: delay:1")
        .await;
    scenario.wait_until_no_lease_is_left().await;
    assert_eq!(count_recorded_calls(&scenario.app).await, 1);
}
