//! How clients append: with request ids until it is acknowledged, in pieces, repeated, doubled, and under an id that is taken.

use pb::{append_large_message_request as large, message_service_client::MessageServiceClient};
use tonic::{Status, transport::Channel};

use super::{
    client::Client,
    history::{Said, Talk},
    scene::Scene,
};
use crate::{pb, refusal, user};

/// Bytes of a piece.
const PIECE: usize = 20_000;

impl Client {
    /// Sends an append until it is acknowledged.
    pub(super) async fn send(
        &mut self,
        talk: &Talk,
        said: &Said,
    ) -> Option<Result<pb::AppendMessagesResponse, Status>> {
        let first = self.first();
        send(&self.scene, first, talk, said).await
    }

    pub(super) async fn append(&mut self, talk: &Talk) {
        let messages = self.messages();
        let said = Said::new(self.request(), messages);
        let place = talk.begin(&said);
        match self.send(talk, &said).await {
            Some(Ok(done)) => self.told(talk, place, &said, &done),
            Some(Err(status)) => self.refused(talk, "AppendMessages", &status),
            None => talk.ended(),
        }
    }

    /// One message whose text comes in pieces.
    pub(super) async fn append_in_pieces(&mut self, talk: &Talk) {
        self.said += 1;
        let text = format!("Note mk{}x{}x0. {}", self.number, self.said, "It rained for days. ".repeat(4_000));
        let said = Said::new(self.request(), vec![user(&text)]);
        let place = talk.begin(&said);
        let header = large::Header {
            conversation_id: talk.id.clone(),
            request_id: said.request_id.clone(),
            message: Some(user("")),
            ..Default::default()
        };
        let pieces = text.as_bytes().chunks(PIECE).map(|piece| large::Frame::Chunk(piece.to_vec()));
        let frames: Vec<pb::AppendLargeMessageRequest> = std::iter::once(large::Frame::Header(header))
            .chain(pieces)
            .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) })
            .collect();
        let append = |channel: Channel| {
            let frames = futures::stream::iter(frames.clone());
            async move {
                let done = MessageServiceClient::new(channel).append_large_message(frames).await;
                done.map(tonic::Response::into_inner)
            }
        };
        let first = self.first();
        match self.scene.answered("AppendLargeMessage", first, append).await {
            Some(Ok(done)) => {
                self.scene.tally.one("appends in pieces");
                self.told(talk, place, &said, &done);
            }
            Some(Err(status)) => self.refused(talk, "AppendLargeMessage", &status),
            None => talk.ended(),
        }
    }

    /// Two tries of one append under way at once: both are told the same.
    pub(super) async fn append_twice_at_once(&mut self, talk: &Talk) {
        let messages = self.messages();
        let said = Said::new(self.request(), messages);
        let place = talk.begin(&said);
        let (one, other) = (self.first(), self.first());
        let (one, other) = tokio::join!(send(&self.scene, one, talk, &said), send(&self.scene, other, talk, &said));
        match (one, other) {
            (Some(Ok(one)), Some(Ok(other))) => {
                self.same("two tries at once", &said, &ids(&one), &ids(&other));
                self.told(talk, place, &said, &one);
            }
            (Some(Ok(done)), other) | (other, Some(Ok(done))) => {
                if let Some(Err(status)) = other {
                    self.wrong(talk, "one of two tries at once", &status);
                }
                self.told(talk, place, &said, &done);
            }
            (Some(Err(status)), _) | (_, Some(Err(status))) => self.refused(talk, "AppendMessages", &status),
            (None, None) => talk.ended(),
        }
    }

    /// An append was acknowledged with these ids.
    pub(super) fn told(&self, talk: &Talk, place: usize, said: &Said, done: &pb::AppendMessagesResponse) {
        let ids = ids(done);
        self.scene.tally.one("acknowledged");
        let contiguous = ids.windows(2).all(|pair| pair[1] == pair[0] + 1) && ids.len() == said.messages.len();
        self.scene.findings.demand(contiguous, "order", || {
            format!("{} was told ids {ids:?} for {} messages", said.request_id, said.messages.len())
        });
        let after = talk.acknowledged(place, &ids);
        self.scene.findings.demand(ids.first().is_none_or(|first| *first > after), "order", || {
            format!("{} was told ids {ids:?}, and {after} had been acknowledged before it was sent", said.request_id)
        });
    }

    /// Sends an append that was acknowledged before: nothing is stored, and the same is told.
    pub(super) async fn repeat(&mut self, talk: &Talk) {
        let Some(said) = talk.earlier(&mut self.random) else { return };
        let again = match self.send(talk, &said).await {
            Some(Ok(again)) => again,
            Some(Err(status)) => return self.wrong(talk, "a repeated append", &status),
            None => return,
        };
        self.scene.tally.one("repeated");
        self.same("a repeated append", &said, &said.ids, &ids(&again));
        self.scene
            .findings
            .demand(again.replayed, "one effect", || format!("{} was repeated and not known again", said.request_id));
    }

    fn same(&self, what: &str, said: &Said, one: &[i64], other: &[i64]) {
        self.scene.findings.demand(one == other, "one effect", || {
            format!("{what}: {} was told {one:?} and {other:?}", said.request_id)
        });
    }

    /// An earlier request id with other messages is refused.
    pub(super) async fn misuse(&mut self, talk: &Talk) {
        let Some(mut said) = talk.earlier(&mut self.random) else { return };
        said.messages = vec![user("Something else altogether.")];
        let known = match self.send(talk, &said).await {
            Some(Err(status)) => refusal(&status).reason == "REQUEST_ID_REUSED" || !talk.is_there(),
            Some(Ok(_)) => false,
            None => true,
        };
        self.scene.findings.demand(known, "one effect", || format!("{} was taken for other messages", said.request_id));
    }

    /// An append that was refused for good.
    pub(super) fn refused(&self, talk: &Talk, what: &'static str, status: &Status) {
        talk.ended();
        self.wrong(talk, what, status);
    }
}

async fn send(
    scene: &Scene,
    first: usize,
    talk: &Talk,
    said: &Said,
) -> Option<Result<pb::AppendMessagesResponse, Status>> {
    let ask = pb::AppendMessagesRequest {
        conversation_id: talk.id.clone(),
        request_id: said.request_id.clone(),
        messages: said.messages.clone(),
        ..Default::default()
    };
    let append = |channel: Channel| {
        let ask = ask.clone();
        async move { MessageServiceClient::new(channel).append_messages(ask).await.map(tonic::Response::into_inner) }
    };
    scene.answered("AppendMessages", first, append).await
}

fn ids(done: &pb::AppendMessagesResponse) -> Vec<i64> {
    done.messages.iter().map(|message| message.message_id).collect()
}
