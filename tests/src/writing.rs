//! Workers whose summaries a scripted model writes.

use std::sync::Arc;

use anneal_core::model::Models;
use anneal_llm::{
    Extractive, ModelAccess,
    provider::{CallableModels, Providers},
};
use anneal_worker::{SummarizerSettings, Worker, WorkerSettings};

use crate::{House, ScriptedModel};

/// The name of the model that writes.
pub const WRITER: &str = "writer";

/// What a worker is told of the model that writes its summaries; a test changes what matters to it.
#[derive(Debug, Clone)]
pub struct Writing {
    /// The one provider is called `scripted`.
    pub providers: Providers,
    /// The one model is called [`WRITER`], its window is 8,192 tokens.
    pub models: Models,
    /// Limits; the models are put in when the worker is made.
    pub access: ModelAccess,
    /// Lengths and fallback.
    pub summarizer: SummarizerSettings,
    /// How much it does at once, and how it stops.
    pub worker: WorkerSettings,
}

impl Writing {
    /// With the default settings.
    pub fn by(model: &ScriptedModel) -> Self {
        let (providers, models) = model.settings(&[WRITER]);
        Self::of(providers, models)
    }

    /// With these providers and models, of which one is called [`WRITER`].
    pub fn of(providers: Providers, models: Models) -> Self {
        let (access, summarizer, worker) = Default::default();
        Self { providers, models, access, summarizer, worker }
    }
}

impl House {
    /// A worker of this house whose summaries a model writes.
    pub fn worker_writing(&self, writing: &Writing) -> Worker {
        let models = CallableModels::new(&writing.providers, &writing.models).expect("these settings can work");
        let model = Arc::clone(models.find(WRITER).expect("it is among them"));
        let access = Arc::new(ModelAccess { models, ..writing.access.clone() });
        let (settings, summarizer) = (writing.worker.clone(), writing.summarizer.clone());
        Worker::new(self.store.clone(), Arc::new(Extractive), settings, summarizer).with_model(access, model)
    }
}
