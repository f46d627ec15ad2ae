//! Conversations beside the one that everything is about: a place's, which changes, and a file's, which grows.

use anneal_core::caller::ConversationId;
use anneal_tests::{Files, claw0, direct, pb, refusal};
use tonic::Code;

use crate::{
    BINARY,
    operations::Operation,
    world::{Broken, World},
};

/// What is known of them.
#[derive(Default)]
pub(crate) struct Beside {
    /// The place's conversation.
    active: Option<String>,
    /// Conversations that were the place's before.
    past: Vec<String>,
    /// The conversation that the one request id began.
    rotation: Option<String>,
    /// Turns in the file.
    turns: usize,
    /// The conversation of the file.
    imported: Option<String>,
}

impl Beside {
    /// Whether there is no conversation that it would delete.
    pub(crate) fn has_nothing_for(&self, deletion: Operation) -> bool {
        match deletion {
            Operation::Leave => self.active.is_none(),
            Operation::Forget => self.imported.is_none(),
            _ => false,
        }
    }

    /// Whether it is the file's conversation.
    pub(crate) fn is_imported(&self, id: ConversationId) -> bool {
        self.imported.as_deref() == Some(id.to_string().as_str())
    }
}

fn begun(session: &pb::Session) -> String {
    session.conversation.as_ref().map(|conversation| conversation.conversation_id.clone()).unwrap_or_default()
}

impl World<'_> {
    pub(crate) async fn resolve(&mut self) -> Result<(), Broken> {
        let session = self.house.resolve(&direct("anna")).await.map_err(|status| format!("no session: {status}"))?;
        let found = begun(&session);
        match &self.beside.active {
            Some(active) if *active != found || session.created => Err(format!("{active} is active, found {found}")),
            Some(_) => Ok(()),
            None if session.created => {
                self.beside.active = Some(found);
                Ok(())
            }
            None => Err(format!("found {found} where nothing was")),
        }
    }

    pub(crate) async fn rotate(&mut self, repeatable: bool) -> Result<(), Broken> {
        let name = if repeatable { "n" } else { "" };
        let rotated = self.house.rotate(&direct("anna"), name).await;
        let found = begun(&rotated.map_err(|status| format!("not rotated: {status}"))?);
        if let Some(known) = self.beside.rotation.clone().filter(|_| repeatable) {
            self.note("rotations repeated");
            return if known == found { Ok(()) } else { Err(format!("{known} was begun, and {found} is told")) };
        }
        if self.beside.past.iter().chain(&self.beside.active).any(|known| *known == found) {
            return Err(format!("{found} was there before"));
        }
        self.beside.past.extend(self.beside.active.replace(found.clone()));
        if repeatable {
            self.beside.rotation = Some(found);
        }
        Ok(())
    }

    pub(crate) async fn leave(&mut self) -> Result<(), Broken> {
        let Some(active) = self.beside.active.take() else { return Ok(()) };
        self.beside.rotation.take_if(|begun| *begun == active);
        self.delete(active).await
    }

    /// What is new in the file is added to its conversation, and nothing else.
    pub(crate) async fn import(&mut self, turns: u8) -> Result<(), Broken> {
        self.beside.turns += usize::from(turns) + usize::from(self.beside.turns == 0);
        let files = Files::new(BINARY, self.house);
        files.folder.file("session.jsonl", &claw0(self.beside.turns));
        let ran = files.import(&["session.jsonl"]).await;
        let [talk] = &files.talks(&ran)[..] else { return Err(format!("not imported: {ran:?}")) };
        if self.beside.imported.as_ref().is_some_and(|known| *known != talk.id) {
            return Err(format!("{:?} was the file's, {} is now", self.beside.imported, talk.id));
        }
        self.beside.imported = Some(talk.id.clone());
        let (given, wanted) = (talk.given().await.len(), 4 * self.beside.turns);
        talk.verify().await;
        self.note("imports");
        if given == wanted { Ok(()) } else { Err(format!("{given} messages of a file of {wanted}")) }
    }

    pub(crate) async fn forget(&mut self) -> Result<(), Broken> {
        let Some(imported) = self.beside.imported.take() else { return Ok(()) };
        self.delete(imported).await
    }

    /// Deletes all of them.
    pub(crate) async fn leave_all(&mut self) -> Result<(), Broken> {
        self.leave().await?;
        self.forget().await?;
        for past in std::mem::take(&mut self.beside.past) {
            self.delete(past).await?;
        }
        Ok(())
    }

    async fn delete(&mut self, id: String) -> Result<(), Broken> {
        let ask = pb::DeleteConversationRequest { conversation_id: id.clone(), ..Default::default() };
        match self.house.conversations().delete_conversation(ask).await {
            Ok(_) => Ok(()),
            Err(status) if refusal(&status).code == Code::NotFound => Err(format!("{id} is gone already")),
            Err(status) => Err(format!("not deleted: {status}")),
        }
    }
}
