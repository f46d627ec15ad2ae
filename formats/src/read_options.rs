//! How a file is read.

/// How a file is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether an item that cannot be read ends the reading.
    pub strict: Strictness,
    /// Which branches of a branching session are read.
    pub branches: Branches,
    /// The name for conversations that the file gives no name; usually the file stem.
    pub name: String,
}

/// Whether an item that cannot be read ends the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strictness {
    /// The reader remarks on the item and goes on.
    #[default]
    Lenient,
    /// The reading ends with an error.
    Strict,
}

/// Which branches of a session are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Branches {
    /// The branch of the last entry.
    #[default]
    Active,
    /// All branches, each as a conversation of its own; the active one is last.
    All,
}
