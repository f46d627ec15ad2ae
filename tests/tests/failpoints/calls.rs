//! The database has done what it was asked about a model's call, or has not, and nobody hears it.

use anneal_tests::{Anneal, Folder, House, Process, ScriptedModel, Talk, ToldTurn, eventually, pb, refusal, user};
use pb::chat_service_client::ChatServiceClient;
use tonic::{Response, Status, Streaming, transport::Channel};

use crate::BINARY;

/// A server that calls a model, and in which something goes wrong.
struct Scene {
    house: House,
    server: Process,
    channel: Channel,
    model: ScriptedModel,
    _folder: Folder,
}

impl Scene {
    async fn failing(configuration: &str) -> Self {
        let (house, folder) = (House::start().await, Folder::new());
        let model = ScriptedModel::saying("Here.").await;
        folder.file("anneal.toml", &model.server_settings());
        let (server, port) = Anneal::new(BINARY, &folder, &house.url).failing(configuration).server().await;
        let channel = Channel::from_shared(format!("http://127.0.0.1:{port}")).expect("an address").connect_lazy();
        Self { house, server, channel, model, _folder: folder }
    }

    /// The events of a turn.
    async fn begun(&self, talk: &Talk<'_>) -> Result<Streaming<pb::ChatResponse>, Status> {
        let ask = pb::ChatRequest {
            conversation_id: talk.id.clone(),
            request_id: "r".to_owned(),
            messages: vec![user("Anybody?")],
            ..Default::default()
        };
        ChatServiceClient::new(self.channel.clone()).chat(ask).await.map(Response::into_inner)
    }

    async fn ask(&self, talk: &Talk<'_>) -> Result<ToldTurn, Status> {
        let told = ToldTurn::of(self.begun(talk).await?).await;
        told.end.clone().map(|_| told)
    }

    /// No call has a lease any more. Only the next admission would take away one that has ended by itself.
    async fn no_lease_is_left(&self) {
        eventually("no call has a lease", async || leases(&self.house).await == 0).await;
    }
}

/// Leases of model calls.
pub(crate) async fn leases(house: &House) -> i64 {
    let leases = "select count(*) from ai_model_lease";
    sqlx::query_scalar(leases).fetch_one(&mut house.db().await).await.expect("counts")
}

/// Calls of the model that were booked.
pub(crate) async fn booked(house: &House) -> i64 {
    let booked = "select coalesce(sum(calls), 0)::bigint from ai_model_spend";
    sqlx::query_scalar(booked).fetch_one(&mut house.db().await).await.expect("adds")
}

#[tokio::test]
async fn a_call_of_which_nobody_hears_that_it_was_admitted_is_given_back() {
    let scene = Scene::failing("call.admitted=1*return(error)").await;
    let talk = scene.house.conversation().await;
    let refused = scene.ask(&talk).await.expect_err("nobody knows whether it may call");
    let said = refusal(&refused);
    assert_eq!((said.reason.as_str(), said.retry), ("DATABASE_UNAVAILABLE", true));
    scene.no_lease_is_left().await;
    assert_eq!((booked(&scene.house).await, scene.model.asked().len()), (0, 0));
    assert_eq!(scene.ask(&talk).await.expect("its conversation is free").text(), "Here.");
    scene.no_lease_is_left().await;
    assert_eq!((booked(&scene.house).await, scene.model.asked().len()), (1, 1));
}

#[tokio::test]
async fn a_call_that_is_admitted_while_its_caller_leaves_is_given_back() {
    let scene = Scene::failing("call.admitted=1*return(delay:600000)").await;
    let talk = scene.house.conversation().await;
    let left = scene.begun(&talk).await.expect("begins");
    scene.server.said("failpoint call.admitted: ").await;
    drop(left);
    scene.no_lease_is_left().await;
    assert_eq!((booked(&scene.house).await, scene.model.asked().len()), (0, 0));
}

#[tokio::test]
async fn a_server_that_stops_ends_the_calls_that_the_database_has_not_taken_yet() {
    let scene = Scene::failing("call.settling=1*return(error)->1*return(delay:500)").await;
    let talk = scene.house.conversation().await;
    assert_eq!(scene.ask(&talk).await.expect("the answer is stored").text(), "Here.");
    scene.server.terminate().await;
    assert_eq!(scene.server.ended().await, Some(0));
    assert_eq!((leases(&scene.house).await, booked(&scene.house).await), (0, 1));
}

#[tokio::test]
async fn a_call_that_the_database_could_not_end_is_ended_later() {
    let scene = Scene::failing("call.settling=1*return(error)").await;
    let talk = scene.house.conversation().await;
    assert_eq!(scene.ask(&talk).await.expect("the answer is stored").text(), "Here.");
    scene.no_lease_is_left().await;
    assert_eq!(booked(&scene.house).await, 1, "what it cost is booked with it");
}

#[tokio::test]
async fn a_call_of_which_nobody_hears_that_it_was_ended_is_booked_once() {
    let scene = Scene::failing("call.settled=1*return(error)->return(delay:1)").await;
    let talk = scene.house.conversation().await;
    assert_eq!(scene.ask(&talk).await.expect("the answer is stored").text(), "Here.");
    scene.server.said("failpoint call.settled: delay:1").await;
    scene.no_lease_is_left().await;
    assert_eq!(booked(&scene.house).await, 1);
}
