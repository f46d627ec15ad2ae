//! Workers whose summaries a scripted model writes.

use std::sync::Arc;

use anneal_core::model::Models;
use anneal_llm::{
    Extractive, ModelAccess,
    provider::{CallableModels, Providers},
};
use anneal_worker::{SummarizerSettings, Worker, WorkerSettings};

use crate::{SUMMARY_MODEL, ScriptedModel, TestApp};

/// The settings of a worker whose summaries a model writes. A test changes the fields that matter
/// to it.
#[derive(Debug, Clone)]
pub struct ModelWorkerSettings {
    /// The providers.
    pub providers: Providers,
    /// The models, [`SUMMARY_MODEL`] among them.
    pub models: Models,
    /// Call limits. The models are filled in when the worker is created.
    pub access: ModelAccess,
    /// Lengths of summaries, and the fallback.
    pub summarizer: SummarizerSettings,
    /// Concurrency and shutdown settings.
    pub worker: WorkerSettings,
}

impl ModelWorkerSettings {
    /// Default settings with one provider, `scripted`, and one model, [`SUMMARY_MODEL`], whose
    /// window has 8,192 tokens.
    pub fn for_model(model: &ScriptedModel) -> Self {
        let (providers, models) = model.settings(&[SUMMARY_MODEL]);
        Self::of(providers, models)
    }

    /// Default settings for these providers and models. One of the models must be called
    /// [`SUMMARY_MODEL`].
    pub fn of(providers: Providers, models: Models) -> Self {
        let (access, summarizer, worker) = Default::default();
        Self {
            providers,
            models,
            access,
            summarizer,
            worker,
        }
    }
}

impl TestApp {
    /// Creates a worker of this app whose summaries the model writes.
    pub fn worker_with_model(&self, settings: &ModelWorkerSettings) -> Worker {
        let models = CallableModels::new(&settings.providers, &settings.models)
            .expect("the settings are valid");
        let model = Arc::clone(models.find(SUMMARY_MODEL).expect("it is in the list"));
        let access = Arc::new(ModelAccess {
            models,
            ..settings.access.clone()
        });
        let (worker, summarizer) = (settings.worker.clone(), settings.summarizer.clone());
        let worker = Worker::new(
            self.store.clone(),
            Arc::new(Extractive),
            worker,
            summarizer.clone(),
        );
        worker.replace_summarizer(summarizer, access, Some(model));
        worker
    }
}
