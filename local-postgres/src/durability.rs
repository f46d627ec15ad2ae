use std::fmt;

/// The data that a crash of the machine may lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// No committed data. fsync, synchronous_commit and full_page_writes keep PostgreSQL's
    /// defaults.
    #[default]
    Durable,
    /// Everything: these three settings are off. For test clusters. A crash of PostgreSQL alone
    /// loses the commits of the last moments, less than a second.
    ///
    /// A test folder is removed by the next start of a test folder beside it, once all processes
    /// that started or adopted it, and their parents (the test runner), have ended.
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
