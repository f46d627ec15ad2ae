//! The model of the simulated turns: it says what was set, and keeps what it was asked last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anneal_testkit::{Gate, ModelRequest, Say, Script, ScriptedModel};

/// The model's next answer, and the last request to it. All clones are one.
#[derive(Clone, Default)]
pub(crate) struct TurnScript(Arc<Mutex<Scripted>>);

#[derive(Default)]
struct Scripted {
    /// The pieces of the next answer.
    pieces: Vec<String>,
    /// Where the pieces of the answer wait.
    gate: Gate,
    /// How often the model was called.
    calls: u64,
    /// The body of the last call.
    asked: String,
}

impl TurnScript {
    /// Starts a model that follows the script.
    pub(crate) async fn start_model(&self) -> ScriptedModel {
        let script = self.clone();
        ScriptedModel::start_without_requests(move |request| script.answer(request)).await
    }

    /// Sets the pieces of the next answer. Returns the gate at which all pieces but the first wait.
    pub(crate) fn set_answer(&self, pieces: &[String]) -> Gate {
        let gate = Gate::default();
        // Two events pass: the start of the answer, and its first piece.
        gate.open(2);
        let mut scripted = self.lock();
        scripted.pieces = pieces.to_vec();
        scripted.gate = gate.clone();
        gate
    }

    /// How often the model was called.
    pub(crate) fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// The body of the last call.
    pub(crate) fn asked(&self) -> String {
        self.lock().asked.clone()
    }

    fn answer(&self, request: &ModelRequest) -> Script {
        let mut scripted = self.lock();
        scripted.calls += 1;
        scripted.asked.clone_from(&request.raw);
        let says = scripted.pieces.iter().map(|piece| Say::text(piece));
        Script::says(request, says).gated(&scripted.gate)
    }

    fn lock(&self) -> MutexGuard<'_, Scripted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
