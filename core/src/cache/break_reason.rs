//! Why the provider's cache is useless from a place of a context on.

/// Why the beginning of a context differs from the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakReason {
    /// There was no previous version.
    First,
    /// A checkpoint moved the boundary.
    Checkpoint,
    /// A separator was inserted or deleted.
    Separator,
    /// The system prompt differs.
    SystemPrompt,
    /// Cool large messages were swapped for their summaries.
    Swap,
    /// The budget, pressure or the content limit clipped or dropped other messages than before.
    Budget,
    /// A late tool result replaced the synthetic result that was sent before, or no other reason
    /// explains the difference (as after a change of the format).
    Repair,
    /// The last call is older than the lifetime of the provider's cache. Boundary and system prompt
    /// are the same; the tail may have changed too.
    Idle,
    /// Messages were withdrawn or restored.
    Withdrawal,
    /// The content of a message was replaced.
    Edit,
    /// The content of messages was erased.
    Erasure,
    /// The context is for another model.
    Model,
    /// Other tools are declared.
    Tools,
    /// Options that are part of the cache's key have changed.
    Options,
}
