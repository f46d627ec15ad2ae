//! The other conversations of the simulation: those of a session, which rotates, and one that is
//! imported from a growing file.

use anneal_core::caller::ConversationId;
use anneal_testkit::{ImportFolder, claw0_session, direct_scope, pb, status_details};
use tonic::Code;

use crate::simulation::{
    BINARY,
    conversation::{SimulatedConversation, Violation},
    operations::Operation,
};

/// The expected state of the other conversations.
#[derive(Default)]
pub(crate) struct OtherConversations {
    /// The session's current conversation.
    active: Option<String>,
    /// Earlier conversations of the session.
    past: Vec<String>,
    /// The conversation that the rotation with a request id has created.
    rotation: Option<String>,
    /// Number of turns in the file.
    turns: usize,
    /// The conversation that was imported from the file.
    imported: Option<String>,
}

impl OtherConversations {
    /// Whether the conversation that this operation would delete does not exist.
    pub(crate) fn is_no_op(&self, deletion: Operation) -> bool {
        match deletion {
            Operation::DeleteActiveSession => self.active.is_none(),
            Operation::DeleteImported => self.imported.is_none(),
            _ => false,
        }
    }

    /// Whether this is the imported conversation.
    pub(crate) fn is_imported(&self, id: ConversationId) -> bool {
        self.imported.as_deref() == Some(id.to_string().as_str())
    }
}

fn conversation_id(session: &pb::Session) -> String {
    session
        .conversation
        .as_ref()
        .map(|conversation| conversation.conversation_id.clone())
        .unwrap_or_default()
}

impl SimulatedConversation<'_> {
    pub(crate) async fn resolve_session(&mut self) -> Result<(), Violation> {
        let session = self
            .app
            .resolve(&direct_scope("anna"))
            .await
            .map_err(|status| format!("no session: {status}"))?;
        let found = conversation_id(&session);
        match &self.others.active {
            Some(active) if *active != found || session.created => {
                Err(format!("{active} is active, found {found}"))
            }
            Some(_) => Ok(()),
            None if session.created => {
                self.others.active = Some(found);
                Ok(())
            }
            None => Err(format!("{found} was found, but no session exists")),
        }
    }

    pub(crate) async fn rotate_session(&mut self, repeatable: bool) -> Result<(), Violation> {
        let request_id = if repeatable { "n" } else { "" };
        let rotated = self.app.rotate(&direct_scope("anna"), request_id).await;
        let found = conversation_id(&rotated.map_err(|status| format!("not rotated: {status}"))?);
        if let Some(known) = self.others.rotation.clone().filter(|_| repeatable) {
            self.record_event("rotations repeated");
            return if known == found {
                Ok(())
            } else {
                Err(format!(
                    "the first rotation created {known}, its repetition returned {found}"
                ))
            };
        }
        if self
            .others
            .past
            .iter()
            .chain(&self.others.active)
            .any(|known| *known == found)
        {
            return Err(format!("a rotation returned {found}, which existed before"));
        }
        self.others
            .past
            .extend(self.others.active.replace(found.clone()));
        if repeatable {
            self.others.rotation = Some(found);
        }
        Ok(())
    }

    pub(crate) async fn delete_active_session(&mut self) -> Result<(), Violation> {
        let Some(active) = self.others.active.take() else {
            return Ok(());
        };
        self.others.rotation.take_if(|created| *created == active);
        self.delete_conversation(active).await
    }

    /// Imports the file. Only its new messages may be added to its conversation.
    pub(crate) async fn import_file(&mut self, turns: u8) -> Result<(), Violation> {
        self.others.turns += usize::from(turns) + usize::from(self.others.turns == 0);
        let imports = ImportFolder::new(BINARY, self.app);
        imports
            .folder
            .file("session.jsonl", &claw0_session(self.others.turns));
        let ran = imports.import(&["session.jsonl"]).await;
        let [conversation] = &imports.conversations(&ran)[..] else {
            return Err(format!("not imported: {ran:?}"));
        };
        if self
            .others
            .imported
            .as_ref()
            .is_some_and(|known| *known != conversation.id)
        {
            return Err(format!(
                "the file was imported as {:?}, now as {}",
                self.others.imported, conversation.id
            ));
        }
        self.others.imported = Some(conversation.id.clone());
        // A turn of the file makes four messages: prompt, tool call, result and answer.
        let (imported, expected) = (
            conversation.as_new_messages().await.len(),
            4 * self.others.turns,
        );
        conversation.verify().await;
        self.record_event("imports");
        if imported == expected {
            Ok(())
        } else {
            Err(format!(
                "{imported} messages were imported from a file of {expected}"
            ))
        }
    }

    pub(crate) async fn delete_imported_conversation(&mut self) -> Result<(), Violation> {
        let Some(imported) = self.others.imported.take() else {
            return Ok(());
        };
        self.delete_conversation(imported).await
    }

    /// Deletes all other conversations.
    pub(crate) async fn delete_all_others(&mut self) -> Result<(), Violation> {
        self.delete_active_session().await?;
        self.delete_imported_conversation().await?;
        for past in std::mem::take(&mut self.others.past) {
            self.delete_conversation(past).await?;
        }
        Ok(())
    }

    pub(crate) async fn delete_conversation(&mut self, id: String) -> Result<(), Violation> {
        let ask = pb::DeleteConversationRequest {
            conversation_id: id.clone(),
            ..Default::default()
        };
        match self.app.conversations().delete_conversation(ask).await {
            Ok(_) => Ok(()),
            Err(status) if status_details(&status).code == Code::NotFound => {
                Err(format!("{id} is deleted already"))
            }
            Err(status) => Err(format!("not deleted: {status}")),
        }
    }
}
