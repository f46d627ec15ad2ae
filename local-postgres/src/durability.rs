//! Which data a crash of the machine may lose.

use std::fmt;

/// The data that a crash of the machine may lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// No committed data. fsync, synchronous_commit and full_page_writes keep PostgreSQL's
    /// defaults.
    #[default]
    Durable,
    /// Everything: fsync, synchronous_commit and full_page_writes are off. For test clusters. A
    /// crash of PostgreSQL alone loses the commits of the last moments, less than a second.
    /// Passwords are hashed with little work.
    ///
    /// The folder of a test cluster is removed once all processes that started or adopted the
    /// cluster, and their parents (the test runner), have ended. The next start of a test cluster
    /// in the same parent folder removes it.
    Test,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Durable => "durable",
            Durability::Test => "test",
        })
    }
}
